"""A1, satisfying: a job is divided so that no link is ever used beyond the threshold.

Plain functions over numbers that run as Python and compile with numba unchanged. If all n processors talk to each
other, a part of x processors sends as much as a part of n - x. So a link with little room allows a few processors or
nearly all, and nothing between: x <= low or x >= n - low. Two parts cannot both be large, so solutions are found
without a search.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from math import sqrt

from koala.model.network import ALL_TO_ALL, RING, SILENT, UNLIMITED_BIT_S, crossing, demand_bit_s
from koala.policies.koala.frozen_order import next_most_idle
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.open_sites import link_limit_bit_s

# The choice among solutions. The first two are the first solution where each site, in the order of the indexes or of
# the idle processors, takes as many as still lead to one; the others are the best of all.
INDEX_ORDER = 0
MOST_FREE_ORDER = 1
FEWEST_CLUSTERS = 2
LEAST_BANDWIDTH = 3


def link_room_bit_s(demand: int, capacity: int, threshold: float) -> int:
    """Return what a link may take besides its demand; never negative, since a part without traffic does no harm."""
    if capacity >= UNLIMITED_BIT_S:
        return UNLIMITED_BIT_S
    return max(0, link_limit_bit_s(capacity, threshold) - demand)


def part_demand_bit_s(total: int, part: int, per_processor_bit_s: float) -> int:
    """Return the link demand of a part of a job whose processors all talk to each other,
    as in koala.model.network."""
    return demand_bit_s(per_processor_bit_s, part * (total - part) / (total - 1))


def low_limit(pattern: int, total: int, per_processor_bit_s: float, room_bit_s: int) -> int:
    """Return the largest small part for which a link has room: the total if it has room for parts of any size.

    Every smaller part, and every part that leaves no more than this to other sites, fits as well.
    """
    if total < 2 or pattern == SILENT:
        return total
    if pattern == RING:
        return total if demand_bit_s(per_processor_bit_s, 1.0) <= room_bit_s else 0
    half = total // 2
    if part_demand_bit_s(total, half, per_processor_bit_s) <= room_bit_s:
        return total
    # If the halves do not fit, one processor sends something: the bandwidth is above 0. The root is the formula of
    # the paper; the steps correct it to the whole bits in which demand is counted.
    discriminant = float(total) * total - 4.0 * room_bit_s * (total - 1) / per_processor_bit_s
    low = min(half, max(0, int((total - sqrt(max(0.0, discriminant))) / 2)))
    while low < half and part_demand_bit_s(total, low + 1, per_processor_bit_s) <= room_bit_s:
        low += 1
    while low > 0 and part_demand_bit_s(total, low, per_processor_bit_s) > room_bit_s:
        low -= 1
    return low


def takes_large_part(idle: int, total: int, low: int) -> bool:
    """Return True if a site may also take a part that leaves no more than ``low`` processors to the others."""
    return low < total - low <= idle


def largest_part(
    idle: Sequence[int], total: int, low: Sequence[int], parts: Sequence[int], site: int, unplaced: int, later: int
) -> int:
    """Return the most that a site can take so that the undecided sites can take the rest; -1 for nothing.

    Undecided sites have a part below 0; ``later`` is what they take in small parts, without this site.
    """
    if takes_large_part(idle[site], total, low[site]):
        part = min(idle[site], unplaced)
        if part >= total - low[site] and unplaced - part <= later:
            return part
    part = min(low[site], unplaced)
    if unplaced - part <= later:
        return part
    # One of the others must take a large part, and this site leaves it enough for that.
    best = -1
    for other in range(len(idle)):
        if parts[other] >= 0 or other == site or not takes_large_part(idle[other], total, low[other]):
            continue
        part = min(low[site], unplaced - (total - low[other]))
        if part > best and unplaced - part <= min(idle[other], total) + later - low[other]:
            best = part
    return best


def satisfy_in_order(
    idle: Sequence[int], total: int, low: Sequence[int], most_free: bool, parts: MutableSequence[int]
) -> int:
    """Return the first solution in an order of the sites; each takes the most with which there still is one."""
    later = 0
    for site in range(len(idle)):
        parts[site] = -1
        later += low[site]
    unplaced = total
    previous = -1
    while unplaced > 0:
        site = previous + 1
        if most_free:
            site = next_most_idle(idle, 1, previous)
        if site < 0 or site >= len(idle):
            break
        previous = site
        later -= low[site]
        part = largest_part(idle, total, low, parts, site, unplaced, later)
        if part < 0:
            break
        parts[site] = part
        unplaced -= part
    for site in range(len(idle)):
        if parts[site] < 0 or unplaced > 0:
            parts[site] = 0
    return total if unplaced > 0 else 0


def satisfy_around(
    idle: Sequence[int], total: int, low: Sequence[int], large: int, parts: MutableSequence[int]
) -> int:
    """Divide with a large part on one site (-1: on none) and then the largest small ones; return what is left over.

    No other division with its large part there has as much in its one, two, three ... largest parts, so that none is
    on fewer sites or sends less.
    """
    for site in range(len(idle)):
        parts[site] = 0
    unplaced = total
    if large >= 0:
        parts[large] = min(idle[large], total)
        unplaced -= parts[large]
    previous = -1
    while unplaced > 0:
        previous = next_most_idle(low, 1, previous)
        if previous < 0:
            return unplaced
        if previous != large:
            parts[previous] = min(low[previous], unplaced)
            unplaced -= parts[previous]
    return 0


def satisfy_best(
    idle: Sequence[int], total: int, low: Sequence[int], fewest: bool, parts: MutableSequence[int]
) -> int:
    """Find the solution on the fewest sites, then with the least bandwidth; or the other way round.

    Ties go to the solution without a large part, then to the solution with it on the lowest index.
    """
    best = -2
    best_sites = 0
    best_squares = 0
    for large in range(-1, len(idle)):
        if large >= 0 and not takes_large_part(idle[large], total, low[large]):
            continue
        if satisfy_around(idle, total, low, large, parts) > 0:
            continue
        sites = 0
        squares = 0
        for site in range(len(idle)):
            sites += 1 if parts[site] > 0 else 0
            squares += parts[site] * parts[site]
        # The parts together send (total^2 - squares) / (total - 1) times what one processor sends.
        if fewest:
            better = sites < best_sites or (sites == best_sites and squares > best_squares)
        else:
            better = squares > best_squares or (squares == best_squares and sites < best_sites)
        if best == -2 or better:
            best = large
            best_sites = sites
            best_squares = squares
    if best == -2:
        for site in range(len(idle)):
            parts[site] = 0
        return total
    return satisfy_around(idle, total, low, best, parts)


def links_hold(case: PlacementCase, parts: Sequence[int]) -> bool:
    """Return True if every site's link has room for the traffic of these parts."""
    for site in range(len(parts)):
        crossed = crossing(case.pattern, case.dimensions, parts, case.total, site)
        room_bit_s = link_room_bit_s(case.demand[site], case.capacity[site], case.threshold)
        if demand_bit_s(case.per_processor_bit_s, crossed) > room_bit_s:
            return False
    return True


def satisfying(case: PlacementCase, choice: int, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Divide the total so that no link exceeds the threshold, by the choice of solution.

    For jobs whose processors all talk to each other, or in a ring, or not at all, a solution is found whenever one
    exists. For others the solution as if all talked to each other is taken if the links hold it, else none.
    ``parts[site]`` gets the processors. Returns 0 when placed, else the total.
    """
    low = case.spare
    for site in range(len(idle)):
        room_bit_s = link_room_bit_s(case.demand[site], case.capacity[site], case.threshold)
        low[site] = min(idle[site], low_limit(case.pattern, case.total, case.per_processor_bit_s, room_bit_s))
    if choice in (FEWEST_CLUSTERS, LEAST_BANDWIDTH):
        unplaced = satisfy_best(idle, case.total, low, choice == FEWEST_CLUSTERS, parts)
    else:
        unplaced = satisfy_in_order(idle, case.total, low, choice == MOST_FREE_ORDER, parts)
    if unplaced > 0 or case.pattern in (ALL_TO_ALL, RING, SILENT):
        return unplaced
    if links_hold(case, parts):
        return 0
    for site in range(len(idle)):
        parts[site] = 0
    return case.total
