"""The disciplines of a simulated site's own scheduler: FCFS, first fit, or EASY backfilling.

Each discipline selects from the queue the jobs that start now, in order, by the free processors.
``koala.simulator.world.site`` holds the processors and defines jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

from koala.model.grid import LocalScheduler

# The expected time of a job without a walltime, like a batch system's default limit.
WALLTIME_DEFAULT_S = 86_400.0


class LocalJob:
    """Anything that can wait in a site's queue. Its scheduler relies on ``expected_end_at``."""

    __slots__ = ("expected_end_at", "processors", "walltime_s")

    def __init__(self, processors: int, walltime_s: float | None) -> None:
        self.processors = processors
        self.walltime_s = WALLTIME_DEFAULT_S if walltime_s is None else walltime_s
        self.expected_end_at = 0.0


Discipline: TypeAlias = Callable[[Sequence[LocalJob], int, Iterable[LocalJob], float], list[LocalJob]]


def first_come_first_served(
    queue: Sequence[LocalJob], idle: int, _running: Iterable[LocalJob], _now: float
) -> list[LocalJob]:
    """Return jobs from the head of the queue, as long as they fit; the first that does not fit stops all behind
    it."""
    begin: list[LocalJob] = []
    for job in queue:
        if job.processors > idle:
            break
        idle -= job.processors
        begin.append(job)
    return begin


def first_fit(queue: Sequence[LocalJob], idle: int, _running: Iterable[LocalJob], _now: float) -> list[LocalJob]:
    """Return every job that fits, in the order of the queue."""
    begin: list[LocalJob] = []
    for job in queue:
        if job.processors <= idle:
            idle -= job.processors
            begin.append(job)
    return begin


def easy_backfilling(queue: Sequence[LocalJob], idle: int, running: Iterable[LocalJob], now: float) -> list[LocalJob]:
    """Return jobs first come, first served, and behind a head that must wait those that cannot delay it.

    The head gets a reservation at the earliest time at which enough running jobs should have ended; another job
    starts if it should end before that, or if it fits beside the head then.
    """
    begin = first_come_first_served(queue, idle, running, now)
    waiting = queue[len(begin) :]
    if len(waiting) < 2:
        return begin
    idle -= sum(job.processors for job in begin)
    ends = [(max(now, job.expected_end_at), job.processors) for job in running]
    ends += [(now + job.walltime_s, job.processors) for job in begin]
    reserved_at, spare = _reservation(waiting[0].processors, idle, sorted(ends))
    for job in waiting[1:]:
        if job.processors > idle:
            continue
        if now + job.walltime_s > reserved_at:
            if job.processors > spare:
                continue
            spare -= job.processors
        idle -= job.processors
        begin.append(job)
    return begin


def _reservation(wanted: int, idle: int, ends: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Return when ``wanted`` processors should be free, and how many more will be free then."""
    reserved_at = float("inf")
    for end_at, processors in ends:
        if end_at > reserved_at:
            break
        idle += processors
        if idle >= wanted:
            reserved_at = end_at
    return reserved_at, max(0, idle - wanted)


DISCIPLINES: dict[LocalScheduler, Discipline] = {
    LocalScheduler.FCFS: first_come_first_served,
    LocalScheduler.FIRST_FIT: first_fit,
    LocalScheduler.EASY: easy_backfilling,
}
