"""Mapping by optimisation: as good as trying everything, never better than its bound, honest where time runs out."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.mapping.placing import optimal
from koala.mapping.placing.catalogue import METHODS, map_tasks
from koala.mapping.placing.optimal import (
    INFEASIBLE,
    OBJECTIVES,
    OPTIMAL,
    TIME_LIMIT,
    Instance,
    TooLargeToOptimiseError,
    no_mapping_exists,
    optimised,
    value_of,
)
from koala.mapping.placing.optimal_mapping import map_optimally
from koala.mapping.random_graphs import random_task_graph
from koala.mapping.random_grids import random_grid
from koala.mapping.result import NoPlace, TaskMapping, measured
from koala.model.dendrogram import Dendrogram
from koala.model.task_graph import TaskGraph
from tests.support.naive_mapping import clustered, grids

Clustered = tuple[TaskGraph, tuple[tuple[int, ...], ...]]


def instance_of(seed: int, tasks: int, machines: int, mcr: float) -> Instance:
    """Random tasks in random clusters on random machines in LANs of two."""
    random = Random(seed)
    graph = random_task_graph(tasks, random, mcr=mcr)
    labels = [random.randrange(3) for _ in range(tasks)]
    clusters = [[task for task in range(tasks) if labels[task] == label] for label in sorted(set(labels))]
    return Instance.of(graph, clusters, random_grid(machines, 2, random))


def fits(instance: Instance, machines: tuple[int, ...]) -> bool:
    loads = [0.0] * len(instance.powers)
    for demand, machine in zip(instance.demands, machines, strict=True):
        loads[machine] += demand
    return all(load <= power * (1 + 1e-8) for load, power in zip(loads, instance.powers, strict=True))


def best_by_trying(instance: Instance, objective: str) -> float | None:
    """The best value over all mappings there are."""
    every = product(range(len(instance.powers)), repeat=len(instance.demands))
    values = [value_of(instance, machines, objective) for machines in every if fits(instance, machines)]
    if not values:
        return None
    return max(values) if objective == "lan-hit" else min(values)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(OBJECTIVES), st.sampled_from([60.0, 120.0, 180.0]))
def test_it_is_as_good_as_trying_everything(seed: int, objective: str, mcr: float) -> None:
    instance = instance_of(seed, tasks=5, machines=4, mcr=mcr)
    found = optimised(instance, objective)
    expected = best_by_trying(instance, objective)
    if expected is None:
        assert found.status == INFEASIBLE
        assert found.machines is None
        assert found.gap is None
        return
    assert found.status == OPTIMAL
    assert found.machines is not None
    assert fits(instance, found.machines)
    assert found.value == pytest.approx(expected)
    assert found.value == value_of(instance, found.machines, objective)
    assert found.gap == 0.0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(60.0, 400.0))
def test_it_is_certain_that_there_is_no_mapping_only_where_there_is_none(seed: int, mcr: float) -> None:
    instance = instance_of(seed, tasks=5, machines=4, mcr=mcr)
    if no_mapping_exists(instance.demands, instance.powers):
        assert best_by_trying(instance, "inter-lan") is None


def test_more_tasks_than_machines_can_take_one_each_have_no_mapping_although_the_power_would_do() -> None:
    assert no_mapping_exists([60.0] * 3, [100.0, 100.0])
    assert not no_mapping_exists([50.0] * 3, [100.0, 100.0])


def test_one_task_that_fits_nowhere_has_no_mapping_although_the_power_would_do() -> None:
    assert no_mapping_exists([101.0], [100.0, 100.0])


def test_a_mapping_may_fill_a_machine_to_the_last_bit() -> None:
    instance = Instance(
        demands=(50.0, 50.0), edges=((0, 1, 1.0),), clusters=((0, 1),), powers=(100.0, 60.0), lan_of=(0, 1)
    )
    for objective, best in (("lan-hit", 1.0), ("inter-lan", 0.0)):
        found = optimised(instance, objective)
        assert (found.machines, found.value) == ((0, 0), best)


def test_a_cluster_that_no_lan_holds_is_divided_where_it_costs_least() -> None:
    instance = Instance(
        demands=(60.0, 60.0, 30.0),
        edges=((0, 1, 1.0), (1, 2, 3.0)),
        clusters=((0, 1, 2),),
        powers=(100.0, 100.0),
        lan_of=(0, 1),
    )
    traffic = optimised(instance, "inter-lan")
    assert traffic.value == pytest.approx(0.25)
    hits = optimised(instance, "lan-hit")
    assert hits.value == pytest.approx(2 / 3)


def test_without_edges_nothing_goes_between_lans() -> None:
    instance = Instance(demands=(60.0, 60.0), edges=(), clusters=((0,), (1,)), powers=(100.0, 100.0), lan_of=(0, 1))
    assert optimised(instance, "inter-lan").value == 0.0
    assert optimised(instance, "lan-hit").value == 1.0


def test_a_start_that_cannot_be_bettered_is_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_arguments: object) -> None:
        raise AssertionError("there is nothing to solve")

    monkeypatch.setattr(optimal, "_Program", never)
    instance = instance_of(1, tasks=5, machines=4, mcr=5.0)
    found = optimised(instance, "inter-lan", start=(0, 0, 1, 1, 1))
    assert (found.status, found.machines, found.gap) == (OPTIMAL, (0, 0, 1, 1, 1), 0.0)


def test_where_time_runs_out_the_start_and_a_bound_beyond_it_are_given() -> None:
    instance = instance_of(3, tasks=40, machines=24, mcr=25.0)
    start = tuple(task % 24 for task in range(40))
    assert fits(instance, start)
    found = optimised(instance, "inter-lan", time_limit_s=0.3, start=start)
    assert found.status == TIME_LIMIT
    assert found.value is not None
    assert found.bound is not None
    assert found.bound < found.value <= value_of(instance, start, "inter-lan")
    assert found.gap == pytest.approx(found.value - found.bound)


def test_a_start_that_does_not_fit_is_refused() -> None:
    instance = instance_of(1, tasks=5, machines=4, mcr=60.0)
    with pytest.raises(ValueError, match="more onto a machine than its power"):
        optimised(instance, "inter-lan", start=(0, 0, 0, 0, 0))


def test_more_than_can_be_optimised_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimal, "OPTIMISED_PAIRS_MAX", 10)
    with pytest.raises(TooLargeToOptimiseError, match="20 decisions, more than 10") as caught:
        optimised(instance_of(1, tasks=5, machines=4, mcr=20.0))
    assert "another method" in caught.value.for_user()


def test_an_objective_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="no objective 'speed'"):
        optimised(instance_of(1, tasks=5, machines=4, mcr=20.0), "speed")


# ------------------------------------------------------------------------------------------- as one more method


@given(clustered(6), grids())
def test_the_best_mapping_is_a_mapping_and_no_worse_than_any_other(drawn: Clustered, grid: Dendrogram) -> None:
    graph, clusters = drawn
    best, found = map_optimally(graph, clusters, grid, time_limit_s=5.0)
    others = [map_tasks(graph, clusters, grid, method) for method in METHODS]
    if isinstance(best, NoPlace):
        assert found.status == INFEASIBLE
        assert all(isinstance(other, NoPlace) for other in others)
        return
    loads = [0.0] * len(grid.flat.power)
    for task, machine in enumerate(best.machines):
        loads[machine] += graph.mcr * graph.rcr[task]
    assert all(load <= power + 1e-6 for load, power in zip(loads, grid.flat.power, strict=True))
    assert min(best.affinities) >= 1
    reached = measured(best, graph, grid).lan_hit_ratio
    assert reached == pytest.approx(found.value)
    for other in others:
        if isinstance(other, TaskMapping):
            assert measured(other, graph, grid).lan_hit_ratio <= reached + 1e-6
