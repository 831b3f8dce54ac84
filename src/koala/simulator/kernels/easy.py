"""EASY backfilling for the plain kernel: a job behind the head may start if it does not delay the head.

Plain functions that run as Python and compile with numba unchanged. The head of the queue has a reservation: the
cluster where, by the times that jobs requested, it can start first. It is computed only when a job could pass, and
kept until an event may have moved it; only then the running jobs are sorted by their planned ends.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NamedTuple

from koala.simulator.kernels.clusters import GROUP_SHIFT, Clusters, give, most_idle, refresh
from koala.simulator.kernels.heap import EndHeap, take_next_end
from koala.simulator.kernels.jobs import PlainJobs, comes_first, start
from koala.simulator.kernels.queue import (
    BLOCK,
    BLOCK_SHIFT,
    END,
    FIRST,
    HOLE,
    JOBS,
    WaitingJobs,
    close_ranks,
    join,
    leave,
    next_fitting,
)

if TYPE_CHECKING:
    from numpy import bool_, float64, int32, int64
    from numpy.typing import NDArray

# The elements of ``at``: the cluster of the reservation, and how many processors will be idle there beside the head.
CLUSTER, SPARE = 0, 1
NOT_MADE = -1
# The elements of ``counts``: how many of the planned ends are sorted, and how many there are.
IN_ORDER, HELD = 0, 1


class Plans(NamedTuple):
    """The scheduler's beliefs about the future.

    ``requested_s`` and ``ended`` are by job; ``end_s`` and ``job`` are planned ends, of running jobs and of some that
    have ended. ``at`` and ``start_s`` are the reservation of the head; ``idle`` is scratch space for its computation.
    ``least_s`` is at most the least requested time in each block of the queue.
    """

    requested_s: NDArray[float64]
    ended: NDArray[bool_]
    end_s: NDArray[float64]
    job: NDArray[int32]
    counts: NDArray[int64]
    at: NDArray[int64]
    start_s: NDArray[float64]
    idle: NDArray[int64]
    least_s: NDArray[float64]


def nothing_planned(requested_s: NDArray[float64], jobs_at_once: int, clusters: int) -> Plans:
    """Return plans for the time before the first job, with room for this many at once."""
    import numpy

    jobs = len(requested_s)
    room = 2 * jobs_at_once + 1  # twice the room, so that ended jobs are rarely removed
    return Plans(
        requested_s,
        numpy.zeros(jobs, numpy.bool_),
        numpy.empty(room, numpy.float64),
        numpy.empty(room, numpy.int32),
        numpy.zeros(2, numpy.int64),
        numpy.full(2, NOT_MADE, numpy.int64),
        numpy.zeros(1, numpy.float64),
        numpy.empty(clusters, numpy.int64),
        numpy.empty((jobs >> BLOCK_SHIFT) + 1, numpy.float64),
    )


def easy(jobs: PlainJobs, clusters: Clusters, ends: EndHeap, waiting: WaitingJobs, plans: Plans) -> None:
    """Start every job that fits, in the order of submission, unless the head of the queue would start later.

    Between two ends of jobs no waiting job gains a better chance, so only an arrival must be tried; the exception is
    a head that should have started by now, since a job exceeds its requested time.
    """
    arrived = 0
    while arrived < len(jobs.size) or waiting.bounds[JOBS] > 0:
        if comes_first(jobs, arrived, ends):
            now_s = jobs.submit_s[arrived]
            if waiting.bounds[JOBS] == 0 and jobs.size[arrived] <= most_idle(clusters):
                start_planned(jobs, arrived, now_s, clusters, ends, plans)
            else:
                place = join_planned(jobs, arrived, waiting, plans)
                if plans.at[CLUSTER] != NOT_MADE and plans.start_s[0] <= now_s:
                    plans.at[CLUSTER] = NOT_MADE
                    place = waiting.bounds[FIRST] + 1
                backfill(jobs, now_s, clusters, ends, waiting, plans, max(place, waiting.bounds[FIRST] + 1))
            arrived += 1
        else:
            now_s = end_all_planned(jobs, clusters, ends, plans)
            start_heads(jobs, now_s, clusters, ends, waiting, plans)
            backfill(jobs, now_s, clusters, ends, waiting, plans, waiting.bounds[FIRST] + 1)
        close_ranks_planned(waiting, plans)


def start_heads(
    jobs: PlainJobs, now_s: float, clusters: Clusters, ends: EndHeap, waiting: WaitingJobs, plans: Plans
) -> None:
    """Start the head of the queue while it fits."""
    while waiting.bounds[JOBS] > 0:
        head = waiting.bounds[FIRST]
        if waiting.size[head] > most_idle(clusters):
            return
        start_planned(jobs, waiting.job[head], now_s, clusters, ends, plans)
        leave(waiting, head)
        close_ranks_planned(waiting, plans)
        plans.at[CLUSTER] = NOT_MADE


def backfill(
    jobs: PlainJobs, now_s: float, clusters: Clusters, ends: EndHeap, waiting: WaitingJobs, plans: Plans, place: int
) -> None:
    """Start, from this place of the queue on, behind its head, all that fit and do not delay the head."""
    most = most_idle(clusters)
    place = next_fitting(waiting, place, most)
    if place >= waiting.bounds[END]:
        return
    if plans.at[CLUSTER] == NOT_MADE or plans.start_s[0] <= now_s:
        reserve(jobs, waiting.size[waiting.bounds[FIRST]], now_s, clusters, plans)
    most_beside = most_beside_head(clusters, plans)
    place = next_beside_head(now_s, waiting, plans, place, most, most_beside)
    while place < waiting.bounds[END]:
        start_beside_head(jobs, waiting.job[place], now_s, clusters, ends, plans)
        leave(waiting, place)
        most, most_beside = most_idle(clusters), most_beside_head(clusters, plans)
        place = next_beside_head(now_s, waiting, plans, place + 1, most, most_beside)


def next_beside_head(
    now_s: float, waiting: WaitingJobs, plans: Plans, place: int, most: int, most_beside: int
) -> int:
    """Return the first place, from this one on, with a job that does not delay the head; beyond the end if there is
    none.

    Such a job has at most the size ``most`` and ends before the head is to start, or has at most ``most_beside``.
    Blocks are skipped as in ``next_fitting``, also by the least requested time.
    """
    first, end, start_s = waiting.bounds[FIRST], waiting.bounds[END], plans.start_s[0]
    while place < end:
        block = place >> BLOCK_SHIFT
        begin = block << BLOCK_SHIFT
        block_end = min(begin + BLOCK, end)
        least = waiting.least[block]
        if least <= most_beside or (least <= most and now_s + plans.least_s[block] <= start_s):
            whole = place <= max(begin, first)
            least, least_s = HOLE, inf
            while place < block_end:
                size = waiting.size[place]
                if size != HOLE:
                    requested_s = plans.requested_s[waiting.job[place]]
                    if size <= most_beside or (size <= most and now_s + requested_s <= start_s):
                        return place
                    least, least_s = min(least, size), min(least_s, requested_s)
                place += 1
            if whole:
                waiting.least[block] = least
                plans.least_s[block] = least_s
        place = block_end
    return place


def most_beside_head(clusters: Clusters, plans: Plans) -> int:
    """Return the largest size of a job that still runs when the head is to start, and does not delay it."""
    withheld = withhold(clusters, plans)
    most = most_idle(clusters)
    give(clusters, plans.at[CLUSTER], withheld)
    return most


def start_beside_head(
    jobs: PlainJobs, job: int, now_s: float, clusters: Clusters, ends: EndHeap, plans: Plans
) -> None:
    """Start a job that does not delay the head.

    A job that would still run when the head is to start gets only the spare processors of the head's cluster.
    """
    if now_s + plans.requested_s[job] <= plans.start_s[0]:
        start_planned(jobs, job, now_s, clusters, ends, plans)
        return
    withheld = withhold(clusters, plans)
    start_planned(jobs, job, now_s, clusters, ends, plans)
    if jobs.cluster[job] == plans.at[CLUSTER]:
        plans.at[SPARE] -= jobs.size[job]
    give(clusters, plans.at[CLUSTER], withheld)


def withhold(clusters: Clusters, plans: Plans) -> int:
    """Take what the head needs from its cluster, and return how much that is, for its later return."""
    cluster = plans.at[CLUSTER]
    withheld: int = max(0, clusters.idle[cluster] - plans.at[SPARE])
    clusters.idle[cluster] -= withheld
    refresh(clusters, cluster >> GROUP_SHIFT)
    return withheld


# ------------------------------------------------------------------------------------------------------- plans


def reserve(jobs: PlainJobs, size: int, now_s: float, clusters: Clusters, plans: Plans) -> None:
    """Find where and when the head, which does not fit now, can start first; ties go to the lowest index.

    A job that exceeds its planned end is expected to end at any moment.
    """
    put_in_order(plans)
    for cluster in range(len(clusters.idle)):
        plans.idle[cluster] = clusters.idle[cluster]
    found, place = NOT_MADE, 0
    while found == NOT_MADE:
        end_s = max(now_s, plans.end_s[place])
        while place < plans.counts[HELD] and plans.end_s[place] <= end_s:
            job = plans.job[place]
            cluster = jobs.cluster[job]
            plans.idle[cluster] += jobs.size[job]
            if plans.idle[cluster] >= size and (found == NOT_MADE or cluster < found):
                found = cluster
            place += 1
        plans.start_s[0] = end_s
    plans.at[CLUSTER] = found
    plans.at[SPARE] = plans.idle[found] - size


def start_planned(jobs: PlainJobs, job: int, now_s: float, clusters: Clusters, ends: EndHeap, plans: Plans) -> None:
    """Start a job that fits, and record its planned end."""
    start(jobs, job, now_s, clusters, ends)
    if plans.counts[HELD] == len(plans.job):
        sweep_out_ended(plans)
    plans.end_s[plans.counts[HELD]] = now_s + plans.requested_s[job]
    plans.job[plans.counts[HELD]] = job
    plans.counts[HELD] += 1


def end_all_planned(jobs: PlainJobs, clusters: Clusters, ends: EndHeap, plans: Plans) -> float:
    """End all jobs with the next end, and return the time. An early end may move the reservation."""
    now_s: float = ends.end_s[0]
    while ends.held[0] > 0 and ends.end_s[0] == now_s:
        job = take_next_end(ends)
        give(clusters, jobs.cluster[job], jobs.size[job])
        plans.ended[job] = True
        if now_s < jobs.start_s[job] + plans.requested_s[job]:
            plans.at[CLUSTER] = NOT_MADE
    return now_s


def sweep_out_ended(plans: Plans) -> None:
    """Keep only the planned ends of running jobs, and the sorted ones sorted."""
    kept = in_order = 0
    for place in range(plans.counts[HELD]):
        job = plans.job[place]
        if not plans.ended[job]:
            plans.end_s[kept] = plans.end_s[place]
            plans.job[kept] = job
            kept += 1
            in_order += place < plans.counts[IN_ORDER]
    plans.counts[IN_ORDER] = in_order
    plans.counts[HELD] = kept


def put_in_order(plans: Plans) -> None:
    """Sort the planned ends of the running jobs, and drop all others."""
    sweep_out_ended(plans)
    for taken in range(plans.counts[IN_ORDER], plans.counts[HELD]):
        end_s, job = plans.end_s[taken], plans.job[taken]
        place = taken
        while place > 0 and plans.end_s[place - 1] > end_s:
            plans.end_s[place] = plans.end_s[place - 1]
            plans.job[place] = plans.job[place - 1]
            place -= 1
        plans.end_s[place] = end_s
        plans.job[place] = job
    plans.counts[IN_ORDER] = plans.counts[HELD]


def join_planned(jobs: PlainJobs, job: int, waiting: WaitingJobs, plans: Plans) -> int:
    """Append the job to the queue and return its place."""
    place = join(waiting, job, jobs.size[job])
    note_requested(plans, job, place)
    return place


def close_ranks_planned(waiting: WaitingJobs, plans: Plans) -> None:
    """Close ranks as ``close_ranks`` does, and move the requested times with the jobs."""
    end = waiting.bounds[END]
    close_ranks(waiting)
    if waiting.bounds[END] < end:
        for place in range(waiting.bounds[END]):
            note_requested(plans, waiting.job[place], place)


def note_requested(plans: Plans, job: int, place: int) -> None:
    block = place >> BLOCK_SHIFT
    if place & (BLOCK - 1) == 0 or plans.requested_s[job] < plans.least_s[block]:
        plans.least_s[block] = plans.requested_s[job]
