"""Workloads: what files may say, what is drawn from them, and that the draws depend on the seed alone."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from koala.descriptions import DescriptionError
from koala.descriptions.workload.form import (
    GENERATED_JOBS_MAX,
    LISTED_JOBS_MAX,
    MIX_MAX,
    read_workload,
    workload_schema,
)
from koala.model.facts import JobEnded, JobPlaced, JobRequeued
from koala.model.messages import JobOutcome, JobSubmitted
from koala.model.request import Priority
from koala.simulator import Arrival, Workload, WorkloadError
from koala.simulator.workloads.generators import equal_parts, workload_from_file
from tests.support.hand_driven import HandDriven, grid, job, site

GRID = grid(site("a", 100), site("b", 100), site("c", 100))

GENERATED = """
applications:
  laplace: {execution_s: {by_size: {36: 100, 64: 200}}, per_extra_cluster: 0.3}
  heat: {execution_s: {exponential: 300}}
generate:
  - jobs: 600
    interarrival_s: {exponential: 80}
    request: REQUEST
    component_max: 24
    walltime: 15m
    priority: {high: 1, low: 3}
    mix:
      - application: laplace
        sizes: [{processors: 36, components: [1, 2, 3, 4]}, {processors: 64, components: [4]}]
      - application: heat
        weight: 3
        sizes: [{processors: {uniform: [10, 12]}}]
"""


def drawn(text: str, seed: int = 1) -> list[Arrival]:
    return list(workload_from_file(read_workload(text, "w.yaml")).arrivals(GRID, seed))


def generated(request: str = "non-fixed", seed: int = 1) -> list[Arrival]:
    return drawn(GENERATED.replace("REQUEST", request), seed)


def test_a_generator_draws_what_its_mix_says() -> None:
    jobs = generated()
    assert len(jobs) == 600
    assert all(before.at_s <= after.at_s for before, after in itertools.pairwise(jobs))
    assert 60 <= jobs[-1].at_s / 600 <= 100
    names = Counter(each.request.name for each in jobs)
    assert 380 <= names["heat"] <= 520
    laplace = [each for each in jobs if each.request.name == "laplace"]
    shapes = {tuple(part.processors for part in each.request.components) for each in laplace}
    assert shapes == {(18, 18), (12, 12, 12), (9, 9, 9, 9), (16, 16, 16, 16)}, "36 in one is above component_max"
    assert {(each.request.processors, each.execution_s) for each in laplace} == {(36, 100.0), (64, 200.0)}
    assert {each.per_extra_cluster for each in laplace} == {0.3}
    heat = [each for each in jobs if each.request.name == "heat"]
    assert {each.request.processors for each in heat} == {10, 11, 12}
    assert 250 <= sum(each.execution_s for each in heat) / len(heat) <= 350
    assert {each.request.walltime_s for each in jobs} == {900.0}
    assert 100 <= sum(each.request.priority is Priority.HIGH for each in jobs) <= 200


def test_equal_jobs_share_one_request() -> None:
    assert len({id(each.request) for each in generated()}) <= 2 * (4 + 3)


def test_the_same_seed_draws_the_same_jobs_and_another_seed_others() -> None:
    assert generated(seed=5) == generated(seed=5)
    assert generated(seed=5) != generated(seed=6)


def test_the_flexible_variant_has_the_same_arrivals_sizes_and_times() -> None:
    for fixed, flexible in zip(generated("non-fixed"), generated("flexible"), strict=True):
        assert flexible.request.kind == "flexible"
        assert (fixed.at_s, fixed.execution_s) == (flexible.at_s, flexible.execution_s)
        assert fixed.request.processors == flexible.request.processors


def test_fixed_requests_name_distinct_sites_while_there_are_enough() -> None:
    jobs = generated("fixed")
    assert {each.request.kind for each in jobs} == {"fixed"}
    for each in jobs:
        sites = [part.site for part in each.request.components]
        assert len(set(sites)) == min(3, len(sites))


def test_parts_are_as_equal_as_they_can_be() -> None:
    assert equal_parts(72, 3) == [24, 24, 24]
    assert equal_parts(10, 4) == [3, 3, 2, 2]


def test_a_table_is_interpolated_only_where_the_file_says_so() -> None:
    text = """
