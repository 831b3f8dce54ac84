"""A2, reserving: a job is divided where each link has room for it and for a reserve in proportion to what it sends.

Plain functions over numbers that run as Python and compile with numba unchanged. Bandwidth is scarce and the next job
may make better use of it: so a job that sends much must leave more behind than one that sends little, which may fill
a link to the threshold. Of the divisions allowed, the one is taken whose traffic is cheapest, and on busy links
traffic costs more.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.model.network import ALL_TO_ALL, UNLIMITED_BIT_S
from koala.policies.minigrid.open_sites import link_limit_bit_s, saturation
from koala.policies.minigrid.satisfy import low_limit, part_demand_bit_s, takes_large_part

# A link is left with this share of what the job sends, besides what the job takes, until the threshold.
RESERVE_KNOWN = 0.3
# Links may be filled a little beyond their capacity by jobs that send little: their processors stay idle otherwise.
RESERVING_THRESHOLD = 1.1


def reserved_room_bit_s(demand: int, capacity: int, threshold: float, reserve: float) -> int:
    """The most that one job may add to a link so that its reserve still fits below the threshold; never negative."""
    if capacity >= UNLIMITED_BIT_S:
        return UNLIMITED_BIT_S
    return max(0, int((link_limit_bit_s(capacity, threshold) - demand) / (1.0 + reserve)))


def next_small_site(
    demand: Sequence[int],
    capacity: Sequence[int],
    idle: Sequence[int],
    low: Sequence[int],
    unplaced: int,
    parts: Sequence[int],
) -> int:
    """The site for the next small part: the tightest that takes all that is unplaced, else the one that takes most.

    Equally tight sites go by the saturation of their links, least first, then by index; -1 where none is left.
    """
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
                and saturation(demand[site], capacity[site]) < saturation(demand[best], capacity[best])
            )
        elif not better and not best_fits:
            better = low[site] > low[best]
        if better:
            best = site
            best_fits = fits
    return best


def divide_around(
    anchor: int,
    idle: Sequence[int],
    total: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    low: Sequence[int],
    parts: MutableSequence[int],
) -> int:
    """The division with as much as is allowed on one site, then small parts on others; what is left over."""
    for site in range(len(idle)):
        parts[site] = 0
    parts[anchor] = min(idle[anchor], total) if takes_large_part(idle[anchor], total, low[anchor]) else low[anchor]
    unplaced = total - parts[anchor]
    while unplaced > 0:
        site = next_small_site(demand, capacity, idle, low, unplaced, parts)
        if site < 0:
            return unplaced
        parts[site] = min(low[site], unplaced)
        unplaced -= parts[site]
    return 0


def traffic_price(
    total: int, demand: Sequence[int], capacity: Sequence[int], per_processor_bit_s: float, parts: Sequence[int]
) -> float:
    """What a division takes of the links, as shares of their capacities: a share of a full link counts twice."""
    price = 0.0
    for site in range(len(parts)):
        if parts[site] > 0:
            share = saturation(part_demand_bit_s(total, parts[site], per_processor_bit_s), capacity[site])
            price += share * (1.0 + saturation(demand[site], capacity[site]) + 0.5 * share)
    return price


def divide_with_reserve(
    idle: Sequence[int],
    total: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    per_processor_bit_s: float,
    threshold: float,
    reserve: float,
    spare: MutableSequence[int],
    parts: MutableSequence[int],
) -> int:
    """The cheapest of the divisions around each site in turn that leave every link its reserve.

    One is found whenever there is any such division at all, so that a refused job stays refused while idle processors
    only fall and demands only rise. Ties go to the larger parts, then to the lowest site. ``spare`` is scratch room,
    ``parts[site]`` gets the processors. Returns 0 when placed, else the total.
    """
    for site in range(len(idle)):
        room_bit_s = reserved_room_bit_s(demand[site], capacity[site], threshold, reserve)
        spare[site] = min(idle[site], low_limit(ALL_TO_ALL, total, per_processor_bit_s, room_bit_s))
    best = -1
    best_price = 0.0
    best_squares = 0
    for anchor in range(len(idle)):
        if spare[anchor] <= 0 or divide_around(anchor, idle, total, demand, capacity, spare, parts) > 0:
            continue
        price = traffic_price(total, demand, capacity, per_processor_bit_s, parts)
        squares = 0
        for site in range(len(idle)):
            squares += parts[site] * parts[site]
        if best < 0 or price < best_price or (price == best_price and squares > best_squares):
            best = anchor
            best_price = price
            best_squares = squares
    if best >= 0:
        return divide_around(best, idle, total, demand, capacity, spare, parts)
    for site in range(len(idle)):
        parts[site] = 0
    return total


def reserving(
    idle: Sequence[int],
    total: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    per_processor_bit_s: float,
    threshold: float,
    spare: MutableSequence[int],
    parts: MutableSequence[int],
) -> int:
    """Divide a job of known bandwidth that no site holds whole; all else as of ``divide_with_reserve``."""
    return divide_with_reserve(
        idle, total, demand, capacity, per_processor_bit_s, threshold, RESERVE_KNOWN, spare, parts
    )
