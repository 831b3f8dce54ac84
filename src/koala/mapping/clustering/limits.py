"""Clusters within limits of size, made from those that a method of clustering has found.

Clusters that are too large are divided along their weakest edges; those that are too small are joined with the
cluster that they communicate most with. Then tasks move and swap while that keeps more of the weight inside clusters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from koala.mapping.clustering.catalogue import Clustering
from koala.mapping.clustering.correlation import SignedGraph, signed_graph
from koala.model.task_graph import TaskGraph

# The most rounds in which tasks move; five are usually enough until none moves.
SWEEPS_MAX = 50
_GAIN_LEAST = 1e-9


def feasible_limits(tasks: int, size: tuple[float, float]) -> tuple[int, int]:
    """Return the limits in whole tasks; the lower one is reduced as far as needed to divide this many tasks at
    all."""
    low, high = max(1, math.ceil(size[0])), max(1, math.floor(size[1]))
    clusters = math.ceil(tasks / high)
    return (low if clusters * low <= tasks else tasks // clusters), high


def within_limits(graph: TaskGraph, found: Clustering, size: tuple[float, float]) -> Clustering:
    """Return the clusters, changed so that each has a size within ``feasible_limits``."""
    low, high = feasible_limits(len(graph.names), size)
    signed = signed_graph(graph, found.theta)
    work = _Limited(signed, low, high)
    work.start(found.clusters)
    work.fill_up()
    work.improve()
    clusters = sorted(tuple(sorted(members)) for members in work.clusters.values())
    labels = [0] * len(graph.names)
    for number, members in enumerate(clusters):
        for task in members:
            labels[task] = number
    return msgspec.structs.replace(found, clusters=tuple(clusters), cost=signed.cost(labels), lp_bound=None)


class _Limited:
    """Clusters by number, and the number of each task's cluster."""

    def __init__(self, signed: SignedGraph, low: int, high: int) -> None:
        self._low = low
        self._high = high
        self._weights = [dict(neighbours) for neighbours in signed.neighbours()]
        self.clusters: dict[int, set[int]] = {}
        self._label = [0] * signed.tasks

    def start(self, clusters: Sequence[Sequence[int]]) -> None:
        """Begin with the given clusters, and divide those that are too large."""
        for members in clusters:
            for part in self._divided(members):
                number = len(self.clusters)
                self.clusters[number] = set(part)
                for task in part:
                    self._label[task] = number

    def _divided(self, members: Sequence[int]) -> list[list[int]]:
        """Return parts that are small enough: the heaviest edges join tasks while there is room."""
        if len(members) <= self._high:
            return [list(members)]
        part_of = {task: [task] for task in members}
        edges = [
            (-weight, task, other)
            for task in members
            for other, weight in self._weights[task].items()
            if task < other and other in part_of
        ]
        for _, task, other in sorted(edges):
            one, two = part_of[task], part_of[other]
            if one is not two and len(one) + len(two) <= self._high:
                one.extend(two)
                part_of.update(dict.fromkeys(two, one))
        return [part_of[task] for task in members if part_of[task][0] == task]

    def fill_up(self) -> None:
        """Change clusters until none is too small: join it with another, else take a task from another, else give its
        tasks away."""
        while True:
            small = min(self.clusters, key=lambda number: (len(self.clusters[number]), number))
            if len(self.clusters[small]) >= self._low or len(self.clusters) == 1:
                return
            if not (self._joined(small) or self._taken(small)):
                self._given_away(small)

    def _joined(self, small: int) -> bool:
        room = self._high - len(self.clusters[small])
        others = [number for number, tasks in self.clusters.items() if number != small and len(tasks) <= room]
        if not others:
            return False
        best = max(others, key=lambda each: (self._between(small, each), -len(self.clusters[each]), -each))
        for task in list(self.clusters[small]):
            self._move(task, best)
        return True

    def _taken(self, small: int) -> bool:
        tasks = [
            task
            for number, members in self.clusters.items()
            if number != small and len(members) > self._low
            for task in members
        ]
        if not tasks:
            return False
        self._move(max(tasks, key=lambda task: (self._gain(task, small), -task)), small)
        return True

    def _given_away(self, small: int) -> None:
        for task in sorted(self.clusters[small]):
            others = [
                number for number, members in self.clusters.items() if number != small and len(members) < self._high
            ]
            self._move(task, max(others, key=lambda each: (self._attached(task, each), -each)))

    def improve(self) -> None:
        """Move and swap tasks while that gains weight and keeps the limits."""
        for _ in range(SWEEPS_MAX):
            if sum(self._improved(task) for task in range(len(self._label))) == 0:
                return

    def _improved(self, task: int) -> bool:
        home = self._label[task]
        best, change = _GAIN_LEAST, (home, -1)
        for number in sorted({self._label[other] for other in self._weights[task]} - {home}):
            gain = self._gain(task, number)
            if len(self.clusters[number]) < self._high and len(self.clusters[home]) > self._low:
                if gain > best:
                    best, change = gain, (number, -1)
                continue
            for other in sorted(self.clusters[number]):
                both = gain + self._gain(other, home) - 2 * self._weights[task].get(other, 0.0)
                if both > best:
                    best, change = both, (number, other)
        number, other = change
        if number == home:
            return False
        self._move(task, number)
        if other >= 0:
            self._move(other, home)
        return True

    def _gain(self, task: int, number: int) -> float:
        """Return the weight that a move of a task adds inside clusters."""
        return self._attached(task, number) - self._attached(task, self._label[task])

    def _attached(self, task: int, number: int) -> float:
        return sum(weight for other, weight in self._weights[task].items() if self._label[other] == number)

    def _between(self, one: int, other: int) -> float:
        return sum(self._attached(task, other) for task in self.clusters[one])

    def _move(self, task: int, number: int) -> None:
        old = self._label[task]
        self.clusters[old].discard(task)
        if not self.clusters[old]:
            del self.clusters[old]
        self.clusters.setdefault(number, set()).add(task)
        self._label[task] = number
