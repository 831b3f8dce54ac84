"""Restores the state at the end of the record: the scheduler, the commands to be performed, the rows of all live
jobs. Nothing is decided again: decisions are on record. All of this blocks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from koala import files
from koala.core import DamagedRecord, Kind, KnownJob, Record, Scheduler
from koala.core.life.component import ComponentClaim
from koala.core.life.job import Job
from koala.core.life.states import ENDED, JobState
from koala.core.records.record import OF_JOBS, job_of_key
from koala.core.state.ledger import Ledger
from koala.daemon.engine.outbox import Outbox
from koala.daemon.live_rows import LiveRows
from koala.model.grid import Grid
from koala.model.messages import AnyCommand, CancelTransfer, JobSubmitted, Outcome, StartTransfer, Token
from koala.model.request import FileName, JobId
from koala.policies import Catalogue
from koala.store import Store
from koala.store.rows import Batch, ComponentRow, JournalRow, LiveRecord, RecordRow, StoredJob

_log = logging.getLogger(__name__)

# The record of the grid under which the others were written.
GRID = "grid"

LIVE_STATES = frozenset(str(state) for state in JobState if state not in ENDED)
replace = msgspec.structs.replace


class RecoveryError(ValueError):
    """The record does not lead to a usable state; the message says what to do."""

    def for_user(self) -> str:
        """Return what is wrong and what to do."""
        return str(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovery:
    """Everything that the engine goes on from."""

    scheduler: Scheduler
    rows: LiveRows
    outbox: Outbox
    entries: dict[FileName, files.CatalogueEntry]
    last_seq: int
    last_job: JobId
    last_at: float


def nothing_yet(grid: Grid, catalogue: Catalogue) -> Recovery:
    """Return the state before anything is on record."""
    return Recovery(
        scheduler=Scheduler(grid, catalogue, recorded=True),
        rows=LiveRows(),
        outbox=Outbox(),
        entries={},
        last_seq=0,
        last_job=0,
        last_at=0.0,
    )


def live_grid(grid: Grid) -> Grid:
    """Return the grid for the live core: the files come from the replica catalogue in the store."""
    return msgspec.structs.replace(grid, files=())


def recover(store: Store, grid: Grid, catalogue: Catalogue) -> Recovery:
    """Return the state at the end of the record, for the grid that is in force from now on.

    When it returns, the store has the records of this grid. Records that are unreadable, or that contradict others,
    are set aside with their jobs. Raises ``RecordsError`` if the grid lacks a site that is still needed,
    ``StoreError`` if the store cannot be used, and ``RecoveryError`` if the record makes no sense.
    """
    grid = live_grid(grid)
    found = store.recover()
    rows = store.live_record(LIVE_STATES)
    records = [row for row in found.records if row.kind != GRID]
    if records:
        known = _known_jobs(store, records, rows.jobs)
        scheduler = Scheduler.from_records(grid, catalogue, _of_kinds(records), known)
    else:
        scheduler = Scheduler(grid, catalogue, recorded=True)
    entries = {entry.name: entry for entry in store.all_files()}
    for entry in entries.values():
        scheduler.keep_file(entry.name, entry.size_bytes, [replica.site for replica in entry.replicas])
    of_grid = RecordRow(GRID, "", msgspec.json.encode(grid))
    outbox = found.outbox
    if not records or scheduler.damaged or of_grid not in found.records:
        _complete(store, scheduler)
        before = {row.key for row in records if row.kind == Kind.CLAIM}
        changed = _what_changed(store, scheduler, rows.jobs, before, found.last_at)
        broken = _problems(scheduler.damaged)
        outbox = tuple([entry for entry in outbox if _is_due(entry, scheduler.ledger, broken)])
        dropped = {entry.seq for entry in found.outbox} - {entry.seq for entry in outbox}
        batch = replace(changed, settled=tuple(sorted(dropped)))
        aside = _set_aside(scheduler.damaged, records)
        store.rewrite_records([of_grid, *scheduler.records()], aside, batch, found.last_at)
        fresh = {row.id: row for row in changed.jobs}
        ended = {row.token: row for row in changed.components}
        rows = replace(
            rows,
            jobs=[row for job in rows.jobs if (row := fresh.get(job.id, job)).state in LIVE_STATES],
            components=[ended.get(row.token, row) for row in rows.components],
        )
    return Recovery(
        scheduler=scheduler,
        rows=_live_rows(store, scheduler.ledger, rows),
        outbox=_outbox(outbox),
        entries=entries,
        last_seq=found.last_seq,
        last_job=max(found.last_job, scheduler.last_job),
        last_at=found.last_at,
    )


def _set_aside(damaged: Sequence[DamagedRecord], records: Iterable[RecordRow]) -> list[tuple[str, str, str]]:
    """Return the records to keep for an operator: those that are damaged, and all others of their jobs."""
    problems, found = _problems(damaged), {(str(each.kind), each.key): each.problem for each in damaged}
    for row in records:
        number = job_of_key(row.key) if row.kind in OF_JOBS else None
        if number in problems:
            found.setdefault((row.kind, row.key), problems[number])
    return [(*name, problem) for name, problem in found.items()]


def _is_due(entry: JournalRow, ledger: Ledger, broken: Collection[JobId]) -> bool:
    """Return True if a command is still to be performed. Commands for jobs that were set aside are not, but files
    that others need are brought, and files that nobody needs are removed."""
    if isinstance(entry.body, StartTransfer):
        return entry.body.transfer in ledger.transfers.by_id
    return isinstance(entry.body, CancelTransfer) or entry.job not in broken


def _of_kinds(records: Iterable[RecordRow]) -> list[Record]:
    """Return the records with the core's kinds."""
    try:
        return [Record(Kind(row.kind), row.key, row.body) for row in records]
    except ValueError as error:
        raise RecoveryError(
            f"this version of Koala does not know a kind of record ({error}); start the version that wrote it"
        ) from None


