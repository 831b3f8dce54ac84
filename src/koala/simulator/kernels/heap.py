"""The running jobs by their ends: a binary heap in two arrays, for kernels.

Plain functions that run as Python and compile with numba unchanged. The order of jobs that end at the same moment is
undefined: a kernel removes all of them before anything else.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpy import float64, int32, int64
    from numpy.typing import NDArray


class EndHeap(NamedTuple):
    """``held[0]`` jobs with their ends; both arrays have room for one more than ever run at once."""

    end_s: NDArray[float64]
    job: NDArray[int32]
    held: NDArray[int64]


def ends_of(jobs_at_once: int) -> EndHeap:
    """Return an empty heap with room for this many jobs."""
    import numpy

    room = jobs_at_once + 1
    return EndHeap(numpy.empty(room, numpy.float64), numpy.empty(room, numpy.int32), numpy.zeros(1, numpy.int64))


def add_end(ends: EndHeap, end_s: float, job: int) -> None:
    """Add a job that runs until the given end."""
    place = ends.held[0]
    ends.held[0] = place + 1
    while place > 0:
        parent = (place - 1) >> 1
        if ends.end_s[parent] <= end_s:
            break
        ends.end_s[place] = ends.end_s[parent]
        ends.job[place] = ends.job[parent]
        place = parent
    ends.end_s[place] = end_s
    ends.job[place] = job


def take_next_end(ends: EndHeap) -> int:
    """Remove a job that ends first, at ``end_s[0]``, and return it. The heap must not be empty."""
    gone: int = ends.job[0]
    held = ends.held[0] - 1
    ends.held[0] = held
    end_s, job = ends.end_s[held], ends.job[held]
    # Later than every end, so that a last child without a sibling needs no test of its own.
    ends.end_s[held] = inf
    place, child = 0, 1
    while child < held:
        if ends.end_s[child + 1] < ends.end_s[child]:
            child += 1
        if ends.end_s[child] >= end_s:
            break
        ends.end_s[place] = ends.end_s[child]
        ends.job[place] = ends.job[child]
        place = child
        child = 2 * place + 1
    ends.end_s[place] = end_s
    ends.job[place] = job
    return gone
