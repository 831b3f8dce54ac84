"""Greedy additive edge contraction: join the two clusters with the most to gain, until no join gains anything.

The first clusters for ``koala.mapping.clustering.local_search``; plain Python over heaps and dictionaries.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from koala.mapping.clustering.correlation import Neighbours


def contracted(neighbours: Neighbours) -> list[int]:
    """Labels by task. Weights between the same two clusters add up; equal gains go to the lowest indices."""
    between = [dict(each) for each in neighbours]
    heap = [
        (-weight, task, other)
        for task, weights in enumerate(between)
        for other, weight in weights.items()
        if weight > 0 and task < other
    ]
    heapify(heap)
    parent = list(range(len(neighbours)))
    while heap:
        gain, one, other = heappop(heap)
        # What was put in before one of the two was joined or the weight changed is out of date.
        if parent[one] != one or parent[other] != other or between[one].get(other) != -gain:
            continue
        if len(between[one]) < len(between[other]):
            one, other = other, one
        parent[other] = one
        weights = between[one]
        del weights[other]
        for third, weight in between[other].items():
            if third == one:
                continue
            del between[third][other]
            total = weights.get(third, 0.0) + weight
            weights[third] = between[third][one] = total
            if total > 0:
                heappush(heap, (-total, min(one, third), max(one, third)))
        between[other] = {}
    return [_root(parent, task) for task in range(len(neighbours))]


def _root(parent: list[int], task: int) -> int:
    while parent[task] != task:
        task = parent[task]
    return task
