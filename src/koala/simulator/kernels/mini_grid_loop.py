"""The event loop of a mini-grid: arrivals, moving ends, and the meta-scheduler's passes over the queue.

Plain functions over arrays that run as Python and compile with numba unchanged; they call the policies of
``koala.policies`` and the network of ``koala.model.network`` themselves. ``run_events`` defines the order of events
at one instant. ``koala.simulator.kernels.mini_grid`` checks arguments and creates arrays.
"""

from __future__ import annotations

from collections.abc import MutableSequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.model.network import ALL_TO_ALL, CUBE
from koala.policies.minigrid.case import COMPONENTS_UNBOUNDED, PlacementCase, SharedRoutes
from koala.policies.minigrid.meta_scheduling import coallocate, placeable_most, whole_site
from koala.policies.minigrid.reserve import believed_pattern
from koala.policies.minigrid.routed_scheduling import metaschedule_routed
from koala.simulator.kernels.coallocated import (
    CHANGED,
    Coallocated,
    LinkColumns,
    begin_coallocated,
    end_coallocated,
    share_links,
)
from koala.simulator.kernels.heap import EndHeap, add_end, take_next_end
from koala.simulator.kernels.queue import END, FIRST, WaitingJobs, close_ranks, join, leave, next_fitting

if TYPE_CHECKING:
    from numpy import float64, int8, int16, int32
    from numpy.typing import NDArray

# The site of a job with several sites.
SEVERAL = -1
# The size of the largest job that can be placed, when it must be recomputed.
UNKNOWN = -1


class JobColumns(NamedTuple):
    """Jobs in the order of their submission. The last four contain a value for each job, or one for all."""

    submit_s: NDArray[float64]
    size: NDArray[int32]
    home: NDArray[int32]
    work_s: NDArray[float64]
    share: NDArray[float64]
    per_processor_bit_s: NDArray[float64]
    pattern: NDArray[int8]
    dimensions: NDArray[int8]


class Meta(NamedTuple):
    """The meta-scheduler: its module and the module's parameters, the idle processors by site, and scratch space.

    A module that ``believes`` does not know a job's bandwidth in advance, and uses those seen before. A module that
    ``rescans`` may place a job now that it refused before, though nothing has been freed.
    """

    module: int
    threshold: float
    chunk: float
    believes: bool
    rescans: bool
    idle: MutableSequence[int]
    spare: MutableSequence[int]
    parts: MutableSequence[int]


class Belief(NamedTuple):
    """The data of a module that does not know the bandwidths of jobs in advance.

    ``seen`` is how many jobs communicated when they started co-allocated, and the mean of their bisection bandwidths.
    ``factors`` are the bisection factors by pattern, dimensions (0 except for cubes) and size.
    """

    seen: NDArray[float64]
    factors: NDArray[float64]


class Ran(NamedTuple):
    """When each job started and ended, on how many sites, and on which if it was one."""

    start_s: NDArray[float64]
    end_s: NDArray[float64]
    clusters: NDArray[int16]
    site: NDArray[int16]


def run_events(
    jobs: JobColumns,
    meta: Meta,
    belief: Belief,
    links: LinkColumns,
    routes: SharedRoutes | None,
    coallocated: Coallocated,
    ends: EndHeap,
    waiting: WaitingJobs,
    ran: Ran,
) -> None:
    """Run until no event is left; jobs that are never placed stay in the queue.

    At each instant all jobs that end leave together, and one pass scans the queue; then arriving jobs are handled one
    by one, each tried before the next; and when the clock advances, the links are shared once if a co-allocated job
    has started or ended. An arrival is tried alone if no other job that was refused before can fit.
    """
    arrived = 0
    now = -inf
    started = False
    most = UNKNOWN
    while True:
        submit_s = jobs.submit_s[arrived] if arrived < len(jobs.submit_s) else inf
        if submit_s > now and links.counts[CHANGED] != 0:
            share_links(coallocated, links, now)
        end_s = min(coallocated.first_end_s[0], ends.end_s[0] if ends.held[0] > 0 else inf)
        if submit_s < end_s or submit_s == now:
            now = submit_s
            place = join(waiting, arrived, jobs.size[arrived])
            arrived += 1
            if meta.rescans and started:
                place = waiting.bounds[FIRST]
                started = False
        elif end_s < inf:
            now = end_s
            end_whole(now, jobs, meta, ends, ran)
            if coallocated.first_end_s[0] == now:
                end_coallocated(coallocated, links, meta.idle, ran.end_s)
            place = waiting.bounds[FIRST]
            started = False
            most = UNKNOWN
        else:
            return
        # One pass, from this place on. It is inline, since a call that passes all these arrays costs more than the
        # pass.
        left = False
        while place < waiting.bounds[END]:
            if most == UNKNOWN:
                most = placeable_most(
                    meta.module, meta.idle, links.demand_bit_s, links.capacity_bit_s, meta.threshold, meta.chunk
                )
            place = next_fitting(waiting, place, most)
            if place >= waiting.bounds[END]:
                break
            job = waiting.job[place]
            site = whole_site(meta.idle, jobs.size[job], jobs.home[job])
            place += 1
            if site >= 0:
                begin_whole(job, now, site, jobs, meta, ends, ran)
            elif divide(job, jobs, meta, belief, links, routes):
                begin_divided(job, now, jobs, meta, belief, links, routes, coallocated, ran)
            else:
                continue
            leave(waiting, place - 1)
            left = True
            most = UNKNOWN
        if left:
            started = True
            close_ranks(waiting)