applications: {x: {execution_s: {by_size: {10: 100, 20: 300}, between: linear}}}
jobs:
  - {at_s: 0, job: {processors: 15, application: {executable: x}}}
  - {at_s: 1, job: {processors: 20, application: {executable: /usr/bin/x}}}
"""
    assert [each.execution_s for each in drawn(text)] == [200.0, 300.0]
    with pytest.raises(DescriptionError, match="15 processors"):
        drawn(text.replace(", between: linear", ""))


def test_listed_and_generated_jobs_are_merged_by_time() -> None:
    text = """
jobs:
  - {at_s: 25, execution_s: 7, per_extra_cluster: 0.5, job: {name: second, processors: 1}}
  - {at_s: 5, execution_s: {constant: 3}, job: {name: first, components: [{processors: 2, count: 2}]}}
generate:
  - {jobs: 3, interarrival_s: 10, execution_s: 1, mix: [{application: m, sizes: [{processors: 1}]}]}
"""
    assert [(each.at_s, each.request.name, each.execution_s) for each in drawn(text)] == [
        (5, "first", 3),
        (10, "m", 1),
        (20, "m", 1),
        (25, "second", 7),
        (30, "m", 1),
    ]


def test_files_have_their_replicas_where_the_file_says_or_drawn() -> None:
    text = """
files:
  here: {size: 4 GB, replicas: [b]}
  drawn: {size_bytes: 5, replicas: 2}
generate: [{jobs: 1, interarrival_s: 1, execution_s: 1, input_files: [here, drawn],
            mix: [{application: m, sizes: [{processors: 1}]}]}]
