"""The change of WASE's minimum affinity with the size of the grid, under more seeds than all trials can have.

With few tasks it depends on the LAN of the user alone, which is drawn with each grid: so it spreads widely, and many
seeds are needed to distinguish it from no change. Only WASE is run, on the smallest and the largest grids.
"""

from __future__ import annotations

from itertools import product
from typing import Any

from koala.mapping import NoPlace, map_tasks
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph
from koala_papers.wase.parameters import WaseParameters
from koala_papers.wase.trials import WASE, graph_of, groups_of, with_mcr
from koala_papers.wase.worlds import grid_of

# Graphs with more tasks than this spread over several LANs, and a few seeds suffice.
AFFINITY_TASKS = 16


def affinity_tasks(parameters: WaseParameters) -> list[int]:
    """Return the sizes of graphs that get more seeds."""
    return [tasks for tasks in parameters.tasks if tasks <= AFFINITY_TASKS]


def run_affinity(parameters: WaseParameters, seed: int, tasks: int) -> dict[str, Any]:
    """Return, by the reading of cluster sizes, the increase of the minimum affinity from the smallest to the largest
    grids in per cent, over the applications that were mapped on both; null if none was."""
    ends = min(parameters.machines), max(parameters.machines)
    found: dict[str, list[tuple[float, float]]] = {bands: [] for bands in parameters.bands}
    for number in range(parameters.graphs):
        graph = graph_of(parameters, seed, tasks, number)
        by_bands = groups_of(graph, parameters)
        for per_lan in parameters.machines_per_lan:
            small, large = (grid_of(parameters, seed, (machines, per_lan), (tasks, number)) for machines in ends)
            for mcr, (bands, groups) in product(parameters.mcr, by_bands.items()):
                application = with_mcr(graph, mcr)
                for group in groups:
                    less = _least(application, group.found.clusters, small)
                    more = _least(application, group.found.clusters, large)
                    if less is not None and more is not None:
                        found[bands].append((less, more))
    return {"change": {bands: _change(pairs) for bands, pairs in found.items()}}


def _least(graph: TaskGraph, clusters: tuple[tuple[int, ...], ...], grid: Dendrogram) -> float | None:
    answer = map_tasks(graph, clusters, grid, WASE)
    return None if isinstance(answer, NoPlace) else min(answer.affinities)


def _change(pairs: list[tuple[float, float]]) -> float | None:
    if not pairs:
        return None
    return 100.0 * (sum(large for _, large in pairs) / sum(small for small, _ in pairs) - 1.0)
