"""EASY over many clusters for the kernel: co-allocated jobs, whose first has a plan that no other job delays.

It equals the core with ``plan_depth`` 1 and one queue, job by job, for jobs that FCM divides and for components that
WF places: see ``koala.core.plans``. Plain functions that run as Python and compile with numba unchanged; the policies
are the core's own. No job exceeds its planned end.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.koala.worst_fit import worst_fit
from koala.simulator.kernels.compiling import compiled
from koala.simulator.kernels.heap import EndHeap, add_end, ends_of, take_next_end
from koala.simulator.kernels.plain import PlainKernelError

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import ArrayLike, NDArray

# The places of all jobs are stored: the product of jobs and clusters is limited to this.
PLANNED_CELLS_MAX = 2**28
# The elements of ``counts``: how many jobs wait, how many run, and which job has the plan.
WAITING, RUNNING, PLANNED = 0, 1, 2
NOBODY = -1


class PlannedRun(NamedTuple):
    """When each job started, and its processors on each cluster, in the given order."""

    start_s: NDArray[float64]
    parts: NDArray[int64]


class PlannedJobs(NamedTuple):
    """Jobs in the order of their submission, with their results. ``sizes`` are their components in decreasing order,
    padded with zeros."""

    submit_s: NDArray[float64]
    run_s: NDArray[float64]
    requested_s: NDArray[float64]
    sizes: Sequence[Sequence[int]]
    size: NDArray[int64]
    start_s: NDArray[float64]
    parts: NDArray[int64]


class PlannedGrid(NamedTuple):
    """Idle processors, the queue in order, the running jobs by planned end; the planned start of the first job, the
    places kept for it, and what is left beside them then. The rest is scratch space."""

    idle: MutableSequence[int]
    waiting: NDArray[int64]
    running: NDArray[int64]
    counts: NDArray[int64]
    at: NDArray[float64]
    kept: MutableSequence[int]
    left: MutableSequence[int]
    found: MutableSequence[int]
    spare: MutableSequence[int]
    work: MutableSequence[int]
    chosen: MutableSequence[int]


def run_planned(
    submit_s: ArrayLike,
    run_s: ArrayLike,
    sizes: ArrayLike,
    capacity: Sequence[int],
    requested_s: ArrayLike,
    *,
    divides: bool,
) -> PlannedRun:
    """Run all jobs to their ends on these clusters. ``sizes`` has the components of each job as a row, padded with
    zeros; with ``divides`` FCM divides their total, else WF places each.

    All jobs that end at a moment end first, and the queue is scanned; then the jobs that are submitted at that moment
    come one by one. Submissions ascend, each job fits on idle clusters, and none exceeds its requested time. Raises
    PlainKernelError if there are too many.
    """
    import numpy

    def column(values: Any, kind: Any) -> Any:
        return numpy.ascontiguousarray(numpy.asarray(values), dtype=kind)

    rows: Any = column(sizes, numpy.int64)
    rows = rows.reshape(len(rows), -1) if len(rows) else rows.reshape(0, 1)
    rows = numpy.ascontiguousarray(-numpy.sort(-rows, axis=1))
    count, clusters = len(rows), len(capacity)
    if count * clusters > PLANNED_CELLS_MAX:
        raise PlainKernelError(
            f"{count} jobs on {clusters} clusters have too many places to keep (PLANNED_CELLS_MAX); run them in parts"
        )
    jobs = PlannedJobs(
        column(submit_s, numpy.float64),
        column(run_s, numpy.float64),
        column(requested_s, numpy.float64),
        rows,
        rows.sum(axis=1),
        numpy.zeros(count, numpy.float64),
        numpy.zeros((count, clusters), numpy.int64),
    )
    if count:
        room: list[Any] = [numpy.zeros(clusters, numpy.int64) for _ in range(5)]
        chosen: Any = numpy.zeros(rows.shape[1], numpy.int64)
        grid = PlannedGrid(
            column(list(capacity), numpy.int64),
            numpy.zeros(count, numpy.int64),
            numpy.zeros(count, numpy.int64),
            column([0, 0, NOBODY], numpy.int64),
            at=numpy.zeros(1, numpy.float64),
            kept=room[0],
            left=room[1],
            found=room[2],
            spare=room[3],
            work=room[4],
            chosen=chosen,
        )
        compiled(easy_over_clusters)(jobs, grid, ends_of(count), divides)
    return PlannedRun(jobs.start_s, jobs.parts)


def easy_over_clusters(jobs: PlannedJobs, grid: PlannedGrid, ends: EndHeap, divides: bool) -> None:
    """Run all jobs, from the first submission to the last start."""
    arrived = 0
    while arrived < len(jobs.size) or grid.counts[WAITING] > 0:
        if arrived < len(jobs.size) and (ends.held[0] == 0 or jobs.submit_s[arrived] < ends.end_s[0]):
            arrive(jobs, arrived, jobs.submit_s[arrived], grid, ends, divides)
            arrived += 1
            continue
        now_s = ends.end_s[0]
        while ends.held[0] > 0 and ends.end_s[0] == now_s:
            end(jobs, take_next_end(ends), grid)
        if grid.counts[WAITING] > 0:
            scan(jobs, now_s, grid, ends, divides)


def arrive(jobs: PlannedJobs, job: int, now_s: float, grid: PlannedGrid, ends: EndHeap, divides: bool) -> None:
    """Try a job at once; it waits if it cannot start."""
    if grid.counts[WAITING] > 0:
        fits = fits_behind(jobs, job, now_s, grid, divides)
    else:
        fits = place(jobs, job, grid.idle, grid, divides)
    if fits:
        begin(jobs, job, now_s, grid, ends)
        return
    grid.waiting[grid.counts[WAITING]] = job
    grid.counts[WAITING] += 1
    if grid.counts[WAITING] == 1:
        plan(jobs, job, grid, divides)


def scan(jobs: PlannedJobs, now_s: float, grid: PlannedGrid, ends: EndHeap, divides: bool) -> None:
    """Start all jobs that can start, in order: the first ones while they fit, and then those that delay no plan."""
    waiting, count = grid.waiting, grid.counts[WAITING]
    first = 0
    while first < count and starts_first(jobs, waiting[first], grid, divides):
        begin(jobs, waiting[first], now_s, grid, ends)
        grid.counts[PLANNED] = NOBODY
        first += 1
    kept = 0
    if first < count:
        plan(jobs, waiting[first], grid, divides)
    for index in range(first, count):
        job = waiting[index]
        if index > first and fits_behind(jobs, job, now_s, grid, divides):
            begin(jobs, job, now_s, grid, ends)
        else:
            waiting[kept] = job
            kept += 1
    grid.counts[WAITING] = kept


def starts_first(jobs: PlannedJobs, job: int, grid: PlannedGrid, divides: bool) -> bool:
    """Return True if the first of the queue finds places, including those of its plan."""
    if place(jobs, job, grid.idle, grid, divides):
        return True
    if grid.counts[PLANNED] != job:
        return False
    for site in range(len(grid.idle)):
        if grid.kept[site] > grid.idle[site]:
            return False
    for site in range(len(grid.idle)):
        grid.found[site] = grid.kept[site]
    return True


def fits_behind(jobs: PlannedJobs, job: int, now_s: float, grid: PlannedGrid, divides: bool) -> bool:
    """Return True if a job finds places now without delaying the plan, whose job may take other places at its
    time."""
    if not place(jobs, job, grid.idle, grid, divides):
        return False
    if now_s + jobs.requested_s[job] <= grid.at[0]:
        return True
    fits, total = True, 0
    for site in range(len(grid.idle)):
        spare = max(0, min(grid.idle[site], grid.left[site]))
        fits = fits and grid.found[site] <= spare
        grid.spare[site] = spare
        total += max(0, grid.left[site])
    if fits or (total >= jobs.size[job] and plan_moves(jobs, grid, divides)):
        return True
    return place(jobs, job, grid.spare, grid, divides)


def plan_moves(jobs: PlannedJobs, grid: PlannedGrid, divides: bool) -> bool:
    """Return True if the plan finds places at its time beside those found for another job; then it has them."""
    taken, beside = grid.work, grid.spare
    for site in range(len(grid.idle)):
        beside[site] = max(0, grid.left[site] + grid.kept[site] - grid.found[site])
        taken[site] = grid.found[site]
    # The places found are read again below: the policy works in other arrays.
    moves = place_aside(jobs, grid.counts[PLANNED], beside, grid, divides)
    if moves:
        for site in range(len(grid.idle)):
            grid.left[site] += grid.kept[site] - grid.found[site]
            grid.kept[site] = grid.found[site]
    else:
        for site in range(len(grid.idle)):
            beside[site] = max(0, min(grid.idle[site], grid.left[site]))
    for site in range(len(grid.idle)):
        grid.found[site] = taken[site]
    return moves


def begin(jobs: PlannedJobs, job: int, now_s: float, grid: PlannedGrid, ends: EndHeap) -> None:
    """Start the job in the places that were found for it."""
    planned_end_s = now_s + jobs.requested_s[job]
    jobs.start_s[job] = now_s
    for site in range(len(grid.idle)):
        part = grid.found[site]
        jobs.parts[job, site] = part
        grid.idle[site] -= part
        if planned_end_s > grid.at[0]:
            grid.left[site] -= part
    place_in_line = grid.counts[RUNNING]
    grid.counts[RUNNING] += 1
    while place_in_line > 0 and planned_end_of(jobs, grid.running[place_in_line - 1]) > planned_end_s:
        grid.running[place_in_line] = grid.running[place_in_line - 1]
        place_in_line -= 1
    grid.running[place_in_line] = job
    add_end(ends, now_s + jobs.run_s[job], job)


def end(jobs: PlannedJobs, job: int, grid: PlannedGrid) -> None:
    """Free the job's places."""
    for site in range(len(grid.idle)):
        grid.idle[site] += jobs.parts[job, site]
    index = 0
    while grid.running[index] != job:
        index += 1
    grid.counts[RUNNING] -= 1
    for later in range(index, grid.counts[RUNNING]):
        grid.running[later] = grid.running[later + 1]


