"""FCM, flexible cluster minimization: a total is divided over as few sites as possible.

A plain function over integers that runs as Python and compiles with numba unchanged. ``koala.policies.interface``
handles requests, names and refusals.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.policies.koala.frozen_order import next_most_idle


def filled_before(idle: Sequence[int], parts: Sequence[int], later: int) -> int:
    """Return the site that was filled just before ``later``; -1 for none."""
    found = -1
    for site in range(len(idle)):
        if parts[site] <= 0 or idle[site] < idle[later] or (idle[site] == idle[later] and site >= later):
            continue
        if found < 0 or idle[site] < idle[found] or (idle[site] == idle[found] and site > found):
            found = site
    return found


def flexible_cluster_minimization(
    idle: Sequence[int], total: int, component_min: int, components_max: int, parts: MutableSequence[int]
) -> int:
    """Fill the sites, most idle first (ties to the lowest index), until the total is placed.

    ``parts[site]`` gets the processors taken there, 0 for an unused site. A part holds ``component_min`` or more:
    smaller sites are passed over, and if the last part would be smaller, the parts before it give up the missing
    processors, the last of them first. No other division needs fewer sites, and if this finds none there is none.
    Returns the processors left without a place: 0 when all are placed; otherwise ``parts`` holds no placement.
    Needing more than ``components_max`` parts is a failure too.
    """
    for site in range(len(idle)):
        parts[site] = 0
    unplaced = total
    made = 0
    last = -1
    while unplaced > 0:
        following = next_most_idle(idle, component_min, last)
        if following < 0 or made >= components_max or (made + 1) * component_min > total:
            return unplaced
        last = following
        parts[last] = idle[last]
        made += 1
        unplaced -= idle[last]
    # The sites were filled completely: the excess goes back, from the last site first.
    excess = -unplaced
    while excess > 0:
        back = min(excess, parts[last] - component_min)
        parts[last] -= back
        excess -= back
        last = filled_before(idle, parts, last)
    return 0
