"""Takes a job out of a store that no daemon uses: its rows and records go, and what others have of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from koala.core import JobState, Kind
from koala.core.records.record import ELEMENTS_IN_BLOCK, OF_JOBS
from koala.model.request import JobId
from koala.store import Store, StoreError

T = TypeVar("T")

_OF_JOBS = (Kind.JOB, Kind.PLACES, Kind.RUN)


class JobRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it. ``held`` are components whose end was not on record: token, site, processors."""

    job: JobId
    was_there: bool
    held: tuple[tuple[str, str, int], ...] = ()


def remove_job(store: Store, job: JobId) -> JobRemoval:
    """Take the job out, in one transaction. Raises ``StoreError``.

    Whoever waits for the job finds that it was cancelled, elements of an array are cancelled after it, and transfers
    that it alone needed are not made: a start works all that out of the records that are left.
    """
    row, started = _read(store.job, job), _read(store.components, job) or []
    held = tuple((each.token, each.site, each.processors) for each in started if each.ended_at is None)
    bodies = {(each.kind, each.key): each.body for each in store.records()}
    own = bodies.get((Kind.JOB, str(job)))
    there = row is not None or bool(started) or any((kind, str(job)) in bodies for kind in _OF_JOBS)
    changed: list[tuple[str, str, bytes | None]] = []
    array = row.array if row is not None else _array_of(own)
    if array and (Kind.JOB, str(array)) in bodies:
        changed = _without_element(bodies, array, job - array - 1)
    store.remove_job(job, changed, [str(kind) for kind in OF_JOBS])
    return JobRemoval(job=job, was_there=there, held=held)


def _read(ask: Callable[[JobId], T], job: JobId) -> T | None:
    """Ask the store for rows of the job; None for rows that cannot be read, which are to go like the others."""
    try:
        return ask(job)
    except StoreError:
        return None


def _array_of(body: bytes | None) -> JobId:
    """The array of a job, by its record; 0 where it is of none, or where that cannot be read."""
    try:
        return int(json.loads(body or b"{}").get("array", 0))
    except (AttributeError, TypeError, ValueError):
        return 0


def _without_element(
    bodies: Mapping[tuple[str, str], bytes | None], array: JobId, position: int
) -> list[tuple[str, str, bytes | None]]:
    """The records of an array of which an element is taken out: it counts as cancelled. A record that cannot be read
    stays as it is: the array is set aside at the next start."""
    name, block = (Kind.JOB, str(array)), (Kind.ELEMENTS, f"{array}.{position // ELEMENTS_IN_BLOCK}")
    try:
        fields: dict[str, Any] = json.loads(bodies[name] or b"")
        not_done: dict[str, str] = json.loads(bodies.get(block) or b"{}")
        elements = fields.setdefault("unfolds", {})
        elements["made"] = max(elements.get("made", 0), position + 1)
        not_done.setdefault(str(position), str(JobState.CANCELLED))
    except (AttributeError, TypeError, ValueError):
        return []
    return [(*name, _encoded(fields)), (*block, _encoded(not_done))]


def _encoded(fields: object) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
