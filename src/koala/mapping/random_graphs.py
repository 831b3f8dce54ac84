"""Random task graphs: connected, with requirements drawn evenly from a range, for experiments and benchmarks.

All randomness comes from the ``Random`` that is passed in: the same state gives the same graph.
"""

from __future__ import annotations

from random import Random

from koala.model.task_graph import Edge, TaskGraph

# RCR and RQoC are relative: at least one value is 1, and none is lower.
REQUIREMENT_LEAST = 1.0
REQUIREMENT_MOST = 10.0
EDGES_PER_TASK = 1.5


def random_task_graph(
    tasks: int, draws: Random, *, mcr: float = 50.0, edges_per_task: float = EDGES_PER_TASK
) -> TaskGraph:
    """Return a connected graph with every RCR and RQoC from 1 to 10 and at least one of each equal to 1.

    Tasks are named ``t0``, ``t1`` and so on. There are ``edges_per_task`` edges for each task, rounded, but at least
    as many as connect all tasks and at most one for each pair. Raises ``ValueError`` for fewer than one task.
    """
    if tasks < 1:
        raise ValueError(f"a graph of {tasks} tasks: give at least 1")
    pairs = _connected_pairs(tasks, edges_count(tasks, edges_per_task), draws)
    rcr = _requirements(tasks, draws)
    rqoc = _requirements(len(pairs), draws)
    edges: list[Edge] = [(one, other, weight) for (one, other), weight in zip(pairs, rqoc, strict=True)]
    return TaskGraph(
        names=tuple(f"t{task}" for task in range(tasks)), rcr=tuple(rcr), edges=tuple(edges), mcr=float(mcr)
    )


def edges_count(tasks: int, edges_per_task: float) -> int:
    """Return the number of edges of such a graph."""
    return max(tasks - 1, min(round(edges_per_task * tasks), tasks * (tasks - 1) // 2))


def _connected_pairs(tasks: int, count: int, draws: Random) -> list[tuple[int, int]]:
    """Return pairs of tasks in ascending order: a random tree over all tasks, and further pairs drawn evenly."""
    order = list(range(tasks))
    draws.shuffle(order)
    pairs: set[tuple[int, int]] = set()
    for place in range(1, tasks):
        pairs.add(_pair(order[place], order[draws.randrange(place)]))
    if count > tasks * (tasks - 1) // 4:
        # Drawing until a new pair comes takes long if most pairs are there already.
        left = [pair for pair in _all_pairs(tasks) if pair not in pairs]
        pairs.update(draws.sample(left, count - len(pairs)))
    while len(pairs) < count:
        pairs.add(_pair(*draws.sample(range(tasks), 2)))
    return sorted(pairs)


def _pair(one: int, other: int) -> tuple[int, int]:
    return (one, other) if one < other else (other, one)


def _all_pairs(tasks: int) -> list[tuple[int, int]]:
    return [(one, other) for one in range(tasks) for other in range(one + 1, tasks)]


def _requirements(count: int, draws: Random) -> list[float]:
    drawn = [draws.uniform(REQUIREMENT_LEAST, REQUIREMENT_MOST) for _ in range(count)]
    if drawn:
        drawn[draws.randrange(count)] = REQUIREMENT_LEAST
    return drawn
