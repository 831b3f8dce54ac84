"""FCM, flexible cluster minimization: a total is divided over as few sites as possible.

A plain function over integers that runs as Python and compiles with numba unchanged. Requests, names and
refusals are the business of ``koala.policies.front_door``.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence


def part_here(idle_here: int, unplaced: int, component_min: int) -> int:
    """The part of a total that a site takes, so that no remainder below the minimum is left; 0: pass it over."""
    take = min(idle_here, unplaced)
    remainder = unplaced - take
    if 0 < remainder < component_min:
        take -= component_min - remainder
    return take if take >= component_min else 0


def flexible_cluster_minimization(
    idle: Sequence[int], total: int, component_min: int, components_max: int, parts: MutableSequence[int]
) -> int:
    """Fill the sites, most idle first (ties to the lowest index), until the total has a place.

    ``parts[site]`` gets the processors taken there, 0 where nothing is. A part holds ``component_min`` or more:
    smaller sites are passed over, and where filling a site would strand a remainder below the minimum, the
    part is made smaller so that the remainder is exactly the minimum (or the site is passed over if the part
    would then be too small itself). Returns the processors left without a place: 0 when all are placed; what
    ``parts`` holds otherwise is no placement. Needing more than ``components_max`` parts is a failure too.
    """
    for site in range(len(idle)):
        parts[site] = 0
    unplaced = total
    made = 0
    previous = -1
    while unplaced > 0:
        # The next site of the frozen order is found by one pass, so that nothing is allocated or sorted.
        best = -1
        for site in range(len(idle)):
            if idle[site] <= 0 or idle[site] < component_min:
                continue
            if previous >= 0:
                if idle[site] > idle[previous]:
                    continue
                if idle[site] == idle[previous] and site <= previous:
                    continue
            if best < 0 or idle[site] > idle[best]:
                best = site
        if best < 0:
            return unplaced
        previous = best
        take = part_here(idle[best], unplaced, component_min)
        if take == 0:
            continue
        if made >= components_max:
            return unplaced
        parts[best] = take
        made += 1
        unplaced -= take
    return 0
