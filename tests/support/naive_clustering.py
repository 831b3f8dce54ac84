"""References for fast clustering: the LP over all pairs and triangles, all partitions, and random graphs.

Written to be obviously right, without regard to speed. The benchmark of clustering uses it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

import numpy as np

from koala.mapping.clustering.correlation import SignedGraph
from koala.model.task_graph import TaskGraph


def random_graph(tasks: int, edges: int, seed: int) -> TaskGraph:
    """Return a graph with this many of all possible edges, equally likely; RCR and RQoC between 1 and 10."""
    random = Random(seed)
    drawn: set[tuple[int, int]] = set()
    while len(drawn) < edges:
        one, other = random.sample(range(tasks), 2)
        drawn.add((min(one, other), max(one, other)))
    pairs = sorted(drawn)
    return TaskGraph(
        names=tuple(f"t{task}" for task in range(tasks)),
        rcr=tuple(random.uniform(1, 10) for _ in range(tasks)),
        edges=tuple((one, other, random.uniform(1, 10)) for one, other in pairs),
        mcr=50.0,
    )


def partitions(tasks: int) -> Iterator[list[int]]:
    """Yield the labels of every way to divide this many tasks, each once."""

    def grown(labels: list[int]) -> Iterator[list[int]]:
        if len(labels) == tasks:
            yield labels
            return
        for label in range(max(labels, default=-1) + 2):
            yield from grown([*labels, label])

    return grown([])


def least_cost(signed: SignedGraph) -> float:
    """Return the cost of the best of all partitions."""
    return min(signed.cost(labels) for labels in partitions(signed.tasks))


def naive_lp_bound(signed: SignedGraph) -> float:
    """Solve the LP as it is defined: a variable for each pair of tasks and all three inequalities of each
    triangle."""
    # Imported late, because it is slow and callers that only need a graph do without.
    from scipy.optimize import linprog  # type: ignore[import-untyped]
    from scipy.sparse import coo_matrix  # type: ignore[import-untyped]

    place = {pair: index for index, pair in enumerate(combinations(range(signed.tasks), 2))}
    costs = np.zeros(len(place))
    for one, other, weight in signed.positive:
        costs[place[one, other]] += weight
    for one, other, weight in signed.negative:
        costs[place[one, other]] -= weight
    sides = np.array([[place[i, j], place[i, k], place[j, k]] for i, j, k in combinations(range(signed.tasks), 3)])
    count = len(sides)
    # In each row one side of the triangle is at most the sum of the two others.
    rows = np.repeat(np.arange(3 * count), 3)
    columns = np.concatenate([sides[:, turn] for turn in ([0, 1, 2], [1, 0, 2], [2, 0, 1])]).ravel()
    matrix = coo_matrix((np.tile([1.0, -1.0, -1.0], 3 * count), (rows, columns)), shape=(3 * count, len(place)))
    found = linprog(costs, A_ub=matrix.tocsr(), b_ub=np.zeros(3 * count), bounds=(0, 1), method="highs")
    assert found.status == 0, found.message
    return float(found.fun) + sum(weight for _, _, weight in signed.negative)
