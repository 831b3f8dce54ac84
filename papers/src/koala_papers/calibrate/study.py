"""The experiment that calibrates execution times: the real solvers, measured here and extrapolated to the DAS-2.

This module defines the units. ``runs`` starts them, ``fit`` has the cost model, ``das2`` the prediction for the DAS-2
and the run chosen for it, ``findings`` the claims and figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from koala.study import Conclusion, FinishedUnit, Parameters, Unit
from koala_papers.calibrate.das2 import Das2
from koala_papers.calibrate.findings import CalibrationFindings
from koala_papers.calibrate.fit import bytes_per_s
from koala_papers.calibrate.runs import PROCESSES, SolverRun, measured, mpiexec, runs_on
from koala_papers.experiment import PaperExperiment

# The name of the file for the experiments on placement.
MODEL = "model.yaml"

METHOD = (
    (
        "Laplace, Heat and Poisson, the solvers that ship with Koala, run with real MPI on 1 to 4 processes of this "
        "machine, in 1 to 4 groups. A message between groups is held back for a latency of 5 ms and for its bytes at "
        "100 Mbit/s, as between the clusters of the DAS-2. Nothing else of the experiment runs meanwhile."
    ),
    (
        "A run takes I * (turns * (call + points * point) + exchanges * inside) + across * wait: I iterations, the "
        "points of the largest block, turns where there are more workers than cores, and the wait for other clusters "
        "that follows from counting messages one after the other. The four costs of an application are fitted to the "
        "least time of each run over all repetitions, since a busy machine makes a run slower and never faster."
    ),
    (
        "On the DAS-2 all messages of a cluster share its link of 100 Mbit/s, which the emulation does not show; "
        "inside a cluster there are 1200 Mbit/s and, by our estimate of Myrinet, 0.02 ms. A processor there is taken "
        "to renew a point in 50 ns: 24 bytes from and to a memory that gives it about 500 MB/s. That is our estimate "
        "too; it decides how large the matrix is, and hardly the times. The other solvers' points cost as many times "
        "more or less as here."
    ),
    (
        "The paper of 2006 states no execution time but the limit of 15 minutes. The paper of 2005 states that "
        "Poisson, with 36 and 72 processors on these clusters, ran for 30 to 192 s. The run is therefore the matrix "
        "and the number of iterations with which Poisson takes 30 s on 72 processors of one cluster and 192 s on 36 "
        "in four. Laplace and Heat get the same matrix and iterations. No result on placement goes into this choice."
    ),
    (
        "T1 is the predicted time on one cluster. Beta, one for each application, is that with which "
        "T1 * (1 + beta * (clusters - 1)) comes nearest to the predicted times on 2 to 4 clusters of all sizes, by "
        "least squares of relative errors. Intervals come from fits to each repetition alone, Student's t at 95 %."
    ),
)

Iterations = Annotated[int, msgspec.Meta(ge=20, le=10_000, multiple_of=20)]
Side = Annotated[int, msgspec.Meta(ge=64, le=4_096)]
Rounds = Annotated[int, msgspec.Meta(ge=1, le=100)]
AboveZero = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
Share = Annotated[float, msgspec.Meta(gt=0.0, lt=1.0)]


class CalibrateParameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``size``, ``iterations``: the measured matrix, size x size points, and its number of iterations;
    - ``rounds``: how often a repetition makes each run; the least time counts;
    - ``latency_ms``, ``bandwidth_mbit_s``: the distance between clusters, emulated and of the DAS-2;
    - ``lan_latency_ms``, ``lan_bandwidth_mbit_s``: the distance inside a cluster of the DAS-2;
    - ``point_ns``: the time of a DAS-2 processor for a point of Poisson;
    - ``shortest_s``, ``longest_s``: the times by which the run is chosen;
    - ``fit_share``: the fit explains the times if its mean error is below this share of them;
    - ``form_share``: the form stands for the times if its mean error is below this share of them.
    """

    size: Side = 384
    iterations: Iterations = 20
    rounds: Rounds = 2
    latency_ms: AboveZero = 5.0
    bandwidth_mbit_s: AboveZero = 100.0
    lan_latency_ms: AboveZero = 0.02
    lan_bandwidth_mbit_s: AboveZero = 1200.0
    point_ns: AboveZero = 50.0
    shortest_s: AboveZero = 30.0
    longest_s: AboveZero = 192.0
    fit_share: Share = 0.2
    form_share: Share = 0.1


class Calibrate(PaperExperiment[CalibrateParameters]):
    """The real solvers on 1 to 4 processes. Results are stored like those of any experiment: --fresh measures
    again."""

    name = "calibrate"
    title = "Execution times of the real solvers, calibrated for the DAS-2"
    question = "How long do the applications run, and how much longer on each further cluster?"
    method = METHOD
    processes_max = 1
    parameters_type = CalibrateParameters

    def quick(self, parameters: CalibrateParameters) -> CalibrateParameters:
        return msgspec.structs.replace(parameters, rounds=1)

    def units(self, parameters: CalibrateParameters, seed: int, repetitions: int) -> list[Unit]:
        mpiexec()  # says what is missing before anything runs
        return [
            Unit(
                label=f"{processes} processes, repetition {each}",
                work={
                    "seed": each,
                    "rounds": parameters.rounds,
                    "runs": _runs(parameters, processes),
                },
            )
            for each in range(seed, seed + repetitions)
            for processes in PROCESSES
        ]

    def run(self, unit: Unit) -> dict[str, Any]:
        """Return the times of all runs on one number of processes."""
        return measured(msgspec.convert(unit.work["runs"], list[SolverRun]), unit.work["rounds"])

    def conclude(self, parameters: CalibrateParameters, results: Sequence[FinishedUnit]) -> Conclusion:
        das2 = Das2(
            point_s=parameters.point_ns / 1e9,
            latency_s=parameters.latency_ms / 1e3,
            across_bytes_per_s=bytes_per_s(parameters.bandwidth_mbit_s),
            inside_latency_s=parameters.lan_latency_ms / 1e3,
            inside_bytes_per_s=bytes_per_s(parameters.lan_bandwidth_mbit_s),
        )
        by_seed: dict[int, dict[SolverRun, float]] = {}
        for unit, result in results:
            for run, seconds in zip(
                msgspec.convert(unit.work["runs"], list[SolverRun]), result["seconds"], strict=True
            ):
                by_seed.setdefault(unit.work["seed"], {})[run] = min(seconds)
        cores = min(result["cores"] for _, result in results)
        findings = CalibrationFindings(by_seed, cores, das2, parameters.shortest_s, parameters.longest_s)
        return Conclusion(
            findings.as_json(),
            findings.claims(parameters.fit_share, parameters.form_share),
            findings.figures(),
            findings.notes(),
            {MODEL: findings.model()},
        )


def _runs(parameters: CalibrateParameters, processes: int) -> list[dict[str, Any]]:
    """Return the runs with this many processes, as JSON restores them."""
    runs = runs_on(
        processes, parameters.size, parameters.iterations, parameters.latency_ms, parameters.bandwidth_mbit_s
    )
    return msgspec.json.decode(msgspec.json.encode(runs), type=list[dict[str, Any]])
