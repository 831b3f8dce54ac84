"""Derives rows and journal entries from an event and its turn.

Called right after the core has handled the event, while the core's state shows exactly its results. Nothing here
decides or writes anything: rows go into a draft.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from koala.core import Scheduler
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.standing import element_counts
from koala.daemon.live_rows import Draft
from koala.model.facts import (
    ElementMade,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobRequeued,
    JobUnheld,
    TasksSpawned,
    Turn,
    TurnEntry,
)
from koala.model.job_array import element_name
from koala.model.messages import (
    AbortComponent,
    AnyEvent,
    CancelTransfer,
    ComponentEnded,
    ComponentReady,
    JobQuarantined,
    JobSubmitted,
    ReleaseBarrier,
    StartComponent,
    StartTransfer,
    TransferEnded,
)
from koala.model.request import JobId, SiteName
from koala.store.rows import ComponentRow, JournalRow, StoredJob, TransferRow
from koala.words.explanations import in_words
from koala.words.standing import kept_back

replace = msgspec.structs.replace

# A row copies all fields that the core's job has by the same name, except the numbers of the job and its array.
COPIED_FIELDS = tuple(
    name for name in StoredJob.__struct_fields__ if hasattr(Job, name) and name not in ("id", "array", "elements")
)
_WITHOUT_PLACES = (JobState.WAITING, JobState.HELD)


class Submitter(msgspec.Struct, frozen=True):
    """The owner of a submitted job; a ``guest`` is a user other than the daemon's own."""

    owner: str
    client_token: str | None
    guest: bool = False


