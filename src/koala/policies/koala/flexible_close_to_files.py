"""FCF, close to files for flexible requests: a total is divided so that the input files arrive soonest.

Plain functions over numbers that run as Python and compile with numba unchanged. The estimates come from
``koala.policies.transfer_estimates``; ``koala.policies.interface`` handles requests, names and refusals.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from math import inf

from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.koala.frozen_order import next_most_idle


def room_within(
    idle: Sequence[int],
    fixed_s: Sequence[float],
    per_processor_s: Sequence[float],
    time_s: float,
    room: MutableSequence[int],
) -> None:
    """Write to ``room`` how many processors each site can have whose input arrives within ``time_s``."""
    for site in range(len(idle)):
        fixed, each = fixed_s[site], per_processor_s[site]
        if fixed == inf or fixed > time_s:
            room[site] = 0
        elif each <= 0.0 or fixed + each * idle[site] <= time_s:
            room[site] = idle[site]
        else:
            fits = int((time_s - fixed) / each)
            # The division may round either way; all comparisons use the sum.
            while fixed + each * (fits + 1) <= time_s:
                fits += 1
            while fits > 0 and fixed + each * fits > time_s:
                fits -= 1
            room[site] = fits


def fewest_parts(room: Sequence[int], total: int, component_min: int, components_max: int) -> int:
    """Return the least number of parts in which the total fits, within the bounds; 0 if it does not."""
    count = 0
    unplaced = total
    site = -1
    while unplaced > 0:
        site = next_most_idle(room, component_min, site)
        if site < 0 or count >= components_max:
            return 0
        unplaced -= room[site]
        count += 1
    return count if count * component_min <= total else 0


def last_before(fixed: float, each: float, low: int, high: int, time_s: float) -> int:
    """Return the greatest size from ``low`` to ``high`` whose input arrives before ``time_s``; ``low - 1`` for
    none."""
    while low <= high:
        middle = (low + high) // 2
        if fixed + each * middle < time_s:
            low = middle + 1
        else:
            high = middle - 1
    return high


def least_time_s(
    idle: Sequence[int],
    total: int,
    component_min: int,
    components_max: int,
    fixed_s: Sequence[float],
    per_processor_s: Sequence[float],
    room: MutableSequence[int],
) -> float:
    """Return the earliest time by which the input of some division can be everywhere; infinite if none fits.

    It is the time of the part that gets its input last, so only the times of whole parts at one site are candidates.
    The search halves the range of each site, below the best time so far. ``room`` is scratch space.
    """
    best_s = inf
    for site in range(len(idle)):
        fixed, each = fixed_s[site], per_processor_s[site]
        low = max(1, component_min)
        high = last_before(fixed, each, low, min(idle[site], total), best_s)
        if high < low:
            continue
        room_within(idle, fixed_s, per_processor_s, fixed + each * high, room)
        if fewest_parts(room, total, component_min, components_max) == 0:
            continue
        while low < high:
            middle = (low + high) // 2
            room_within(idle, fixed_s, per_processor_s, fixed + each * middle, room)
            if fewest_parts(room, total, component_min, components_max) > 0:
                high = middle
            else:
                low = middle + 1
        best_s = fixed + each * high
    return best_s


def flexible_close_to_files(
    idle: Sequence[int],
    total: int,
    component_min: int,
    components_max: int,
    fixed_s: Sequence[float],
    per_processor_s: Sequence[float],
    parts: MutableSequence[int],
) -> int:
    """Divide the total so that the last part gets its input as early as possible; then in as few parts
    as that allows.

    A part of p processors at a site has its input after ``fixed_s[site] + p * per_processor_s[site]``; a site with an
    infinite ``fixed_s`` cannot be reached. The sites are those with the most room within that time, ties to the
    lowest index, filled in this order, and each part holds ``component_min`` at least. ``parts`` and the answer are
    as for FCM, and whatever FCM could divide over the sites that can be reached is divided. To compile this with
    numba, make the functions that it calls known first with ``numba.extending.register_jitable``.
    """
    room = [0] * len(idle)
    time_s = least_time_s(idle, total, component_min, components_max, fixed_s, per_processor_s, room)
    room_within(idle, fixed_s, per_processor_s, time_s, room)
    return flexible_cluster_minimization(room, total, component_min, components_max, parts)
