"""The experiment of 2005: what it runs and measures."""

from __future__ import annotations

import pytest

from koala.simulator import simulate
from koala.simulator.examples import example_grid, example_workload
from koala.simulator.utilisation import WINDOW_S
from koala.simulator.workloads.generators import workload_from_file
from koala.study.frame.experiment import FinishedUnit, Unit
from koala.study.frame.measures import varied
from koala_papers.koala2005.data import (
    FAILURE_SHARE,
    PLACEMENT_S,
    STABLE,
    UNSTABLE,
    JobFilter,
    JobSums,
    Koala2005Data,
)
from koala_papers.koala2005.study import GRID, WORKLOAD, Koala2005, Koala2005Parameters

FEW_JOBS = Koala2005Parameters(jobs=40)


def test_the_grid_and_the_workload_are_the_papers() -> None:
    grid = example_grid(GRID)
    assert sorted(site.processors for site in grid.sites) == [52, 56, 60, 142]
    assert sum(site.processors for site in grid.sites) == 310
    parameters = grid.scheduler
    assert (parameters.policy, parameters.scan_interval_s, parameters.high_scans_per_low_scan) == ("CF", 240.0, 2)
    assert (parameters.claim_fraction, parameters.claim_fraction_step, parameters.claim_fraction_min) == (
        0.75,
        0.125,
        0.25,
    )
    assert parameters.claim_threshold == 0.0
    assert (parameters.placement_tries_max, parameters.claiming_tries_max) == (None, None)
    workload = workload_from_file(example_workload(WORKLOAD))
    assert (workload.jobs, workload.hold_when_waiting) == (500, 100)
    assert Koala2005Parameters().jobs == workload.jobs
    jobs = list(workload.arrivals(grid, 1))
    assert {(job.request.processors, len(job.request.components)) for job in jobs} == {
        (36, 3),
        (36, 4),
        (72, 3),
        (72, 4),
        (72, 6),
        (72, 8),
    }
    assert min(job.execution_s for job in jobs) == 30.0
    assert round(max(job.execution_s * (1 + 3 * job.per_extra_cluster) for job in jobs)) == 192
    assert {(file.size_bytes, len(file.replicas)) for file in workload.files(grid, 1)} == {
        (4 * 10**9, 2),
        (8 * 10**9, 2),
    }


def test_each_seed_runs_both_systems_and_the_parameters_are_part_of_the_work() -> None:
    experiment = Koala2005()
    units = experiment.units(Koala2005Parameters(stable_component_failure=0.02), 4, 2)
    assert [(unit.work["system"], unit.work["seed"]) for unit in units] == [
        (UNSTABLE, 4),
        (STABLE, 4),
        (UNSTABLE, 5),
        (STABLE, 5),
    ]
    assert [unit.work["component_failure"] for unit in units[:2]] == [None, 0.02]
    assert experiment.quick(Koala2005Parameters()).jobs < 500


def test_a_run_is_that_of_the_command_line_and_its_groups_add_up() -> None:
    experiment = Koala2005()
    unstable, stable = experiment.units(FEW_JOBS, 1, 1)
    result = experiment.run(unstable)
    assert result["not_completed"] == 0
    cells = [JobSums(**cell) for cell in result["cells"].values()]
    assert sum(cell.jobs for cell in cells) == 40
    assert all(cell.coallocated <= cell.jobs for cell in cells)
    assert len(result["use"]["total"]) == pytest.approx(result["makespan_s"] / WINDOW_S, abs=2)
    assert experiment.run(unstable) == result, "the same unit gives the same result"
    calm = experiment.run(stable)
    assert calm["taken_out"] == {}
    assert calm["component_failures"] < result["component_failures"]


def test_a_run_has_the_log_of_koala_simulate() -> None:
    """With fewer jobs than the paper's 500, with which ``koala simulate`` is tested."""
    experiment = Koala2005()
    (unit, _) = experiment.units(Koala2005Parameters(jobs=60), 2, 1)
    workload = workload_from_file(varied(example_workload(WORKLOAD), jobs=60))
    direct = simulate(example_grid(GRID), workload, seed=2)
    result = experiment.run(unit)
    assert result["log_sha256"] == direct.log_sha256
    assert result["outcomes"] == {"done": 60}
    assert set(result["taken_out"]) == {"leiden"}


def test_slopes_are_fitted_over_the_jobs_of_a_seed() -> None:
    def cell(jobs: int, mean_s: float) -> dict[str, float]:
        return JobSums(jobs, 0, 0, jobs * mean_s, jobs * mean_s).as_json()

    cells = {"low/72/3": cell(5, 30.0), "high/72/4": cell(1, 40.0), "low/72/8": cell(9, 80.0)}
    cells["low/36/3"] = cell(7, 0.0)
    work = {"system": UNSTABLE, "seed": 1}
    data = Koala2005Data([FinishedUnit(Unit(label="x", work=work), {"cells": cells})])
    assert data.slopes(UNSTABLE, PLACEMENT_S, JobFilter(size=72)) == {1: pytest.approx(10.0)}
    assert data.slopes(UNSTABLE, PLACEMENT_S, JobFilter(size=36)) == {}
    assert data.values(UNSTABLE, PLACEMENT_S, JobFilter(priority="low", size=72)) == {
        1: pytest.approx((150 + 720) / 14)
    }
    assert data.values(UNSTABLE, FAILURE_SHARE, JobFilter(components=6)) == {}