def planned_end_of(jobs: PlannedJobs, job: int) -> float:
    planned: float = jobs.start_s[job] + jobs.requested_s[job]
    return planned


# ------------------------------------------------------------------------------------------------------- plans


def plan(jobs: PlannedJobs, job: int, grid: PlannedGrid, divides: bool) -> None:
    """Find the earliest time at which the first of the queue finds places; an existing plan only moves earlier."""
    raw = grid.spare
    for site in range(len(raw)):
        raw[site] = grid.idle[site]
    before_s = grid.at[0] if grid.counts[PLANNED] == job else inf
    index, found = 0, False
    while index < grid.counts[RUNNING] and not found:
        at_s = planned_end_of(jobs, grid.running[index])
        if at_s >= before_s:
            break
        while index < grid.counts[RUNNING] and planned_end_of(jobs, grid.running[index]) == at_s:
            for site in range(len(raw)):
                raw[site] += jobs.parts[grid.running[index], site]
            index += 1
        found = place(jobs, job, raw, grid, divides)
        if found:
            grid.at[0] = at_s
            for site in range(len(raw)):
                grid.kept[site] = grid.found[site]
    grid.counts[PLANNED] = job
    while index < grid.counts[RUNNING] and planned_end_of(jobs, grid.running[index]) <= grid.at[0]:
        for site in range(len(raw)):
            raw[site] += jobs.parts[grid.running[index], site]
        index += 1
    for site in range(len(raw)):
        grid.left[site] = raw[site] - grid.kept[site]


