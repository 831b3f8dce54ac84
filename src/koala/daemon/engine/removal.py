"""Removes a job from a store that no daemon uses, so that the next daemon starts without it.

The events after the last snapshot are replayed first; if the replay raises, without the events of the jobs that it
raises on. Other jobs may then be placed elsewhere, or at another time, than the record says. The record is right:
such a job goes back to its queue, and its components are ended first.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cached_property
from typing import TypeAlias

import msgspec

from koala.core import HandlingError, Scheduler, split_snapshot
from koala.core.holding import is_met
from koala.core.lifecycle import IN_CLAIMING_QUEUE, JobState
from koala.core.state.job import Job
from koala.core.state.snapshots.removal import (
    ElementsOnRecord,
    HeldComponent,
    RemovedJob,
    with_elements_counted,
    with_job_put_back,
    without_job,
)
from koala.daemon.engine.recovery import GRID, LIVE_STATES, read_snapshot
from koala.model.dependency import Dependency
from koala.model.facts import ElementMade, JobHeld, TasksSpawned, TurnEntry
from koala.model.messages import (
    AnyEvent,
    CancelAsked,
    ChangeAsked,
    EndedJob,
    HoldAsked,
    JobCounts,
    JobOutcome,
    JobSubmitted,
    RequeueAsked,
    RestartAsked,
    SpawnAsked,
    UnholdAsked,
)
from koala.model.request import JobId, Priority, Request
from koala.model.task_graph import SpawnedTasks
from koala.policies import Catalogue
from koala.store import SnapshotParts, Store, StoredJob, StoreError
from koala.store.rows import JournalRow, LiveRecord, Recovered

_log = logging.getLogger(__name__)

# So many jobs may be left out of a replay, one after the other, until it works; then it is given up.
LEFT_OUT_OF_REPLAY_MAX = 20
# Rows of jobs that are put back, each with the transfers that were for it alone.
_PutBackRows: TypeAlias = list[tuple[StoredJob, tuple[str, ...]]]
# A job in one of these states goes back to its queue where the scheduler and the record do not agree about it.
_PUT_BACK = frozenset(
    {
        JobState.HELD,
        JobState.WAITING,
        *IN_CLAIMING_QUEUE,
        JobState.STARTING,
        JobState.RUNNING,
        JobState.COLLECTING,
        JobState.UNWINDING,
        JobState.UNFOLDING,
    }
)
# So many lines of the journal are read at a time.
_LINES_AT_ONCE = 10_000


class JobRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``held`` are components whose end was not on record: token, site, processors.

    ``replayed``: whether the events after the last snapshot led to a state from which the job was taken. Where they
    did not, ``put_back`` are the other jobs that had to go back to their queues, as far as that could be found out.
    """

    job: JobId
    was_there: bool
    held: tuple[tuple[str, str, int], ...] = ()
    replayed: bool = True
    put_back: tuple[JobId, ...] = ()


def remove_job(store: Store, job: JobId) -> JobRemoval:
    """Take the job out of rows, journal, outbox and snapshot, in one transaction. Raises ``StoreError``, and
    ``SnapshotError`` where the snapshot itself is damaged."""
    is_there, held = _rows(store, job)
    found = store.recover()
    if found.snapshot is None:
        store.remove_job(job, None, found.snapshot_seq, ())
        return JobRemoval(job=job, was_there=is_there, held=held)
    put_back: _PutBackRows = []
    if not found.entries:
        parts, seq, replayed = found.snapshot, found.snapshot_seq, True
    else:
        try:
            parts, put_back, replayed = _Replay(store, job, found).run()
            seq = found.last_seq
        except Exception as error:
            # Rows of others are damaged, too: they are removed next, and whoever is left is looked at then.
            _log.warning("the events after the last snapshot cannot be replayed: %s", error)
            parts, seq, replayed = found.snapshot, found.snapshot_seq, False
    removed = without_job(parts.header, parts.sections, job)
    was_there = is_there or removed.was_there
    if was_there:
        rest = SnapshotParts(header=removed.header, sections=removed.sections)
        store.remove_job(job, rest, seq, removed.transfers, put_back)
    numbers = tuple([row.id for row, _ in put_back])
    return JobRemoval(job=job, was_there=was_there, held=held, replayed=replayed, put_back=numbers)


def _rows(store: Store, job: JobId) -> tuple[bool, tuple[tuple[str, str, int], ...]]:
    """Whether there are rows of the job, and what it may hold; damaged ones are there, and tell nothing."""
    try:
        components = store.components(job)
        held = tuple((each.token, each.site, each.processors) for each in components if each.ended_at is None)
        return store.job(job) is not None or bool(components), held
    except StoreError as error:
        _log.warning("rows of job %d cannot be read: %s", job, error)
        return True, ()


