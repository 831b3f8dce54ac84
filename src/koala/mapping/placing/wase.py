"""Step 2 of WASE as in the paper: clusters onto suitable LANs, their tasks onto machines, the rest upwards.

Algorithms 1, 2 and 3, each as one function. Nothing here rolls back: the caller does, if a mapping fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from koala.mapping.placing.closest_first import SearchOrders, lans_below
from koala.mapping.placing.power_left import Placing, PowerLeft
from koala.mapping.placing.suitability import offered_power, wanted_power
from koala.mapping.result import NoPlace
from koala.model.dendrogram import LAN, LEVELS, FlatGrid

NAME = "wase"


def select_lans(placing: Placing, orders: SearchOrders, user_lan: int, *, lan_by_lan: bool) -> NoPlace | None:
    """Run algorithm 1: each cluster, largest need first, goes into the first suitable LAN in closest-first order.

    Tasks that do not fit there go into the surroundings. None means that every task has a machine.
    """
    for cluster in placing.clusters_by_need():
        tasks = placing.by_need(placing.clusters[cluster])
        needs = [placing.needs[task] for task in tasks]
        lan = first_suitable(placing.left, orders, user_lan, needs)
        if lan is None:
            return no_lan(placing, NAME, cluster)
        placing.homes[cluster] = lan
        unplaced = map_simply(placing, range(lan, lan + 1), tasks)
        if unplaced:
            unplaced = map_by_proxy(placing, orders, lan, unplaced, lan_by_lan=lan_by_lan)
        if unplaced:
            return no_machine(placing, NAME, cluster, unplaced[0])
    return None


def first_suitable(left: PowerLeft, orders: SearchOrders, user_lan: int, needs: Sequence[float]) -> int | None:
    """Return the first LAN with a suitability of at least 1."""
    wanted = wanted_power(needs)
    lan_best = left.lan_best
    for lan in orders.closest_first(user_lan):
        # No mean exceeds the best machine, so most full LANs are skipped quickly.
        if lan_best[lan] >= wanted and offered_power(left.of_lan(lan), len(needs)) >= wanted:
            return lan
    return None


def map_simply(placing: Placing, lans: range, tasks: Sequence[int]) -> list[int]:
    """Run algorithm 2: each task, in the given order, goes onto the machine of highest affinity in any of these LANs.

    The machine with most power left has the highest affinity for every task; ties by index. Tasks that fit nowhere
    are returned, in their order.
    """
    left = placing.left
    unplaced: list[int] = []
    for task in tasks:
        best = max(left.lan_best[lans.start : lans.stop], default=0.0)
        if best < placing.needs[task]:
            unplaced.append(task)
            continue
        lan = left.lan_best.index(best, lans.start, lans.stop)
        machines = left.flat.levels[LAN].sons[lan]
        placing.put(task, left.power.index(best, machines.start, machines.stop))
    return unplaced


def map_by_proxy(
    placing: Placing, orders: SearchOrders, lan: int, tasks: list[int], *, lan_by_lan: bool
) -> list[int]:
    """Run algorithm 3: the tasks go to the LAN's brothers by bandwidth, then to those of its MAN, then of its WAN.

    The machines below a MAN or WAN are taken all together or, with ``lan_by_lan``, one LAN after the other. Tasks
    that fit nowhere in the grid are returned.
    """
    flat = placing.left.flat
    node = lan
    for level in range(len(LEVELS)):
        for brother in orders.brothers(level, node):
            for lans in _visits(flat, level, brother, lan_by_lan=lan_by_lan):
                tasks = map_simply(placing, lans, tasks)
                if not tasks:
                    return []
        node = flat.levels[level].father[node]
    return tasks


def _visits(flat: FlatGrid, level: int, node: int, *, lan_by_lan: bool) -> Iterator[range]:
    """Yield the LANs below a node, all at once or one by one."""
    if not lan_by_lan:
        yield flat.levels[level].lans[node]
        return
    for lan in lans_below(flat, level, node):
        yield range(lan, lan + 1)


def no_lan(placing: Placing, method: str, cluster: int) -> NoPlace:
    """Return what a cluster without a suitable LAN asked for, and the LAN that came nearest."""
    left = placing.left
    tasks = placing.clusters[cluster]
    offers = [offered_power(left.of_lan(lan), len(tasks)) for lan in range(len(left.lan_best))]
    offered = max(offers, default=0.0)
    return NoPlace(
        method=method,
        cluster=tuple(placing.graph.names[task] for task in tasks),
        wanted=wanted_power([placing.needs[task] for task in tasks]),
        offered=offered,
        where=left.flat.levels[LAN].names[offers.index(offered)] if offered > 0 else None,
    )


def no_machine(placing: Placing, method: str, cluster: int, task: int) -> NoPlace:
    """Return what a task without a machine needed, and the machine with most power left."""
    left = placing.left
    offered = max(left.power, default=0.0)
    return NoPlace(
        method=method,
        cluster=tuple(placing.graph.names[each] for each in placing.clusters[cluster]),
        wanted=placing.needs[task],
        offered=offered,
        where=left.flat.machine_names[left.power.index(offered)] if offered > 0 else None,
        task=placing.graph.names[task],
    )
