"""Back to where the record ends: a snapshot of the core, the events after it, and the rows of all that lives.

The core is deterministic, so that the same events lead to the same state, provided that it sees the same grid: a
snapshot keeps the grid that was in force, and a changed grid takes effect only after the replay. All of this blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from koala import files
from koala.core import Scheduler, Snapshot, decode_snapshot, encode_snapshot
from koala.core.lifecycle import ENDED, JobState
from koala.daemon.engine.outbox import Outbox
from koala.daemon.live_rows import LiveRows
from koala.model.grid import Grid
from koala.model.messages import AnyCommand, AnyEvent, WakeAt
from koala.model.request import FileName, JobId
from koala.policies import Catalogue
from koala.store import Store
from koala.store.rows import ComponentRow, JournalRow, StoredJob, TransferRow

# Rows are read from the store so many at a time.
PAGE_ROWS = 1_000

LIVE_STATES = frozenset(str(state) for state in JobState if state not in ENDED)


class RecoveryError(ValueError):
    """The record does not lead back to a state to go on from; says what to do."""

    def for_user(self) -> str:
        """What is wrong and what to do."""
        return str(self)


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the core, and the grid that it was taken on."""

    grid: Grid
    core: msgspec.Raw


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
    wakes: tuple[float, ...] = ()  # the ticks that the core has been promised


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
    data = msgspec.json.encode(StoredSnapshot(grid=grid, core=msgspec.Raw(encode_snapshot(snapshot))))
    store.save_snapshot(data, seq)


def _decode(data: bytes) -> StoredSnapshot:
    try:
        return msgspec.json.decode(data, type=StoredSnapshot)
    except msgspec.MsgspecError as error:
        raise RecoveryError(f"the snapshot makes no sense ({error}); restore the database from a backup") from None


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
        stored = _decode(found.snapshot)
        known = stored.grid
        scheduler = Scheduler.from_snapshot(known, catalogue, decode_snapshot(bytes(stored.core)))
    wakes = _replay(scheduler, found.entries)
    if known is not None and known != grid:
        scheduler = Scheduler.from_snapshot(grid, catalogue, scheduler.snapshot())
    if known != grid or found.entries:
        store_snapshot(store, grid, scheduler.snapshot(), found.last_seq)
    return Recovery(
        scheduler=scheduler,
        rows=_live_rows(store, scheduler),
        outbox=_outbox(found.outbox, scheduler),
        entries={entry.name: entry for entry in store.all_files()},
        last_seq=found.last_seq,
        last_job=found.last_job,
        last_at=found.last_at,
        wakes=tuple(at for at in wakes if at > found.last_at),
    )


def _replay(scheduler: Scheduler, entries: Iterable[JournalRow]) -> list[float]:
    """Have the core handle the events again; the times of all ticks that it asked for meanwhile.

    What was commanded is not performed again as such, but the core relies on every tick that it asks for.
    """
    wakes: list[float] = []
    for entry in entries:
        event: AnyEvent = entry.body  # type: ignore[assignment]  # what the store gives for replay are events
        try:
            commands = scheduler.handle(event)
        except Exception as error:
            raise RecoveryError(
                f"entry {entry.seq} of the journal ({entry.what}) cannot be handled again: {error!r}; start the "
                "Koala that wrote it, with the policies that it had, or restore the database from a backup"
            ) from error
        wakes += [command.at for command in commands if isinstance(command, WakeAt)]
    return wakes


def _outbox(entries: Iterable[JournalRow], scheduler: Scheduler) -> Outbox:
    outbox = Outbox()
    for entry in entries:
        command: AnyCommand = entry.body  # type: ignore[assignment]  # what is in the outbox are commands
        outbox.add(entry.seq, scheduler.completed(command))
    return outbox


def _live_rows(store: Store, scheduler: Scheduler) -> LiveRows:
    ledger = scheduler.ledger
    jobs = _live_jobs(store)
    if {row.id for row in jobs} != set(ledger.jobs):
        ours, theirs = set(ledger.jobs), {row.id for row in jobs}
        differing = ", ".join(map(str, sorted(ours ^ theirs)[:5]))
        raise RecoveryError(
            f"the journal leads to another state than the one on record (jobs {differing}): "
            "a policy was changed while jobs were under way; put the old one back and stop the daemon cleanly first"
        )
    components: dict[str, ComponentRow] = {}
    transfers: dict[str, TransferRow] = {}
    for job in ledger.jobs.values():
        if job.starts:
            components.update((row.token, row) for row in store.components(job.id))
        if job.transfers:
            transfers.update((row.id, row) for row in store.transfers(job.id) if row.id in ledger.transfers.by_id)
    for token in ledger.claims:
        if token not in components:
            row = store.component(token)
            if row is not None:
                components[token] = row
    return LiveRows(jobs, components.values(), transfers.values())


def _live_jobs(store: Store) -> list[StoredJob]:
    found: list[StoredJob] = []
    before: JobId | None = None
    while True:
        page = store.jobs(owner=None, states=LIVE_STATES, before=before, limit=PAGE_ROWS)
        found += page
        if len(page) < PAGE_ROWS:
            return found[::-1]
        before = page[-1].id
