"""Random task graphs: connected, within their ranges, of the size asked for, and the same for the same seed."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.mapping.clustering.correlation import joined
from koala.mapping.random_graphs import REQUIREMENT_LEAST, REQUIREMENT_MOST, edges_count, random_task_graph


@given(st.integers(2, 60), st.floats(0.0, 40.0), st.integers(0, 1000))
def test_every_graph_is_connected_and_has_the_edges_asked_for_or_as_near_as_can_be(
    tasks: int, edges_per_task: float, seed: int
) -> None:
    graph = random_task_graph(tasks, Random(seed), edges_per_task=edges_per_task)
    assert len(graph.names) == tasks
    assert len(set(joined(tasks, [(one, other) for one, other, _ in graph.edges]))) == 1
    wanted = min(max(round(edges_per_task * tasks), tasks - 1), tasks * (tasks - 1) // 2)
    assert len(graph.edges) == wanted == edges_count(tasks, edges_per_task)


@given(st.integers(2, 40), st.integers(0, 1000))
def test_requirements_are_in_their_range_and_one_of_each_is_the_least(tasks: int, seed: int) -> None:
    graph = random_task_graph(tasks, Random(seed), mcr=75)
    for drawn in (graph.rcr, [rqoc for _, _, rqoc in graph.edges]):
        assert min(drawn) == REQUIREMENT_LEAST
        assert max(drawn) <= REQUIREMENT_MOST
    assert graph.mcr == 75


def test_requirements_are_spread_evenly_over_their_range() -> None:
    graph = random_task_graph(4000, Random(5), edges_per_task=1.5)
    for drawn in (graph.rcr, [rqoc for _, _, rqoc in graph.edges]):
        for tenth in range(9):
            share = sum(1 + tenth <= each < 2 + tenth for each in drawn) / len(drawn)
            assert share == pytest.approx(1 / 9, abs=0.02)


def test_the_same_seed_gives_the_same_graph_and_another_seed_another() -> None:
    assert random_task_graph(20, Random(3)) == random_task_graph(20, Random(3))
    assert random_task_graph(20, Random(3)) != random_task_graph(20, Random(4))


def test_a_single_task_has_no_edges_and_the_least_requirement() -> None:
    graph = random_task_graph(1, Random(1))
    assert graph.rcr == (REQUIREMENT_LEAST,)
    assert graph.edges == ()


def test_a_graph_without_tasks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        random_task_graph(0, Random(1))
