"""The LP relaxation of clustering, with constraints added only where they are violated.

Each positive edge has a length x, each negative edge f a shortfall y = 1 - x_f, and for each path P of positive edges
between the ends of f the constraint y_f + x(P) >= 1 holds. That is enough for the whole LP over all pairs of tasks
with all triangle inequalities: if x_uv is the shortest distance over positive edges, capped at 1, no path over
negative edges is shorter than x_uv allows, and no smaller x_f improves the cost of a negative f.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from koala.mapping.clustering.correlation import SignedGraph
from koala.mapping.libraries import library

# A constraint is added where it is violated by more than this; the solver's tolerance is a tenth of it.
VIOLATION = 1e-6
# Lengthens every step a little, so that the path with the fewest edges wins among equally short ones.
STEP = 1e-9


class Relaxation(NamedTuple):
    """The LP's optimum: a lower bound of every clustering's cost, and the distance x in [0, 1] of each pair of
    tasks."""

    bound: float
    distances: Any


class Point(NamedTuple):
    """A solution of the LP: its cost, the lengths x of the positive edges and the shortfalls y of the negative
    ones."""

    cost: float
    lengths: Any
    shortfalls: Any


class PathLp:
    """The LP over one signed graph; constraints stay once added, and each solution starts from the previous one.

    Branching can fix lengths to 0 or 1 for a while.
    """

    def __init__(self, signed: SignedGraph) -> None:
        self._np = library("numpy")
        self._highs = library("highspy")
        self._signed = signed
        self._paths = _ShortestPaths(signed.tasks, signed.positive)
        self._columns = len(signed.positive) + len(signed.negative)
        self._known: set[tuple[int, ...]] = set()
        self._fixed: dict[int, int] = {}
        self._solver = self._new_solver()
        self._watch_paths()

    def fix(self, lengths: dict[int, int]) -> None:
        """Fix exactly these positive edges, by index, at length 0 or 1; all others are free."""
        for edge in self._fixed.keys() | lengths.keys():
            if self._fixed.get(edge) != lengths.get(edge):
                low, high = (lengths[edge], lengths[edge]) if edge in lengths else (0, 1)
                self._solver.changeColBounds(edge, low, high)
        self._fixed = dict(lengths)
        self._watch_paths()

    def _watch_paths(self) -> None:
        """Select the edges whose paths are watched: the negative ones, and the positive ones that must be cut."""
        signed = self._signed
        count = len(signed.positive)
        cut = [edge for edge, length in sorted(self._fixed.items()) if length == 1]
        watched = [(one, other, count + place) for place, (one, other, _) in enumerate(signed.negative)]
        watched += [(signed.positive[edge][0], signed.positive[edge][1], edge) for edge in cut]
        self._watched = watched
        self._paths.watch([(one, other) for one, other, _ in watched])

    def solve(self, enough: float = float("inf")) -> Point | None:
        """Return the optimum; None if the fixed lengths contradict each other, or the cost must reach ``enough``."""
        while True:
            point = self._solve_once()
            if point is None or point.cost >= enough:
                return None
            if not self._add_violated(point):
                return point

    def _new_solver(self) -> Any:
        np = self._np
        solver = self._highs.Highs()
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("parallel", "off")
        solver.setOptionValue("solver", "simplex")
        # Presolve would discard the last solution's basis, from which a few steps lead to the next solution.
        solver.setOptionValue("presolve", "off")
        costs = np.array([edge[2] for edge in self._signed.positive + self._signed.negative])
        nothing = np.zeros(0, np.int32)
        ends = (np.zeros(self._columns), np.ones(self._columns))
        solver.addCols(self._columns, costs, *ends, 0, nothing, nothing, np.zeros(0))
        return solver

    def _solve_once(self) -> Point | None:
        self._solver.run()
        status = self._solver.getModelStatus()
        if status == self._highs.HighsModelStatus.kInfeasible:
            return None
        if status not in (self._highs.HighsModelStatus.kOptimal, self._highs.HighsModelStatus.kModelEmpty):
            raise RuntimeError(f"the LP solver stopped with {self._solver.modelStatusToString(status)}")
        values = self._np.clip(self._np.array(self._solver.getSolution().col_value), 0.0, 1.0)
        values[values < VIOLATION] = 0.0
        count = len(self._signed.positive)
        return Point(self._solver.getObjectiveValue(), values[:count], values[count:])

    def _add_violated(self, point: Point) -> bool:
        """Add the shortest path of every watched edge that violates its constraint; return True if one was new."""
        np = self._np
        count = len(self._signed.positive)
        wanted = np.concatenate((1.0 - point.shortfalls, np.ones(len(self._watched) - len(point.shortfalls))))
        starts: list[int] = []
        columns: list[int] = []
        values: list[float] = []
        lows: list[float] = []
        for place, path in self._paths.shorter_than(point.lengths, wanted - VIOLATION):
            edge = self._watched[place][2]
            if (edge, *path) in self._known:
                continue
            self._known.add((edge, *path))
            starts.append(len(columns))
            columns += [*path, edge]
            values += [1.0] * len(path) + [1.0 if edge >= count else -1.0]
            lows.append(1.0 if edge >= count else 0.0)
        if lows:
            self._solver.addRows(
                len(lows),
                np.array(lows),
                np.full(len(lows), self._highs.kHighsInf),
                len(columns),
                np.array(starts, np.int32),
                np.array(columns, np.int32),
                np.array(values),
            )
        return bool(lows)


class _ShortestPaths:
    """Shortest paths over the positive edges between the watched pairs of tasks."""

    def __init__(self, tasks: int, positive: Sequence[tuple[int, int, float]]) -> None:
        self._np = np = library("numpy")
        self._sparse = library("scipy.sparse")
        self._csgraph = library("scipy.sparse.csgraph")
        self._tasks = tasks
        ones = np.array([edge[0] for edge in positive], np.int32)
        others = np.array([edge[1] for edge in positive], np.int32)
        self._ends = (np.concatenate((ones, others)), np.concatenate((others, ones)))
        self._index = {(one, other): place for place, (one, other, _) in enumerate(positive)}
        self._sources: list[int] = []

    def watch(self, pairs: Sequence[tuple[int, int]]) -> None:
        np = self._np
        self._pairs = pairs
        self._sources = sorted({one for one, _ in pairs})
        row_of = {source: row for row, source in enumerate(self._sources)}
        self._rows = np.array([row_of[one] for one, _ in pairs], np.intp)
        self._targets = np.array([other for _, other in pairs], np.intp)

    def _matrix(self, lengths: Any) -> Any:
        stepped = lengths + STEP
        data = (self._np.concatenate((stepped, stepped)), self._ends)
        return self._sparse.csr_matrix(data, shape=(self._tasks, self._tasks))

    def shorter_than(self, lengths: Any, wanted: Any) -> list[tuple[int, list[int]]]:
        """Return the places of watched pairs nearer than ``wanted``, each with the edges of its shortest path."""
        if not self._sources or not len(lengths):
            return []
        distances, before = self._csgraph.dijkstra(
            self._matrix(lengths), directed=True, indices=self._sources, return_predecessors=True
        )
        near = self._np.flatnonzero(distances[self._rows, self._targets] < wanted).tolist()
        return [(place, self._path(before[self._rows[place]], *self._pairs[place])) for place in near]

    def _path(self, before: Any, source: int, target: int) -> list[int]:
        path: list[int] = []
        while target != source:
            previous = int(before[target])
            path.append(self._index[(previous, target) if previous < target else (target, previous)])
            target = previous
        return path

    def distances(self, lengths: Any) -> Any:
        """Return the distances of all pairs, at most 1; tiny ones are 0."""
        np = self._np
        if not len(lengths):
            found = np.ones((self._tasks, self._tasks))
        else:
            found = np.minimum(self._csgraph.dijkstra(self._matrix(lengths), directed=True), 1.0)
            # The sum of the same path from its other end may differ in the last bit.
            found = np.minimum(found, found.T)
        found[found < VIOLATION] = 0.0
        np.fill_diagonal(found, 0.0)
        return found


def relaxed(signed: SignedGraph) -> Relaxation:
    """Solve the LP. Raises ``MissingLibraryError`` without the extra ``mapping``."""
    point = PathLp(signed).solve()
    assert point is not None, "an LP without fixed lengths has a solution"
    paths = _ShortestPaths(signed.tasks, signed.positive)
    return Relaxation(point.cost, paths.distances(point.lengths))
