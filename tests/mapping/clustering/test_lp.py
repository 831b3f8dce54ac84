"""The LP with lazily added constraints is the LP over all triangles, and region growing keeps its promise."""

from __future__ import annotations

import math
from itertools import pairwise, permutations
from random import Random

import pytest

from koala.mapping.clustering.correlation import SignedGraph, signed_graph
from koala.mapping.clustering.lp import Relaxation, relaxed
from koala.mapping.clustering.region_growing import proven_factor, radius_factor, region_growing
from koala.model.task_graph import TaskGraph
from tests.support.naive_clustering import naive_lp_bound, random_graph

CASES = [
    (tasks, edges, seed, theta)
    for tasks, edges in ((6, 9), (10, 30), (14, 40))
    for seed in (1, 2)
    for theta in (-1.0, 0.0, 0.7)
]
cases = pytest.mark.parametrize(("tasks", "edges", "seed", "theta"), CASES)


def signed_case(tasks: int, edges: int, seed: int, theta: float) -> SignedGraph:
    return signed_graph(random_graph(tasks, edges, seed), theta)


@cases
def test_the_bound_is_that_of_the_lp_over_all_triangles(tasks: int, edges: int, seed: int, theta: float) -> None:
    signed = signed_case(tasks, edges, seed, theta)
    assert relaxed(signed).bound == pytest.approx(naive_lp_bound(signed), abs=1e-5)


@cases
def test_the_distances_are_a_solution_of_the_lp_over_all_triangles(
    tasks: int, edges: int, seed: int, theta: float
) -> None:
    signed = signed_case(tasks, edges, seed, theta)
    bound, far = relaxed(signed)
    for i, j, k in permutations(range(tasks), 3):
        assert 0.0 <= far[i, j] == far[j, i] <= far[i, k] + far[k, j] + 1e-6
    assert far.max() <= 1.0
    cost = sum(weight * far[i, j] for i, j, weight in signed.positive)
    cost += sum(weight * (1 - far[i, j]) for i, j, weight in signed.negative)
    assert cost == pytest.approx(bound, abs=1e-4)


def test_a_bad_triangle_of_equal_weights_is_cut_at_its_cheapest_edge() -> None:
    signed = SignedGraph(tasks=3, positive=((0, 1, 2.0), (1, 2, 3.0)), negative=((0, 2, 2.5),))
    bound, far = relaxed(signed)
    assert bound == pytest.approx(2.0)
    assert [far[0, 1], far[1, 2], far[0, 2]] == pytest.approx([1.0, 0.0, 1.0])


def test_a_fractional_optimum_lies_below_every_partition() -> None:
    """A star of three positive edges whose ends want to be apart: half of each is cut, where a partition cuts two."""
    star = SignedGraph(
        tasks=4,
        positive=((0, 3, 1.0), (1, 3, 1.0), (2, 3, 1.0)),
        negative=((0, 1, 1.0), (0, 2, 1.0), (1, 2, 1.0)),
    )
    assert relaxed(star).bound == pytest.approx(1.5)


@pytest.mark.parametrize("signs", ["none", "positive", "negative"])
def test_graphs_of_one_sign_cost_nothing(signs: str) -> None:
    edges = ((0, 1, 1.0), (1, 2, 1.0))
    signed = SignedGraph(
        tasks=4, positive=edges if signs == "positive" else (), negative=edges if signs == "negative" else ()
    )
    relaxation = relaxed(signed)
    labels = region_growing(signed, relaxation, Random(1))
    assert relaxation.bound == pytest.approx(0.0)
    assert len(set(labels)) == (2 if signs == "positive" else 4)


def test_a_single_task_is_a_cluster() -> None:
    signed = signed_graph(TaskGraph.of({"a": 1.0}, [], mcr=1.0))
    assert region_growing(signed, relaxed(signed), Random(1)) == [0]


@pytest.mark.parametrize("tasks", [1, 2, 8, 128, 1000])
def test_both_halves_of_the_proof_give_the_same_factor(tasks: int) -> None:
    factor = radius_factor(tasks)
    assert 2 * factor * math.log(tasks + 1) == pytest.approx(proven_factor(tasks))
    assert factor / (factor - 2) == pytest.approx(proven_factor(tasks))


@pytest.mark.parametrize("orders", [1, 10])
@pytest.mark.parametrize("edges_per_task", [1.5, 3, 6])
@pytest.mark.parametrize("seed", range(4))
def test_region_growing_costs_at_most_the_proven_factor_of_the_bound(
    orders: int, edges_per_task: float, seed: int
) -> None:
    tasks = 24
    signed = signed_case(tasks, int(edges_per_task * tasks), seed, theta=0.2 * seed - 0.3)
    relaxation = relaxed(signed)
    cost = signed.cost(region_growing(signed, relaxation, Random(seed), orders))
    assert relaxation.bound - 1e-5 <= cost <= proven_factor(tasks) * relaxation.bound + 1e-5


def test_the_best_of_ten_orders_is_no_worse_than_the_first() -> None:
    signed = signed_case(40, 160, seed=5, theta=0.0)
    relaxation = relaxed(signed)
    one, ten = (signed.cost(region_growing(signed, relaxation, Random(9), orders)) for orders in (1, 10))
    assert ten <= one


@pytest.mark.parametrize("seed", range(6))
def test_every_ball_is_the_first_that_its_definition_allows(seed: int) -> None:
    signed = signed_case(20, 50, seed, theta=-0.2)
    relaxation = relaxed(signed)
    order = list(range(20))
    Random(seed).shuffle(order)
    assert region_growing(signed, relaxation, Random(seed), orders=1) == balls_by_definition(
        signed, relaxation, order
    )


def balls_by_definition(signed: SignedGraph, relaxation: Relaxation, order: list[int]) -> list[int]:
    """Region growing with every cut and volume added up from nothing."""
    far = relaxation.distances
    labels = [-1] * signed.tasks
    whole = sum(weight * far[i, j] for i, j, weight in signed.positive)
    factor = radius_factor(signed.tasks)
    for centre in order:
        if labels[centre] >= 0:
            continue
        left = [task for task in range(signed.tasks) if labels[task] < 0]
        steps = [*sorted({far[centre, task] for task in left if far[centre, task] < 1 / factor}), 1 / factor]
        for start, radius in pairwise(steps):
            ball = [task for task in left if far[centre, task] <= start]
            cut, volume = 0.0, whole / signed.tasks
            for i, j, weight in signed.positive:
                if labels[i] >= 0 or labels[j] >= 0:
                    continue
                if i in ball and j in ball:
                    volume += weight * far[i, j]
                elif i in ball or j in ball:
                    cut += weight
                    volume += weight * (radius - far[centre, i if i in ball else j])
            if cut <= factor * math.log(signed.tasks + 1) * volume + 1e-9:
                break
        for task in ball:
            labels[task] = centre
    return labels
