"""One graph on every grid of a seed, in all cluster sizes and requirements, by every method: a unit of the study.

Graphs and grids depend only on the seed and their place in the study, so every method, cluster size and requirement
has the same ones. ``data`` evaluates the numbers.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec

from koala.mapping import (
    Clustering,
    ClusterSizeError,
    MappingOptions,
    NoPlace,
    TaskMapping,
    bandwidth_measured,
    cluster,
    feasible_limits,
    map_tasks,
    measured,
    no_mapping_exists,
    random_task_graph,
    within_limits,
)
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph
from koala_papers.wase.parameters import EACH, MEAN, WaseParameters
from koala_papers.wase.spawning import SPAWNED, InitialTasks, begun, spawned_mappings
from koala_papers.wase.worlds import grid_of

WASE = "wase"
GREEDY = "greedy"
GREEDY_SCAN = "greedy-scan"
WHOLE = "wase-whole"
FAR = "wase-far"
SOFT = "wase-soft"
ALL = "wase-all"
BY_LAN = "wase, LAN by LAN"
# Name -> the method, and True if WASE's third algorithm goes LAN by LAN, the other reading of the paper.
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
PAPER_METHODS = (WASE, GREEDY, GREEDY_SCAN)
# Measures of a mapping: those of ``MappingMeasures``; the share of tasks at each distance from their cluster's LAN,
# where the first is the LAN hit ratio over tasks instead of clusters; the load of the links; and the cost of the
# search.
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
# The stored digits after the point: enough to distinguish values, in a third of the space.
_DIGITS = 6
_TIME_DIGITS = 8


class Trial(NamedTuple):
    """An application on a grid; sizes of clusters are named by their place among the parameters."""

    cluster_size: int
    mcr: float
    machines: int
    machines_per_lan: int


def trials_of(parameters: WaseParameters) -> list[Trial]:
    """Return the trials of one graph, always in the same order."""
    return [
        Trial(size, mcr, machines, per_lan)
        for size in range(len(parameters.cluster_sizes))
        for mcr in parameters.mcr
        for machines in parameters.machines
        for per_lan in parameters.machines_per_lan
    ]


def graph_of(parameters: WaseParameters, seed: int, tasks: int, number: int) -> TaskGraph:
    """Return a graph of the study."""
    random = Random(f"graph {seed} {tasks} {number}")
    return random_task_graph(tasks, random, edges_per_task=parameters.edges_per_task)


def with_mcr(graph: TaskGraph, mcr: float) -> TaskGraph:
    """Return the same graph with another requirement."""
    return msgspec.structs.replace(graph, mcr=mcr)


class ClusteredGraph(NamedTuple):
    """A graph in clusters of a wanted size, or the nearest possible, and the cost of finding them."""

    found: Clustering
    reached: bool
    cpu_s: float
    running: InitialTasks


def clustered(graph: TaskGraph, parameters: WaseParameters, size: tuple[float, float]) -> ClusteredGraph:
    """Return the clusters of a graph, with theta scanned for the mean size wanted."""
    before_s = time.process_time()
    try:
        found, reached = cluster(graph, parameters.clustering, cluster_size=size), True
    except ClusterSizeError as error:
        found, reached = error.nearest, False
    cpu_s = time.process_time() - before_s
    return ClusteredGraph(found, reached, cpu_s, begun(graph, found, parameters.spawned_share))


def limited(graph: TaskGraph, group: ClusteredGraph, size: tuple[float, float]) -> ClusteredGraph:
    """Return the same with the size as limits of each cluster."""
    before_s = time.process_time()
    found = within_limits(graph, group.found, size)
    cpu_s = group.cpu_s + time.process_time() - before_s
    reached = feasible_limits(len(graph.names), size)[0] >= size[0]
    return ClusteredGraph(found, reached, cpu_s, group.running.within(graph, size))


def groups_of(graph: TaskGraph, parameters: WaseParameters) -> dict[str, list[ClusteredGraph]]:
    """Return by the reading of the ranges the clusters for each of them."""
    by_mean = [clustered(graph, parameters, size) for size in parameters.cluster_sizes]
    each = [limited(graph, group, size) for group, size in zip(by_mean, parameters.cluster_sizes, strict=True)]
    found = {MEAN: by_mean, EACH: each}
    return {bands: found[bands] for bands in parameters.bands}


def run_trials(parameters: WaseParameters, seed: int, tasks: int, number: int) -> dict[str, Any]:
    """Return all trials of one graph, by the reading of the ranges of cluster sizes: its clustering, and by method
    each measure over the trials, null for a failure. The methods beyond the paper use the first reading only.

    ``impossible`` marks the trials for which certainly no mapping exists.
    """
    graph = graph_of(parameters, seed, tasks, number)
    grids = {
        (trial.machines, trial.machines_per_lan): grid_of(
            parameters, seed, (trial.machines, trial.machines_per_lan), (tasks, number)
        )
        for trial in trials_of(parameters)
    }
    without = {
        (mcr, *sizes): no_mapping_exists([mcr * rcr for rcr in graph.rcr], grid.flat.power)
        for mcr in parameters.mcr
        for sizes, grid in grids.items()
    }
    impossible = [without[trial.mcr, trial.machines, trial.machines_per_lan] for trial in trials_of(parameters)]
    beyond = parameters.bands[:1] if parameters.beyond else ()
    return {
        "impossible": impossible,
        "bands": {
            bands: {
                "clusters": [_described(group) for group in groups],
                "methods": _by_method(parameters, graph, groups, grids, impossible, paper_only=bands not in beyond),
            }
            for bands, groups in groups_of(graph, parameters).items()
        },
    }


def _by_method(
    parameters: WaseParameters,
    graph: TaskGraph,
    groups: list[ClusteredGraph],
    grids: dict[tuple[int, int], Dendrogram],
    impossible: list[bool],
    *,
    paper_only: bool,
) -> dict[str, dict[str, list[float | None]]]:
    """Return by method each measure over the trials; trials without any mapping are skipped."""
    names = PAPER_METHODS if paper_only else tuple(METHODS)
    later = () if paper_only else SPAWNED
    methods: dict[str, dict[str, list[float | None]]] = {
        name: {measure: [] for measure in MEASURES} for name in (*names, *later)
    }
    for trial, no_mapping in zip(trials_of(parameters), impossible, strict=True):
        application = with_mcr(graph, trial.mcr)
        grid = grids[trial.machines, trial.machines_per_lan]
        group = groups[trial.cluster_size]
        answers: dict[str, dict[str, float]] = {}
        if not no_mapping:
            answers.update(_answers(parameters, application, group.found.clusters, grid, names))
        if later and not no_mapping:
            answers.update(_spawned(parameters, application, group.found.clusters, group.running, grid))
        for name, column in methods.items():
            for measure in MEASURES:
                column[measure].append(answers.get(name, {}).get(measure))
    return methods


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
    parameters: WaseParameters,
    graph: TaskGraph,
    clusters: tuple[tuple[int, ...], ...],
    grid: Dendrogram,
    names: Sequence[str],
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield by method its result for one application on one grid; nothing if it fails."""
    for name in names:
        method, lan_by_lan = METHODS[name]
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
    """Yield the same for an application with tasks spawned at run time."""
    for name, mapping in spawned_mappings(graph, clusters, running, grid).items():
        yield name, {} if mapping is None else mapping_numbers(parameters, mapping, graph, grid)


def mapping_numbers(
    parameters: WaseParameters, mapping: TaskMapping, graph: TaskGraph, grid: Dendrogram
) -> dict[str, float]:
    """Return the measures of one mapping, except its time."""
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
