"""Times that the cost model gives for chosen costs, as if they had been measured, for tests of the calibration."""

from __future__ import annotations

import random

import msgspec

from koala.study.frame.experiment import FinishedUnit
from koala_papers.calibrate.fit import Costs, predicted_s
from koala_papers.calibrate.runs import PROCESSES, SolverRun, runs_on
from koala_papers.calibrate.study import Calibrate, CalibrateParameters

CORES = 2
COSTS = {
    "laplace": Costs(8e-5, 4e-9, 1e-4, 1.05),
    "heat": Costs(5e-5, 8e-9, 3e-4, 1.02),
    "poisson": Costs(1e-4, 7e-9, 2e-4, 1.04),
}


def all_runs() -> list[SolverRun]:
    """Return the runs that the experiment measures by default."""
    return [run for processes in PROCESSES for run in runs_on(processes, 384, 20, 5.0, 100.0)]


def modelled(costs: dict[str, Costs] | None = None) -> dict[SolverRun, float]:
    """Return every run with the time that the model gives."""
    return {run: predicted_s(run, (costs or COSTS)[run.application], CORES) for run in all_runs()}


def results(seeds: int, per_extra_cluster_s: float = 0.0) -> list[FinishedUnit]:
    """Return modelled results of units: times with a little noise, and this much longer on each further cluster."""
    times_s, finished = modelled(), []
    for unit in Calibrate().units(CalibrateParameters(), 1, seeds):
        dice = random.Random(unit.label)
        seconds = []
        for run in msgspec.convert(unit.work["runs"], list[SolverRun]):
            true_s = times_s[run] + per_extra_cluster_s * (len(run.clusters) - 1)
            seconds.append([true_s * dice.uniform(1.0, 1.02) for _ in range(unit.work["rounds"])])
        finished.append(FinishedUnit(unit, {"seconds": seconds, "cores": CORES}))
    return finished
