"""The experiment of 2006 live at small scale: real Laplace and Heat jobs under WF, CM and FCM on real batch systems.

This module defines the runs and their order. ``lab`` has the lab and its daemon, ``load`` other users, ``runs`` the
jobs, ``host`` the check for disturbances, ``model`` the simulation, ``findings`` the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from koala.model.grid import Background, Grid
from koala.study import Conclusion, FinishedUnit, Parameters, Unit
from koala_papers.experiment import PaperExperiment
from koala_papers.koala2006.study import POLICIES

if TYPE_CHECKING:
    # These import the client and the lab, which a list of experiments does not need.
    from koala.study.live import LabSize
    from koala_papers.live2006.runs import SolverProblem

METHOD = (
    (
        "Two Slurm clusters and a Grid Engine cell run on this machine, each in a network namespace of its own, "
        "behind links of 100 Mbit/s and 10 ms one way. Jobs are the shipped Laplace and Heat solvers as real MPI "
        "jobs with one MPI_COMM_WORLD over all clusters that they combine; 4 or 6 processors of the 24, in 2 or 3 "
        "components for WF and CM, as a total for FCM. They come as a Poisson process. The daemon is the one that "
        "`koala up` runs."
    ),
    (
        "All clusters share the cores of this machine, so the solvers rest in each iteration in the place of more "
        "computing: a job takes about ten seconds and hardly any processor time, and what else the machine does, "
        "and the whole seconds in which batch systems start jobs, are a small part of that. Messages are "
        "real and cross the links."
    ),
    (
        "Other users submit jobs of their own straight to the batch systems; a controller adds and ends dummy jobs "
        "so that each site's load stays in a band, as in the paper."
    ),
    (
        "Single jobs are measured on the same lab under the first seeds (calibrations): the time from placement to "
        "the opening of the barrier for one to four components, the execution time of each application and size on "
        "one, two and three clusters, whose sets take turns from seed to seed, and the same with two jobs at a time, "
        "by the time that they share. From these the simulation gets its start-up times (by site; each component "
        "draws its own, and jobs start with the last), its execution times, and by how much a job takes longer for "
        "each one beside it. "
        "Nothing of the runs under the policies goes into it. It is then given the same jobs at the same times "
        "beside the same users, under many draws of start-up times. Under one seed all policies get the same jobs "
        "and users. From seed to seed the policies take turns in who comes first, and the single jobs come before "
        "them or after them, so that a machine that becomes slower or faster favours none."
    ),
    (
        "A workload file knows one slow-down for each further cluster, and no shared cores. So a simulation is made "
        "several times, and each time a job takes the time that was measured on the clusters that it combined the "
        "last time, and as much longer as the jobs that ran beside it then make it. The applications wait gently for "
        "messages, so that most of their time over several clusters is the distance and not computing."
    ),
    (
        "On a virtual machine the host may withhold processors (steal). A measurement from which it withheld more "
        "than a few per cent of the processor time is made again, three times at most, and the least disturbed one "
        "counts, whatever it shows."
    ),
)

# The version of stored measurements; other versions are not used.
FORM = 5
# Parameters that only the conclusion uses, or that select the measured seeds without changing a measurement.
NOT_MEASURED = ("simulations", "agree_percent", "calibrations")
# Parameters of the jobs under the policies, without effect on single jobs.
OF_POLICIES = ("jobs", "interarrival_s")

Jobs = Annotated[int, msgspec.Meta(ge=2, le=1_000)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10_000)]
AboveZero = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Port = Annotated[int, msgspec.Meta(ge=1_024, le=60_000)]


class Live2006Parameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``jobs``, ``interarrival_s``: the number of jobs in a run, and the mean time between two;
    - ``calibrations``: the number of first seeds under which single jobs are measured;
    - ``size``, ``laplace_iterations``, ``heat_iterations``: the problem of the applications;
    - ``work_ms``: their rest in each iteration, which replaces more computing;
    - ``nodes``, ``processors_per_node``, ``slots``: the size of each Slurm cluster, and of the Grid Engine cell;
    - ``rate_mbit_s``, ``delay_ms``: the links between the sites;
    - ``user_load``, ``user_execution_s``: the mean requests of the sites' users, as a share of the site;
    - ``band_low``, ``band_high``: the band in which the load of each site is held;
    - ``simulations``: the number of simulations behind each prediction;
    - ``agree_percent``: how far a prediction may be from the measurement;
    - ``stolen_percent_max``: a measurement from which the host withheld more of the processor time is repeated;
    - ``first_port``: the first of the ports that the lab uses.
    """

    jobs: Jobs = 8
    interarrival_s: AboveZero = 10.0
    calibrations: Count = 5
    size: Count = 64
    laplace_iterations: Count = 160
    heat_iterations: Count = 200
    work_ms: AboveZero = 50.0
    nodes: Count = 2
    processors_per_node: Count = 4
    slots: Count = 8
    rate_mbit_s: AboveZero = 100.0
    delay_ms: AboveZero = 10.0
    user_load: Share = 0.1
    user_execution_s: AboveZero = 20.0
    band_low: Share = 0.1
    band_high: Share = 0.25
    simulations: Count = 20
    agree_percent: AboveZero = 10.0
    stolen_percent_max: AboveZero = 10.0
    first_port: Port = 26_700

    @property
    def lab(self) -> LabSize:
        """The lab for the measurements."""
        from koala.study.live import LabSize

        return LabSize(
            nodes=self.nodes,
            processors_per_node=self.processors_per_node,
            slots=self.slots,
            first_port=self.first_port,
            rate_mbit_s=self.rate_mbit_s,
            delay_ms=self.delay_ms,
        )

    @property
    def background(self) -> Background:
        """The other users, live and simulated."""
        return Background(
            user_load=self.user_load,
            user_size_mean=1.0,
            user_execution_mean_s=self.user_execution_s,
            band_low=self.band_low,
            band_high=self.band_high,
        )

    @property
    def problem(self) -> SolverProblem:
        """The problem of the applications."""
        from koala_papers.live2006.runs import SolverProblem

        return SolverProblem(
            size=self.size,
            work_ms=self.work_ms,
            laplace_iterations=self.laplace_iterations,
            heat_iterations=self.heat_iterations,
        )


