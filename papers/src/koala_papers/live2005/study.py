"""The experiment of 2005 live at small scale: jobs of two priorities with files, placed close to them and claimed
incrementally, on real batch systems, one of which breaks all its components while another loses its power.

This module defines the runs and their order. ``trouble`` has the faults, ``runs`` the jobs, ``findings`` the rest;
the lab and its daemon are those of ``live2006``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from koala.model.grid import Grid
from koala.study import Conclusion, FinishedUnit, Parameters, Unit
from koala_papers.experiment import PaperExperiment
from koala_papers.koala2005.data import STABLE, UNSTABLE

if TYPE_CHECKING:
    # These import the client and the lab, which a list of experiments does not need.
    from koala.study.live import LabSize
    from koala_papers.live2005.runs import FileWorkload
    from koala_papers.live2005.trouble import Trouble

METHOD = (
    (
        "Two Slurm clusters and a Grid Engine cell with 24 processors run on this machine. Jobs of 4 or 8 processors "
        "in 2 or 4 components come as a Poisson process, half of them with high priority. Each reads a file of 4 or "
        "8 MB that has replicas at two of the three sites: the paper's files, a thousand times smaller. They are "
        "copied at the speed that the links have, 8 Mbit/s by default, so that a file takes 4 or 8 s. Jobs are "
        "placed close to their files (CF), claimed incrementally (ICP) with the paper's L and T, and sleep for as "
        "long as they are to execute. The daemon is the one that `koala up` runs, with the paper's scheduler: no "
        "plans, and failed jobs start again until they succeed."
    ),
    (
        "On the unstable system one Slurm cluster ends every component that runs there, as a broken resource manager "
        "would; it is to be taken out by the threshold of errors in a row. The other one loses its power once: its "
        "daemons and all that its jobs started are killed, and it comes back after a while. On one of its nodes "
        "the program of the jobs is missing. The stable system is the same lab under the same jobs without that."
    ),
    (
        "Placement time, start delay, processor time gained and wasted are counted as in the experiment koala2005. "
        "The simulator is given the jobs and files of the stable system, and one start-up time for all components; "
        "what it predicts is told beside what was measured. Each seed gives one value, and there are few seeds: what "
        "priority does to times may stay undecided."
    ),
)

# The version of stored measurements; other versions are not used.
FORM = 1
# Parameters that only the conclusion uses.
NOT_MEASURED = ("startup_s",)
BREAKING_SITE, OUTAGE_SITE, BAD_NODE = "alpha", "beta", "beta1"

Jobs = Annotated[int, msgspec.Meta(ge=2, le=1_000)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
AboveZero = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Port = Annotated[int, msgspec.Meta(ge=1_024, le=60_000)]


class Live2005Parameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``jobs``, ``interarrival_s``: the number of jobs in a run, and the mean time between two;
    - ``execution_s``: the execution time of jobs of 4 processors; those of 8 take half as long;
    - ``files``, ``file_mb``: the number of files, and the size of half of them; the others are twice as large;
    - ``rate_mbit_s``, ``delay_ms``: the links between the sites;
    - ``claim_fraction`` (L), ``claim_threshold`` (T): of the incremental claiming policy;
    - ``error_threshold``: this many errors in a row take a site out;
    - ``outage_at_s``, ``outage_s``: when a cluster loses its power, and for how long;
    - ``lost_after_s``: how long it may be silent before its jobs start again elsewhere;
    - ``startup_s``: the start-up time of a component in the simulation;
    - ``first_port``: the first of the ports that the lab uses.
    """

    jobs: Jobs = 24
    interarrival_s: AboveZero = 2.0
    execution_s: AboveZero = 8.0
    files: Count = 8
    file_mb: AboveZero = 4.0
    rate_mbit_s: AboveZero = 8.0
    delay_ms: AboveZero = 5.0
    claim_fraction: Share = 0.75
    claim_threshold: Share = 0.0
    error_threshold: Count = 5
    outage_at_s: AboveZero = 25.0
    outage_s: AboveZero = 30.0
    lost_after_s: AboveZero = 3.0
    startup_s: AboveZero = 1.0
    first_port: Port = 26_700

    @property
    def lab(self) -> LabSize:
        """The lab for the measurements."""
        from koala.study.live import LabSize

        return LabSize(
            nodes=2,
            processors_per_node=4,
            slots=8,
            first_port=self.first_port,
            rate_mbit_s=self.rate_mbit_s,
            delay_ms=self.delay_ms,
        )

    @property
    def scheduler(self) -> dict[str, object]:
        """The paper's scheduler, in the terms of a grid file, except that a job does not go back to the node where it
        failed, since nodes are few here."""
        return {
            "policy": "CF",
            "claim_fraction": self.claim_fraction,
            "claim_threshold": self.claim_threshold,
            "error_threshold": self.error_threshold,
            "cooldown_s": 3_600,
            "restarts_max": None,
            "restart_rest_s": 0,
            "avoid_failed_s": 60,
            "queue_patience_s": None,
            "lost_after_s": self.lost_after_s,
            "barrier_timeout_s": 30,
            "answer_timeout_s": 20,
            "probe_every_s": 0,
        }

    @property
    def trouble(self) -> Trouble:
        """The faults of the unstable system."""
        from koala_papers.live2005.trouble import Trouble

        return Trouble(
            breaking_site=BREAKING_SITE,
            outage_site=OUTAGE_SITE,
            outage_at_s=self.outage_at_s,
            outage_s=self.outage_s,
            bad_node=BAD_NODE,
        )

    def workload(self, seed: int) -> FileWorkload:
        """Return the jobs under a seed."""
        from koala_papers.live2005.runs import FileWorkload

        return FileWorkload(
            jobs=self.jobs,
            interarrival_s=self.interarrival_s,
            files=self.files,
            file_mb=self.file_mb,
            execution_s=self.execution_s,
            seed=seed,
        )


