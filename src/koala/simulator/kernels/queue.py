"""The waiting jobs in the order of submission, for kernels: which is the next that is small enough?

Plain functions that run as Python and compile with numba unchanged. Places form blocks with the least size in each,
and blocks form rows with theirs, so that a search skips a long queue in which nothing fits in big steps. A job that
leaves makes a hole; when most places are holes, the queue closes ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from numpy import int32, int64
    from numpy.typing import NDArray

BLOCK_SHIFT = 6
BLOCK = 1 << BLOCK_SHIFT
ROW_SHIFT = 2 * BLOCK_SHIFT
ROW = 1 << ROW_SHIFT
# This many more holes than jobs are allowed, so that a short queue does not close ranks for every job.
SLACK = 16
# The size at a place that a job has left: larger than any job.
HOLE = 2**31 - 1
# The elements of ``bounds``: the first place with a job, the place after the last, and how many jobs lie between.
FIRST, END, JOBS = 0, 1, 2


class WaitingJobs(NamedTuple):
    """Sizes and jobs by place, at most the least size by block and by row, and the bounds of the used part.

    The least size of a row that is not full yet is unknown: it is 0.
    """

    size: NDArray[int32]
    job: NDArray[int32]
    least: NDArray[int32]
    row_least: NDArray[int32]
    bounds: NDArray[int64]


def nobody_waiting(jobs: int) -> WaitingJobs:
    """Return an empty queue with room for this many jobs. Memory is allocated only as the queue grows."""
    import numpy

    return WaitingJobs(
        numpy.empty(jobs, numpy.int32),
        numpy.empty(jobs, numpy.int32),
        numpy.empty((jobs >> BLOCK_SHIFT) + 1, numpy.int32),
        numpy.empty((jobs >> ROW_SHIFT) + 1, numpy.int32),
        numpy.zeros(3, numpy.int64),
    )


def join(waiting: WaitingJobs, job: int, size: int) -> int:
    """Append the job to the queue and return its place."""
    place: int = waiting.bounds[END]
    waiting.size[place] = size
    waiting.job[place] = job
    block = place >> BLOCK_SHIFT
    if place & (BLOCK - 1) == 0 or size < waiting.least[block]:
        waiting.least[block] = size
    if place & (ROW - 1) == 0:
        waiting.row_least[place >> ROW_SHIFT] = 0
    waiting.bounds[END] = place + 1
    waiting.bounds[JOBS] += 1
    return place


def next_fitting(waiting: WaitingJobs, place: int, size: int) -> int:
    """Return the first place, from this one on, with a job of at most this size; beyond the end of the queue if there
    is none.

    A futile search of a whole block updates the least size there.
    """
    first, end = waiting.bounds[FIRST], waiting.bounds[END]
    while place < end:
        block = place >> BLOCK_SHIFT
        begin = block << BLOCK_SHIFT
        block_end = min(begin + BLOCK, end)
        if waiting.least[block] <= size:
            whole = place <= max(begin, first)
            least = HOLE
            while place < block_end:
                found = waiting.size[place]
                if found <= size:
                    return place
                least = min(least, found)
                place += 1
            if whole:
                waiting.least[block] = least
        place = block_end
        if place & (ROW - 1) == 0:
            note_row(waiting, (place >> ROW_SHIFT) - 1)
            while place < end and waiting.row_least[place >> ROW_SHIFT] > size:
                place += ROW
    return place


def note_row(waiting: WaitingJobs, row: int) -> None:
    """Set the least size of a full row from its blocks."""
    begin = row << (ROW_SHIFT - BLOCK_SHIFT)
    least = waiting.least[begin]
    for block in range(begin + 1, begin + (ROW >> BLOCK_SHIFT)):
        least = min(least, waiting.least[block])
    waiting.row_least[row] = least


def leave(waiting: WaitingJobs, place: int) -> None:
    """Remove the job at this place from the queue. Places stay the same until ``close_ranks``."""
    waiting.size[place] = HOLE
    waiting.bounds[JOBS] -= 1


def close_ranks(waiting: WaitingJobs) -> None:
    """Update the bounds, and move jobs together if most places are holes, which changes places."""
    first, end, jobs = waiting.bounds[FIRST], waiting.bounds[END], waiting.bounds[JOBS]
    if jobs == 0:
        waiting.bounds[FIRST] = 0
        waiting.bounds[END] = 0
        return
    while waiting.size[first] == HOLE:
        first += 1
    waiting.bounds[FIRST] = first
    if end < 2 * (jobs + SLACK):
        return
    waiting.bounds[FIRST] = 0
    waiting.bounds[END] = 0
    waiting.bounds[JOBS] = 0
    for place in range(first, end):
        if waiting.size[place] != HOLE:
            join(waiting, waiting.job[place], waiting.size[place])