class Live2006(PaperExperiment[Live2006Parameters]):
    """Single jobs and all policies for each seed. Results are stored like those of any experiment: --fresh measures
    again."""

    name = "live2006"
    title = "The experiment of 2006 live: WF, CM and FCM on real batch systems, and how far the simulation is off"
    question = "Do real jobs on real batch systems take the times that the simulator predicts for them?"
    method = METHOD
    repetitions = 5
    seeds_min = 3
    quick_repetitions = 2
    processes_max = 1
    parameters_type = Live2006Parameters

    def quick(self, parameters: Live2006Parameters) -> Live2006Parameters:
        return msgspec.structs.replace(parameters, jobs=4)

    def units(self, parameters: Live2006Parameters, seed: int, repetitions: int) -> list[Unit]:
        from koala.study.live import check_machine

        check_machine(parameters.lab)  # says what is missing before anything runs
        shared = msgspec.to_builtins(parameters)
        measured = {name: value for name, value in shared.items() if name not in NOT_MEASURED} | {"form": FORM}
        of_single_jobs = {name: value for name, value in measured.items() if name not in OF_POLICIES}
        return [
            Unit(
                label=f"{policy or 'single jobs'}, seed {each}",
                work={"seed": each, "policy": policy, **(of_single_jobs if policy is None else measured)},
            )
            for number, each in enumerate(range(seed, seed + repetitions))
            for policy in _in_order(number, is_calibrated=number < parameters.calibrations)
        ]

    def run(self, unit: Unit) -> dict[str, Any]:
        """Measure on a lab of its own."""
        from koala.study.live import live_grid
        from koala_papers.live2006.host import undisturbed
        from koala_papers.live2006.model import PAPERS_SCHEDULER
        from koala_papers.live2006.runs import WorkloadDraw, calibrated, run_policy

        seed, policy = unit.work["seed"], unit.work["policy"]
        given = {name: value for name, value in unit.work.items() if name not in ("seed", "policy", "form")}
        parameters = msgspec.convert(given, Live2006Parameters)
        stolen_percent_max = parameters.stolen_percent_max
        with live_grid(parameters.lab, PAPERS_SCHEDULER) as live:
            sites = {"grid": live.grid_as_json()}
            if policy is None:
                return sites | calibrated(live, parameters.problem, parameters.background, seed, stolen_percent_max)
            drawn = WorkloadDraw(jobs=parameters.jobs, interarrival_s=parameters.interarrival_s, seed=seed)
            measure = partial(run_policy, live, policy, drawn, parameters.problem, parameters.background)
            found = asyncio.run(undisturbed(measure, stolen_percent_max))
            return sites | found.measured | {"host": [(found.stolen_percent, found.tries)]}

    def conclude(self, parameters: Live2006Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
        from koala_papers.live2006.findings import Live2006Findings, LiveRun
        from koala_papers.live2006.model import fitted, predicted
        from koala_papers.live2006.runs import WorkloadDraw

        calibrations = [result for unit, result in results if unit.work["policy"] is None]
        model = fitted(calibrations)
        runs = []
        for unit, result in results:
            policy, seed = unit.work["policy"], unit.work["seed"]
            if policy is None:
                continue
            drawn = WorkloadDraw(jobs=parameters.jobs, interarrival_s=parameters.interarrival_s, seed=seed)
            grid = msgspec.convert(result["grid"], Grid)
            simulated = predicted(model, grid, policy, drawn, parameters.background, parameters.simulations)
            runs.append(LiveRun(policy, seed, result, simulated))
        findings = Live2006Findings(
            runs,
            calibrations,
            model,
            agree_percent=parameters.agree_percent,
            stolen_percent_max=parameters.stolen_percent_max,
        )
        return Conclusion(findings.as_json(), findings.claims(), findings.figures(), findings.notes())


def _in_order(number: int, *, is_calibrated: bool) -> list[str | None]:
    """Return the measurements under a seed, by its number: the policies, rotated each time, and single jobs, which
    are no policy, before them or after them in turn."""
    policies: list[str | None] = [*POLICIES]
    first = number % len(policies)
    turned = policies[first:] + policies[:first]
    if not is_calibrated:
        return turned
    return [*turned, None] if number % 2 else [None, *turned]
