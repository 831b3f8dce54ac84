"""Mapping when machines are scarce: clusters stay together as far as all other tasks still find a place.

Before a cluster is placed, there is a plan for the tasks after it, as the greedy baseline would place them. A place
for a cluster counts only if such a plan remains, so this never fails where greedy succeeds.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from koala.mapping.placing.closest_first import SearchOrders
from koala.mapping.placing.power_left import Placing
from koala.mapping.placing.suitability import may_take, pack_loosely, pack_tightly, pack_tightly_onto, powers_by_size
from koala.mapping.placing.whole_clusters import part_choice
from koala.mapping.result import plurality_lan
from koala.model.dendrogram import LAN

# Machines with the power they have left, the least first; ties by index.
BySize: TypeAlias = list[tuple[float, int]]

# The most LANs that take a cluster whole and are tried for it, until one leaves room for the tasks after it.
SCARCE_TRIES_MAX = 50


def map_scarcely(placing: Placing, orders: SearchOrders, user_lan: int) -> bool:
    """Place every task; return False, with nothing placed, if greedy finds no place for one."""
    later = placing.by_need(range(len(placing.needs)))
    by_size = powers_by_size(placing.left, range(len(placing.left.power)))
    plan = _plan(placing, by_size, later)
    if plan is None:
        return False
    for cluster in placing.clusters_by_need():
        members = set(placing.clusters[cluster])
        tasks = [task for task in later if task in members]
        later = [task for task in later if task not in members]
        kept = _place_whole(placing, orders, user_lan, by_size, tasks, later)
        if kept is None:
            kept = _place_parts(placing, orders, user_lan, by_size, tasks, later, plan)
        plan = kept
        by_size = _resized(placing, by_size, tasks)
        placing.homes[cluster] = plurality_lan(placing.left.flat, [placing.machines[task] for task in tasks])
    return True


def _plan(placing: Placing, by_size: BySize, tasks: Sequence[int]) -> dict[int, int] | None:
    """Return a machine for each of these tasks, largest need first, on what is left; None if best fit finds none."""
    spots = pack_tightly_onto(by_size.copy(), placing.left, [placing.needs[task] for task in tasks])
    return None if spots is None else {task: spot[0] for task, spot in zip(tasks, spots, strict=True)}


def _resized(placing: Placing, by_size: BySize, tasks: Iterable[int]) -> BySize:
    """Return the machines by size after these tasks have come; only their machines have changed."""
    machines = {placing.machines[task] for task in tasks}
    kept = [each for each in by_size if each[1] not in machines]
    for machine in machines:
        insort(kept, (placing.left.power[machine], machine))
    return kept


def _place_whole(
    placing: Placing, orders: SearchOrders, user_lan: int, by_size: BySize, tasks: list[int], later: list[int]
) -> dict[int, int] | None:
    """Place the tasks in the closest LAN that leaves room for those after them; return the plan for these, or
    None."""
    left = placing.left
    needs = [placing.needs[task] for task in tasks]
    total = sum(needs)
    mark = placing.mark()
    tries = 0
    for lan in orders.closest_first(user_lan):
        if not may_take(left, lan, needs, total):
            continue
        spots = pack_tightly(left, left.flat.levels[LAN].sons[lan], needs) or pack_loosely(left, lan, needs)
        if spots is None:
            continue
        placing.put_all(tasks, spots)
        plan = _plan(placing, _resized(placing, by_size, tasks), later)
        if plan is not None:
            return plan
        placing.roll_back(mark)
        tries += 1
        if tries >= SCARCE_TRIES_MAX:
            break
    return None


def _place_parts(
    placing: Placing,
    orders: SearchOrders,
    user_lan: int,
    by_size: BySize,
    tasks: list[int],
    later: list[int],
    plan: dict[int, int],
) -> dict[int, int]:
    """Place as many of the tasks as the others allow in the LAN that has room for most, and the rest as planned.

    A task that goes to its planned machine leaves the plan of all others unchanged.
    """
    most = part_choice(placing, orders.closest_first(user_lan), tasks)
    machines = placing.left.flat.levels[LAN].sons[most.lan] if most is not None else range(0)
    open_tasks = list(tasks)
    for task in reversed(tasks):
        spots = pack_tightly(placing.left, machines, [placing.needs[task]])
        if spots is None:
            break
        mark = placing.mark()
        placing.put(task, spots[0][0])
        waiting = [each for each in open_tasks if each != task]
        resized = _resized(placing, by_size, [task])
        kept = _plan(placing, resized, placing.by_need([*waiting, *later]))
        if kept is None:
            placing.roll_back(mark)
            continue
        plan, open_tasks, by_size = kept, waiting, resized
    for task in open_tasks:
        placing.put(task, plan[task])
    return plan
