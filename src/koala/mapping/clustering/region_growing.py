"""Region growing: from the distances of the LP relaxation to clusters, at a cost within a proven factor of its bound.

Balls around tasks are cut out one after another, each where the positive edges that leave it are few in proportion to
its volume. ``koala.mapping.clustering.lp`` computes the distances.
"""

from __future__ import annotations

import math
from random import Random

from koala.mapping.clustering.correlation import SignedGraph
from koala.mapping.clustering.lp import Relaxation

ORDERS = 10


def radius_factor(tasks: int) -> float:
    """Return c: a ball's radius stays below 1/c. This choice makes the two halves of the proven factor equal."""
    return 2 + 1 / (2 * math.log(tasks + 1))


def proven_factor(tasks: int) -> float:
    """Return the proven ratio of the cost of region growing to the bound of the LP.

    Cut positive edges cost at most 2c*ln(n+1) times what they cost the LP, because the volumes of all balls together
    are at most 2F; negative edges inside a ball, no longer than 2/c, cost at most c/(c-2) times.
    """
    return 4 * math.log(tasks + 1) + 1


def region_growing(signed: SignedGraph, relaxation: Relaxation, draws: Random, orders: int = ORDERS) -> list[int]:
    """Return labels by task: the cheapest result over this many random orders of the tasks, ties to the first."""
    grower = _Grower(signed, relaxation)
    best: list[int] = []
    least = math.inf
    for _ in range(orders):
        order = list(range(signed.tasks))
        draws.shuffle(order)
        labels = grower.clusters(order)
        cost = signed.cost(labels)
        if cost < least:
            best, least = labels, cost
    return best


class _Grower:
    """Grows balls over one graph with one set of distances."""

    def __init__(self, signed: SignedGraph, relaxation: Relaxation) -> None:
        self._tasks = signed.tasks
        self._distances = relaxation.distances
        self._neighbours: list[list[tuple[int, float, float]]] = [[] for _ in range(signed.tasks)]
        whole = 0.0
        for one, other, weight in signed.positive:
            length = float(self._distances[one, other])
            whole += weight * length
            self._neighbours[one].append((other, weight, weight * length))
            self._neighbours[other].append((one, weight, weight * length))
        self._first_volume = whole / signed.tasks
        factor = radius_factor(signed.tasks)
        self._radius_max = 1 / factor
        self._cut_per_volume = factor * math.log(signed.tasks + 1)

    def clusters(self, order: list[int]) -> list[int]:
        """Return labels by task: balls cut out in this order of their centres, labelled by the centre."""
        labels = [-1] * self._tasks
        for centre in order:
            if labels[centre] < 0:
                for task in self._ball(centre, labels):
                    labels[task] = centre
        return labels

    def _ball(self, centre: int, labels: list[int]) -> list[int]:
        """Return the smallest ball of remaining tasks whose cut is small against its volume. The test is at the end
        of each interval between distances, where the volume is largest.

        There always is one, but rounding may hide it where volumes are tiny: then return the ball nearest to it.
        """
        row = self._distances[centre].tolist()
        near = sorted((far, task) for task, far in enumerate(row) if far < self._radius_max and labels[task] < 0)
        within: set[int] = set()
        inside = self._first_volume
        cut = reached = 0.0  # the cut's weight, and the sum of its weights times the distances of the inner ends
        best, least = 1, math.inf
        place = 0
        while place < len(near):
            distance = near[place][0]
            while place < len(near) and near[place][0] == distance:
                task = near[place][1]
                within.add(task)
                for other, weight, volume in self._neighbours[task]:
                    if labels[other] >= 0:
                        continue
                    if other in within:
                        cut -= weight
                        reached -= weight * row[other]
                        inside += volume
                    else:
                        cut += weight
                        reached += weight * distance
                place += 1
            radius = near[place][0] if place < len(near) else self._radius_max
            excess = cut - self._cut_per_volume * (inside + radius * cut - reached)
            if excess < least:
                best, least = place, excess
            if excess <= 0:
                break
        return [task for _, task in near[:best]]
