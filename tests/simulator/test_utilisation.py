"""The use of processors that a recorder tells is what the run really had."""

from __future__ import annotations

import msgspec
import pytest

from koala.model.grid import Background, Grid, SchedulerParameters, Site, SiteFaults, SiteSimulation
from koala.model.request import Component, Request
from koala.simulator import Arrival, UtilisationRecorder, Workload, simulate


def used(grid: Grid, *jobs: Arrival) -> UtilisationRecorder:
    use = UtilisationRecorder(grid)
    simulate(grid, Workload.from_arrivals(jobs), log=use.take)
    return use


def one_job(at_s: float, processors: int, execution_s: float) -> Arrival:
    return Arrival(at_s, Request(components=(Component(processors=processors),)), execution_s)


AT_ONCE = SchedulerParameters(scan_interval_s=0.0)


def test_use_is_the_share_held_in_each_period_and_the_busiest_hour_is_found() -> None:
    grid = Grid(sites=(Site(name="a", processors=10),), scheduler=AT_ONCE)
    summary = used(grid, one_job(0.0, 5, 900.0), one_job(1200.0, 10, 3600.0), one_job(4800.0, 1, 600.0)).as_json(
        4800.0
    )
    assert summary["total"] == pytest.approx([0.5, 0.25, 1, 1, 1, 1, 1, 1, 0.1])
    assert summary["busiest_hour"] == pytest.approx(1.0)
    assert summary["busiest_window"] == pytest.approx(1.0)
    assert summary["mean"] == pytest.approx((0.5 + 0.25 + 6 + 0.1) / 9)
    assert summary["while_submitting"] == pytest.approx(6.75 / 8)
    assert summary["mean_others"] == 0.0


def test_other_users_count_as_use() -> None:
    users = Background(user_load=0.0, band_low=0.3, band_high=0.3)
    grid = Grid(
        sites=(Site(name="a", processors=10, simulation=SiteSimulation(background=users)),), scheduler=AT_ONCE
    )
    summary = used(grid, one_job(0.0, 4, 600.0)).as_json(0.0)
    assert summary["mean"] == pytest.approx(0.7)
    assert summary["mean_others"] == pytest.approx(0.3)


def test_a_site_that_is_taken_out_is_not_there_to_be_used_any_more() -> None:
    flaky = SiteSimulation(faults=SiteFaults(outages=((300.0, 400.0),)))
    parameters = msgspec.structs.replace(AT_ONCE, error_threshold=1, cooldown_s=1e6)
    sites = (Site(name="a", processors=10), Site(name="b", processors=30, simulation=flaky))
    use = used(Grid(sites=sites, scheduler=parameters), one_job(0.0, 10, 600.0), one_job(600.0, 10, 600.0))
    assert use.taken_out_s == {"b": 300.0}
    # The first job has 10 of 40 at b, is lost with it, and has all 10 that are left from 400 s on; then the second.
    assert use.as_json(600.0)["total"] == pytest.approx([(10 * 300 + 10 * 200) / (40 * 300 + 10 * 300), 1.0, 1.0])
