"""When a run ends: as soon as nothing more can come of it, or where it is cut off; and what is measured then."""

from __future__ import annotations

import msgspec
import pytest

from koala.model.grid import Background, SchedulerParameters
from koala.model.outputs import JobOutput
from koala.model.request import Component, Request
from koala.simulator import Arrival, Workload, simulate
from koala.simulator.run import EVENTS_MAX, HORIZON_DAYS, HORIZON_S, PROGRESS_EVENTS
from tests.support.hand_driven import at_once, by_hand, grid, job, site


def test_idle_time_after_the_last_end_counts_for_nothing() -> None:
    """One job of 5 for 100 s, another that waits in vain for other users to leave: 30 days of waiting are no use."""
    users = Background(user_load=0.0, band_low=0.5, band_high=0.5)
    result = simulate(
        at_once(grid(site("a", 10, background=users))), Workload.from_arrivals([job(0.0, 5), job(0.0, 10)])
    )
    metrics = result.metrics()
    assert metrics["makespan_s"] == 100.0
    assert metrics["utilisation"]["ours"] == pytest.approx(0.5)
    assert metrics["utilisation"]["others"] == pytest.approx(0.5)


def test_a_run_ends_at_once_when_what_waits_can_never_fit() -> None:
    users = Background(user_load=0.2)
    result = simulate(at_once(grid(site("a", 50, background=users))), Workload.from_arrivals([job(0.0, 51)]))
    assert result.end_s < 3_600
    assert result.complete
    assert "given up" not in next(result.rows()).reason


def test_a_job_that_could_fit_some_day_is_waited_for_up_to_the_horizon() -> None:
    users = Background(user_load=0.1, band_low=0.5, band_high=0.9)
    result = simulate(at_once(grid(site("a", 50, background=users))), Workload.from_arrivals([job(0.0, 50)]))
    (left,) = result.rows()
    assert result.end_s > HORIZON_S
    assert left.reason.startswith(f"given up after {HORIZON_DAYS} days in which nothing changed for it: ")
    assert left.placement_tries > 0


def test_a_job_that_can_never_fit_still_runs_out_of_its_tries() -> None:
    result = simulate(
        msgspec.structs.replace(
            grid(site("a", 5)), scheduler=SchedulerParameters(scan_interval_s=10.0, placement_tries_max=4)
        ),
        Workload.from_arrivals([job(0.0, 6)]),
    )
    assert result.metrics()["failed"] == [
        {"reason": "no place was found in 4 tries", "jobs": 1, "first": {"job": 1, "name": "job"}}
    ]


def test_a_run_is_cut_off_at_a_given_time_and_says_so() -> None:
    result = simulate(*by_hand(), until_s=65.0)
    metrics = result.metrics()
    assert (metrics["complete"], result.end_s) == (False, 65.0)
    assert "65 s" in metrics["stopped"]
    assert metrics["outcomes"] == {"unfinished": 2}
    assert metrics["utilisation"]["ours"] == pytest.approx(1.0)
    assert simulate(*by_hand(), until_s=20.0).metrics()["not_submitted"] == 1


def test_a_time_after_the_end_cuts_nothing_off() -> None:
    cut, whole = simulate(*by_hand(), until_s=181.0), simulate(*by_hand())
    assert cut.complete
    assert cut.metrics() == whole.metrics()


def test_a_run_is_cut_off_after_the_most_events() -> None:
    result = simulate(*by_hand(), events_max=3)
    assert result.events == 3
    assert "EVENTS_MAX" in result.stopped
    assert EVENTS_MAX > 3


def test_a_run_ends_when_it_is_asked_to() -> None:
    workload = Workload.from_arrays([float(at) for at in range(5_000)], [1] * 5_000, [3.0] * 5_000)
    result = simulate(at_once(grid(site("a", 10))), workload, stop=lambda: True)
    assert result.events == PROGRESS_EVENTS
    assert "interrupted" in result.stopped
    assert not result.complete


def test_the_last_end_is_known_also_when_a_job_that_never_fits_comes_after_it() -> None:
    users = Background(user_load=0.0, band_low=0.5, band_high=0.5)
    jobs = Workload.from_arrivals([job(0.0, 5), job(1000.0, 11)])
    result = simulate(at_once(grid(site("a", 10, background=users), site("b", 10))), jobs)
    metrics = result.metrics()
    assert (metrics["makespan_s"], metrics["outcomes"]) == (100.0, {"done": 1, "unfinished": 1})
    assert metrics["utilisation"]["sites"] == {"a": {"ours": 0.0, "others": 0.5}, "b": {"ours": 0.5, "others": 0.0}}


def test_an_output_that_is_larger_than_the_grid_allows_fails_its_job() -> None:
    arrivals = []
    for size_bytes in (1_000, 1_001):
        part = Component(processors=1, outputs=(JobOutput(path="result", size_bytes=size_bytes),))
        arrivals.append(Arrival(0.0, Request(components=(part,)), 100.0, 0.0))
    world = at_once(grid(site("a", 5)), output_bytes_max=1_000)
    kept, large = simulate(world, Workload.from_arrivals(arrivals)).rows()
    assert (kept.outcome, large.outcome) == ("done", "failed")
    assert "output_bytes_max" in large.reason