def _known_jobs(store: Store, records: Iterable[RecordRow], live: Sequence[StoredJob]) -> Mapping[JobId, KnownJob]:
    """Return what is on record of jobs outside the scheduler's records: of live jobs, and of ended jobs that a site
    still holds something of."""
    rows = {row.id: row for row in live}
    of_jobs = {number for row in records if row.kind == Kind.JOB and (number := job_of_key(row.key)) is not None}
    for number in sorted(of_jobs - rows.keys()):
        ended = store.job(number)
        if ended is not None:
            rows[number] = ended
    requests = store.requests_of(rows)
    return {
        number: KnownJob(
            request=requests[number],
            owner=row.owner,
            submitted_at=row.submitted_at,
            state=row.state,
            array=row.array or 0,
            index=row.array_index,
        )
        for number, row in rows.items()
        if number in requests
    }


def _complete(store: Store, scheduler: Scheduler) -> None:
    """Complete the jobs that were set aside from their other rows. Each counts as a guest's, with the fewest rights,
    unless its submission says otherwise; no start is repeated, and no element is made again."""
    for number in _problems(scheduler.damaged):
        job = scheduler.ledger.jobs.get(number)
        if job is None:
            continue
        submission = store.journal(job=job.array or number, limit=1)
        if submission and isinstance(submission[0].body, JobSubmitted):
            job.guest = submission[0].body.guest
        starts = [row.token.rpartition(".")[2] for row in store.components(number)]
        job.starts = max([job.starts, *map(int, filter(str.isdecimal, starts))])
        if job.spec is not None:
            _find_elements(store, job)


def _find_elements(store: Store, array: Job) -> None:
    """Count the elements of an array that are on record as made."""
    elements, rows = array.elements, store.jobs(array=array.id, limit=array.elements.spec.size)
    elements.made = max((row.id for row in rows), default=array.id) - array.id
    elements.started = sum(row.runs > 0 for row in rows)
    array.runs = int(elements.started > 0)
    for row in rows:
        if row.state in (JobState.FAILED, JobState.CANCELLED):
            elements.note_not_done(row.id - array.id - 1, row.state)


