"""The exact clustering is the best of all partitions."""

from __future__ import annotations

from random import Random

import pytest

from koala.mapping.clustering.correlation import SignedGraph, signed_graph
from koala.mapping.clustering.exact import TooHardError, exact
from koala.mapping.clustering.lp import relaxed
from tests.support.naive_clustering import least_cost, random_graph


@pytest.mark.parametrize("theta", [-0.8, 0.0, 0.6])
@pytest.mark.parametrize(("tasks", "edges"), [(5, 7), (7, 12), (7, 21), (8, 20), (8, 28)])
@pytest.mark.parametrize("seed", [1, 2])
def test_no_partition_costs_less(tasks: int, edges: int, seed: int, theta: float) -> None:
    signed = signed_graph(random_graph(tasks, edges, seed), theta)
    found = exact(signed, Random(seed))
    assert signed.cost(found.labels) == pytest.approx(least_cost(signed), abs=1e-5)


# Its three ends want to be apart: the LP cuts half of each positive edge, a partition cuts two of them.
STAR = SignedGraph(
    tasks=4,
    positive=((0, 3, 1.0), (1, 3, 1.0), (2, 3, 1.0)),
    negative=((0, 1, 1.0), (0, 2, 1.0), (1, 2, 1.0)),
)


def test_branching_closes_the_gap_that_the_lp_leaves() -> None:
    found = exact(STAR, Random(1))
    assert found.bound == pytest.approx(1.5)
    assert STAR.cost(found.labels) == pytest.approx(2.0)


@pytest.mark.parametrize("seed", range(3))
def test_parts_that_share_one_task_are_solved_apart_and_joined(seed: int) -> None:
    """Two graphs hung together at one task cost what they cost apart, with the bound of the whole."""
    one, other = (signed_graph(random_graph(7, 15, 10 * seed + part), 0.1) for part in (1, 2))
    shift = one.tasks - 1
    both = SignedGraph(
        tasks=one.tasks + shift,
        positive=one.positive + tuple((i + shift, j + shift, weight) for i, j, weight in other.positive),
        negative=one.negative + tuple((i + shift, j + shift, weight) for i, j, weight in other.negative),
    )
    found = exact(both, Random(seed))
    assert both.cost(found.labels) == pytest.approx(least_cost(one) + least_cost(other), abs=1e-5)
    assert found.bound == pytest.approx(relaxed(both).bound, abs=1e-5)


def test_a_graph_that_needs_more_branches_than_allowed_is_refused_with_advice() -> None:
    with pytest.raises(TooHardError) as caught:
        exact(STAR, Random(1), branches_max=0)
    assert "local-search" in caught.value.for_user()


def test_a_graph_without_edges_falls_apart() -> None:
    assert exact(SignedGraph(tasks=3, positive=(), negative=()), Random(1)).labels == [0, 1, 2]
