"""B2, least saturated first: a job is divided over the sites with open links, the least used links first.

Plain functions over numbers that run as Python and compile with numba unchanged.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.open_sites import open_idle, saturation


def part_here(idle_here: int, unplaced: int, component_min: int) -> int:
    """Return the part of a total that a site takes, so that no remainder below the minimum is left; 0:
    pass it over."""
    take = min(idle_here, unplaced)
    remainder = unplaced - take
    if 0 < remainder < component_min:
        take -= component_min - remainder
    return take if take >= component_min else 0


def next_least_saturated(case: PlacementCase, previous: int) -> int:
    """Return the site after ``previous`` (-1: the first) by saturation, ties by index, that takes a part;
    -1 for none."""
    best = -1
    best_saturation = 0.0
    floor = -1.0 if previous < 0 else saturation(case.demand[previous], case.capacity[previous])
    for site in range(len(case.spare)):
        if case.spare[site] <= 0 or case.spare[site] < case.component_min:
            continue
        own = saturation(case.demand[site], case.capacity[site])
        if own < floor or (own == floor and site <= previous):
            continue
        if best < 0 or own < best_saturation:
            best = site
            best_saturation = own
    return best


def least_saturated_first(case: PlacementCase, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Fill the sites below the threshold, the least saturated first (ties to the lowest index).

    Parts hold ``component_min`` or more, as FCM makes them. ``parts[site]`` gets the processors. Returns those left
    without a place: 0 when all are placed.
    """
    open_idle(case, idle)
    for site in range(len(idle)):
        parts[site] = 0
    unplaced = case.total
    made = 0
    site = -1
    while unplaced > 0:
        site = next_least_saturated(case, site)
        if site < 0:
            return unplaced
        take = part_here(case.spare[site], unplaced, case.component_min)
        if take == 0:
            continue
        if made >= case.components_max:
            return unplaced
        parts[site] = take
        made += 1
        unplaced -= take
    return 0
