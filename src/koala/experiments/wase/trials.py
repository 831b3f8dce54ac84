"""One graph on every grid of a seed, in all cluster sizes and requirements, by every method: a unit of the study.

Graphs and grids depend on the seed and their place in the study alone, so every method, cluster size and requirement
meets the same ones. What the numbers amount to is in ``data``.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import Annotated, Any, NamedTuple

import msgspec

from koala.experiments.frame.experiment import Parameters
from koala.experiments.wase.spawning import SPAWNED, InitialTasks, begun, spawned_mappings
from koala.mapping.clustering.catalogue import Clustering, ClusterSizeError, cluster
from koala.mapping.placing.catalogue import MappingOptions, map_tasks
from koala.mapping.placing.optimal import no_mapping_exists
from koala.mapping.placing.soft_bandwidth import bandwidth_measured
from koala.mapping.random_graphs import random_task_graph
from koala.mapping.random_grids import GridShape, random_grid
from koala.mapping.result import NoPlace, TaskMapping, measured
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph

WASE = "wase"
GREEDY = "greedy"
GREEDY_SCAN = "greedy-scan"
WHOLE = "wase-whole"
FAR = "wase-far"
SOFT = "wase-soft"
ALL = "wase-all"
BY_LAN = "wase, LAN by LAN"
# What is run -> the method and whether WASE's third algorithm goes LAN by LAN, the other reading of the paper.
METHODS = {
    WASE: (WASE, False),
    BY_LAN: (WASE, True),
    GREEDY: (GREEDY, False),
    GREEDY_SCAN: (GREEDY_SCAN, False),
    WHOLE: (WHOLE, False),
    FAR: (FAR, False),
    SOFT: (SOFT, False),
    ALL: (ALL, False),
}
# Of a mapping: what ``MappingMeasures`` has; the share of tasks at each distance from their cluster's LAN, where
# the first is the LAN hit ratio over tasks instead of clusters; what the links carry; and what it took to find.
MEASURES = (
    "lan_hit",
    "whole",
    "affinity_mean",
    "affinity_min",
    "inter_lan",
    "tasks_at_home",
    "tasks_in_man",
    "tasks_in_wan",
    "tasks_beyond",
    "carried",
    "cpu_s",
)
# Digits after the point that are kept: all that anybody can tell apart, in a third of the room.
_DIGITS = 6
_TIME_DIGITS = 8

Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Positive = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]


class WaseParameters(Parameters, frozen=True, kw_only=True):
    """What can be set.

    - ``tasks``: the sizes of the graphs; ``graphs``: how many of each size a seed has;
    - ``mcr``: minimal computational requirements, with each of which every graph is mapped;
    - ``cluster_sizes``: ranges of the mean number of tasks in a cluster; ``clustering``: the method;
    - ``machines`` and ``machines_per_lan``: the grids of a seed, one for each pair;
    - ``edges_per_task``: 1.5, or 3 or 8 for dense graphs;
    - ``load``: the range of the machines' load, or 0 to 0.2 for a light one;
    - ``affinity_wanted`` and ``mbit_s_per_rqoc``: what the methods that look for affinity and bandwidth want;
    - ``spawned_share``: the part of the tasks that come while the application runs, where that is tried;
    - ``bound_seeds``: under how many seeds the best mapping is looked for, and ``bound_s``: for how long each.
    """

    tasks: tuple[Count, ...] = (8, 16, 32, 64, 128)
    graphs: Count = 4
    mcr: tuple[Positive, ...] = (25.0, 50.0, 75.0, 100.0)
    cluster_sizes: tuple[tuple[float, float], ...] = ((1.0, 3.0), (4.0, 6.0), (7.0, 9.0))
    clustering: str = "region-growing"
    machines: tuple[Count, ...] = (32, 64, 128, 256, 512)
    machines_per_lan: tuple[Count, ...] = (4, 8, 16)
    edges_per_task: Positive = 1.5
    load: tuple[Share, Share] = (0.1, 0.5)
    affinity_wanted: Positive = 2.0
    mbit_s_per_rqoc: Positive = 10.0
    spawned_share: Share = 0.25
    bound_seeds: Annotated[int, msgspec.Meta(ge=0)] = 4
    bound_s: Positive = 2.0

    @property
    def applications(self) -> int:
        """How many applications a seed has."""
        return len(self.tasks) * self.graphs * len(self.mcr) * len(self.cluster_sizes)

    @property
    def grids(self) -> int:
        """How many grids a seed has."""
        return len(self.machines) * len(self.machines_per_lan)


class Trial(NamedTuple):
    """An application on a grid; sizes of clusters are named by their place among the parameters."""

    cluster_size: int
    mcr: float
    machines: int
    machines_per_lan: int


def trials_of(parameters: WaseParameters) -> list[Trial]:
    """What is done with one graph, always in the same order."""
    return [
        Trial(size, mcr, machines, per_lan)
        for size in range(len(parameters.cluster_sizes))
        for mcr in parameters.mcr
        for machines in parameters.machines
        for per_lan in parameters.machines_per_lan
    ]


def graph_of(parameters: WaseParameters, seed: int, tasks: int, number: int) -> TaskGraph:
    """A graph of the study."""
    random = Random(f"graph {seed} {tasks} {number}")
    return random_task_graph(tasks, random, edges_per_task=parameters.edges_per_task)


def with_mcr(graph: TaskGraph, mcr: float) -> TaskGraph:
    """The same graph with another requirement."""
    return msgspec.structs.replace(graph, mcr=mcr)


# A process maps many graphs on the grids of one seed.
@lru_cache(maxsize=32)
def grid_of(load: tuple[float, float], seed: int, machines: int, per_lan: int) -> Dendrogram:
    """A grid of the study."""
    return random_grid(machines, per_lan, Random(f"grid {seed} {machines} {per_lan}"), GridShape(load=load))


class ClusteredGraph(NamedTuple):
    """A graph in clusters of a wanted size, or those that come nearest, and what it took to find them."""

    found: Clustering
    reached: bool
    cpu_s: float


def clustered(graph: TaskGraph, method: str, size: tuple[float, float]) -> ClusteredGraph:
    """The clusters of a graph, with theta scanned for the size wanted."""
    before_s = time.process_time()
    try:
        found, reached = cluster(graph, method, cluster_size=size), True
    except ClusterSizeError as error:
        found, reached = error.nearest, False
    return ClusteredGraph(found, reached, time.process_time() - before_s)


def run_trials(parameters: WaseParameters, seed: int, tasks: int, number: int) -> dict[str, Any]:
    """All trials of one graph: how it was clustered, and by method each measure over the trials, null for a failure.

    ``impossible`` says for each trial whether it is certain that no mapping exists at all.
    """
    graph = graph_of(parameters, seed, tasks, number)
    groups = [clustered(graph, parameters.clustering, size) for size in parameters.cluster_sizes]
    running = [begun(graph, group.found, parameters.spawned_share) for group in groups]
    methods: dict[str, dict[str, list[float | None]]] = {
        name: {measure: [] for measure in MEASURES} for name in (*METHODS, *SPAWNED)
    }
    impossible: list[bool] = []
    for trial in trials_of(parameters):
        application = with_mcr(graph, trial.mcr)
        grid = grid_of(parameters.load, seed, trial.machines, trial.machines_per_lan)
        impossible.append(no_mapping_exists([trial.mcr * rcr for rcr in graph.rcr], grid.flat.power))
        clusters = groups[trial.cluster_size].found.clusters
        answers = [
            *_answers(parameters, application, clusters, grid),
            *_spawned(parameters, application, clusters, running[trial.cluster_size], grid),
        ]
        for name, answer in answers:
            for measure in MEASURES:
                methods[name][measure].append(answer.get(measure))
    return {
        "clusters": [_described(group) for group in groups],
        "impossible": impossible,
        "methods": methods,
    }


def _described(group: ClusteredGraph) -> dict[str, Any]:
    found = group.found
    return {
        "theta": found.theta,
        "clusters": len(found.clusters),
        "mean_size": found.mean_size,
        "largest": max(map(len, found.clusters)),
        "reached": group.reached,
        "cpu_s": group.cpu_s,
    }


def _answers(
    parameters: WaseParameters, graph: TaskGraph, clusters: tuple[tuple[int, ...], ...], grid: Dendrogram
) -> Iterator[tuple[str, dict[str, float]]]:
    """By method what it makes of one application on one grid; nothing where it fails."""
    for name, (method, lan_by_lan) in METHODS.items():
        options = MappingOptions(
            lan_by_lan=lan_by_lan,
            affinity_wanted=parameters.affinity_wanted,
            mbit_s_per_rqoc=parameters.mbit_s_per_rqoc,
        )
        before_s = time.process_time()
        answer = map_tasks(graph, clusters, grid, method, options=options)
        cpu_s = time.process_time() - before_s
        if isinstance(answer, NoPlace):
            yield name, {}
        else:
            numbers = mapping_numbers(parameters, answer, graph, grid)
            yield name, {**numbers, "cpu_s": round(cpu_s, _TIME_DIGITS)}


def _spawned(
    parameters: WaseParameters,
    graph: TaskGraph,
    clusters: tuple[tuple[int, ...], ...],
    running: InitialTasks,
    grid: Dendrogram,
) -> Iterator[tuple[str, dict[str, float]]]:
    """The same for an application part of whose tasks come while it runs."""
    for name, mapping in spawned_mappings(graph, clusters, running, grid).items():
        yield name, {} if mapping is None else mapping_numbers(parameters, mapping, graph, grid)


def mapping_numbers(
    parameters: WaseParameters, mapping: TaskMapping, graph: TaskGraph, grid: Dendrogram
) -> dict[str, float]:
    """The measures of one mapping, but for the time that it took."""
    found = measured(mapping, graph, grid)
    home, man, wan, beyond = (count / len(graph.names) for count in found.distances)
    carried = bandwidth_measured(mapping, graph, grid, parameters.mbit_s_per_rqoc).carried_share
    numbers = {
        "lan_hit": found.lan_hit_ratio,
        "whole": found.whole_share,
        "affinity_mean": found.affinity_mean,
        "affinity_min": found.affinity_min,
        "inter_lan": found.inter_lan_share,
        "tasks_at_home": home,
        "tasks_in_man": man,
        "tasks_in_wan": wan,
        "tasks_beyond": beyond,
        "carried": carried,
    }
    return {name: round(number, _DIGITS) for name, number in numbers.items()}