"""
    workload = workload_from_file(read_workload(text, "w.yaml"))
    here, there = workload.files(GRID, 1)
    assert (here.size_bytes, here.replicas) == (4 * 10**9, ("b",))
    assert (there.size_bytes, len(set(there.replicas))) == (5, 2)
    assert workload.files(GRID, 1) == (here, there)
    assert len({workload.files(GRID, seed)[1].replicas for seed in range(20)}) > 1
    (arrival,) = workload.arrivals(GRID, 1)
    assert arrival.request.components[0].input_files[0].name in ("here", "drawn")


@pytest.mark.parametrize(("replicas", "word"), [("[z]", "z"), ("4", "3 sites")])
def test_replicas_that_the_grid_cannot_have_are_named(replicas: str, word: str) -> None:
    text = "files: {f: {size: 1 GB, replicas: HERE}}\njobs: [{at_s: 0, execution_s: 1, job: {processors: 1}}]"
    with pytest.raises(WorkloadError, match=word):
        workload_from_file(read_workload(text.replace("HERE", replicas), "w.yaml")).files(GRID, 1)


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ("name: x", "1:1", "no jobs"),
        ("jobs: [{at_s: 0, job: {processors: 1}}]", "1:8", "execution_s"),
        ("jobs: [{at_s: 0, execution_s: 1, job: {name: x}}]", "1:39", "its size"),
        ("jobs: [{at_s: 0, execution_s: 1, job: {processors: 0}}]", "1:52", "too small"),
        ("jobs: [{at_s: 0, execution_s: {uniform: [5, 1]}, job: {processors: 1}}]", "1:41", "least"),
        ("jobs: [{at_s: 0, execution_s: {uniform: [1, 2], constant: 3}, job: {processors: 1}}]", "1:31", "together"),
        ("jobs: [{at_s: -1, execution_s: 1, job: {processors: 1}}]", "1:15", "too small"),
        ("job: []", "1:1", "jobs"),
        ("files: {f: {replicas: 2}}\njobs: [{at_s: 0, execution_s: 1, job: {processors: 1}}]", "1:12", "size"),
        ("files: {f: {size: 1 GB, replicas: few}}", "1:35", "whole number"),
        (GENERATED.replace("REQUEST", "fluid"), "8:14", "choices"),
        (GENERATED.replace("REQUEST", "fixed").replace("laplace:", "laplas:"), "13:22", "laplace"),
        (GENERATED.replace("REQUEST", "fixed").replace("64: 200", "65: 200"), "14:74", "64 processors"),
        (
            GENERATED.replace("REQUEST", "fixed").replace("components: [4]", "components: [2]"),
            "14:90",
            "component_max",
        ),
        (
            GENERATED.replace("REQUEST", "fixed").replace("[10, 12]}", "[10, 12]}, components: [11]"),
            "17:63",
            "divided",
        ),
        (GENERATED.replace("REQUEST", "fixed").replace("high: 1, low: 3", "high: 0"), "11:15", "zero"),
    ],
)
def test_a_wrong_workload_file_is_reported_at_its_place(text: str, place: str, word: str) -> None:
    with pytest.raises(DescriptionError) as error:
        read_workload(text, "w.yaml")
    assert f"w.yaml:{place}:" in error.value.for_user()
    assert word in error.value.for_user()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (GENERATED.replace("REQUEST", "fixed").replace("600", str(GENERATED_JOBS_MAX + 1)), "too large"),
        (
            "generate: [{jobs: 1, interarrival_s: 1, execution_s: 1, mix: [{application: m, sizes: ["
            + "{processors: 1}, " * (MIX_MAX + 1)
            + "]}]}]",
            "too many",
        ),
        (
            "jobs: [" + "{at_s: 0, execution_s: 1, job: {processors: 1}}, " * (LISTED_JOBS_MAX + 1) + "]",
            "too many",
        ),
    ],
    ids=["GENERATED_JOBS_MAX", "MIX_MAX", "LISTED_JOBS_MAX"],
)
def test_a_workload_over_a_limit_is_refused(text: str, word: str) -> None:
    with pytest.raises(DescriptionError, match=word):
        read_workload(text, "w.yaml")


def test_the_schema_describes_every_key() -> None:
    schema = workload_schema()
    assert {"jobs", "generate", "applications", "files", "hold_when_waiting"} <= set(schema["properties"])
    for model in schema["$defs"].values():
        assert "description" in model


def test_arrays_become_jobs_of_one_component() -> None:
    workload = Workload.from_arrays([0.0, 1.0, 1.0], [4, 8, 4], [10.0, 20.0, 30.0])
    first, second, third = workload.arrivals(GRID, 1)
    assert workload.jobs == 3
    assert first.request is third.request
    assert (second.at_s, second.request.processors, second.execution_s) == (1.0, 8, 20.0)


@pytest.mark.parametrize(
    ("columns", "word"), [(([0.0], [1, 2], [1.0]), "1, 2 and 1"), (([2.0, 1.0], [1, 1], [1.0, 1.0]), "job 2")]
)
def test_arrays_that_do_not_match_or_are_out_of_order_are_refused(
    columns: tuple[list[float], list[int], list[float]], word: str
) -> None:
    with pytest.raises(WorkloadError, match=word):
        Workload.from_arrays(*columns)


def placed(number: int) -> JobPlaced:
    return JobPlaced(job=number, places=(("a", 1),))


def test_submissions_are_held_while_too_many_jobs_wait_and_all_later_ones_shift() -> None:
    hands = HandDriven(GRID, *[job(float(at), 1) for at in (1, 2, 3, 4, 9)], hold=2)
    assert [event.at for event in hands.until(20)] == [1, 2]
    hands.world.perform(placed(1), hands.now)
    assert [round(event.at, 6) for event in hands.until(40)] == [20], "the third comes at once, the fourth is held"
    hands.world.perform(placed(2), hands.now)
    hands.world.perform(placed(3), hands.now)
    told = [event for event in hands.until(100) if isinstance(event, JobSubmitted)]
    assert [round(event.at, 6) for event in told] == [40, 45]


def test_a_job_that_returns_to_its_queue_or_ends_there_counts_for_the_hold() -> None:
    hands = HandDriven(GRID, *[job(float(at), 1) for at in (1, 2)], hold=1)
    hands.until(1.5)
    hands.world.perform(placed(1), hands.now)
    hands.world.perform(JobRequeued(job=1, reason="it failed"), hands.now)
    assert hands.until(10) == []
    hands.world.perform(
        JobEnded(
            job=1,
            outcome=JobOutcome.FAILED,
            reason="",
            submitted_at=1.0,
            placed_at=None,
            started_at=None,
            ended_at=10.0,
            first_start_estimate=None,
            last_start_estimate=None,
            places=(),
            placement_tries=1,
            claiming_tries=0,
            runs=0,
            failures=0,
            preemptions=0,
        ),
        hands.now,
    )
    assert [type(event) for event in hands.until(20)] == [JobSubmitted]
