"""Clustering by local search, for graphs of any size: contraction, then moves of tasks, exchanges and joins.

When those gain nothing more, a few clusters at a time are taken apart, contracted again under a little noise and
mended, and the cheapest that came out is kept. Nothing here says how far from the best the result is: the bound of
``koala.mapping.clustering.lp`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from koala.mapping.clustering.correlation import Neighbours, SignedGraph
from koala.mapping.clustering.edge_contraction import contracted
from koala.mapping.clustering.moves import GAIN_MIN, Clusters

# What taking apart and mending may cost, counted in edges looked at: for each task, and at most in all. It bounds the
# time whatever the graph's size; what every try costs besides counts as so many edges.
EFFORT_PER_TASK = 5_000
EFFORT = 700_000
EFFORT_PER_TRY = 100
# By so much a change may leave the cost above the least yet; in the course of the search it falls to nothing.
SLACK = 0.3
# At most so many clusters are taken apart at once; one alone with at most so many tasks, several with fewer.
TAKEN_CLUSTERS = 5
TAKEN_TASKS_OF_ONE = 200
TAKEN_TASKS = 60
TAKEN_TASKS_OF_LARGE = (10, 60)
# The noise on the weights has a standard deviation drawn from this range.
NOISE = (0.1, 0.7)


def local_search(
    signed: SignedGraph, draws: Random, effort: int | None = None, start: Sequence[int] | None = None
) -> list[int]:
    """Labels by task, none of which can change alone, and no two of which can become one, for a lower cost.

    It begins with the labels ``start``, each the index of some task, or with those of contraction.
    ``effort`` is by default ``EFFORT_PER_TASK`` for each task and at most ``EFFORT``; with 0 nothing is taken apart.
    """
    neighbours = signed.neighbours()
    clusters = Clusters(neighbours, contracted(neighbours) if start is None else start)
    clusters.improve(range(signed.tasks))
    if effort is None:
        effort = min(EFFORT, EFFORT_PER_TASK * signed.tasks)
    clusters = Clusters(neighbours, _best_mended(clusters, signed.cost(clusters.labels), draws, effort))
    clusters.improve(range(signed.tasks))
    return clusters.labels


def _best_mended(clusters: Clusters, cost: float, draws: Random, effort: int) -> list[int]:
    """Contract a few clusters anew, and take it back where that leaves the cost too far above the least, until the
    effort is spent or nothing is left to gain; the labels that cost least."""
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


def _taken(clusters: Clusters, task: int, draws: Random) -> list[int]:
    """The tasks of this one's cluster and of a few clusters that edges lead to; of a large one what is near."""
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


def _near(clusters: Clusters, task: int, count: int) -> list[int]:
    """So many tasks, the nearest to this one, whatever clusters they are in."""
    found = {task: None}
    for each in (reached := [task]):
        near = [other for other, _ in clusters.neighbours[each] if other not in found]
        clusters.looked_at += len(clusters.neighbours[each])
        reached += near
        found |= dict.fromkeys(near)
        if len(found) >= count:
            break
    return list(found)[:count]


def _contracted_anew(clusters: Clusters, taken: list[int], draws: Random) -> list[tuple[list[int], int | None]]:
    """Groups of the tasks taken, each with the label of the cluster around that it was contracted with, if any."""
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
    # A group that reached several clusters around goes to the first.
    label_of: dict[int, int] = {}
    for place, label in enumerate(outside, len(taken)):
        label_of.setdefault(found[place], label)
    return [(tasks, label_of.get(group)) for group, tasks in groups.items()]


def _weights_around(clusters: Clusters, taken: list[int]) -> tuple[list[dict[int, float]], list[int]]:
    """The weights between the tasks taken and, as one place each after them, the clusters around; their labels."""
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
