"""The share of each link that co-allocation may use: the threshold on saturation, and the sites it leaves open.

Plain functions over numbers that run as Python and compile with numba unchanged. A threshold of 1 lets a link fill up
to its capacity, 0.8 to four fifths of it; above 1, links may be oversaturated up to it before they are closed.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.network import UNLIMITED_BIT_S
from koala.policies.minigrid.case import PlacementCase


def link_limit_bit_s(capacity_bit_s: int, threshold: float) -> int:
    """Return the demand at which a link has reached the threshold, to the nearest bit per second.

    An unlimited link has no threshold either.
    """
    if capacity_bit_s >= UNLIMITED_BIT_S:
        return UNLIMITED_BIT_S
    limit = threshold * capacity_bit_s
    if limit >= UNLIMITED_BIT_S:
        return UNLIMITED_BIT_S
    return int(limit + 0.5)


def is_open(demand_bit_s: int, capacity_bit_s: int, threshold: float) -> bool:
    """Return True if a link is below the threshold; a link without a capacity always is."""
    if capacity_bit_s >= UNLIMITED_BIT_S:
        return True
    return demand_bit_s < link_limit_bit_s(capacity_bit_s, threshold)


def saturation(demand_bit_s: int, capacity_bit_s: int) -> float:
    """Return the demand on a link as a multiple of its capacity, which is 1 or more; 0 for a link
    without a capacity."""
    # As floats, since Python divides whole numbers exactly, however large, and compiled code does not.
    return 0.0 if capacity_bit_s >= UNLIMITED_BIT_S else float(demand_bit_s) / float(capacity_bit_s)


def open_idle(case: PlacementCase, idle: Sequence[int]) -> None:
    """Write to ``case.spare`` what is idle on the sites with open links, and 0 for the others."""
    for site in range(len(idle)):
        case.spare[site] = idle[site] if is_open(case.demand[site], case.capacity[site], case.threshold) else 0
