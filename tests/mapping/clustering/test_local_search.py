"""Local search: contraction, moves, exchanges and joins, each of which reckons what it gains."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.mapping.clustering.correlation import SignedGraph, signed_graph
from koala.mapping.clustering.exact import exact
from koala.mapping.clustering.local_search import contracted, local_search
from koala.mapping.clustering.moves import MovingClusters
from tests.support.naive_clustering import random_graph

EFFORT_LITTLE = 20_000


def signed_case(seed: int, tasks: int = 30, edges: int = 90, theta: float = 0.0) -> SignedGraph:
    return signed_graph(random_graph(tasks, edges, seed), theta)


def test_contraction_joins_the_strongest_edge_first_and_adds_weights_up() -> None:
    """0 and 1 join first; then 2 is held by 1 with 2.0 and pushed by 0 with 3.0, and stays alone."""
    signed = SignedGraph(tasks=3, positive=((0, 1, 5.0), (1, 2, 2.0)), negative=((0, 2, 3.0),))
    labels = contracted(signed.neighbours())
    assert labels[0] == labels[1] != labels[2]


def naive_contraction(signed: SignedGraph) -> list[int]:
    """Join the two clusters of the largest positive sum, found anew each time."""
    labels = list(range(signed.tasks))
    while True:
        sums: dict[tuple[int, int], float] = {}
        for task, near in enumerate(signed.neighbours()):
            for other, weight in near:
                if labels[task] < labels[other]:
                    pair = (labels[task], labels[other])
                    sums[pair] = sums.get(pair, 0.0) + weight
        best = max(sums, key=lambda pair: sums[pair], default=None)
        if best is None or sums[best] <= 0:
            return labels
        labels = [best[0] if label == best[1] else label for label in labels]


@given(seed=st.integers(0, 10_000), theta=st.floats(-1, 1))
@settings(max_examples=40)
def test_contraction_is_that_of_its_definition(seed: int, theta: float) -> None:
    signed = signed_case(seed, tasks=14, edges=35, theta=theta)
    fast, slow = contracted(signed.neighbours()), naive_contraction(signed)
    assert signed.cost(fast) == pytest.approx(signed.cost(slow))
    assert len({*zip(fast, slow, strict=True)}) == len(set(fast)) == len(set(slow))


@given(seed=st.integers(0, 10_000), labels=st.lists(st.integers(0, 11), min_size=12, max_size=12))
def test_what_clusters_say_they_gained_is_what_the_cost_fell_by(seed: int, labels: list[int]) -> None:
    signed = signed_case(seed, tasks=12, edges=30)
    clusters = MovingClusters(signed.neighbours(), labels)
    clusters.regroup([([0, 3, 5], None), ([1, 2], labels[7])])
    assert signed.cost(clusters.labels) == pytest.approx(signed.cost(labels) - clusters.gained)
    clusters.improve(range(12))
    assert signed.cost(clusters.labels) == pytest.approx(signed.cost(labels) - clusters.gained)


@given(seed=st.integers(0, 10_000))
def test_undo_takes_back_everything_since_keep(seed: int) -> None:
    signed = signed_case(seed, tasks=12, edges=30)
    clusters = MovingClusters(signed.neighbours(), [0] * 12)
    clusters.settle(range(12))
    clusters.keep()
    kept, gained = list(clusters.labels), clusters.gained
    clusters.regroup([([2, 4, 6], None)])
    clusters.improve(range(12))
    clusters.undo()
    assert (clusters.labels, clusters.gained) == (kept, gained)


@given(seed=st.integers(0, 10_000), theta=st.floats(-1, 1))
@settings(max_examples=30, deadline=None)
def test_no_single_move_and_no_join_makes_the_result_cheaper(seed: int, theta: float) -> None:
    signed = signed_case(seed, tasks=16, edges=45, theta=theta)
    labels = local_search(signed, Random(seed), EFFORT_LITTLE)
    cost = signed.cost(labels) - 1e-7
    for task in range(signed.tasks):
        for label in {*labels, -1}:
            assert signed.cost([*labels[:task], label, *labels[task + 1 :]]) >= cost
    for one in set(labels):
        for other in set(labels):
            assert signed.cost([one if label == other else label for label in labels]) >= cost


def test_an_exchange_finds_what_no_single_move_does() -> None:
    """Pairs 0-1 and 2-3 are in each other's clusters; one task alone cannot leave, both together can."""
    positive = ((0, 1, 4.0), (2, 3, 4.0), (0, 4, 3.0), (1, 4, 3.0), (2, 5, 3.0), (3, 5, 3.0))
    signed = SignedGraph(tasks=6, positive=positive, negative=((4, 5, 9.0),))
    wrong = [5, 5, 4, 4, 4, 5]
    clusters = MovingClusters(signed.neighbours(), wrong)
    clusters.settle(range(6))
    assert clusters.labels == wrong
    clusters.improve(range(6))
    assert signed.cost(clusters.labels) == 0.0


def test_two_clusters_join_where_no_single_task_gains_by_going_over() -> None:
    positive = ((0, 1, 5.0), (2, 3, 5.0), (0, 2, 1.0), (1, 3, 1.0))
    signed = SignedGraph(tasks=4, positive=positive, negative=())
    clusters = MovingClusters(signed.neighbours(), [0, 0, 2, 2])
    clusters.improve(range(4))
    assert len(set(clusters.labels)) == 1


@pytest.mark.parametrize("seed", range(6))
def test_taking_apart_and_mending_comes_near_the_best(seed: int) -> None:
    signed = signed_case(seed)
    best = signed.cost(exact(signed, Random(1)).labels)
    found = signed.cost(local_search(signed, Random(seed)))
    assert best - 1e-6 <= found <= 1.03 * best


def test_the_same_seed_gives_the_same_clusters() -> None:
    signed = signed_case(3, tasks=60, edges=200)
    assert local_search(signed, Random(4)) == local_search(signed, Random(4))


def test_tasks_without_edges_stay_alone() -> None:
    assert local_search(SignedGraph(tasks=3, positive=(), negative=()), Random(1)) == [0, 1, 2]