class Projector:
    """Derives the rows of one batch, event by event."""

    def __init__(self, scheduler: Scheduler, draft: Draft, default_policy: str) -> None:
        self._scheduler = scheduler
        self._draft = draft
        self._default_policy = default_policy
        self.about: tuple[JobId, ...] = ()  # the jobs being projected: an error is about them

    def project(self, event: AnyEvent, turn: Turn, submitter: Submitter | None) -> None:
        """Update the draft for one handled event."""
        touched: dict[JobId, None] = {}
        reasons: dict[JobId, str] = {}
        self.about = ()
        self._project_event(event, touched)
        for entry in turn.entries:
            self._project_entry(entry, event, touched, reasons)
        if isinstance(event, JobQuarantined):
            reasons[event.job] = event.reason
        elif isinstance(event, JobSubmitted) and event.defect:
            reasons[event.job] = event.defect
        for job_id in self._with_arrays(touched):
            self.about = (job_id,)
            self._project_job(job_id, event, reasons.get(job_id), submitter)

    # -------------------------------------------------------------------------- components and transfers

    def _project_event(self, event: AnyEvent, touched: dict[JobId, None]) -> None:
        draft = self._draft
        if isinstance(event, TransferEnded):
            transfer = draft.transfer(event.transfer)
            if transfer is not None and transfer.ended_at is None:
                fault = None if event.fault is None else str(event.fault)
                draft.transfers[transfer.id] = replace(
                    transfer, ended_at=event.at, ok=event.ok, fault=fault, reason=event.reason
                )
                if not event.ok:
                    draft.transfers_over.add(transfer.id)
                touched.update(dict.fromkeys(transfer.jobs))
            return
        token: str | None = getattr(event, "token", None)
        if token is None:
            job: JobId | None = getattr(event, "job", None)
            if job is not None:
                touched[job] = None
            return
        row = draft.component(token)
        if row is None or row.ended_at is not None:
            return
        touched[row.job] = None
        if isinstance(event, ComponentReady) and row.ready_at is None:
            draft.components[token] = replace(row, ready_at=event.at)
        elif isinstance(event, ComponentEnded):
            draft.components[token] = replace(
                row,
                ended_at=event.at,
                outcome=str(event.outcome),
                exit_code=event.exit_code,
                fault=None if event.fault is None else str(event.fault),
                reason=event.reason,
                stderr_line=event.stderr_line,
                processor_s=event.processor_s,
                peak_memory_bytes=event.peak_memory_bytes,
            )

    def _project_entry(
        self, entry: TurnEntry, event: AnyEvent, touched: dict[JobId, None], reasons: dict[JobId, str]
    ) -> None:
        draft = self._draft
        match entry:
            case StartComponent():
                touched[entry.job] = None
                draft.components[entry.token] = self._claimed(entry, event.at)
            case ReleaseBarrier():
                touched[entry.job] = None
                for token in entry.tokens:
                    row = draft.component(token)
                    if row is not None and row.released_at is None:
                        draft.components[token] = replace(row, released_at=event.at)
            case AbortComponent():
                row = draft.component(entry.token)
                if row is not None:
                    touched[row.job] = None
            case StartTransfer():
                draft.transfers[entry.transfer] = self._transfer(entry, event.at)
            case CancelTransfer():
                transfer = draft.transfer(entry.transfer)
                draft.transfers_over.add(entry.transfer)
                if transfer is not None and transfer.ended_at is None:
                    draft.transfers[transfer.id] = replace(
                        transfer, ended_at=event.at, ok=False, reason="no job needs it any more"
                    )
            case ElementMade():
                touched[entry.array] = None
                touched[entry.job] = None
            case JobPlaced():
                touched[entry.job] = None
                reasons[entry.job] = ""
            case JobHeld() | JobUnheld() | TasksSpawned():
                touched[entry.job] = None
            case JobRequeued() | JobEnded():
                touched[entry.job] = None
                reasons[entry.job] = entry.reason

    def _with_arrays(self, touched: Iterable[JobId]) -> dict[JobId, None]:
        """Return the changed jobs, each element after its array, whose counts may change with it."""
        ledger = self._scheduler.ledger
        found: dict[JobId, None] = {}
        for job_id in touched:
            job = ledger.jobs.get(job_id) or ledger.ended.get(job_id)
            if job is not None and job.array in ledger.arrays:
                found[job.array] = None
            found[job_id] = None
        return found

    def _claimed(self, command: StartComponent, at: float) -> ComponentRow:
        job = self._job(command.job)
        return ComponentRow(
            token=command.token,
            job=command.job,
            run=command.run,
            part=command.part,
            parts=command.parts,
            site=command.site,
            processors=command.processors,
            claimed_at=at,
            keep_for_s=job.request.keep_for_s,
        )

    def _transfer(self, command: StartTransfer, at: float) -> TransferRow:
        transfer = self._scheduler.ledger.transfers.by_id.get(command.transfer)
        return TransferRow(
            id=command.transfer,
            file=command.file,
            source=command.source,
            target=command.target,
            size_bytes=command.size_bytes,
            chunk=command.chunk,
            started_at=at,
            jobs=() if transfer is None else tuple(transfer.jobs),
        )

    # ----------------------------------------------------------------------------------------------- jobs

    def _job(self, job_id: JobId) -> Job:
        ledger = self._scheduler.ledger
        job = ledger.jobs.get(job_id) or ledger.ended.get(job_id)
        assert job is not None, "the core remembers the jobs of its last turn"
        return job

    def _project_job(self, job_id: JobId, event: AnyEvent, reason: str | None, submitter: Submitter | None) -> None:
        ledger = self._scheduler.ledger
        before = self._draft.job(job_id)
        job = ledger.jobs.get(job_id) or ledger.ended.get(job_id)
        if job is not None and job.array:
            submitter = self._submitter_of(job.array)
        if job is None or (before is None and submitter is None):
            return  # ended long ago; only now has a site confirmed the end of a component
        self._join_transfers(job)
        changes: dict[str, Any] = {name: getattr(job, name) for name in COPIED_FIELDS}
        changes["state"] = str(job.state)
        # A waiting or held job has given back its places; an ended job still shows them.
        changes["places"] = job.places
        if before is not None and not job.places and job.state not in _WITHOUT_PLACES:
            changes["places"] = before.places
        if job.state is JobState.WAITING:
            changes["placement_tries"] += ledger.tries_in_queue(job)
        if reason is not None:
            changes["reason"] = reason
        if job.state is JobState.HELD:
            changes["reason"] = kept_back(job.held, job.waits_for, job.begins_at is not None, held_by=job.held_by)
        elif before is not None and before.state == JobState.HELD and reason is None:
            changes["reason"] = ""
        changes["array"] = job.array or None
        changes["array_index"] = job.index
        elements = changes["elements"] = element_counts(job)
        if elements is not None:
            # An array holds no processors itself: it has started when the first of its elements has.
            begun = event.at if job.elements.started else None
            changes["started_at"] = begun if before is None or before.started_at is None else before.started_at
        changes["processors"] = job.request.processors
        changes["priority"] = str(job.changed_priority or job.request.priority)
        if job.ended_at is not None:
            explained = self._scheduler.explain(job_id)
            assert explained is not None, "the core remembers the jobs of its last turn"
            changes["explanation"] = in_words(explained)
            changes["exit_code"] = self._exit_code(job, event)
            changes["stderr_line"] = _stderr_line(job, event)
        if before is None:
            assert submitter is not None, "a submission has a submitter"
            row = self._new_row(job, submitter, changes)
        else:
            if changes["state"] != before.state:
                changes["since"] = event.at
            row = replace(before, **changes)
        if row != before:
            self._draft.jobs[job_id] = row

    def _submitter_of(self, array: JobId) -> Submitter | None:
        """Return the submitter of an array, who also owns its elements."""
        row = self._draft.job(array)
        return None if row is None else Submitter(row.owner, None)

    def _new_row(self, job: Job, submitter: Submitter, changes: dict[str, Any]) -> StoredJob:
        request = job.request
        return StoredJob(
            id=job.id,
            owner=submitter.owner,
            name=request.name if job.index is None else element_name(request.name, job.index),
            job_type=str(request.job_type),
            kind=request.kind,
            policy=job.demand.policy.name if job.asks is not None else request.policy or self._default_policy,
            since=job.submitted_at,
            client_token=submitter.client_token,
            **changes,
        )

    def _join_transfers(self, job: Job) -> None:
        """Add the job to transfers that are under way and that it joins without a command."""
        for transfer in () if job.placement is None else job.placement.transfers.values():
            row = self._draft.transfer(transfer.id)
            if row is not None and job.id not in row.jobs:
                self._draft.transfers[row.id] = replace(row, jobs=(*row.jobs, job.id))

    def _exit_code(self, job: Job, event: AnyEvent) -> int | None:
        """Return the exit code of the first component when all are done, or of the component whose failure ended the
        job."""
        if job.state is JobState.DONE:
            ended = [row for row in self._draft.components_of(job.id) if row.part == 0 and row.run == job.runs]
            return ended[-1].exit_code if ended else None
        if job.state is JobState.FAILED and isinstance(event, ComponentEnded):
            return event.exit_code
        return None


