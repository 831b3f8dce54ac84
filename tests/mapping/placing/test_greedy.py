"""The greedy baseline: the tightest machine for each task, those that need most first."""

from __future__ import annotations

from hypothesis import given

from koala.mapping.placing.catalogue import map_tasks
from koala.mapping.placing.power_left import PowerLeft
from koala.mapping.result import NoPlace, TaskMapping, measured
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph
from tests.support.naive_mapping import clustered, grids, lan, one_man, tasks


def test_each_task_goes_onto_the_tightest_machine() -> None:
    """t1 (7) onto b0 (8), t0 (5) onto b1 (6), t2 (1) onto what is left of b0 before b1: both have 1, b0 is first."""
    graph, grid = tasks(5, 7, 1), one_man(lan("a", 20), lan("b", 8, 6))
    answer = map_tasks(graph, [(0, 1, 2)], grid, "greedy")
    assert isinstance(answer, TaskMapping)
    assert answer.by_name(graph, grid) == {"t0": "b1", "t1": "b0", "t2": "b0"}


def test_the_home_of_a_cluster_is_the_lan_with_most_of_its_tasks() -> None:
    graph, grid = tasks(5, 7, 17), one_man(lan("a", 20), lan("b", 8, 6))
    answer = map_tasks(graph, [(0, 1, 2)], grid, "greedy")
    assert isinstance(answer, TaskMapping)
    assert answer.homes == (1,)
    assert measured(answer, graph, grid).distances == (2, 1, 0, 0)


def test_the_task_without_a_machine_is_named_with_its_cluster() -> None:
    answer = map_tasks(tasks(5, 9, 1), [(0,), (1, 2)], one_man(lan("a", 8, 6)), "greedy")
    assert isinstance(answer, NoPlace)
    assert (answer.task, answer.cluster, answer.wanted, answer.offered) == ("t1", ("t1", "t2"), 9, 8)


@given(clustered(), grids())
def test_halving_finds_the_same_as_looking_at_every_machine(
    work: tuple[TaskGraph, tuple[tuple[int, ...], ...]], grid: Dendrogram
) -> None:
    graph, clusters = work
    lefts = PowerLeft(grid.flat), PowerLeft(grid.flat)
    one = map_tasks(graph, clusters, grid, "greedy", left=lefts[0])
    other = map_tasks(graph, clusters, grid, "greedy-scan", left=lefts[1])
    if isinstance(one, TaskMapping):
        assert isinstance(other, TaskMapping)
        assert (one.machines, one.affinities, one.homes) == (other.machines, other.affinities, other.homes)
    else:
        assert isinstance(other, NoPlace)
        assert (one.task, one.offered) == (other.task, other.offered)
    assert lefts[0].power == lefts[1].power
