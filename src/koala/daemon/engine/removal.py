"""Removes a job from a store that no daemon uses: its rows and records, and the references of others to it."""

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
    """The result of a removal. ``held`` are components whose end was not on record: token, site, processors."""

    job: JobId
    was_there: bool
    held: tuple[tuple[str, str, int], ...] = ()


def remove_job(store: Store, job: JobId) -> JobRemoval:
    """Remove the job, in one transaction. Raises ``StoreError``.

    Jobs that wait for it find that it was cancelled, elements of an array are cancelled after it, and transfers that
    only it needed are not made: a start derives all that from the remaining records.
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
    """Query rows of the job; None for unreadable rows, which are removed like the others."""
    try:
        return ask(job)
    except StoreError:
        return None


def _array_of(body: bytes | None) -> JobId:
    """Return the array of a job, by its record; 0 if it is in none, or if the record is unreadable."""
    try:
        return int(json.loads(body or b"{}").get("array", 0))
    except (AttributeError, TypeError, ValueError):
        return 0


def _without_element(
    bodies: Mapping[tuple[str, str], bytes | None], array: JobId, position: int
) -> list[tuple[str, str, bytes | None]]:
    """Return the records of an array without one element, which counts as cancelled. An unreadable record stays as it
    is: the array is set aside at the next start."""
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