def _what_changed(
    store: Store, scheduler: Scheduler, jobs: Iterable[StoredJob], before: Collection[Token], at: float
) -> Batch:
    """Return the rows that the load changed: of jobs that were set aside, and of components that the scheduler no
    longer has. Whatever a site still has of those is ended when it is found there."""
    ledger, problems = scheduler.ledger, _problems(scheduler.damaged)
    changed = []
    for row in jobs:
        if row.id in ledger.jobs and row.id not in problems:
            continue
        reason = f"its record is damaged: {problems.get(row.id, 'it is missing')}; `koala admin records` shows it"
        state = JobState.QUARANTINED if row.id in ledger.jobs else JobState.FAILED
        ended_at = None if state is JobState.QUARANTINED else at
        changed.append(replace(row, state=str(state), since=at, reason=reason, places=(), ended_at=ended_at))
        _log.error("job %s is set aside: %s", row.id, reason)
    for each in scheduler.damaged:
        _log.error("the record %s %s is set aside: %s", each.kind, each.key, each.problem)
    known = {row.id: row for row in jobs}
    lost = store.components_by_token(sorted(set(before) - ledger.claims.keys()))
    ended = []
    for component in lost:
        if component.ended_at is None:
            _log.warning("component %s at %s is not the scheduler's any more", component.token, component.site)
            left = "its job was set aside" if component.job in problems else "its site was lost and has left the grid"
            ended.append(replace(component, ended_at=at, outcome=str(Outcome.ABSENT), reason=left))
    gone = {row.token for row in ended}
    return Batch(
        jobs=tuple(changed),
        components=tuple(ended),
        before=(*(known[row.id] for row in changed), *(row for row in lost if row.token in gone)),
    )


def _problems(damaged: Iterable[DamagedRecord]) -> dict[JobId, str]:
    """Return by job what is wrong with its records."""
    return {each.job: each.problem for each in reversed([*damaged]) if each.job is not None}


def _outbox(entries: Iterable[JournalRow]) -> Outbox:
    outbox = Outbox()
    for entry in entries:
        command: AnyCommand = entry.body  # type: ignore[assignment]  # what is in the outbox are commands
        outbox.add(entry.seq, command)
    return outbox


def _live_rows(store: Store, ledger: Ledger, found: LiveRecord) -> LiveRows:
    """Return the rows of all live jobs, in a constant number of queries. Missing rows of components are made
    again."""
    components = {row.token: row for row in found.components}
    outlived = [token for token in ledger.claims if token not in components]
    components.update((row.token, row) for row in store.components_by_token(outlived))
    parts = Counter(claim.job_id for claim in ledger.claims.values())
    missing = [claim for token, claim in ledger.claims.items() if token not in components]
    made = {claim.token: _row_of(claim, ledger, parts[claim.job_id]) for claim in missing}
    if made:
        _log.error("rows of components were missing from the database, and are made again: %s", ", ".join(made))
        store.record(Batch(components=tuple(made.values())))
    components |= made
    transfers = [row for row in found.transfers if row.id in ledger.transfers.by_id]
    return LiveRows(found.jobs, components.values(), transfers)


def _row_of(claim: ComponentClaim, ledger: Ledger, parts: int) -> ComponentRow:
    """Make the missing row of a component from the scheduler's state."""
    job = claim.job
    return ComponentRow(
        token=claim.token,
        job=claim.job_id,
        run=job.runs + (job.started_at is None),
        part=claim.component,
        parts=parts,
        site=ledger.names[claim.site],
        processors=claim.processors,
        claimed_at=min(claim.placed_at, ledger.now),
        keep_for_s=job.request.keep_for_s,
    )
