"""A2 and B5, reserving: links keep room for a job and for a reserve in proportion to its traffic.

Plain functions over numbers that run as Python and compile with numba unchanged. Bandwidth is scarce and the next job
may make better use of it: so a job that sends much must leave more behind than a job that sends little, which may
fill a link to the threshold. The allowed division with the cheapest traffic is taken, and on busy links
traffic costs more.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from math import inf

from koala.model.network import (
    ALL_TO_ALL,
    CUBE,
    MASTER_WORKER,
    RING,
    SILENT,
    UNLIMITED_BIT_S,
    bisection_factor,
    crossing,
    demand_bit_s,
)
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.open_sites import link_limit_bit_s, saturation
from koala.policies.minigrid.satisfy import low_limit, takes_large_part

# A link keeps this share of the job's traffic free below the threshold, besides the traffic itself.
RESERVE_KNOWN = 0.3
RESERVE_BELIEVED = 0.6
# Jobs that send little may fill links a little beyond their capacity: their processors would stay idle otherwise.
RESERVING_THRESHOLD = 1.1


def in_pattern_bit_s(pattern: int, dimensions: int, total: int, all_to_all_bit_s: float) -> float:
    """Return the bandwidth of one processor that gives a job the bisection bandwidth of an all-to-all job.

    In the latter each processor sends ``all_to_all_bit_s``. 0 for a silent job.
    """
    if pattern == ALL_TO_ALL or total < 2:
        return all_to_all_bit_s
    factor = bisection_factor(pattern, dimensions, total)
    return all_to_all_bit_s * bisection_factor(ALL_TO_ALL, dimensions, total) / factor if factor > 0.0 else 0.0


def believed_pattern(pattern: int) -> int:
    """Return the communication pattern of a job with unknown bandwidth: all to all if it declares none."""
    return ALL_TO_ALL if pattern == SILENT else pattern


def pattern_reserve(pattern: int, reserve: float) -> float:
    """Return the reserve of a job of this pattern.

    A part of a ring sends the same whatever its size, so room for a better division of the next job gains nothing.
    """
    return 0.0 if pattern == RING else reserve


def reserved_room_bit_s(demand: int, capacity: int, threshold: float, reserve: float) -> int:
    """Return the most that one job may add to a link so that its reserve still fits below the
    threshold; never negative."""
    if capacity >= UNLIMITED_BIT_S:
        return UNLIMITED_BIT_S
    return max(0, int((link_limit_bit_s(capacity, threshold) - demand) / (1.0 + reserve)))


def next_small_site(case: PlacementCase, idle: Sequence[int], first: int, unplaced: int, parts: Sequence[int]) -> int:
    """Return the site for the next small part: the tightest that takes all that is unplaced, else the one
    that takes most.

    ``case.spare`` holds the largest small part of each site; sites before ``first`` get none. Equally tight sites go
    by the saturation of their links, least first, then by index; -1 if none is left.
    """
    low = case.spare
    best = -1
    best_fits = False
    for site in range(first, len(idle)):
        if parts[site] > 0 or low[site] <= 0:
            continue
        fits = low[site] >= unplaced
        better = best < 0 or (fits and not best_fits)
        if not better and fits:
            better = idle[site] < idle[best] or (
                idle[site] == idle[best]
                and saturation(case.demand[site], case.capacity[site])
                < saturation(case.demand[best], case.capacity[best])
            )
        elif not better and not best_fits:
            better = low[site] > low[best]
        if better:
            best = site
            best_fits = fits
    return best


def small_limit(case: PlacementCase, per_processor_bit_s: float, room_bit_s: int) -> int:
    """Return the largest small part for which a link has room, by the pattern of the job; at least 0.

    Small parts are those of workers without their master; the traffic of a torus is known only for a whole division.
    """
    if case.pattern == MASTER_WORKER:
        if per_processor_bit_s <= 0.0:
            return case.total
        # An unlimited link may have room for more than compiled integers hold.
        holds = room_bit_s / per_processor_bit_s
        limit = case.total if holds >= case.total else int(holds)
        while limit > 0 and demand_bit_s(per_processor_bit_s, float(limit)) > room_bit_s:
            limit -= 1
        return limit
    if case.pattern == CUBE:
        return case.total if room_bit_s > 0 or per_processor_bit_s <= 0.0 else 0
    return low_limit(case.pattern, case.total, per_processor_bit_s, room_bit_s)


def anchor_part(case: PlacementCase, anchor: int, idle: Sequence[int]) -> int:
    """Return how much goes to the site around which a job is divided: all of its idle processors if allowed."""
    most = min(idle[anchor], case.total)
    low = case.spare[anchor]
    if case.pattern == MASTER_WORKER:
        return most
    return most if takes_large_part(idle[anchor], case.total, low) else low


def divide_around(case: PlacementCase, anchor: int, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Divide with as much as allowed on one site, then small parts on others; return what is left over.

    Rank 0 is on the first site that has a part, so a master's site is the first.
    """
    low = case.spare
    total = case.total
    for site in range(len(idle)):
        parts[site] = 0
    parts[anchor] = anchor_part(case, anchor, idle)
    unplaced = total - parts[anchor]
    first = anchor + 1 if case.pattern == MASTER_WORKER else 0
    while unplaced > 0:
        site = next_small_site(case, idle, first, unplaced, parts)
        if site < 0:
            return unplaced
        parts[site] = min(low[site], unplaced)
        unplaced -= parts[site]
    return 0


