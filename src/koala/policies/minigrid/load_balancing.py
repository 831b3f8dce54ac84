"""B4, load balancing: a job is dealt out over the sites with open links, one processor at a time.

A plain function over integers that runs as Python and compiles with numba unchanged.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.open_sites import open_idle


def load_balancing(case: PlacementCase, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Deal the processors round the sites below the threshold with processors left, from the lowest index on.

    Full rounds are dealt at once, as many as the site with the fewest left allows. ``parts[site]`` gets the
    processors. Returns those left without a place: 0 when all are placed.
    """
    open_idle(case, idle)
    spare = case.spare
    for site in range(len(idle)):
        parts[site] = 0
    unplaced = case.total
    while unplaced > 0:
        dealt_to = 0
        rounds = unplaced
        for site in range(len(idle)):
            if spare[site] > 0:
                dealt_to += 1
                rounds = min(rounds, spare[site])
        if dealt_to == 0:
            return unplaced
        rounds = max(1, min(rounds, unplaced // dealt_to))
        for site in range(len(idle)):
            if spare[site] > 0 and unplaced > 0:
                spare[site] -= rounds
                parts[site] += rounds
                unplaced -= rounds
    return 0
