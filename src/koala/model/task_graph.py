"""The task interaction graph of an application: what each task computes, and what pairs of tasks exchange.

A frozen value, valid once built. Reading a graph from text is not done here, nor anything about machines.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

import msgspec

Edge: TypeAlias = tuple[int, int, float]

TASKS_MAX = 100_000
EDGES_MAX = 1_000_000
# The range of numbers in task graphs and grids (requirements, communication, power): no sum or product of them
# overflows.
QUANTITY_MIN = 1e-9
QUANTITY_MAX = 1e15


def quantity_advice(number: float) -> str | None:
    """Return what to write instead of an invalid quantity; None for a valid one."""
    if QUANTITY_MIN <= number <= QUANTITY_MAX:
        return None
    # A user who writes 0 need not know where the range begins.
    return "write a number above 0" if not number > 0 else f"write a number from {QUANTITY_MIN:g} to {QUANTITY_MAX:g}"


class InvalidTaskGraphError(ValueError):
    """A task graph that contradicts itself. ``part`` names the task or edge; the message says what to write."""

    def __init__(self, part: str, message: str) -> None:
        super().__init__(f"{part}: {message}")
        self.part = part
        self.message = message

    def for_user(self) -> str:
        """Return the part, what is wrong with it and what to do."""
        return str(self)


class TaskGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks by index, with undirected edges between them. Valid once built.

    ``rcr`` holds the relative computational requirement of each task, and ``mcr`` the application's minimal
    computational requirement: a task needs ``mcr * rcr`` of a machine's power. An edge ``(i, j, rqoc)`` with i < j
    joins two tasks that communicate; ``rqoc`` is the relative quality of communication that they need. A pair has at
    most one edge.
    """

    names: tuple[str, ...]
    rcr: tuple[float, ...]
    edges: tuple[Edge, ...]
    mcr: float

    def __post_init__(self) -> None:
        _check_tasks(self.names, self.rcr)
        _check_edges(self.names, self.edges)
        advice = quantity_advice(self.mcr)
        if advice is not None:
            raise InvalidTaskGraphError("mcr", f"{self.mcr} is not a power; {advice}")

    @classmethod
    def of(cls, rcr: Mapping[str, float], edges: Iterable[tuple[str, str, float]], mcr: float) -> TaskGraph:
        """Build the graph from tasks and edges by name; tasks keep their order, and edges may name their ends in
        either order."""
        return cls(names=tuple(rcr), rcr=tuple(rcr.values()), edges=_by_index(tuple(rcr), edges), mcr=mcr)

    def grown(self, rcr: Mapping[str, float], edges: Iterable[tuple[str, str, float]]) -> TaskGraph:
        """Return the graph with more tasks behind its own, and with more edges between old and new tasks, by name."""
        for name in self.names:
            if name in rcr:
                raise InvalidTaskGraphError(
                    f"task {name}", "there is one already; give the spawned task another name"
                )
        names = (*self.names, *rcr)
        more = _by_index(names, edges)
        return TaskGraph(names=names, rcr=(*self.rcr, *rcr.values()), edges=(*self.edges, *more), mcr=self.mcr)


