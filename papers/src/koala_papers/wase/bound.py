"""Mapping by optimisation as the bound: the distance of the quick methods from the optimum.

Small instances only, those on the smallest grids. The optimisation starts from the best of the quick mappings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from koala.mapping import Instance, NoPlace, Optimised, map_tasks, optimised, value_of
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph
from koala_papers.wase.parameters import WaseParameters
from koala_papers.wase.trials import GREEDY, WASE, WHOLE, graph_of, groups_of, with_mcr
from koala_papers.wase.worlds import grid_of

# Graphs with more tasks than this are left out: the time would run out without a result.
BOUND_TASKS = 32
COMPARED = (WASE, GREEDY, WHOLE)


def bound_tasks(parameters: WaseParameters) -> list[int]:
    """Return the sizes of graphs whose optimum is computed."""
    return [tasks for tasks in parameters.tasks if tasks <= BOUND_TASKS]


def run_bound(parameters: WaseParameters, seed: int, tasks: int) -> dict[str, Any]:
    """Return the best LAN hit ratio and the least inter-LAN share of the first graph of this size, beside the quick
    methods.

    One row for each requirement, size of LANs and size of clusters, read in the first way, on the smallest grids.
    """
    graph = graph_of(parameters, seed, tasks, 0)
    groups = [group.found.clusters for group in groups_of(graph, parameters)[parameters.bands[0]]]
    rows: list[dict[str, Any]] = []
    for mcr in parameters.mcr:
        application = with_mcr(graph, mcr)
        for per_lan in parameters.machines_per_lan:
            grid = grid_of(parameters, seed, (min(parameters.machines), per_lan), (tasks, 0))
            place = {"mcr": mcr, "machines_per_lan": per_lan}
            rows += [{**place, **row} for row in _rows(parameters, application, groups, grid)]
    return {"rows": rows}


def _rows(
    parameters: WaseParameters, graph: TaskGraph, groups: list[tuple[tuple[int, ...], ...]], grid: Dendrogram
) -> Iterator[dict[str, Any]]:
    """Yield a row for each size of clusters. The traffic does not depend on clusters, so its optimum is computed
    once."""
    instances = [Instance.of(graph, clusters, grid) for clusters in groups]
    quick = [_quick(graph, clusters, grid) for clusters in groups]
    every = [machines for mappings in quick for machines in mappings.values()]
    traffic = _best(instances[0], "inter-lan", every, parameters.bound_s)
    for number, (instance, mappings) in enumerate(zip(instances, quick, strict=True)):
        hits = _best(instance, "lan-hit", list(mappings.values()), parameters.bound_s)
        yield {
            "cluster_size": number,
            "lan_hit": _described(instance, "lan-hit", mappings, hits),
            "inter_lan": _described(instance, "inter-lan", mappings, traffic),
        }


def _quick(graph: TaskGraph, clusters: tuple[tuple[int, ...], ...], grid: Dendrogram) -> dict[str, tuple[int, ...]]:
    """Return by method the machines of the tasks; without methods that fail."""
    answers = {method: map_tasks(graph, clusters, grid, method) for method in COMPARED}
    return {method: answer.machines for method, answer in answers.items() if not isinstance(answer, NoPlace)}


def _best(instance: Instance, objective: str, quick: list[tuple[int, ...]], limit_s: float) -> Optimised:
    choose = max if objective == "lan-hit" else min
    start = choose(quick, key=lambda machines: value_of(instance, machines, objective)) if quick else None
    return optimised(instance, objective, time_limit_s=limit_s, start=start)


def _described(
    instance: Instance, objective: str, quick: dict[str, tuple[int, ...]], best: Optimised
) -> dict[str, Any]:
    return {
        "status": best.status,
        "value": best.value,
        "bound": best.bound,
        "methods": {method: value_of(instance, machines, objective) for method, machines in quick.items()},
    }
