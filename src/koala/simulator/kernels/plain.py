"""The plain kernel: whole jobs on many clusters, millions of them a second, compiled with numba.

One queue with one of three disciplines, each job on the cluster that worst fit chooses; no co-allocation, no links,
no files, no faults. EASY backfilling is in ``easy``; the parts of all kernels are in ``heap``, ``clusters`` and
``queue``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from koala.simulator.kernels.clusters import Clusters, clusters_of, most_idle
from koala.simulator.kernels.compiling import compiled
from koala.simulator.kernels.easy import easy, nothing_planned
from koala.simulator.kernels.heap import EndHeap, ends_of
from koala.simulator.kernels.jobs import PlainJobs, comes_first, end_all, start
from koala.simulator.kernels.queue import (
    END,
    FIRST,
    HOLE,
    JOBS,
    WaitingJobs,
    close_ranks,
    join,
    leave,
    next_fitting,
    nobody_waiting,
)

if TYPE_CHECKING:
    from numpy import bool_, float64, int32
    from numpy.typing import ArrayLike, NDArray

DISCIPLINES = ("fcfs", "first-fit", "easy")
PLAIN_JOBS_MAX = 2**31 - 1
PLAIN_PROCESSORS_MAX = HOLE - 1
# Arrays of any other kind would compile the kernel once more.
_LAYOUT: Final = ("C", "A", "W")


class PlainRun(NamedTuple):
    """When each job started, and the index of the cluster it ran on, in the order in which the jobs were given."""

    start_s: NDArray[float64]
    site: NDArray[int32]


class PlainKernelError(ValueError):
    """Impossible jobs or clusters: the message says which, and what to change."""

    def for_user(self) -> str:
        return str(self)


def run_plain(
    submit_s: ArrayLike,
    run_s: ArrayLike,
    size: ArrayLike,
    capacity: Sequence[int],
    discipline: str,
    requested_s: ArrayLike | None = None,
) -> PlainRun:
    """Run all jobs to their ends on clusters of these sizes, and return when and where each started.

    All jobs that end at a moment end first, and then the queue is scanned once; then the jobs that are submitted at
    that moment come one by one. ``fcfs`` lets nobody pass; ``first-fit`` starts every job that fits, in the order of
    submission; ``easy`` does so if it does not delay the head of the queue, by ``requested_s``, or by ``run_s``
    without it. Submissions must ascend, and each job must fit on some idle cluster: a ``PlainKernelError`` names the
    first that does not.
    """
    import numpy

    _check_platform(capacity, discipline)
    count = numpy.shape(size)[0]
    if count > PLAIN_JOBS_MAX:
        raise PlainKernelError(f"{count} jobs are more than {PLAIN_JOBS_MAX} (PLAIN_JOBS_MAX); run them in parts")
    jobs = _jobs(submit_s, run_s, size, max(capacity))
    if count:
        clusters = clusters_of(capacity)
        ends = ends_of(min(count, sum(capacity) // int(jobs.size.min())))
        if discipline == "fcfs":
            compiled(fcfs)(jobs, clusters, ends)
        elif discipline == "first-fit":
            compiled(first_fit)(jobs, clusters, ends, nobody_waiting(count))
        else:
            requests_s = jobs.run_s if requested_s is None else _times_s(requested_s, count, "requested_s")
            plans = nothing_planned(requests_s, len(ends.job), len(clusters.idle))
            compiled(easy)(jobs, clusters, ends, nobody_waiting(count), plans)
    return PlainRun(jobs.start_s, jobs.cluster)


def fcfs(jobs: PlainJobs, clusters: Clusters, ends: EndHeap) -> None:
    """First come, first served. The waiting jobs are those from the first not started to the last that arrived."""
    arrived = started = 0
    while started < len(jobs.size):
        if comes_first(jobs, arrived, ends):
            now_s = jobs.submit_s[arrived]
            arrived += 1
        else:
            now_s = end_all(jobs, clusters, ends)
        while started < arrived and jobs.size[started] <= most_idle(clusters):
            start(jobs, started, now_s, clusters, ends)
            started += 1


def first_fit(jobs: PlainJobs, clusters: Clusters, ends: EndHeap, waiting: WaitingJobs) -> None:
    """Start every job that fits, in the order of submission.

    After a scan no waiting job fits any more, and a start leaves fewer idle processors: only an arrival must be
    tried, and a scan continues behind the job that it started.
    """
    arrived = 0
    while arrived < len(jobs.size) or waiting.bounds[JOBS] > 0:
        if comes_first(jobs, arrived, ends):
            if jobs.size[arrived] <= most_idle(clusters):
                start(jobs, arrived, jobs.submit_s[arrived], clusters, ends)
            else:
                join(waiting, arrived, jobs.size[arrived])
            arrived += 1
            continue
        now_s = end_all(jobs, clusters, ends)
        if waiting.bounds[JOBS] == 0:
            continue
        place = next_fitting(waiting, waiting.bounds[FIRST], most_idle(clusters))
        while place < waiting.bounds[END]:
            start(jobs, waiting.job[place], now_s, clusters, ends)
            leave(waiting, place)
            place = next_fitting(waiting, place + 1, most_idle(clusters))
        close_ranks(waiting)


# ------------------------------------------------------------------------------------------ the checks


def _jobs(submit_s: ArrayLike, run_s: ArrayLike, size: ArrayLike, largest: int) -> PlainJobs:
    """Return the jobs as arrays of the types that the kernel is compiled for."""
    import numpy

    sizes = numpy.asarray(size)
    submits_s = _times_s(submit_s, len(sizes), "submit_s")
    runs_s = _times_s(run_s, len(sizes), "run_s")
    if len(sizes) and not 1 <= sizes.min() <= sizes.max() <= largest:
        _refuse(sizes < 1, sizes, "processors; it needs at least 1")
        _refuse(sizes > largest, sizes, f"processors, more than any cluster has ({largest}); leave it out")
    early = submits_s[1:] < submits_s[:-1]
    if early.any():
        job = int(early.argmax()) + 1
        raise PlainKernelError(
            f"the job at index {job} is submitted at {submits_s[job]} s, before the job ahead of it; "
            "sort the jobs by submission"
        )
    return PlainJobs(
        submits_s,
        runs_s,
        numpy.require(sizes, numpy.int32, _LAYOUT),
        numpy.empty(len(sizes), numpy.float64),
        numpy.empty(len(sizes), numpy.int32),
    )


def _times_s(given: ArrayLike, jobs: int, name: str) -> NDArray[float64]:
    import numpy

    times_s = numpy.require(given, numpy.float64, _LAYOUT)
    if len(times_s) != jobs:
        raise PlainKernelError(f"there are {len(times_s)} values of {name} for {jobs} jobs; give each job one")
    if jobs and not 0 <= times_s.min() <= times_s.max() < numpy.inf:  # these comparisons are false for nan, too
        _refuse(~((times_s >= 0) & (times_s < numpy.inf)), times_s, f"as its {name}; give seconds, 0 or more")
    return times_s


def _refuse(wrong: NDArray[bool_], values: NDArray[Any], why: str) -> None:
    """Raise an error about the first wrong job, if there is one."""
    if wrong.any():
        job = int(wrong.argmax())
        raise PlainKernelError(f"the job at index {job} has {values[job]} {why}")


def _check_platform(capacity: Sequence[int], discipline: str) -> None:
    if discipline not in DISCIPLINES:
        raise PlainKernelError(f"there is no discipline {discipline!r}; the disciplines are {', '.join(DISCIPLINES)}")
    if not capacity or min(capacity) < 0 or not 0 < max(capacity) <= PLAIN_PROCESSORS_MAX:
        raise PlainKernelError(
            f"no clusters can have {list(capacity)} processors; give one or more of them 1 to {PLAIN_PROCESSORS_MAX} "
            "processors (PLAIN_PROCESSORS_MAX)"
        )
