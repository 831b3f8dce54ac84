"""The calibration as an experiment: what it measures with real MPI, what it concludes, and the file it leaves."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from calibrate.samples import COSTS, results
from koala.simulator.examples import example_grid, example_workload
from koala.study.frame.experiment import ParameterError, parameters_from
from koala.study.frame.looks import Judged, planned_looks
from koala.study.frame.report import write_report
from koala.study.frame.run import processes_for
from koala_papers.calibrate.das2 import SIZES
from koala_papers.calibrate.patterns import pattern_of, wait_s
from koala_papers.calibrate.runs import MeasuringError, MissingMpiError, SolverRun, measured, mpiexec, runs_on
from koala_papers.calibrate.study import MODEL, Calibrate, CalibrateParameters
from koala_papers.catalogue import find
from koala_papers.koala2006.study import (
    WORKLOADS,
    Koala2006,
    Koala2006Parameters,
    applications_as_json,
    read_execution_model,
    with_applications,
)

FLEXIBLE = ("koala2006-w1-flexible", "koala2006-w2-flexible")


@pytest.fixture(scope="module")
def real_mpi() -> None:
    mpiexec()  # the set-up of the tests installs it; without it this says what to do


def verdicts(**more: Any) -> dict[str, bool]:
    conclusion = Calibrate().conclude(CalibrateParameters(), results(5, **more))
    return {claim.id: (claim.verdict == "holds") for claim in conclusion.claims}


def test_it_is_in_the_catalogue_and_measures_one_thing_at_a_time() -> None:
    experiment = find("calibrate")
    assert isinstance(experiment, Calibrate)
    assert processes_for(experiment, 8, 80) == 1


@pytest.mark.usefixtures("real_mpi")
def test_each_repetition_measures_all_applications_on_1_to_4_processes_and_clusters() -> None:
    units = Calibrate().units(CalibrateParameters(), 7, 2)
    assert [unit.label for unit in units] == [
        f"{processes} processes, repetition {seed}" for seed in (7, 8) for processes in (1, 2, 3, 4)
    ]
    for unit in units:
        # A unit that JSON changes would never be found among the results that are kept.
        assert msgspec.json.decode(msgspec.json.encode(unit.work)) == unit.work
    all_runs = [run for unit in units[:4] for run in msgspec.convert(unit.work["runs"], list[SolverRun])]
    for application in ("laplace", "heat", "poisson"):
        own = [run for run in all_runs if run.application == application]
        assert {sum(run.clusters) for run in own} == {1, 2, 3, 4}
        assert {len(run.clusters) for run in own} == {1, 2, 3, 4}
        assert len({run.latency_ms for run in own}) > 2, "one distance alone would not show what distance costs"


def test_the_emulated_distance_is_that_of_the_grid_of_the_paper() -> None:
    links = example_grid("das2").links
    parameters = CalibrateParameters()
    assert parameters.latency_ms == pytest.approx(1e3 * links.default.latency_s)
    assert parameters.bandwidth_mbit_s == links.default.bandwidth_mbit_s


@pytest.mark.usefixtures("real_mpi")
def test_real_solvers_wait_for_other_clusters_as_long_as_counting_says_at_least() -> None:
    chosen = runs_on(2, 64, 20, 4.0, 100.0)
    answer = measured(chosen, 2)
    assert answer["cores"] >= 1
    for run, seconds in zip(chosen, answer["seconds"], strict=True):
        assert len(seconds) == 2
        pattern = pattern_of(run.application, run.size, run.clusters)
        waited_s = wait_s(run.application, pattern, run.iterations, run.latency_ms / 1e3, 12.5e6, shared=False)
        assert (waited_s > 0) is (len(run.clusters) > 1)
        # A clock that is read at two ends of a wait may differ from it by a hair.
        assert min(seconds) > 0.95 * waited_s


@pytest.mark.usefixtures("real_mpi")
def test_solvers_that_cannot_run_are_reported_with_what_they_said() -> None:
    too_small = SolverRun(application="laplace", size=1, iterations=20, clusters=(2,))
    with pytest.raises(MeasuringError) as caught:
        measured([too_small], 1)
    message = caught.value.for_user()
    assert "2 MPI processes" in message
    assert "too few points" in message


@pytest.mark.usefixtures("real_mpi")
def test_solvers_that_never_answer_are_ended() -> None:
    with pytest.raises(MeasuringError, match=r"ended after 0\.01 s without an answer"):
        measured([SolverRun(application="heat", size=64, iterations=20, clusters=(2,))], 1, start_s_max=0.01)


def test_without_mpi_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(MissingMpiError) as caught:
        Calibrate().units(CalibrateParameters(), 1, 2)
    assert "mpiexec" in caught.value.for_user()
    assert "koala-scheduler[mpi]" in caught.value.for_user()


@pytest.mark.parametrize(("name", "text"), [("iterations", "30"), ("latency_ms", "0"), ("size", "8")])
def test_parameters_that_cannot_be_measured_are_refused(name: str, text: str) -> None:
    with pytest.raises(ParameterError, match=name):
        parameters_from(Calibrate(), {name: text})


@pytest.mark.usefixtures("real_mpi")
def test_it_finds_the_costs_behind_the_times_and_writes_a_model_that_the_paper_of_2006_reads(tmp_path: Path) -> None:
    conclusion = Calibrate().conclude(CalibrateParameters(), results(5))
    for name, costs in COSTS.items():
        found = conclusion.results["costs"][name]
        assert found["point_s"]["model"] == pytest.approx(costs.point_s, rel=0.05)
        assert found["across_factor"]["model"] == pytest.approx(costs.across_factor, rel=0.05)
    write_report(Calibrate(), CalibrateParameters(), 1, 5, Judged(conclusion, planned_looks(5, 5), 1, ""), tmp_path)
    path = tmp_path / MODEL
    model = read_execution_model(path)
    for name, form in conclusion.results["form"].items():
        written = model.applications[name]
        assert written.per_extra_cluster == pytest.approx(form["per_extra_cluster"], abs=0.001)
        assert written.execution_s.by_size is not None
        assert tuple(written.execution_s.by_size) == SIZES[name]
    units = Koala2006().units(Koala2006Parameters(model=str(path)), 1, 1)
    assert units[0].work["applications"] == applications_as_json(model.applications)
    for picture in conclusion.figures:
        assert (tmp_path / f"{picture.name}.png").stat().st_size > 0


@pytest.mark.usefixtures("real_mpi")
def test_a_step_at_the_second_cluster_is_told_from_a_rise_with_each_cluster() -> None:
    step, rise = verdicts(), verdicts(per_extra_cluster_s=0.05)
    assert step["K1"]
    assert not step["K2"]
    assert rise["K1"]
    assert rise["K2"]


@pytest.mark.usefixtures("real_mpi")
def test_the_fit_and_the_limit_are_judged() -> None:
    strict = CalibrateParameters(fit_share=0.05)
    assert all(
        (claim.verdict == "holds")
        for claim in Calibrate().conclude(strict, results(5)).claims
        if claim.id in ("K3", "K5")
    )
    strange = results(5)
    for unit, result in strange:
        for run, seconds in zip(unit.work["runs"], result["seconds"], strict=True):
            # Times that no cost explains: an even number of processes on one cluster takes ten times as long.
            if run["application"] == "laplace" and len(run["clusters"]) == 1 and run["clusters"][0] % 2 == 0:
                seconds[:] = [10 * each for each in seconds]
    claims = Calibrate().conclude(strict, strange).claims
    assert next(claim for claim in claims if claim.id == "K3").verdict != "holds"
    long = CalibrateParameters(shortest_s=300.0, longest_s=1920.0)
    claims = Calibrate().conclude(long, results(5)).claims
    assert next(claim for claim in claims if claim.id == "K5").verdict != "holds"


def test_all_shipped_workloads_of_2006_have_the_same_execution_times() -> None:
    first = example_workload("koala2006-w1").text
    for name in (*WORKLOADS.values(), *FLEXIBLE):
        text = example_workload(name).text
        assert text.applications == first.applications
        with_applications(text, applications_as_json(text.applications), name)
