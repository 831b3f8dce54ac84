"""Starting and ending jobs in the plain kernels of every discipline.

Plain functions that run as Python and compile with numba unchanged. The disciplines decide which job starts when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from koala.simulator.kernels.clusters import Clusters, give, take
from koala.simulator.kernels.heap import EndHeap, add_end, take_next_end

if TYPE_CHECKING:
    from numpy import float64, int32
    from numpy.typing import NDArray


class PlainJobs(NamedTuple):
    """Jobs in the order of their submission, with their results: when each starts, and on which cluster."""

    submit_s: NDArray[float64]
    run_s: NDArray[float64]
    size: NDArray[int32]
    start_s: NDArray[float64]
    cluster: NDArray[int32]


def comes_first(jobs: PlainJobs, arrived: int, ends: EndHeap) -> bool:
    """Return True if the next event is the submission of a job: ends at the same moment come first."""
    if arrived >= len(jobs.submit_s):
        return False
    return bool(ends.held[0] == 0 or jobs.submit_s[arrived] < ends.end_s[0])


def start(jobs: PlainJobs, job: int, now_s: float, clusters: Clusters, ends: EndHeap) -> None:
    """Start a job that fits."""
    jobs.cluster[job] = take(clusters, jobs.size[job])
    jobs.start_s[job] = now_s
    add_end(ends, now_s + jobs.run_s[job], job)


def end_all(jobs: PlainJobs, clusters: Clusters, ends: EndHeap) -> float:
    """End all jobs with the next end, and return the time. There must be one."""
    now_s: float = ends.end_s[0]
    while ends.held[0] > 0 and ends.end_s[0] == now_s:
        job = take_next_end(ends)
        give(clusters, jobs.cluster[job], jobs.size[job])
    return now_s
