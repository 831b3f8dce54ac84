"""Applications with a part of their tasks spawned at run time: placed near their partners, or anywhere that fits.

Neither way moves running tasks. The two are compared with mapping everything at once, as if all tasks had been known.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from koala.mapping import (
    Clustering,
    NoPlace,
    TaskMapping,
    cluster,
    left_by,
    map_spawned,
    map_tasks,
    plurality_lan,
    within_limits,
)
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph

NEAR = "spawned near their partners"
ANYWHERE = "spawned anywhere"
SPAWNED = (NEAR, ANYWHERE)
# The mapping of the initial tasks.
METHOD = "wase-whole"


class InitialTasks(NamedTuple):
    """The initial part of a graph: the number of tasks, the first ones, and their clusters."""

    tasks: int
    found: Clustering

    @property
    def clusters(self) -> tuple[tuple[int, ...], ...]:
        """The tasks in their clusters."""
        return self.found.clusters

    def within(self, graph: TaskGraph, size: tuple[float, float]) -> InitialTasks:
        """Return the same with limits for each cluster."""
        return self._replace(found=within_limits(part_of(graph, range(self.tasks)), self.found, size))


def begun(graph: TaskGraph, found: Clustering, spawned_share: float) -> InitialTasks:
    """Return all tasks except this share, clustered separately as the whole graph was; at least one task."""
    tasks = max(1, round(len(graph.names) * (1 - spawned_share)))
    return InitialTasks(tasks, cluster(part_of(graph, range(tasks)), found.method, theta=found.theta))


def part_of(graph: TaskGraph, tasks: range) -> TaskGraph:
    """Return some of the tasks, with the edges between them."""
    first = tasks.start
    return msgspec.structs.replace(
        graph,
        names=graph.names[first : tasks.stop],
        rcr=graph.rcr[first : tasks.stop],
        edges=tuple(
            (one - first, other - first, rqoc) for one, other, rqoc in graph.edges if one in tasks and other in tasks
        ),
    )


def spawned_mappings(
    graph: TaskGraph, clusters: tuple[tuple[int, ...], ...], running: InitialTasks, grid: Dendrogram
) -> dict[str, TaskMapping | None]:
    """Return by way of placing the spawned tasks the mapping of the whole graph, None if a task found no place.

    The mappings are in the clusters of the whole graph, each at home where most of its tasks are, so that the
    measures are comparable.
    """
    start = part_of(graph, range(running.tasks))
    before = map_tasks(start, running.clusters, grid, METHOD)
    if isinstance(before, NoPlace):
        return dict.fromkeys(SPAWNED)
    near = map_spawned(graph, before, grid)
    return {
        NEAR: None if isinstance(near, NoPlace) else _at_home(near, clusters, grid),
        ANYWHERE: _greedily(graph, clusters, before, grid),
    }


def _greedily(
    graph: TaskGraph, clusters: tuple[tuple[int, ...], ...], before: TaskMapping, grid: Dendrogram
) -> TaskMapping | None:
    """Map each spawned task to the tightest machine of the whole grid, regardless of its partners."""
    placed = len(before.machines)
    if placed == len(graph.names):
        return _at_home(before, clusters, grid)
    rest = part_of(graph, range(placed, len(graph.names)))
    alone = [(task,) for task in range(len(rest.names))]
    answer = map_tasks(rest, alone, grid, "greedy", left=left_by(before, graph, grid))
    if isinstance(answer, NoPlace):
        return None
    both = msgspec.structs.replace(
        before, machines=before.machines + answer.machines, affinities=before.affinities + answer.affinities
    )
    return _at_home(both, clusters, grid)


def _at_home(mapping: TaskMapping, clusters: tuple[tuple[int, ...], ...], grid: Dendrogram) -> TaskMapping:
    homes = [plurality_lan(grid.flat, [mapping.machines[task] for task in tasks]) for tasks in clusters]
    return msgspec.structs.replace(mapping, clusters=clusters, homes=tuple(homes))