class _Replay:
    """The events after the last snapshot, on the grid of that snapshot, and what the record says of the outcome."""

    def __init__(self, store: Store, job: JobId, found: Recovered) -> None:
        self._store = store
        self._job = job
        self._found = found

    def run(self) -> tuple[SnapshotParts, _PutBackRows, bool]:
        """A snapshot that knows of every event, the rows of the jobs that it puts back with the transfers that were
        for each alone, and whether everything could be replayed."""
        try:
            scheduler = self._start(without=None)
            _handle_all(scheduler, self._found.entries)
            replayed = True
        except Exception as error:
            _log.warning("the events after the last snapshot cannot be replayed: %s", error)
            scheduler, replayed = self._without_those_that_raise(), False
        grid = [msgspec.json.encode(scheduler.grid)]
        header, sections = split_snapshot(scheduler.snapshot())
        rows = self._store.live_record(LIVE_STATES)
        disagreed = self._disagreed(scheduler, rows)
        put_back: _PutBackRows = []
        theirs = {row.id: row for row in rows.jobs}
        for number in disagreed:
            row = theirs.get(number)
            if row is None:  # it has ended, says the record
                removed: RemovedJob = without_job(header, sections, number)
                header, sections = removed.header, removed.sections
                continue
            held = [
                HeldComponent(token=each.token, component=each.part, site=each.site, processors=each.processors)
                for each in rows.components
                if each.job == number and each.ended_at is None
            ]
            kept_back = self._kept_back(row)
            made = self._job_to_put_back(row, rows)
            back = with_job_put_back(header, sections, made, held, self._found.last_at, kept_back, row.places)
            header, sections = back.header, back.sections
            row = msgspec.structs.replace(
                row, state=str(back.state), since=self._found.last_at, started_at=None, places=made.places,
                reason=_reason(self._job),
            )  # fmt: skip
            put_back.append((row, back.transfers))
        if not replayed:
            arrays = self._elements_on_record(theirs.values())
            sections = with_elements_counted(sections, arrays, self._found.last_at)
            header = _with_numbers_used_up(header, self._found.last_job, self._store.transfers_made())
        return SnapshotParts(header=header, sections={GRID: grid, **sections}), put_back, replayed

    def _start(self, *, without: JobId | None) -> Scheduler:
        assert self._found.snapshot is not None
        parts = self._found.snapshot
        if without is not None:
            removed = without_job(parts.header, parts.sections, without)
            sections = {GRID: parts.sections[GRID], **removed.sections}
            parts = SnapshotParts(header=removed.header, sections=sections)
        grid, snapshot = read_snapshot(self._store, parts)
        return Scheduler.from_snapshot(grid, Catalogue.of(grid.policy_files), snapshot)

    @cached_property
    def _origin(self) -> Scheduler:
        """As it was at the last snapshot, without the job."""
        return self._start(without=self._job)

    def _without_those_that_raise(self) -> Scheduler:
        """What the events lead to without those of the job, and of others that they cannot be handled with."""
        left_out = {self._job}
        while len(left_out) <= LEFT_OUT_OF_REPLAY_MAX:
            scheduler = self._start(without=self._job)
            entries = [entry for entry in self._found.entries if entry.job not in left_out]
            try:
                _handle_all(scheduler, entries)
                return scheduler
            except _UnhandledError as error:
                if not error.jobs - left_out:
                    break
                left_out |= error.jobs
        return self._start(without=self._job)  # no event at all

    def _disagreed(self, scheduler: Scheduler, rows: LiveRecord) -> list[JobId]:
        """The jobs of which the record says something else than the scheduler, in order."""
        ledger = scheduler.ledger
        theirs = {row.id: row for row in rows.jobs if row.id != self._job}
        there: dict[JobId, set[tuple[str, str]]] = {}
        for each in rows.components:
            if each.ended_at is None:
                there.setdefault(each.job, set()).add((each.token, each.site))
        ours: dict[JobId, set[tuple[str, str]]] = {}
        for token, claim in ledger.claims.items():
            ours.setdefault(claim.job_id, set()).add((token, ledger.names[claim.site]))
        known = {(row.id, row.file, row.target) for row in rows.transfers}
        disagreed = [number for number in ledger.jobs if number not in theirs and number != self._job]
        for number, row in theirs.items():
            job = ledger.jobs.get(number)
            if job is None:
                disagreed.append(number)
                continue
            same = str(job.state) == row.state and ours.get(number, set()) == there.get(number, set())
            if same and job.state is JobState.HELD and job.spec is None:
                same = _what_keeps_back(job) == self._kept_back(row)
            placed = job.placement is None or (job.places, job.runs, job.started_at) == (
                row.places, row.runs, row.started_at
            )  # fmt: skip
            transfers = () if job.placement is None else job.placement.transfers.values()
            files = all((each.id, each.key[0], ledger.names[each.key[2]]) in known for each in transfers)
            if not (same and placed and files) and JobState(row.state) in _PUT_BACK:
                disagreed.append(number)
        return sorted(disagreed)

    def _kept_back(self, row: StoredJob) -> JobHeld:
        """What keeps the job back, says the record; what was not told since the last snapshot is as it was there."""
        before = self._origin.ledger.jobs.get(row.id)
        if row.state == JobState.HELD:
            told = self._told.held.get(row.id)
            if told is None:
                told = JobHeld(job=row.id, held=True) if before is None else _what_keeps_back(before)
            elif told.more:  # not all were named: those are left that have not come, by what is on record
                told = msgspec.structs.replace(told, waits_for=self._open(row, before), more=0)
            return told
        held = before is not None and before.held
        for entry in self._found.entries:
            body = entry.body
            if isinstance(body, HoldAsked | RestartAsked | RequeueAsked) and body.job == row.id:
                held |= isinstance(body, HoldAsked) or body.hold
            elif isinstance(body, UnholdAsked) and body.job == row.id:
                held = False
        # One that has places, or is in line, is not held; one that is on its way back may be.
        return JobHeld(job=row.id, held=held and row.state in (JobState.UNWINDING, JobState.QUARANTINED))

    def _open(self, row: StoredJob, before: Job | None) -> tuple[Dependency, ...]:
        """What the job waits for that has not come, by the rows of those others."""
        if before is not None:
            asked = _what_keeps_back(before).waits_for
        else:
            asked = self._store.requests_of([row.id])[row.id].after
        left = []
        for each in asked:
            other = None if each.job == self._job else self._store.job(each.job)
            outcome = JobOutcome(other.state) if other is not None and other.ended_at is not None else None
            became = EndedJob(job=each.job, outcome=outcome, started=other is not None and other.runs > 0)
            if not is_met(each.condition, became):
                left.append(each)
        return tuple(left)

    @cached_property
    def _told(self) -> _ToldSince:
        """What was told of jobs since the last snapshot."""
        jobs = self._origin.ledger.jobs.values()
        told = _ToldSince({job.id: job.changed_walltime_s for job in jobs}, {job.id: job.spawned for job in jobs})
        after = self._found.snapshot_seq
        while lines := self._store.journal(after=after, limit=_LINES_AT_ONCE):
            for line in lines:
                told.take(line.body)
            after = lines[-1].seq
        return told

    def _elements_on_record(self, rows: Iterable[StoredJob]) -> dict[JobId, ElementsOnRecord]:
        """Of each array that lives, what became of its elements."""
        found = {}
        for row in rows:
            if row.elements is None or row.id == self._job:
                continue
            size = row.elements.size
            before = self._origin.ledger.jobs.get(row.id)
            not_done = {} if before is None else dict(before.elements.not_done)
            not_done |= {
                number - row.id - 1: str(JobState.CANCELLED)
                for number in self._told.cancelled
                if row.id < number <= row.id + size
            }
            made, started = (0, 0) if before is None else (before.elements.made, 0)
            until: JobId | None = None
            while elements := self._store.jobs(array=row.id, before=until, limit=_LINES_AT_ONCE):
                until = elements[-1].id
                made = max(made, elements[0].id - row.id)
                for each in elements:
                    started += each.runs > 0
                    not_done.pop(each.id - row.id - 1, None)
                    if each.ended_at is not None and each.state != JobState.DONE:
                        not_done[each.id - row.id - 1] = each.state
            if row.id < self._job <= row.id + size:  # whoever was removed is one that was cancelled
                not_done[self._job - row.id - 1] = str(JobState.CANCELLED)
                made = max(made, self._job - row.id)
            found[row.id] = ElementsOnRecord(made=made, started=started, not_done=not_done)
        return found

    def _job_to_put_back(self, row: StoredJob, rows: LiveRecord) -> Job:
        """The job as it was in the last snapshot, or as it was submitted, with the counts on record and no place."""
        requests = self._store.requests_of([row.id])
        request: Request = requests[row.id]
        job = self._origin.ledger.jobs.get(row.id)
        if job is None:
            fraction = self._origin.ledger.parameters.claim_fraction
            job = Job.submitted(row.id, request, row.submitted_at, fraction)
            job.submitter, job.guest = self._submitter(row)
            job.array, job.index = row.array or 0, row.array_index
            job.unfolds = None if job.array else job.unfolds
            array = self._origin.ledger.jobs.get(job.array)
            if array is not None and array.arrival >= 0:
                job.arrival = array.arrival + row.id - array.id - 1
                job.high = array.high
        job.changed_walltime_s = self._told.walltime_s.get(row.id)
        job.spawned = self._told.spawned.get(row.id, [])
        priority = Priority(row.priority)
        job.changed_priority = None if priority is request.priority else priority
        if job.high is not (priority is Priority.HIGH):
            job.arrival = -1  # its number in one line means nothing in the other
        job.state = JobState.WAITING
        job.position, job.exhausted_at_scan = -1, None
        job.plan = job.placement = None
        job.avoiding, job.ahead = (), False
        job.waiting_since = self._found.last_at
        for name in JobCounts.__struct_fields__:
            setattr(job, name, getattr(row, name))
        tokens = [each.token for each in rows.components if each.job == row.id]
        job.starts = max([job.starts, *(int(token.rpartition(".")[2]) for token in tokens)])
        job.tell(self._found.last_at, "returned", _reason(self._job))
        return job

    def _submitter(self, row: StoredJob) -> tuple[str, bool]:
        for entry in self._found.entries:
            if isinstance(entry.body, JobSubmitted) and entry.body.job == (row.array or row.id):
                return entry.body.owner, entry.body.guest
        array = self._origin.ledger.jobs.get(row.array or 0)
        if array is not None:
            return array.submitter, array.guest
        return row.owner, True  # the least that it may do


