"""The optimal clustering, for small graphs: branch and cut on the LP of ``koala.mapping.clustering.lp``.

Both values are tried for a length that is neither 0 nor 1; branches that cannot beat the best known cost by the LP's
bound are cut off. The graph is first divided at single tasks that connect its parts, because such parts are
independent.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from koala.mapping.clustering.correlation import SignedGraph, joined
from koala.mapping.clustering.local_search import local_search
from koala.mapping.clustering.lp import VIOLATION, PathLp, Point
from koala.mapping.clustering.moves import MovingClusters
from koala.mapping.libraries import library

# Two costs nearer than this are equal within the solver's tolerances.
COST_TOLERANCE = 1e-6
# The most LPs solved for one part of a graph. A graph that needs more is not small.
BRANCHES_MAX = 5_000


class TooHardError(ValueError):
    """The optimal clustering of a graph was not found, or not proven, within the limit."""

    def __init__(self, tasks: int, branches: int) -> None:
        super().__init__(
            f"the best clustering of {tasks} connected tasks is not proven after {branches} branches (BRANCHES_MAX)"
        )

    def for_user(self) -> str:
        """Return what was not proven, and what to use instead."""
        return f"{self}; use the method local-search or region-growing, or give the clusters by hand"


class Exact(NamedTuple):
    """Labels by task of a clustering with the least cost, and the LP's bound before branching."""

    labels: list[int]
    bound: float


def exact(signed: SignedGraph, draws: Random, branches_max: int = BRANCHES_MAX) -> Exact:
    """Find the optimal clustering. Raises ``TooHardError`` if a part needs more branches, ``MissingLibraryError``
    without the extra."""
    pairs: list[tuple[int, int]] = []
    bound = 0.0
    for part, tasks in _parts(signed):
        search = _Search(part, draws, branches_max)
        search.run()
        bound += search.bound
        pairs += [
            (tasks[one], tasks[other])
            for one, other, _ in part.positive
            if search.labels[one] == search.labels[other]
        ]
    return Exact(joined(signed.tasks, pairs), bound)


def _parts(signed: SignedGraph) -> list[tuple[SignedGraph, list[int]]]:
    """Return the parts that share at most single tasks, each with the original indices of its tasks.

    Negative edges between tasks that no positive edges connect are satisfied in any case and left out.
    """
    together = joined(signed.tasks, [(one, other) for one, other, _ in signed.positive])
    negative = [edge for edge in signed.negative if together[edge[0]] == together[edge[1]]]
    networkx = library("networkx")
    graph = networkx.Graph([(one, other) for one, other, _ in [*signed.positive, *negative]])
    part_of: dict[tuple[int, int], int] = {}
    tasks_of: list[list[int]] = []
    for place, edges in enumerate(networkx.biconnected_component_edges(graph)):
        pairs = [(min(pair), max(pair)) for pair in edges]
        part_of.update(dict.fromkeys(pairs, place))
        tasks_of.append(sorted({task for pair in pairs for task in pair}))
    index_of = [{task: place for place, task in enumerate(tasks)} for tasks in tasks_of]
    positives: list[list[tuple[int, int, float]]] = [[] for _ in tasks_of]
    negatives: list[list[tuple[int, int, float]]] = [[] for _ in tasks_of]
    for edges, into in ((signed.positive, positives), (negative, negatives)):
        for one, other, weight in edges:
            part = part_of[one, other]
            into[part].append((index_of[part][one], index_of[part][other], weight))
    return [
        (SignedGraph(tasks=len(tasks), positive=tuple(plus), negative=tuple(minus)), tasks)
        for tasks, plus, minus in zip(tasks_of, positives, negatives, strict=True)
    ]


class _Search:
    """Branch and cut over one part. After ``run``, ``labels`` are the optimum and ``bound`` is the LP's first
    bound."""

    def __init__(self, signed: SignedGraph, draws: Random, branches_max: int) -> None:
        self._signed = signed
        self._branches_max = branches_max
        self._lp = PathLp(signed)
        self._neighbours = signed.neighbours()
        self.labels = local_search(signed, draws)
        self._cost = signed.cost(self.labels)
        self.bound = 0.0

    def run(self) -> None:
        first = self._lp.solve()
        assert first is not None, "an LP without fixed lengths has a solution"
        self.bound = first.cost
        open_branches: list[dict[int, int]] = [{}]
        branches = 0
        while open_branches:
            fixed = open_branches.pop()
            self._lp.fix(fixed)
            point = self._lp.solve(enough=self._cost - COST_TOLERANCE)
            if point is None:
                continue
            branches += 1
            if branches > self._branches_max:
                raise TooHardError(self._signed.tasks, self._branches_max)
            self._round(point)
            edge = self._most_open(point)
            if edge is None:
                continue
            near = int(point.lengths[edge] >= 0.5)
            open_branches += [{**fixed, edge: 1 - near}, {**fixed, edge: near}]

    def _round(self, point: Point) -> None:
        """Join the ends of short edges and improve the result; keep it if it is the cheapest yet."""
        positive = self._signed.positive
        short = [
            (one, other) for (one, other, _), length in zip(positive, point.lengths, strict=True) if length < 0.5
        ]
        clusters = MovingClusters(self._neighbours, joined(self._signed.tasks, short))
        clusters.improve(range(self._signed.tasks))
        cost = self._signed.cost(clusters.labels)
        if cost < self._cost:
            self.labels, self._cost = clusters.labels, cost

    def _most_open(self, point: Point) -> int | None:
        """Return the positive edge with the largest product of weight and distance from 0 and 1."""
        best, most = None, 0.0
        for edge, length in enumerate(point.lengths.tolist()):
            open_by = min(length, 1 - length)
            if open_by > VIOLATION and open_by * self._signed.positive[edge][2] > most:
                best, most = edge, open_by * self._signed.positive[edge][2]
        return best
