"""Tasks that an application spawns while it runs: they get machines, and no placed task moves.

A spawned task joins the cluster that it exchanges most with and goes into that cluster's LAN, or as near to it as
there is room. Spawned tasks that exchange nothing with any placed task form clusters of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

from koala.mapping.placing.catalogue import InvalidMappingError
from koala.mapping.placing.closest_first import SearchOrders
from koala.mapping.placing.power_left import Placing, PowerLeft
from koala.mapping.placing.suitability import pack_tightly
from koala.mapping.placing.wase import map_by_proxy, map_simply, no_machine
from koala.mapping.placing.whole_clusters import Lenient, place_cluster
from koala.mapping.result import NoPlace, TaskMapping, plurality_lan
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph

# The partners of each task, and how much it exchanges with each.
Exchanged: TypeAlias = list[list[tuple[int, float]]]


def left_by(mapping: TaskMapping, graph: TaskGraph, dendrogram: Dendrogram, *, exclusive: bool = False) -> PowerLeft:
    """Return what a mapped application leaves of a grid whose loads are those before it started."""
    left = PowerLeft(dendrogram.flat, exclusive=exclusive)
    for task, machine in enumerate(mapping.machines):
        # The tasks are subtracted in a different order than they came, which rounding may reveal.
        left.set(machine, max(0.0, left.after(left.power[machine], graph.mcr * graph.rcr[task])))
    return left


def map_spawned(
    graph: TaskGraph,
    mapping: TaskMapping,
    dendrogram: Dendrogram,
    *,
    left: PowerLeft | None = None,
    user_lan: str | None = None,
) -> TaskMapping | NoPlace:
    """Return machines for the tasks of ``graph`` after those that ``mapping`` has placed, which stay where they are.

    ``left`` is what the machines have left now, which the spawned tasks take from; by default, what the mapping
    leaves of the grid. A failure leaves it unchanged.
    """
    placed = len(mapping.machines)
    if placed > len(graph.names):
        raise InvalidMappingError(f"{placed} tasks are placed, and the graph has {len(graph.names)}; grow it first")
    clusters = joined(graph, mapping.clusters)
    placing = Placing(graph, clusters, left_by(mapping, graph, dendrogram) if left is None else left)
    placing.machines[:placed] = mapping.machines
    placing.affinities[:placed] = mapping.affinities
    placing.homes[: len(mapping.homes)] = mapping.homes
    start = dendrogram.flat.lan_of_name(dendrogram.user_lan if user_lan is None else user_lan)
    refused = _place_spawned(placing, mapping, start)
    if refused is not None:
        placing.roll_back()
        if not _pack_spawned(placing, mapping):
            placing.roll_back()
            return refused
    return placing.mapping(mapping.method, scarce=mapping.scarce or refused is not None)


def _place_spawned(placing: Placing, mapping: TaskMapping, user_lan: int) -> NoPlace | None:
    """Place the spawned tasks of each cluster, largest need first, in and around its LAN."""
    orders = SearchOrders(placing.left.flat)
    spawned = [[task for task in cluster if task >= len(mapping.machines)] for cluster in placing.clusters]
    total = [sum(placing.needs[task] for task in tasks) for tasks in spawned]
    for cluster in sorted(range(len(spawned)), key=lambda cluster: (-total[cluster], cluster)):
        if cluster < len(mapping.clusters):
            home = mapping.homes[cluster]
            unplaced = map_simply(placing, range(home, home + 1), placing.by_need(spawned[cluster]))
            unplaced = map_by_proxy(placing, orders, home, unplaced, lan_by_lan=True)
        else:
            unplaced = place_cluster(placing, orders, user_lan, cluster, Lenient())
        if unplaced:
            return no_machine(placing, mapping.method, cluster, unplaced[0])
    return None


def _pack_spawned(placing: Placing, mapping: TaskMapping) -> bool:
    """Pack the spawned tasks tightly over the whole grid; return False, with nothing placed, if one finds no
    place."""
    tasks = placing.by_need(range(len(mapping.machines), len(placing.needs)))
    left = placing.left
    spots = pack_tightly(left, range(len(left.power)), [placing.needs[task] for task in tasks])
    if spots is None:
        return False
    placing.put_all(tasks, spots)
    for cluster in range(len(mapping.clusters), len(placing.clusters)):
        machines = [placing.machines[task] for task in placing.clusters[cluster]]
        placing.homes[cluster] = plurality_lan(left.flat, machines)
    return True


def joined(graph: TaskGraph, clusters_before: Sequence[Sequence[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the clusters of the graph's first tasks with the spawned tasks that join them, followed by the clusters
    of spawned tasks without edges to them."""
    label = [-1] * len(graph.names)
    clusters = [list(cluster) for cluster in clusters_before]
    placed = sum(map(len, clusters))
    for index, cluster in enumerate(clusters):
        for task in cluster:
            label[task] = index
    exchanged: Exchanged = [[] for _ in graph.names]
    for one, other, rqoc in graph.edges:
        if other >= placed:  # the second end of an edge comes later; placed tasks no longer move
            exchanged[one].append((other, rqoc))
            exchanged[other].append((one, rqoc))
    _join(exchanged, label, range(placed), clusters)
    for task in range(len(label)):
        if label[task] < 0:
            label[task] = len(clusters)
            clusters.append([task])
            _join(exchanged, label, [task], clusters)
    return tuple(map(tuple, clusters))


def _join(exchanged: Exchanged, label: list[int], sources: Iterable[int], clusters: list[list[int]]) -> None:
    """Let tasks without a cluster join those of the sources, and of each other, the strongest tie first."""
    pull: dict[tuple[int, int], float] = {}
    strongest: list[tuple[float, int, int]] = []
    fresh = list(sources)
    while fresh or strongest:
        for source in fresh:
            for task, rqoc in exchanged[source]:
                if label[task] < 0:
                    tie = (task, label[source])
                    pull[tie] = pull.get(tie, 0.0) + rqoc
                    heappush(strongest, (-pull[tie], *tie))
        fresh = []
        if strongest:
            _, task, cluster = heappop(strongest)
            # Ties only grow, so a task's first entry to come up is its strongest.
            if label[task] < 0:
                label[task] = cluster
                clusters[cluster].append(task)
                fresh = [task]
