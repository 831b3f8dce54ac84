"""Clusters within limits: every size kept, every task in one, and as much weight inside as moving tasks can give."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.mapping.clustering.catalogue import Clustering
from koala.mapping.clustering.correlation import signed_graph
from koala.mapping.clustering.limits import feasible_limits, within_limits
from koala.mapping.random_graphs import random_task_graph
from koala.model.task_graph import TaskGraph


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 6), st.integers(1, 12), st.integers(0, 30))
def test_every_cluster_keeps_the_limits_and_every_task_is_in_one(
    tasks: int, low: int, more: int, parts: int, seed: int
) -> None:
    """Whatever clusters one begins with."""
    draws = Random(seed)
    graph = random_task_graph(tasks, draws)
    theta = draws.uniform(-3.0, 3.0)
    begun: dict[int, list[int]] = {}
    for task in range(tasks):
        begun.setdefault(draws.randrange(parts), []).append(task)
    size = (float(low), float(low + more))
    found = within_limits(graph, as_found(*map(tuple, begun.values()), theta=theta), size)
    least, most = feasible_limits(tasks, size)
    assert most == low + more
    assert all(least <= len(members) <= most for members in found.clusters)
    assert sorted(task for members in found.clusters for task in members) == list(range(tasks))
    labels = {task: number for number, members in enumerate(found.clusters) for task in members}
    assert found.cost == pytest.approx(signed_graph(graph, theta).cost([labels[task] for task in range(tasks)]))


@pytest.mark.parametrize("tasks", [8, 16, 32, 64, 128])
def test_the_papers_graphs_can_be_divided_within_its_three_ranges(tasks: int) -> None:
    for size in ((1.0, 3.0), (4.0, 6.0), (7.0, 9.0)):
        assert feasible_limits(tasks, size) == size


def test_the_lower_limit_gives_way_where_so_many_tasks_cannot_be_divided() -> None:
    assert feasible_limits(10, (7.0, 9.0)) == (5, 9)
    assert feasible_limits(3, (4.0, 6.0)) == (3, 6)


def chain(weights: list[float]) -> TaskGraph:
    names = [f"t{number}" for number in range(len(weights) + 1)]
    edges = [(names[number], names[number + 1], weight) for number, weight in enumerate(weights)]
    return TaskGraph.of(dict.fromkeys(names, 1.0), edges, 50.0)


def as_found(*clusters: tuple[int, ...], theta: float = 3.0) -> Clustering:
    return Clustering(clusters=clusters, cost=0.0, lp_bound=None, theta=theta, method="local-search")


def test_what_is_too_large_is_divided_where_it_is_weakest() -> None:
    graph = chain([9.0, 9.0, 1.0, 9.0, 9.0])
    found = within_limits(graph, as_found((0, 1, 2, 3, 4, 5)), (1.0, 3.0))
    assert found.clusters == ((0, 1, 2), (3, 4, 5))


def test_what_is_too_small_joins_what_it_talks_to_most() -> None:
    graph = chain([9.0, 1.0, 9.0])
    found = within_limits(graph, as_found((0,), (1,), (2,), (3,)), (2.0, 2.0))
    assert found.clusters == ((0, 1), (2, 3))


def test_tasks_change_places_where_that_keeps_more_inside() -> None:
    graph = chain([9.0, 1.0, 9.0])
    found = within_limits(graph, as_found((0, 2), (1, 3)), (2.0, 2.0))
    assert found.clusters == ((0, 1), (2, 3))
