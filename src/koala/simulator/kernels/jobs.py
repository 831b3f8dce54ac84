"""What the plain kernels of every discipline do with a job: start it, and let it end.

Plain functions that run as Python and compile with numba unchanged. Which job starts when is for the disciplines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from koala.simulator.kernels.clusters import Clusters, give, take
from koala.simulator.kernels.heap import EndHeap, add_end, take_next_end

if TYPE_CHECKING:
    from numpy import float64, int32
    from numpy.typing import NDArray


class PlainJobs(NamedTuple):
    """Jobs in the order of their submission, and what becomes of them: when each starts, and on which cluster."""

    submit_s: NDArray[float64]
    run_s: NDArray[float64]
    size: NDArray[int32]
    start_s: NDArray[float64]
    cluster: NDArray[int32]


def comes_first(jobs: PlainJobs, arrived: int, ends: EndHeap) -> bool:
    """Whether the next thing to happen is the submission of a job: what ends at the same moment goes first."""
    if arrived >= len(jobs.submit_s):
        return False
    return bool(ends.held[0] == 0 or jobs.submit_s[arrived] < ends.end_s[0])


def start(jobs: PlainJobs, job: int, now_s: float, clusters: Clusters, ends: EndHeap) -> None:
    """Start a job that fits."""
    jobs.cluster[job] = take(clusters, jobs.size[job])
    jobs.start_s[job] = now_s
    add_end(ends, now_s + jobs.run_s[job], job)


def end_all(jobs: PlainJobs, clusters: Clusters, ends: EndHeap) -> float:
    """All jobs with the next end have ended; returns when. There must be one."""
    now_s: float = ends.end_s[0]
    while ends.held[0] > 0 and ends.end_s[0] == now_s:
        job = take_next_end(ends)
        give(clusters, jobs.cluster[job], jobs.size[job])
    return now_s
