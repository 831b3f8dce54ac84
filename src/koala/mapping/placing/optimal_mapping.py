"""Mapping by optimisation as one more method: the best mapping that ``optimal`` finds, in the form of the others.

It begins with the result of ``wase-whole``, so it never gives less than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from koala.mapping.placing.catalogue import map_tasks
from koala.mapping.placing.optimal import Instance, Optimised, optimised
from koala.mapping.result import NoPlace, TaskMapping, plurality_lan
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph

NAME = "optimal"
TIME_LIMIT_S = 10.0
_BEGINNING = "wase-whole"


class OptimalMapping(NamedTuple):
    """The best mapping found, or what found no place; and the optimisation's result on how good any mapping can
    be."""

    answer: TaskMapping | NoPlace
    found: Optimised


def map_optimally(
    graph: TaskGraph,
    clusters: Sequence[Sequence[int]],
    dendrogram: Dendrogram,
    objective: str = "lan-hit",
    *,
    time_limit_s: float = TIME_LIMIT_S,
    user_lan: str | None = None,
) -> OptimalMapping:
    """Find the best mapping. Raises the errors of ``map_tasks`` and ``optimised``."""
    start = map_tasks(graph, clusters, dendrogram, _BEGINNING, user_lan=user_lan)
    found = optimised(
        Instance.of(graph, clusters, dendrogram),
        objective,
        time_limit_s=time_limit_s,
        start=None if isinstance(start, NoPlace) else start.machines,
    )
    if found.machines is None:
        assert isinstance(start, NoPlace), "with a start there is a mapping"
        return OptimalMapping(msgspec.structs.replace(start, method=NAME), found)
    return OptimalMapping(_mapping(graph, clusters, dendrogram, found.machines), found)


def _mapping(
    graph: TaskGraph, clusters: Sequence[Sequence[int]], dendrogram: Dendrogram, machines: tuple[int, ...]
) -> TaskMapping:
    """Turn the machines into a mapping: tasks come to them by need, and a cluster's home is where most of its tasks
    are."""
    flat = dendrogram.flat
    left = flat.power.copy()
    affinities = [0.0] * len(machines)
    for task in sorted(range(len(machines)), key=lambda task: (-graph.rcr[task], task)):
        need = graph.mcr * graph.rcr[task]
        # The solver uses floats, and may overfill a machine by the last bit.
        affinities[task] = max(1.0, left[machines[task]] / need)
        left[machines[task]] -= need
    return TaskMapping(
        method=NAME,
        clusters=tuple(map(tuple, clusters)),
        machines=machines,
        affinities=tuple(affinities),
        homes=tuple(plurality_lan(flat, [machines[task] for task in tasks]) for tasks in clusters),
    )
