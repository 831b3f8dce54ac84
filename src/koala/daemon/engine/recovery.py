"""Back to where the record ends: a snapshot of the core, the events after it, and the rows of all that lives.

The core is deterministic, so that the same events lead to the same state, provided that it sees the same grid: a
snapshot keeps the grid that was in force, and a changed grid takes effect only after the replay. All of this blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import msgspec

from koala import files
from koala.core import Scheduler, Snapshot, job_numbers, join_snapshot, split_snapshot
from koala.core.lifecycle import ENDED, JobState
from koala.daemon.engine.outbox import Outbox
from koala.daemon.live_rows import LiveRows
from koala.model.grid import Grid
from koala.model.messages import AnyCommand, AnyEvent, Outcome, Token
from koala.model.request import FileName, JobId
from koala.policies import Catalogue
from koala.store import SnapshotParts, Store
from koala.store.rows import Batch, JournalRow, StoredJob

_log = logging.getLogger(__name__)

# The section of a stored snapshot that holds the grid.
GRID = "grid"
# How many jobs are named in an error.
NAMED_IN_ERROR = 5

LIVE_STATES = frozenset(str(state) for state in JobState if state not in ENDED)


class RecoveryError(ValueError):
    """The record does not lead back to a state to go on from; says what to do."""

    def for_user(self) -> str:
        """What is wrong and what to do."""
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
    """The state before anything is on record."""
    return Recovery(
        scheduler=Scheduler(grid, catalogue),
        rows=LiveRows(),
        outbox=Outbox(),
        entries={},
        last_seq=0,
        last_job=0,
        last_at=0.0,
    )


def live_grid(grid: Grid) -> Grid:
    """The grid as the live core sees it: which files there are is for the replica catalogue in the store to say."""
    return msgspec.structs.replace(grid, files=())


def store_snapshot(store: Store, grid: Grid, snapshot: Snapshot, seq: int) -> None:
    """Keep the snapshot as of entry ``seq``, and the grid that it was taken on."""
    header, sections = split_snapshot(snapshot)
    store.save_snapshot(SnapshotParts(header=header, sections={GRID: [msgspec.json.encode(grid)], **sections}), seq)


def read_snapshot(store: Store, stored: SnapshotParts) -> tuple[Grid, Snapshot]:
    """The grid that a snapshot was taken on, and the snapshot with the requests of its jobs."""
    try:
        (text,) = stored.sections[GRID]
        grid = msgspec.json.decode(text, type=Grid)
    except (msgspec.MsgspecError, LookupError, ValueError) as error:
        if hasattr(error, "for_user"):
            raise
        raise RecoveryError(f"the snapshot makes no sense ({error}); restore the database from a backup") from None
    numbers = job_numbers(stored.sections)
    requests = store.requests_of(numbers)
    missing = [number for number in numbers if number not in requests]
    if missing:
        what = "it" if store.job(missing[0]) is None else "what it asks for"
        raise RecoveryError(_rows_are_missing(what, missing))
    return grid, join_snapshot(stored.header, stored.sections, [requests[number] for number in numbers])


def recover(store: Store, grid: Grid, catalogue: Catalogue) -> Recovery:
    """The state at the end of the record, for the grid that is in force from now on.

    When it returns, the store holds a snapshot with this grid from which no event need be replayed. Raises
    ``SnapshotError`` when the grid lacks a site that is still needed, ``StoreError`` when the store cannot be
    used, and ``RecoveryError`` when the record makes no sense.
    """
    found = store.recover()
    grid = live_grid(grid)
    if found.snapshot is None:
        scheduler = Scheduler(grid, catalogue)
        known: Grid | None = None
    else:
        known, snapshot = read_snapshot(store, found.snapshot)
        # What happened since is decided again as it was then, by the policies of then.
        old = catalogue if known.policy_files == grid.policy_files else Catalogue.of(known.policy_files)
        scheduler = Scheduler.from_snapshot(known, old, snapshot)
    _replay(scheduler, found.entries)
    if known is not None and known != grid:
        before = scheduler.ledger.claims
        scheduler = Scheduler.from_snapshot(grid, catalogue, scheduler.snapshot())
        _record_what_left(store, before.keys() - scheduler.ledger.claims.keys(), found.last_at)
    if known != grid or found.entries:
        store_snapshot(store, grid, scheduler.snapshot(), found.last_seq)
    return Recovery(
        scheduler=scheduler,
        rows=_live_rows(store, scheduler),
        outbox=_outbox(found.outbox),
        entries={entry.name: entry for entry in store.all_files()},
        last_seq=found.last_seq,
        last_job=max(found.last_job, scheduler.last_job),
        last_at=found.last_at,
    )


def _record_what_left(store: Store, tokens: Collection[Token], at: float) -> None:
    """Components that were fenced at a lost site have left the grid with it: they hold nothing any more that counts.
    Should the site come back, what it has of us and nobody knows is ended first."""
    rows = store.components_by_token(sorted(tokens))
    for row in rows:
        _log.warning("%s has left the grid, and component %s, which was fenced there, with it", row.site, row.token)
    reason = "its site was lost and has left the grid"
    ended = [msgspec.structs.replace(row, ended_at=at, outcome=str(Outcome.ABSENT), reason=reason) for row in rows]
    if ended:
        store.record(Batch(components=tuple(ended), before=tuple(rows)))


def _replay(scheduler: Scheduler, entries: Iterable[JournalRow]) -> None:
    """Have the core handle the events again. What it commands was commanded before, and is not performed again as
    such."""
    for entry in entries:
        event: AnyEvent = entry.body  # type: ignore[assignment]  # what the store gives for replay are events
        try:
            scheduler.handle(event)
        except Exception as error:
            raise RecoveryError(
                f"entry {entry.seq} of the journal ({entry.what}) cannot be handled again: {error!r}; start the "
                "Koala that wrote it, with the policies that it had, or restore the database from a backup"
            ) from error


def _outbox(entries: Iterable[JournalRow]) -> Outbox:
    outbox = Outbox()
    for entry in entries:
        command: AnyCommand = entry.body  # type: ignore[assignment]  # what is in the outbox are commands
        outbox.add(entry.seq, command)
    return outbox


def _live_rows(store: Store, scheduler: Scheduler) -> LiveRows:
    """The rows of all that lives, in a few questions however many jobs there are."""
    ledger = scheduler.ledger
    found = store.live_record(LIVE_STATES)
    _check_jobs(store, set(ledger.jobs), found.jobs)
    components = {row.token: row for row in found.components}
    outlived = [token for token in ledger.claims if token not in components]
    components.update((row.token, row) for row in store.components_by_token(outlived))
    missing = {claim.job_id: None for token, claim in ledger.claims.items() if token not in components}
    if missing:
        raise RecoveryError(_rows_are_missing("a component of it", list(missing)))
    transfers = [row for row in found.transfers if row.id in ledger.transfers.by_id]
    return LiveRows(found.jobs, components.values(), transfers)


def _check_jobs(store: Store, ours: set[JobId], rows: list[StoredJob]) -> None:
    """The core and the record must speak of the same live jobs."""
    theirs = {row.id for row in rows}
    missing = [number for number in sorted(ours - theirs) if store.job(number) is None]
    if missing:
        raise RecoveryError(_rows_are_missing("it", missing))
    if ours != theirs:
        raise RecoveryError(
            f"the journal leads to another state than the one on record ({_named(sorted(ours ^ theirs))}): a policy "
            "was changed while jobs were under way, or rows of the journal are missing; put the old policy back and "
            "stop the daemon cleanly first, or restore the database from a backup"
        )


def _rows_are_missing(what: str, numbers: list[JobId]) -> str:
    remove = " ".join(map(str, numbers[:NAMED_IN_ERROR]))
    return (
        f"rows are missing from the database: {_named(numbers)} is known to the scheduler, and there is no row of "
        f"{what}; restore the database from a backup, or give the job up with `koala admin remove {remove}`"
    )


def _named(numbers: list[JobId]) -> str:
    more = len(numbers) - NAMED_IN_ERROR
    shown = ", ".join(map(str, numbers[:NAMED_IN_ERROR])) + (f" and {more} more" if more > 0 else "")
    return f"job {shown}" if len(numbers) == 1 else f"jobs {shown}"