# ------------------------------------------------------------------------------------------------------- places


def place(jobs: PlannedJobs, job: int, idle: MutableSequence[int], grid: PlannedGrid, divides: bool) -> bool:
    """Return True if the policy finds places for the job on idle processors; ``found`` gets the processors by
    cluster."""
    if divides:
        return flexible_cluster_minimization(idle, jobs.size[job], 1, len(idle), grid.found) == 0
    for site in range(len(idle)):
        grid.work[site] = idle[site]
    return is_spread(jobs, job, idle, grid, grid.work)


def place_aside(jobs: PlannedJobs, job: int, idle: MutableSequence[int], grid: PlannedGrid, divides: bool) -> bool:
    """Return the same as ``place`` without ``work``: ``idle`` is used up instead."""
    if divides:
        return flexible_cluster_minimization(idle, jobs.size[job], 1, len(idle), grid.found) == 0
    return is_spread(jobs, job, idle, grid, idle)


def is_spread(
    jobs: PlannedJobs, job: int, idle: MutableSequence[int], grid: PlannedGrid, left: MutableSequence[int]
) -> bool:
    """Return True if WF places the job on ``idle``; ``left`` is a copy or, since only its length counts, the array
    itself."""
    if worst_fit(idle, jobs.sizes[job], left, grid.chosen) >= 0:
        return False
    for site in range(len(idle)):
        grid.found[site] = 0
    for component in range(len(grid.chosen)):
        grid.found[grid.chosen[component]] += jobs.sizes[job][component]
    return True
