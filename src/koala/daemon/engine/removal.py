"""A job taken out of a store that no daemon uses, so that the next start works and knows nothing of it."""

from __future__ import annotations

import logging

import msgspec

from koala.core import split_snapshot
from koala.core.state.removal import without_job
from koala.daemon.engine.recovery import GRID, read_snapshot, recover
from koala.model.grid import Grid
from koala.model.request import JobId
from koala.policies import Catalogue
from koala.store import SnapshotParts, Store, StoreError

_log = logging.getLogger(__name__)


class JobRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``held`` are components whose end was not on record: token, site, processors.

    ``replayed``: whether the events after the last snapshot led to a state from which the job was taken. Where they
    did not, those of the job are gone and the next start replays the others.
    """

    job: JobId
    was_there: bool
    held: tuple[tuple[str, str, int], ...] = ()
    replayed: bool = True


def remove_job(store: Store, job: JobId, catalogue: Catalogue | None = None) -> JobRemoval:
    """Take the job out of rows, journal, outbox and snapshot, in one transaction. Raises ``StoreError``, and
    ``SnapshotError`` where the snapshot itself is damaged."""
    is_there, held = _rows(store, job)
    replayed = _bring_up_to_date(store, Catalogue.builtin() if catalogue is None else catalogue)
    snapshot, seq = store.snapshot()
    if snapshot is None:
        store.remove_job(job, None, seq, ())
        return JobRemoval(job=job, was_there=is_there, held=held, replayed=replayed)
    parts = _split(store, snapshot)
    removed = without_job(parts.header, parts.sections, job)
    was_there = is_there or removed.was_there
    if was_there:
        rest = SnapshotParts(header=removed.header, sections=removed.sections)
        store.remove_job(job, rest, seq, removed.transfers)
    return JobRemoval(job=job, was_there=was_there, held=held, replayed=replayed)


def _rows(store: Store, job: JobId) -> tuple[bool, tuple[tuple[str, str, int], ...]]:
    """Whether there are rows of the job, and what it may hold; damaged ones are there, and tell nothing."""
    try:
        components = store.components(job)
        held = tuple((each.token, each.site, each.processors) for each in components if each.ended_at is None)
        return store.job(job) is not None or bool(components), held
    except StoreError as error:
        _log.warning("rows of job %d cannot be read: %s", job, error)
        return True, ()


def _bring_up_to_date(store: Store, catalogue: Catalogue) -> bool:
    """Have a snapshot that knows of every event, on the grid of the last one; False where the record does not lead
    there."""
    try:
        found = store.recover()
        if found.snapshot is not None and (found.entries or found.snapshot.whole):
            recover(store, _grid(store, found.snapshot), catalogue)
    except Exception as error:
        _log.warning("the events after the last snapshot cannot be replayed: %s", error)
        return False
    return True


def _grid(store: Store, snapshot: SnapshotParts) -> Grid:
    if snapshot.whole:
        return read_snapshot(store, snapshot)[0]
    (text,) = snapshot.sections[GRID]
    return msgspec.json.decode(text, type=Grid)


def _split(store: Store, snapshot: SnapshotParts) -> SnapshotParts:
    """In parts, also where a former Koala stored it whole."""
    if not snapshot.whole:
        return snapshot
    grid, core = read_snapshot(store, snapshot)
    header, sections = split_snapshot(core)
    return SnapshotParts(header=header, sections={GRID: [msgspec.json.encode(grid)], **sections})
