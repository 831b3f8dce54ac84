"""The suitability of a LAN for a cluster: the paper's function of means, and packing, which keeps a cluster whole.

The paper's function may accept a LAN that cannot take every task, and reject one that can. Packing tests what matters
itself. Both are plain functions over powers; callers choose the LANs.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Sequence

from koala.mapping.placing.power_left import PowerLeft, Spot
from koala.model.dendrogram import LAN


def wanted_power(needs: Sequence[float]) -> float:
    """Return the mean power that the paper asks of a LAN's machines: the mean need plus its standard deviation."""
    mean = sum(needs) / len(needs)
    return mean + math.sqrt(sum((need - mean) ** 2 for need in needs) / len(needs))


def offered_power(powers: Sequence[float], tasks: int) -> float:
    """Return the mean of the best machines, as many as there are tasks or all; 0 if there are none.

    A machine with nothing left does not count: the paper takes it out of the grid.
    """
    best = sorted([power for power in powers if power > 0], reverse=True)[:tasks]
    # A mean is never above the largest value, but rounding could make it so.
    return min(sum(best) / len(best), best[0]) if best else 0.0


def suitability(powers: Sequence[float], needs: Sequence[float]) -> float:
    """Return the paper's suitability of machines with these powers for tasks with these needs; 1 and more is
    suitable."""
    return offered_power(powers, len(needs)) / wanted_power(needs)


def pack_loosely(left: PowerLeft, lan: int, needs: Sequence[float]) -> list[Spot] | None:
    """Put each task onto the machine with most power left; None if one finds no place. ``needs`` are decreasing.

    The paper does this in a LAN that it has chosen; it gives the tasks the highest affinity.
    """
    first = left.flat.levels[LAN].sons[lan].start
    powers = left.of_lan(lan)
    spots: list[Spot] = []
    for need in needs:
        best = max(powers, default=0.0)
        if best < need:
            return None
        place = powers.index(best)
        powers[place] = left.after(best, need)
        spots.append((first + place, best))
    return spots


def powers_by_size(left: PowerLeft, machines: range) -> list[tuple[float, int]]:
    """Return the machines with the power they have left, the least first; ties by index."""
    return sorted(zip(left.power[machines.start : machines.stop], machines, strict=True))


def best_fit(by_size: list[tuple[float, int]], left: PowerLeft, need: float) -> Spot | None:
    """Put a task onto the machine with the least sufficient power, and keep ``by_size`` in order."""
    place = bisect_left(by_size, (need, -1))
    if place == len(by_size):
        return None
    power, machine = by_size.pop(place)
    insort(by_size, (left.after(power, need), machine))
    return machine, power


def pack_tightly(left: PowerLeft, machines: range, needs: Sequence[float]) -> list[Spot] | None:
    """Put each task onto the machine with the least sufficient power; None if one finds no place.

    With decreasing ``needs`` this packs more tasks than putting each onto the best machine, at little affinity.
    """
    return pack_tightly_onto(powers_by_size(left, machines), left, needs)


def pack_tightly_onto(by_size: list[tuple[float, int]], left: PowerLeft, needs: Sequence[float]) -> list[Spot] | None:
    """Do the same on machines that are in order already, and use up ``by_size``."""
    spots: list[Spot] = []
    for need in needs:
        spot = best_fit(by_size, left, need)
        if spot is None:
            return None
        spots.append(spot)
    return spots


def may_take(left: PowerLeft, lan: int, needs: Sequence[float], total: float) -> bool:
    """Return True if packing tasks of this total need into a LAN is worth a try, by a quick test. ``needs`` are
    decreasing."""
    if left.lan_best[lan] < needs[0]:
        return False
    if left.exclusive:
        return len(left.flat.levels[LAN].sons[lan]) >= len(needs)
    return len(needs) == 1 or sum(left.of_lan(lan)) >= total


def pack_whole(left: PowerLeft, lan: int, needs: Sequence[float]) -> list[Spot] | None:
    """Put a cluster into one LAN, loosely if that works and else tightly; None if neither does.

    ``needs`` are decreasing.
    """
    return pack_loosely(left, lan, needs) or pack_tightly(left, left.flat.levels[LAN].sons[lan], needs)


def pack_most(left: PowerLeft, lan: int, needs: Sequence[float]) -> list[Spot]:
    """Put as many tasks as possible into one LAN, the smallest first, tightly. ``needs`` are increasing."""
    by_size = powers_by_size(left, left.flat.levels[LAN].sons[lan])
    spots: list[Spot] = []
    for need in needs:
        spot = best_fit(by_size, left, need)
        if spot is None:
            break
        spots.append(spot)
    return spots
