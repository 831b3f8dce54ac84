"""An application that returns failure is started again as a whole, and not for ever."""

from __future__ import annotations

import pytest

from koala.model.grid import Grid, SchedulerParameters, Site, SiteFaults, SiteSimulation
from koala.model.messages import JobOutcome
from koala.simulator import Arrival, Workload, simulate
from koala.simulator.workloads.workload import single_component


def failing_grid(chance: float, restarts_max: int | None) -> Grid:
    faults = SiteFaults(application_failure=chance)
    site = Site(name="a", processors=8, simulation=SiteSimulation(faults=faults))
    return Grid(sites=(site,), scheduler=SchedulerParameters(scan_interval_s=1.0, restarts_max=restarts_max))


@pytest.mark.parametrize("restarts_max", [0, 2])
def test_a_job_whose_application_always_fails_is_given_up_after_its_restarts(restarts_max: int) -> None:
    workload = Workload.from_arrivals([Arrival(0.0, single_component(4), 100.0)])
    (row,) = simulate(failing_grid(1.0, restarts_max), workload).rows()
    assert row.outcome == JobOutcome.FAILED
    assert row.failures == restarts_max + 1


def test_a_job_whose_application_fails_now_and_then_finishes_in_the_end() -> None:
    workload = Workload.from_arrivals([Arrival(0.0, single_component(4), 100.0) for _ in range(20)])
    rows = list(simulate(failing_grid(0.5, None), workload).rows())
    assert {row.outcome for row in rows} == {JobOutcome.DONE}
    assert sum(row.failures for row in rows) > 0