class SpawnedTasks(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that join a running application, by name with their rcr, and their edges with each other and with its
    present tasks. Valid once built; only the graph shows whether their partners exist."""

    names: tuple[str, ...]
    rcr: tuple[float, ...]
    edges: tuple[tuple[str, str, float], ...] = ()

    def __post_init__(self) -> None:
        _check_tasks(self.names, self.rcr)
        mine = set(self.names)
        for one, other, _ in self.edges:
            if one not in mine and other not in mine:
                part = f"edge {one} - {other}"
                raise InvalidTaskGraphError(part, "neither of the two is spawned here; leave the edge out")

    @classmethod
    def of(cls, rcr: Mapping[str, float], edges: Iterable[tuple[str, str, float]] = ()) -> SpawnedTasks:
        """Build the value from tasks and edges by name."""
        return cls(names=tuple(rcr), rcr=tuple(rcr.values()), edges=tuple(edges))

    def fit_beside(self, there: Collection[str]) -> bool:
        """Return True if none of the tasks exists already, and all their partners exist or are new."""
        known = {*there, *self.names}
        return not any(name in there for name in self.names) and all(
            name in known for one, other, _ in self.edges for name in (one, other)
        )

    def join(self, graph: TaskGraph) -> TaskGraph:
        """Return the graph with these tasks behind its own."""
        return graph.grown(dict(zip(self.names, self.rcr, strict=True)), self.edges)


def _by_index(names: tuple[str, ...], edges: Iterable[tuple[str, str, float]]) -> tuple[Edge, ...]:
    """Turn edges by name, with their ends in either order, into edges by index."""
    index = {name: task for task, name in enumerate(names)}
    found: list[Edge] = []
    for one, other, rqoc in edges:
        for name in (one, other):
            if name not in index:
                part = f"edge {one} - {other}"
                raise InvalidTaskGraphError(part, f"there is no task {name!r}; name two of the tasks")
        low, high = sorted((index[one], index[other]))
        found.append((low, high, rqoc))
    return tuple(found)


def _check_names(names: tuple[str, ...]) -> None:
    if not names:
        raise InvalidTaskGraphError("tasks", "there is none; an application has at least one task")
    if len(names) > TASKS_MAX:
        raise InvalidTaskGraphError("tasks", f"{len(names)} are more than {TASKS_MAX} (TASKS_MAX); divide it")
    for name, count in Counter(names).items():
        if not name:
            raise InvalidTaskGraphError("tasks", "a task has an empty name; give it one")
        if count > 1:
            raise InvalidTaskGraphError(f"task {name}", f"{count} tasks have this name; give each its own")


def _check_tasks(names: tuple[str, ...], rcr: tuple[float, ...]) -> None:
    _check_names(names)
    if len(rcr) != len(names):
        raise InvalidTaskGraphError("rcr", f"{len(rcr)} numbers for {len(names)} tasks; give one for each task")
    for name, number in zip(names, rcr, strict=True):
        advice = quantity_advice(number)
        if advice is not None:
            raise InvalidTaskGraphError(f"task {name}", f"its rcr is {number}; {advice}")


def _check_edges(names: tuple[str, ...], edges: tuple[Edge, ...]) -> None:
    if len(edges) > EDGES_MAX:
        raise InvalidTaskGraphError("edges", f"{len(edges)} are more than {EDGES_MAX} (EDGES_MAX); divide it")
    count = len(names)
    seen: set[tuple[int, int]] = set()
    for edge in edges:
        low, high, rqoc = edge
        if not (0 <= low < high < count and QUANTITY_MIN <= rqoc <= QUANTITY_MAX) or (low, high) in seen:
            raise _wrong_edge(names, edge)
        seen.add((low, high))


def _wrong_edge(names: tuple[str, ...], edge: Edge) -> InvalidTaskGraphError:
    """Return the error for a wrong edge; the last case is an edge that is there twice."""
    low, high, rqoc = edge
    if not 0 <= low < len(names) or not 0 <= high < len(names):
        return InvalidTaskGraphError(f"edge {low} - {high}", f"tasks are numbered from 0 to {len(names) - 1}")
    part = f"edge {names[low]} - {names[high]}"
    if low == high:
        return InvalidTaskGraphError(part, "joins a task with itself; leave it out")
    if low > high:
        return InvalidTaskGraphError(part, "its first end comes after its second; turn it round")
    advice = quantity_advice(rqoc)
    if advice is not None:
        return InvalidTaskGraphError(part, f"its rqoc is {rqoc}; {advice}")
    return InvalidTaskGraphError(part, "is listed twice; write it once, with the sum of both")