class Live2005(PaperExperiment[Live2005Parameters]):
    """Both systems for each seed, which alternate in their order. --fresh measures again."""

    name = "live2005"
    title = "The experiment of 2005 live: priorities, files and claiming on real batch systems that fail"
    question = (
        "Do all jobs get through on real batch systems while one breaks everything and another loses its power?"
    )
    method = METHOD
    repetitions = 3
    seeds_min = 3
    quick_repetitions = 2
    processes_max = 1
    parameters_type = Live2005Parameters

    def quick(self, parameters: Live2005Parameters) -> Live2005Parameters:
        return msgspec.structs.replace(parameters, jobs=12, outage_at_s=12.0)

    def units(self, parameters: Live2005Parameters, seed: int, repetitions: int) -> list[Unit]:
        from koala.study.live import check_machine

        check_machine(parameters.lab)  # says what is missing before anything runs
        shared = msgspec.to_builtins(parameters)
        measured = {name: value for name, value in shared.items() if name not in NOT_MEASURED}
        systems = (UNSTABLE, STABLE)
        return [
            Unit(
                label=f"{system} system, seed {each}",
                work={"seed": each, "system": system, "form": FORM, **measured},
            )
            for number, each in enumerate(range(seed, seed + repetitions))
            for system in (systems if number % 2 == 0 else systems[::-1])
        ]

    def run(self, unit: Unit) -> dict[str, Any]:
        """Measure on a lab of its own."""
        from koala.study.live import live_grid
        from koala_papers.live2005.runs import run_live
        from koala_papers.live2006.model import PAPERS_SCHEDULER

        seed, system = unit.work["seed"], unit.work["system"]
        given = {name: value for name, value in unit.work.items() if name not in ("seed", "system", "form")}
        parameters = msgspec.convert(given, Live2005Parameters)
        trouble = parameters.trouble if system == UNSTABLE else None
        with live_grid(parameters.lab, {**PAPERS_SCHEDULER, **parameters.scheduler}) as live:
            found = asyncio.run(run_live(live, parameters.workload(seed), trouble))
            return {"grid": live.grid_as_json(), **found}

    def conclude(self, parameters: Live2005Parameters, results: Sequence[FinishedUnit]) -> Conclusion:
        from koala_papers.live2005.findings import Live2005Findings
        from koala_papers.live2005.runs import simulated

        predicted = {
            unit.work["seed"]: simulated(
                msgspec.convert(result["grid"], Grid), parameters.workload(unit.work["seed"]), parameters.startup_s
            )
            for unit, result in results
            if unit.work["system"] == STABLE
        }
        findings = Live2005Findings(results, predicted, BREAKING_SITE)
        return Conclusion(findings.as_json(), findings.claims(), findings.figures(), findings.notes())