def traffic_price(case: PlacementCase, per_processor_bit_s: float, reserve: float, parts: Sequence[int]) -> float:
    """Return what a division takes of the links, as shares of their capacities: a share of a full link counts twice.

    It is infinite if a link would be left without the reserve.
    """
    price = 0.0
    for site in range(len(parts)):
        if parts[site] > 0:
            crossed = crossing(case.pattern, case.dimensions, parts, case.total, site)
            own_bit_s = demand_bit_s(per_processor_bit_s, crossed)
            if own_bit_s > reserved_room_bit_s(case.demand[site], case.capacity[site], case.threshold, reserve):
                return inf
            share = saturation(own_bit_s, case.capacity[site])
            price += share * (1.0 + saturation(case.demand[site], case.capacity[site]) + 0.5 * share)
    return price


def divide_with_reserve(
    case: PlacementCase, per_processor_bit_s: float, reserve: float, idle: Sequence[int], parts: MutableSequence[int]
) -> int:
    """Choose the cheapest of the divisions around each site in turn that leave every link its reserve.

    Each processor sends ``per_processor_bit_s``, by the pattern of the job. If all talk to all, in a ring, or not at
    all, a division is found whenever one exists, so that a refused job stays refused while idle processors only fall
    and demands only rise. The traffic of a torus or a master depends on which processors go together: only these
    divisions are tried, and checked as a whole. Ties go to the larger parts, then to the lowest site. ``parts[site]``
    gets the processors. Returns 0 when placed, else the total.
    """
    low = case.spare
    for site in range(len(idle)):
        room_bit_s = reserved_room_bit_s(case.demand[site], case.capacity[site], case.threshold, reserve)
        low[site] = min(idle[site], small_limit(case, per_processor_bit_s, room_bit_s))
    best = -1
    best_price = inf
    best_squares = 0
    by_whole = case.pattern in (CUBE, MASTER_WORKER)
    for anchor in range(len(idle)):
        if (idle[anchor] if by_whole else low[anchor]) <= 0 or divide_around(case, anchor, idle, parts) > 0:
            continue
        price = traffic_price(case, per_processor_bit_s, reserve, parts)
        squares = 0
        for site in range(len(idle)):
            squares += parts[site] * parts[site]
        if price < best_price or (price == best_price and best >= 0 and squares > best_squares):
            best = anchor
            best_price = price
            best_squares = squares
    if best >= 0:
        return divide_around(case, best, idle, parts)
    for site in range(len(idle)):
        parts[site] = 0
    return case.total


def sent_bit_s(case: PlacementCase, believed: bool) -> float:
    """Return what one processor sends, in the pattern of the job.

    For a believed bandwidth the case holds what a processor would send if all talked to all.
    """
    if believed:
        return in_pattern_bit_s(case.pattern, case.dimensions, case.total, case.per_processor_bit_s)
    return case.per_processor_bit_s


def reserve_of(case: PlacementCase, believed: bool) -> float:
    """Return the reserve left on links, as a share of the job's traffic. A belief can be wrong, and gets
    a larger one."""
    return pattern_reserve(case.pattern, RESERVE_BELIEVED if believed else RESERVE_KNOWN)


def reserving(case: PlacementCase, believed: bool, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Divide a job that no site holds whole, of known bandwidth (A2) or of a believed one (B5), and of known pattern.

    Everything else is as for ``divide_with_reserve``. Once a co-allocated job runs, its links show its demand. The
    caller keeps the belief about the next job, such as the mean of the observed bisection bandwidths, and 0 before
    the first: then a job goes wherever there are idle processors, and shows what jobs send. A refused job stays
    refused while the belief stays; a lower belief may place it.
    """
    return divide_with_reserve(case, sent_bit_s(case, believed), reserve_of(case, believed), idle, parts)