class _ToldSince:
    """What the journal says of jobs: what keeps them back, how long they may run by now, which tasks they have got,
    who was cancelled."""

    def __init__(self, walltime_s: dict[JobId, float | None], spawned: dict[JobId, list[SpawnedTasks]]) -> None:
        self.spawned = spawned
        self._asked: dict[tuple[JobId, tuple[str, ...]], SpawnedTasks] = {}
        self.held: dict[JobId, JobHeld] = {}
        self.walltime_s = walltime_s
        self.cancelled: list[JobId] = []

    def take(self, body: AnyEvent | TurnEntry) -> None:
        """One line of it, in their order."""
        match body:
            case JobHeld():
                self.held[body.job] = body
            case ChangeAsked(walltime_s=float(walltime_s)):
                self.walltime_s[body.job] = walltime_s
            case SpawnAsked():
                self._asked[body.job, body.tasks.names] = body.tasks
            case TasksSpawned():
                spawned = self.spawned.get(body.job, [])
                asked = self._asked.pop((body.job, body.tasks), None)
                if asked is None:  # what nobody asked for is no answer: they never began
                    self.spawned[body.job] = [each for each in spawned if each.names != body.tasks]
                elif not body.reason and asked not in spawned:
                    self.spawned[body.job] = [*spawned, asked]
            case ElementMade():
                self.walltime_s[body.job] = self.walltime_s.get(body.array)
            case CancelAsked():
                self.cancelled.append(body.job)


