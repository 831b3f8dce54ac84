"""Clustering by local search, for graphs of any size: contraction, then moves of tasks, swaps and joins.

When these gain nothing more, a few clusters at a time are dissolved, contracted again with a little noise and
improved, and the cheapest result is kept. The search does not tell how far from the optimum its result is; the bound
of ``koala.mapping.clustering.lp`` does. Where that LP can be solved, the search can also begin from its solution.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from random import Random

from koala.mapping.clustering.correlation import Neighbours, SignedGraph, joined
from koala.mapping.clustering.lp import Relaxation
from koala.mapping.clustering.moves import GAIN_MIN, MovingClusters

# The effort for dissolving and improving, counted in examined edges: for each task, and in total. It bounds the time
# for any size of graph; the fixed cost of each try counts as EFFORT_PER_TRY edges.
EFFORT_PER_TASK = 5_000
EFFORT = 700_000
EFFORT_PER_TRY = 100
# A change may leave the cost this far above the least yet; the slack falls to 0 in the course of the search.
SLACK = 0.3
# At most this many clusters are dissolved at once; a single one with at most TAKEN_TASKS_OF_ONE tasks, several with
# TAKEN_TASKS.
TAKEN_CLUSTERS = 5
TAKEN_TASKS_OF_ONE = 200
TAKEN_TASKS = 60
TAKEN_TASKS_OF_LARGE = (10, 60)
# The noise on the weights has a standard deviation drawn from this range.
NOISE = (0.1, 0.7)
# The search begins with positive edges shorter than this joined: once only the shortest, once the shorter half.
THRESHOLDS = (0.2, 0.5)


def local_search(
    signed: SignedGraph, draws: Random, effort: int | None = None, start: Sequence[int] | None = None
) -> list[int]:
    """Return labels by task such that no single change of a label, and no join of two clusters, lowers the cost.

    The search begins with the labels ``start``, each the index of some task, or with those of a contraction.
    ``effort`` is by default ``EFFORT_PER_TASK`` for each task and at most ``EFFORT``; with 0 nothing is dissolved.
    """
    neighbours = signed.neighbours()
    clusters = MovingClusters(neighbours, contracted(neighbours) if start is None else start)
    clusters.improve(range(signed.tasks))
    if effort is None:
        effort = min(EFFORT, EFFORT_PER_TASK * signed.tasks)
    clusters = MovingClusters(neighbours, _best_mended(clusters, signed.cost(clusters.labels), draws, effort))
    clusters.improve(range(signed.tasks))
    return clusters.labels


def lp_search(signed: SignedGraph, relaxation: Relaxation, draws: Random) -> list[int]:
    """Return labels by task: the cheapest result of ``local_search`` from its own beginning and from those of the LP,
    ties to the first.

    Where the LP's lengths are 0 and 1, as in most sparse graphs, they are the optimal clustering already; elsewhere
    they are one more place to begin. The result never costs more than ``local_search`` with the same draws.
    """
    found = [local_search(signed, draws)]
    for threshold in THRESHOLDS:
        if signed.cost(found[-1]) <= relaxation.bound + GAIN_MIN:
            break  # nothing is cheaper
        short = [(one, other) for one, other, _ in signed.positive if relaxation.distances[one, other] < threshold]
        found.append(local_search(signed, draws, start=joined(signed.tasks, short)))
    return min(found, key=signed.cost)


def _best_mended(clusters: MovingClusters, cost: float, draws: Random, effort: int) -> list[int]:
    """Contract a few clusters anew, and undo it if that leaves the cost too far above the least, until the effort is
    spent or nothing is left to gain; return the labels with the least cost."""
    linked = [task for task, each in enumerate(clusters.neighbours) if each]
    best, most = list(clusters.labels), clusters.gained
    all_there_is = clusters.gained + cost
    clusters.looked_at = 0
    while most < all_there_is - GAIN_MIN and clusters.looked_at < effort:
        clusters.looked_at += EFFORT_PER_TRY
        clusters.keep()
        before = clusters.gained
        taken = _taken(clusters, draws.choice(linked), draws)
        clusters.regroup(_contracted_anew(clusters, taken, draws))
        clusters.settle(taken)
        if clusters.gained < most - SLACK * (1 - clusters.looked_at / effort):
            clusters.undo()
        elif clusters.gained > before + GAIN_MIN:
            clusters.improve(taken)
        if clusters.gained > most + GAIN_MIN:
            best, most = list(clusters.labels), clusters.gained
    return best


def _taken(clusters: MovingClusters, task: int, draws: Random) -> list[int]:
    """Return the tasks of this one's cluster and of a few neighbouring clusters; of a large cluster only near
    tasks."""
    label = clusters.labels[task]
    labels = {label}
    taken = clusters.members(label)
    if len(taken) > TAKEN_TASKS_OF_ONE:
        return _near(clusters, task, draws.randint(*TAKEN_TASKS_OF_LARGE))
    for _ in range(draws.randint(1, 2 * TAKEN_CLUSTERS)):
        near = clusters.neighbours[draws.choice(taken)]
        if not near:
            continue
        label = clusters.labels[draws.choice(near)[0]]
        if label not in labels and len(labels) < TAKEN_CLUSTERS:
            members = clusters.members(label)
            if len(taken) + len(members) <= TAKEN_TASKS:
                labels.add(label)
                taken += members
    return taken


def _near(clusters: MovingClusters, task: int, count: int) -> list[int]:
    """Return this many tasks, the nearest to this one, whatever their clusters."""
    found = {task: None}
    for each in (reached := [task]):
        near = [other for other, _ in clusters.neighbours[each] if other not in found]
        clusters.looked_at += len(clusters.neighbours[each])
        reached += near
        found |= dict.fromkeys(near)
        if len(found) >= count:
            break
    return list(found)[:count]


def _contracted_anew(clusters: MovingClusters, taken: list[int], draws: Random) -> list[tuple[list[int], int | None]]:
    """Return groups of the dissolved tasks, each with the label of the outside cluster that it was contracted with,
    if any."""
    weights, outside = _weights_around(clusters, taken)
    deviation = draws.uniform(*NOISE)
    noisy: Neighbours = [[] for _ in weights]
    for place, each in enumerate(weights):
        for other, weight in each.items():
            if place < other:
                noised = weight + draws.gauss(0.0, deviation)
                noisy[place].append((other, noised))
                noisy[other].append((place, noised))
    found = contracted(noisy)
    groups: dict[int, list[int]] = {}
    for place, task in enumerate(taken):
        groups.setdefault(found[place], []).append(task)
    # A group that reached several outside clusters goes to the first.
    label_of: dict[int, int] = {}
    for place, label in enumerate(outside, len(taken)):
        label_of.setdefault(found[place], label)
    return [(tasks, label_of.get(group)) for group, tasks in groups.items()]


def _weights_around(clusters: MovingClusters, taken: list[int]) -> tuple[list[dict[int, float]], list[int]]:
    """Return the weights between the dissolved tasks and, as one place each after them, the outside clusters, with
    their labels."""
    place_of = {task: place for place, task in enumerate(taken)}
    place_outside: dict[int, int] = {}
    weights: list[dict[int, float]] = [{} for _ in taken]
    for task, place in place_of.items():
        clusters.looked_at += len(clusters.neighbours[task])
        for neighbour, weight in clusters.neighbours[task]:
            other = place_of.get(neighbour)
            if other is None:
                label = clusters.labels[neighbour]
                other = place_outside.setdefault(label, len(weights))
                if other == len(weights):
                    weights.append({})
            weights[place][other] = weights[place].get(other, 0.0) + weight
    return weights, list(place_outside)


def contracted(neighbours: Neighbours) -> list[int]:
    """Return labels by task, by greedy additive edge contraction: join the two clusters with the largest gain until
    no join gains anything. Weights between the same two clusters add up; equal gains go to the lowest indices."""
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
        # An entry is out of date if one of the two was joined or the weight changed since.
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
