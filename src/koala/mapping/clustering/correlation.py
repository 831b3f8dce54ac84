"""How strongly two tasks belong together: the signed weights of a task graph's edges, and the cost of clusters.

A positive edge favours one cluster for its tasks, a negative edge different ones. Pairs without an edge favour
nothing. Finding clusters is not done here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import msgspec

from koala.model.task_graph import Edge, TaskGraph

# The weight would be infinite at RQoCmax, so this share is added to the maximum.
RQOC_MARGIN = 0.01

# The neighbours of each task, with the signed weights of the edges.
Neighbours: TypeAlias = list[list[tuple[int, float]]]


class SignedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks by index with positive and negative edges ``(i, j, absolute weight)``, i < j, in the graph's order.

    An edge of weight 0 favours nothing and is in neither list.
    """

    tasks: int
    positive: tuple[Edge, ...]
    negative: tuple[Edge, ...]

    def cost(self, labels: Sequence[int]) -> float:
        """Return the weight that the clusters violate: positive edges between clusters and negative edges inside."""
        cut = sum(weight for one, other, weight in self.positive if labels[one] != labels[other])
        return cut + sum(weight for one, other, weight in self.negative if labels[one] == labels[other])

    def neighbours(self) -> Neighbours:
        """Return the neighbours of each task with signed weights: first the positive edges, then the negative
        ones."""
        found: Neighbours = [[] for _ in range(self.tasks)]
        for edges, sign in ((self.positive, 1.0), (self.negative, -1.0)):
            for one, other, weight in edges:
                found[one].append((other, sign * weight))
                found[other].append((one, sign * weight))
        return found


def correlations(graph: TaskGraph, theta: float = 0.0) -> tuple[float, ...]:
    """Return ``log(RQoC / (RQoCmax - RQoC)) + theta`` for each edge, where RQoCmax is the graph's maximum plus 1 %.

    A larger theta makes every edge more positive, and so the clusters larger.
    """
    if not graph.edges:
        return ()
    top = max(rqoc for _, _, rqoc in graph.edges) * (1 + RQOC_MARGIN)
    return tuple(math.log(rqoc / (top - rqoc)) + theta for _, _, rqoc in graph.edges)


def signed_graph(graph: TaskGraph, theta: float = 0.0) -> SignedGraph:
    """Return the task graph with the weights of ``correlations``, split into positive and negative edges."""
    weights = correlations(graph, theta)
    ends = [(one, other) for one, other, _ in graph.edges]
    return SignedGraph(
        tasks=len(graph.names),
        positive=tuple((i, j, weight) for (i, j), weight in zip(ends, weights, strict=True) if weight > 0),
        negative=tuple((i, j, -weight) for (i, j), weight in zip(ends, weights, strict=True) if weight < 0),
    )


def joined(tasks: int, pairs: Sequence[tuple[int, int]]) -> list[int]:
    """Return labels by task: tasks that chains of pairs connect share the lowest of their indices."""
    parent = list(range(tasks))

    def root(task: int) -> int:
        while parent[task] != task:
            parent[task] = parent[parent[task]]
            task = parent[task]
        return task

    for one, other in pairs:
        low, high = sorted((root(one), root(other)))
        parent[high] = low
    return [root(task) for task in range(tasks)]