def end_whole(now: float, jobs: JobColumns, meta: Meta, ends: EndHeap, ran: Ran) -> None:
    """Free the processors of the jobs on one site that end now."""
    while ends.held[0] > 0 and ends.end_s[0] == now:
        job = take_next_end(ends)
        ran.end_s[job] = now
        meta.idle[ran.site[job]] += jobs.size[job]


def begin_whole(job: int, now: float, site: int, jobs: JobColumns, meta: Meta, ends: EndHeap, ran: Ran) -> None:
    """Start the job on one site."""
    meta.idle[site] -= jobs.size[job]
    ran.start_s[job] = now
    ran.clusters[job] = 1
    ran.site[job] = site
    add_end(ends, now + jobs.work_s[job], job)


def divide(
    job: int, jobs: JobColumns, meta: Meta, belief: Belief, links: LinkColumns, routes: SharedRoutes | None
) -> bool:
    """Return True if the module finds places on several sites for the job; they are in ``meta.parts`` then."""
    size = whole(jobs.size, job)
    pattern = whole(jobs.pattern, job)
    case = PlacementCase(
        size,
        links.demand_bit_s,
        links.capacity_bit_s,
        believed_bit_s(belief, size) if meta.believes else of(jobs.per_processor_bit_s, job),
        meta.threshold,
        meta.spare,
        whole(jobs.home, job),
        meta.chunk,
        believed_pattern(pattern) if meta.believes else pattern,
        whole(jobs.dimensions, job),
        1,
        COMPONENTS_UNBOUNDED,
    )
    if routes is None:
        return coallocate(meta.module, case, meta.idle, meta.parts) == 0
    return metaschedule_routed(meta.module, case, routes, meta.idle, meta.parts) == 0


def begin_divided(
    job: int,
    now: float,
    jobs: JobColumns,
    meta: Meta,
    belief: Belief,
    links: LinkColumns,
    routes: SharedRoutes | None,
    coallocated: Coallocated,
    ran: Ran,
) -> None:
    """Start the job on several sites, with ``meta.parts`` on each."""
    size = whole(jobs.size, job)
    pattern = whole(jobs.pattern, job)
    dimensions = whole(jobs.dimensions, job)
    per_processor = of(jobs.per_processor_bit_s, job)
    for site in range(len(meta.parts)):
        meta.idle[site] -= meta.parts[site]
    if meta.believes:
        observe(belief, per_processor, pattern, dimensions, size)
    ran.start_s[job] = now
    ran.site[job] = SEVERAL
    ran.clusters[job] = begin_coallocated(
        coallocated,
        links,
        routes,
        job,
        now,
        jobs.work_s[job],
        of(jobs.share, job),
        meta.parts,
        size,
        per_processor,
        pattern,
        dimensions,
    )


def believed_bit_s(belief: Belief, size: int) -> float:
    """Return what a processor of a job of this size would send, at the mean bandwidth of the jobs seen so far."""
    factor = belief.factors[ALL_TO_ALL, 0, size]
    return belief.seen[1] / factor if factor > 0.0 else 0.0


def observe(belief: Belief, per_processor: float, pattern: int, dimensions: int, size: int) -> None:
    """Record the demand of a job that starts co-allocated."""
    bisection_bit_s = per_processor * belief.factors[pattern, dimensions if pattern == CUBE else 0, size]
    if bisection_bit_s > 0.0:
        belief.seen[0] += 1.0
        belief.seen[1] += (bisection_bit_s - belief.seen[1]) / belief.seen[0]


def of(values: NDArray[Any], job: int) -> Any:
    """Return the value of a job among values by job, or the one value of all jobs."""
    return values[job if len(values) > 1 else 0]


def whole(values: NDArray[Any], job: int) -> int:
    """Return the same for an integer of eight bytes: policies would be compiled once more for each other kind."""
    number: int = 0 + values[job if len(values) > 1 else 0]
    return number
