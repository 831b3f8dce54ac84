"""The error of the times that are told of planned jobs, in a run."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from koala.core import Scheduler
from koala.descriptions.grid.short import clusters_in_short
from koala.model.grid import Estimates, Grid
from koala.simulator import simulate
from koala.simulator.told_times import ToldTime, ToldTimes, errors
from koala.simulator.workloads.workload import Arrival, Workload
from tests.support.core_driver import ask_total


def grid_with(**fields: object) -> Grid:
    grid = clusters_in_short("2x10")
    return replace(grid, scheduler=replace(grid.scheduler, policy="FCM", **fields))


def crowd(jobs: int = 300) -> Workload:
    """More work than there is room for, by two users of whom one asks for far too much time."""
    rng = random.Random(7)
    at_s, arrivals = 0.0, []
    for number in range(jobs):
        at_s += rng.expovariate(1 / 55.0)
        run_s = rng.uniform(50.0, 150.0)
        request = replace(ask_total(rng.choice((1, 4, 10, 20))), walltime_s=run_s * (8.0 if number % 2 else 1.5))
        arrivals.append(Arrival(at_s, request, run_s, owner=f"user{number % 2}"))
    return Workload.from_arrivals(arrivals)


def test_by_walltimes_nobody_starts_after_the_latest_and_the_expected_time_is_nearer() -> None:
    told = simulate(grid_with(), crowd()).metrics()["told_times"]
    assert told["planned"] == told["measured"] > 50
    assert told["after_latest"] == 0
    assert told["latest_error_s"]["p90"] <= 0.0
    assert told["expected_error_s"]["absolute_median"] < told["latest_error_s"]["absolute_median"]


def test_by_estimates_the_run_is_measured_too() -> None:
    told = simulate(grid_with(estimates=Estimates.LAST_TWO), crowd()).metrics()["told_times"]
    assert told["measured"] > 50
    assert told["expected_error_s"]["median"] > told["latest_error_s"]["median"]


def test_without_plans_nothing_is_told() -> None:
    assert "told_times" not in simulate(grid_with(plan_depth=0), crowd(20)).metrics()


def test_measuring_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = simulate(grid_with(plan_depth=8), crowd(100)).log_sha256
    monkeypatch.setattr(ToldTimes, "ask", lambda told: told.planned.clear())
    assert simulate(grid_with(plan_depth=8), crowd(100)).log_sha256 == measured


def test_of_many_jobs_an_even_part_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = Scheduler(grid_with())
    asked: list[int] = []

    def told(_scheduler: Scheduler, job: int) -> tuple[float, float]:
        asked.append(job)
        return 1.0, 2.0

    monkeypatch.setattr(Scheduler, "told", told)
    times = ToldTimes(scheduler, kept=10)
    for job in range(1, 1_001):
        times.planned.append(job)
        times.ask()
    assert times.as_json()["planned"] == 1_000
    assert len(asked) < 100
    assert 10 <= len(times._told) <= 20
    assert sorted(times._told) == list(range(times._every, 1_001, times._every))


def test_the_errors_are_starts_less_what_was_told() -> None:
    found = errors([ToldTime(10.0, 20.0, 15.0), ToldTime(10.0, 20.0, 25.0), ToldTime(0.0, 0.0)])
    assert (found["measured"], found["after_latest"]) == (2, 1)
    assert found["expected_error_s"]["median"] == 10.0
    assert found["latest_error_s"] == {"median": 0.0, "p90": 4.0, "absolute_median": 5.0, "absolute_p90": 5.0}
    assert errors([])["expected_error_s"] is None
