"""A2 and B5, reserving: links keep room for a job and for a reserve in proportion to what it sends.

Plain functions over numbers that run as Python and compile with numba unchanged. Bandwidth is scarce and the next job
may make better use of it: so a job that sends much must leave more behind than one that sends little, which may fill
a link to the threshold. Of the divisions allowed, the one is taken whose traffic is cheapest, and on busy links
traffic costs more.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.model.network import ALL_TO_ALL, UNLIMITED_BIT_S, bisection_factor
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.open_sites import link_limit_bit_s, saturation
from koala.policies.minigrid.satisfy import low_limit, part_demand_bit_s, takes_large_part

# A link is left with this share of what the job sends, besides what the job takes, until the threshold.
RESERVE_KNOWN = 0.3
RESERVE_BELIEVED = 0.6
# Links may be filled a little beyond their capacity by jobs that send little: their processors stay idle otherwise.
RESERVING_THRESHOLD = 1.1


def all_to_all_bit_s(pattern: int, dimensions: int, total: int, per_processor_bit_s: float) -> float:
    """The bandwidth of one processor that would give a job the same bisection bandwidth if all talked to all."""
    if pattern == ALL_TO_ALL or total < 2:
        return per_processor_bit_s
    own = bisection_factor(pattern, dimensions, total)
    return per_processor_bit_s * own / bisection_factor(ALL_TO_ALL, dimensions, total)


def reserved_room_bit_s(demand: int, capacity: int, threshold: float, reserve: float) -> int:
    """The most that one job may add to a link so that its reserve still fits below the threshold; never negative."""
    if capacity >= UNLIMITED_BIT_S:
        return UNLIMITED_BIT_S
    return max(0, int((link_limit_bit_s(capacity, threshold) - demand) / (1.0 + reserve)))


def next_small_site(case: PlacementCase, idle: Sequence[int], unplaced: int, parts: Sequence[int]) -> int:
    """The site for the next small part: the tightest that takes all that is unplaced, else the one that takes most.

    ``case.spare`` holds the largest small part of each site. Equally tight sites go by the saturation of their links,
    least first, then by index; -1 where none is left.
    """
    low = case.spare
    best = -1
    best_fits = False
    for site in range(len(idle)):
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


def divide_around(case: PlacementCase, anchor: int, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """The division with as much as is allowed on one site, then small parts on others; what is left over."""
    low = case.spare
    total = case.total
    for site in range(len(idle)):
        parts[site] = 0
    parts[anchor] = min(idle[anchor], total) if takes_large_part(idle[anchor], total, low[anchor]) else low[anchor]
    unplaced = total - parts[anchor]
    while unplaced > 0:
        site = next_small_site(case, idle, unplaced, parts)
        if site < 0:
            return unplaced
        parts[site] = min(low[site], unplaced)
        unplaced -= parts[site]
    return 0


def traffic_price(case: PlacementCase, per_processor_bit_s: float, parts: Sequence[int]) -> float:
    """What a division takes of the links, as shares of their capacities: a share of a full link counts twice."""
    price = 0.0
    for site in range(len(parts)):
        if parts[site] > 0:
            own_bit_s = part_demand_bit_s(case.total, parts[site], per_processor_bit_s)
            share = saturation(own_bit_s, case.capacity[site])
            price += share * (1.0 + saturation(case.demand[site], case.capacity[site]) + 0.5 * share)
    return price


def divide_with_reserve(
    case: PlacementCase, per_processor_bit_s: float, reserve: float, idle: Sequence[int], parts: MutableSequence[int]
) -> int:
    """The cheapest of the divisions around each site in turn that leave every link its reserve.

    Every job is taken for one in which all talk to all, each processor sending ``per_processor_bit_s``. A division is
    found whenever there is any such at all, so that a refused job stays refused while idle processors only fall and
    demands only rise. Ties go to the larger parts, then to the lowest site. ``parts[site]`` gets the processors.
    Returns 0 when placed, else the total.
    """
    low = case.spare
    for site in range(len(idle)):
        room_bit_s = reserved_room_bit_s(case.demand[site], case.capacity[site], case.threshold, reserve)
        low[site] = min(idle[site], low_limit(ALL_TO_ALL, case.total, per_processor_bit_s, room_bit_s))
    best = -1
    best_price = 0.0
    best_squares = 0
    for anchor in range(len(idle)):
        if low[anchor] <= 0 or divide_around(case, anchor, idle, parts) > 0:
            continue
        price = traffic_price(case, per_processor_bit_s, parts)
        squares = 0
        for site in range(len(idle)):
            squares += parts[site] * parts[site]
        if best < 0 or price < best_price or (price == best_price and squares > best_squares):
            best = anchor
            best_price = price
            best_squares = squares
    if best >= 0:
        return divide_around(case, best, idle, parts)
    for site in range(len(idle)):
        parts[site] = 0
    return case.total


def reserving(case: PlacementCase, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Divide a job of known bandwidth that no site holds whole; all else as of ``divide_with_reserve``.

    A job of another pattern is taken for one in which all talk to all, with the same bisection bandwidth.
    """
    sent_bit_s = all_to_all_bit_s(case.pattern, case.dimensions, case.total, case.per_processor_bit_s)
    return divide_with_reserve(case, sent_bit_s, RESERVE_KNOWN, idle, parts)


def reserving_learned(case: PlacementCase, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Divide a job of unknown bandwidth (B5), by ``case.per_processor_bit_s``, which is what is believed of it.

    Once a co-allocated job runs, its links show what it demands; what is believed of the next job is for the caller
    to keep, such as the mean of the bisection bandwidths seen so far, and 0 before anything was seen: then a job goes
    wherever there are idle processors, and shows what jobs send. A belief can be wrong, so that the reserve is larger
    than where bandwidth is known. A refused job stays refused while the belief stays; a lower one may place it.
    """
    return divide_with_reserve(case, case.per_processor_bit_s, RESERVE_BELIEVED, idle, parts)
