"""Weights of edges, and what clusters cost by them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.mapping.clustering.correlation import SignedGraph, correlations, joined, signed_graph
from koala.model.task_graph import TaskGraph
from tests.support.naive_clustering import random_graph

FOUR = TaskGraph.of(dict.fromkeys("abcd", 1.0), [("a", "b", 10.0), ("b", "c", 5.05), ("c", "d", 1.0)], mcr=1.0)


def test_weights_follow_the_formula_with_one_percent_above_the_maximum() -> None:
    assert correlations(FOUR) == pytest.approx((math.log(10 / 0.1), 0.0, math.log(1 / 9.1)), abs=1e-12)


def test_theta_is_added_to_every_edge() -> None:
    plain, shifted = correlations(FOUR), correlations(FOUR, theta=0.75)
    assert shifted == pytest.approx([weight + 0.75 for weight in plain])


def test_edges_divide_by_sign_and_keep_the_size_of_the_weight() -> None:
    signed = signed_graph(FOUR, theta=-1.0)
    assert [edge[:2] for edge in signed.positive] == [(0, 1)]
    assert [edge[:2] for edge in signed.negative] == [(1, 2), (2, 3)]
    assert signed.negative[0][2] == pytest.approx(1.0)
    assert signed.negative[1][2] == pytest.approx(math.log(9.1) + 1.0)


def test_an_edge_of_no_weight_wants_nothing() -> None:
    even = TaskGraph.of({"a": 1.0, "b": 1.0}, [("a", "b", 3.0)], mcr=1.0)
    signed = signed_graph(even, theta=-correlations(even)[0])
    assert signed == SignedGraph(tasks=2, positive=(), negative=())


def test_a_graph_without_edges_has_no_weights() -> None:
    assert correlations(TaskGraph.of({"a": 1.0}, [], mcr=1.0)) == ()


@given(seed=st.integers(0, 10_000), theta=st.floats(-3, 3), data=st.data())
def test_the_cost_is_what_every_edge_says_by_itself(seed: int, theta: float, data: st.DataObject) -> None:
    graph = random_graph(tasks=8, edges=14, seed=seed)
    labels = data.draw(st.lists(st.integers(0, 3), min_size=8, max_size=8))
    unmet = 0.0
    for (one, other, _), weight in zip(graph.edges, correlations(graph, theta), strict=True):
        together = labels[one] == labels[other]
        if together != (weight > 0):
            unmet += abs(weight)
    assert signed_graph(graph, theta).cost(labels) == pytest.approx(unmet)


@given(pairs=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_tasks_are_joined_where_chains_of_pairs_lead(pairs: list[tuple[int, int]]) -> None:
    lowest = list(range(10))
    for _ in range(10):
        for one, other in pairs:
            lowest[one] = lowest[other] = min(lowest[one], lowest[other])
    assert joined(10, pairs) == lowest