def _what_keeps_back(job: Job) -> JobHeld:
    waits_for = tuple(Dependency(job=other, condition=condition) for condition, other in job.waits_for)
    return JobHeld(job=job.id, held=job.held, held_by=job.held_by, waits_for=waits_for, begins_at=job.begins_at)


def _reason(job: JobId) -> str:
    return f"what was on record of it hung together with job {job}, which an operator removed"


class _UnhandledError(Exception):
    """An event raised; ``jobs`` are those that it may be due to."""

    def __init__(self, jobs: set[JobId], error: Exception) -> None:
        super().__init__(str(error))
        self.jobs = jobs


def _handle_all(scheduler: Scheduler, entries: list[JournalRow] | tuple[JournalRow, ...]) -> None:
    for entry in entries:
        try:
            scheduler.handle(entry.body)  # type: ignore[arg-type]  # what the store gives for replay are events
        except Exception as error:
            about = set(error.jobs) if isinstance(error, HandlingError) else set()
            jobs = about or ({entry.job} if entry.job is not None else set())
            raise _UnhandledError(jobs, error) from error


def _with_numbers_used_up(header: bytes, last_job: JobId, transfers: int) -> bytes:
    """Numbers of jobs and transfers that were ever used are not used again, whatever was left out."""
    told = msgspec.json.decode(header)
    told["last_job"] = max(told["last_job"], last_job)
    told["transfers_started"] = max(told["transfers_started"], transfers)
    return msgspec.json.encode(told)
