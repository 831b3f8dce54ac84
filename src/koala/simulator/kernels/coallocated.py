"""The running co-allocated jobs of a mini-grid, the links that they share, and how their ends shift, for kernels.

Plain functions over arrays that run as Python and compile with numba unchanged. ``koala.model.network`` decides the
demands and grants of jobs; this module only records them.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.model.network import (
    add_shared_crossings,
    crossing,
    demand_bit_s,
    fill_shares,
    is_over,
    stretch,
    work_left_s,
)
from koala.policies.minigrid.case import SharedRoutes

if TYPE_CHECKING:
    from numpy import float64, int64
    from numpy.typing import NDArray

# The elements of ``LinkColumns.counts``: how many links are overloaded, whether a job has come or gone since links
# were last shared, and whether that was on a link that is or was overloaded.
OVER, CHANGED, DISTURBED = 0, 1, 2
# The elements of ``Coallocated.times`` for the job in a slot: its end as things are; the work that was left, in
# seconds at full speed, at the time since which it has had this share of its demand and this stretch factor; the
# share of communication in its time; and its start.
END, WORK, SINCE, RATIO, STRETCHED, SHARE, START = range(7)
TIMES = 8  # of eight bytes: the times of a job fill one cache line
# The elements of ``Coallocated.holds`` for the job in a slot: its number, the number of its sites, and then the
# sites, each followed by the processors there.
JOB, SITES, HOLDS = range(3)


class LinkColumns(NamedTuple):
    """Capacity and demand by link, the greatest demand ever, and the total demand so far, in bits.

    The links of the sites come first, then shared links. The last three are scratch space. All are arrays of int64
    and float64, with the types of the functions of ``koala.model.network``; so are those below.
    """

    capacity_bit_s: MutableSequence[int]
    demand_bit_s: MutableSequence[int]
    demand_most_bit_s: MutableSequence[int]
    demanded_bits: MutableSequence[float]
    counts: MutableSequence[int]
    wanted: MutableSequence[int]
    taken: MutableSequence[int]
    left: MutableSequence[float]


class Coallocated(NamedTuple):
    """The running co-allocated jobs, by slot; ``order`` contains the slots in use, ``held[0]`` of them, then the
    rest.

    ``first_end_s[0]`` is the first of their ends. A job in slot ``s`` demands ``span_bit_s[s][p]`` of link
    ``span_links[s][p]`` for each ``p`` below ``spans[s]``.
    """

    held: MutableSequence[int]
    first_end_s: MutableSequence[float]
    order: MutableSequence[int]
    times: NDArray[float64]
    holds: NDArray[int64]
    spans: MutableSequence[int]
    span_links: Sequence[MutableSequence[int]]
    span_bit_s: Sequence[MutableSequence[int]]
    granted: MutableSequence[float]


def links_of(capacity_bit_s: Sequence[int]) -> LinkColumns:
    """Return links of these capacities, without demand."""
    import numpy

    def zeros(kind: type[int | float]) -> Any:
        return numpy.zeros(len(capacity_bit_s), kind)

    capacity: Any = numpy.array(capacity_bit_s, numpy.int64)
    counts: Any = numpy.zeros(3, int)
    return LinkColumns(
        capacity_bit_s=capacity,
        demand_bit_s=zeros(int),
        demand_most_bit_s=zeros(int),
        demanded_bits=zeros(float),
        counts=counts,
        wanted=zeros(int),
        taken=zeros(int),
        left=zeros(float),
    )


def nobody_coallocated(jobs_at_once: int, sites: int, links: int) -> Coallocated:
    """Return room for this many jobs at once, each on at most this many sites and links.

    Memory is allocated only as slots are used.
    """
    import numpy

    def room(kind: type[int | float], *shape: int) -> Any:
        return numpy.empty((jobs_at_once, *shape), kind)

    held: Any = numpy.zeros(1, int)
    first_end_s: Any = numpy.full(1, inf)
    order: Any = numpy.arange(jobs_at_once)
    return Coallocated(
        held=held,
        first_end_s=first_end_s,
        order=order,
        times=room(float, TIMES),
        holds=room(int, HOLDS + 2 * sites),
        spans=room(int),
        span_links=room(int, links),
        span_bit_s=room(int, links),
        granted=room(float),
    )


def change_demand(links: LinkColumns, link: int, change_bit_s: int) -> None:
    """Change the demand on a link."""
    capacity = links.capacity_bit_s[link]
    before = links.demand_bit_s[link]
    after = before + change_bit_s
    links.demand_bit_s[link] = after
    links.demand_most_bit_s[link] = max(links.demand_most_bit_s[link], after)
    was_over, is_over_now = is_over(before, capacity), is_over(after, capacity)
    if was_over or is_over_now:
        links.counts[OVER] += int(is_over_now) - int(was_over)
        links.counts[DISTURBED] = 1


def load_link(coallocated: Coallocated, slot: int, links: LinkColumns, link: int, bit_s: int) -> None:
    """Add the demand of the job in the slot to a link, unless it is zero."""
    if bit_s == 0:
        return
    span = coallocated.spans[slot]
    coallocated.span_links[slot][span] = link
    coallocated.span_bit_s[slot][span] = bit_s
    coallocated.spans[slot] = span + 1
    change_demand(links, link, bit_s)


def begin_coallocated(
    coallocated: Coallocated,
    links: LinkColumns,
    routes: SharedRoutes | None,
    job: int,
    now: float,
    work_s: float,
    share: float,
    parts: Sequence[int],
    size: int,
    per_processor: float,
    pattern: int,
    dimensions: int,
) -> int:
    """Start a job with its parts and load its links; return the number of its sites.

    It is recorded at full speed: ``share_links`` computes its share when the instant is over.
    """
    slot = coallocated.order[coallocated.held[0]]
    coallocated.held[0] += 1
    coallocated.times[slot, START] = now
    coallocated.times[slot, WORK] = work_s
    coallocated.times[slot, SINCE] = now
    coallocated.times[slot, SHARE] = share
    grant(coallocated, slot, now, 1.0)
    coallocated.holds[slot, JOB] = job
    coallocated.spans[slot] = 0
    sites = 0
    for site in range(len(parts)):
        if parts[site] > 0:
            coallocated.holds[slot, HOLDS + 2 * sites] = site
            coallocated.holds[slot, HOLDS + 2 * sites + 1] = parts[site]
            sites += 1
            crossed = crossing(pattern, dimensions, parts, size, site)
            load_link(coallocated, slot, links, site, demand_bit_s(per_processor, crossed))
    coallocated.holds[slot, SITES] = sites
    if routes is not None:
        for link in range(len(parts), len(routes.crossed)):
            routes.crossed[link] = 0.0
        add_shared_crossings(pattern, dimensions, parts, size, routes.first, routes.links, routes.crossed)
        for link in range(len(parts), len(routes.crossed)):
            load_link(coallocated, slot, links, link, demand_bit_s(per_processor, routes.crossed[link]))
    links.counts[CHANGED] = 1
    return sites


def end_coallocated(
    coallocated: Coallocated, links: LinkColumns, idle: MutableSequence[int], end_s: NDArray[float64]
) -> None:
    """Free the processors of all jobs with the first end; ``end_s`` by job records that they have ended."""
    now = coallocated.first_end_s[0]
    place = coallocated.held[0]
    while place > 0:
        place -= 1
        slot = coallocated.order[place]
        if coallocated.times[slot, END] != now:
            continue
        end_s[coallocated.holds[slot, JOB]] = now
        for hold in range(HOLDS, HOLDS + 2 * coallocated.holds[slot, SITES], 2):
            idle[coallocated.holds[slot, hold]] += coallocated.holds[slot, hold + 1]
        ran_s = now - coallocated.times[slot, START]
        for span in range(coallocated.spans[slot]):
            link = coallocated.span_links[slot][span]
            bit_s = coallocated.span_bit_s[slot][span]
            change_demand(links, link, -bit_s)
            links.demanded_bits[link] += bit_s * ran_s
        last = coallocated.held[0] - 1
        coallocated.held[0] = last
        coallocated.order[place] = coallocated.order[last]
        coallocated.order[last] = slot
    links.counts[CHANGED] = 1


def share_links(coallocated: Coallocated, links: LinkColumns, now: float) -> None:
    """Grant every job its share of the links, and move the ends of the jobs whose share has changed.

    If jobs have come and gone only on links that satisfy all demands, no other job's share has changed.
    """
    if links.counts[DISTURBED] != 0:
        grant_shares(coallocated, links, now)
    links.counts[CHANGED] = 0
    links.counts[DISTURBED] = 0
    first_end_s = inf
    for place in range(coallocated.held[0]):
        first_end_s = min(first_end_s, coallocated.times[coallocated.order[place], END])
    coallocated.first_end_s[0] = first_end_s


def grant_shares(coallocated: Coallocated, links: LinkColumns, now: float) -> None:
    """Recompute every job's share of the links."""
    held = coallocated.held[0]
    slows = links.counts[OVER] > 0
    if slows:
        fill_shares(
            held,
            coallocated.order,
            coallocated.spans,
            coallocated.span_links,
            coallocated.span_bit_s,
            links.capacity_bit_s,
            links.wanted,
            links.taken,
            links.left,
            coallocated.granted,
        )
    for place in range(held):
        slot = coallocated.order[place]
        ratio = coallocated.granted[slot] if slows else 1.0
        if ratio != coallocated.times[slot, RATIO]:
            elapsed_s = now - coallocated.times[slot, SINCE]
            coallocated.times[slot, WORK] = work_left_s(
                coallocated.times[slot, WORK], elapsed_s, coallocated.times[slot, STRETCHED]
            )
            coallocated.times[slot, SINCE] = now
            grant(coallocated, slot, now, ratio)


def grant(coallocated: Coallocated, slot: int, now: float, ratio: float) -> None:
    """Grant the job in the slot this part of its demand from now on; its end moves accordingly."""
    stretched = stretch(coallocated.times[slot, SHARE], ratio)
    coallocated.times[slot, RATIO] = ratio
    coallocated.times[slot, STRETCHED] = stretched
    coallocated.times[slot, END] = now + coallocated.times[slot, WORK] * stretched