def _stderr_line(job: Job, event: AnyEvent) -> str:
    """Return the last line of standard error of the component whose failure ended the job."""
    return event.stderr_line if job.state is JobState.FAILED and isinstance(event, ComponentEnded) else ""


# -------------------------------------------------------------------------------------------- the journal


class EntryWriter:
    """Numbers events and decisions for the journal, and finds their jobs."""

    def __init__(self, draft: Draft, seq: int) -> None:
        self._draft = draft
        self.seq = seq
        self.entries: list[JournalRow] = []

    def event(self, event: AnyEvent) -> int:
        """Put an event into the journal. Called after its rows are in the draft."""
        return self._add(event, event.at, kind="event")

    def of_turn(self, entry: TurnEntry, at: float) -> int:
        """Put a command or a fact into the journal."""
        return self._add(entry, at, kind="command")

    def _add(self, body: Any, at: float, *, kind: Any) -> int:
        self.seq += 1
        job, site = self._about(body)
        self.entries.append(
            JournalRow(seq=self.seq, at=at, kind=kind, what=type(body).__name__, job=job, site=site, body=body)
        )
        return self.seq

    def _about(self, body: Any) -> tuple[JobId | None, SiteName | None]:
        job: JobId | None = getattr(body, "job", None)
        site: SiteName | None = getattr(body, "site", None)
        token = getattr(body, "token", None)
        if token is not None:
            component = self._draft.component(token)
            if component is not None:
                job, site = component.job, component.site
        transfer_id = getattr(body, "transfer", None)
        if transfer_id is not None:
            transfer = self._draft.transfer(transfer_id)
            if transfer is not None:
                job, site = (transfer.jobs[0] if transfer.jobs else None), transfer.target
        return job, site
