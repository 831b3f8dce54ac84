"""The program of every MPI process of a measurement: the shipped solvers, one run after the other.

``koala_papers.calibrate.runs`` starts it under ``mpiexec``, with a file of the runs in JSON, and it prints the
seconds of each as JSON. Starting processes takes longer than a run, hence many runs in one start.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from koala_papers.calibrate.runs import SolverRun

if TYPE_CHECKING:
    from mpi4py import MPI

# Every change of a point is larger, so that a run makes all its iterations and still tests convergence.
TOLERANCE = 1e-300


def options_of(run: SolverRun) -> list[str]:
    """Return the run as the solver's command line."""
    if run.application == "heat":
        return ["--size", str(run.size), "--steps", str(run.iterations)]
    return ["--size", str(run.size), "--iterations-max", str(run.iterations), "--tolerance", str(TOLERANCE)]


def measure(comm: MPI.Comm, runs: Sequence[SolverRun], rounds: int) -> list[list[float]]:
    """Return for each run its seconds in each round. Rounds go over all runs, so that noise affects all alike."""
    return [
        list(each) for each in zip(*([_elapsed_s(comm, run) for run in runs] for _ in range(rounds)), strict=True)
    ]


def _elapsed_s(comm: MPI.Comm, run: SolverRun) -> float:
    from koala.examples.applications.clusters import ProcessClusters, WanEmulation
    from koala.examples.applications.heat import Heat
    from koala.examples.applications.laplace import Laplace
    from koala.examples.applications.poisson import Poisson
    from koala.examples.applications.report import spent_by_all
    from koala.examples.applications.world import MpiWorld

    solvers: dict[str, type[Laplace | Heat | Poisson]] = {"laplace": Laplace, "heat": Heat, "poisson": Poisson}
    solver = solvers[run.application]
    world = MpiWorld(comm, ProcessClusters(run.clusters), WanEmulation(run.latency_ms, run.bandwidth_mbit_s))
    application = solver(world, solver.parser().parse_args(options_of(run)))
    world.restart_clock()
    application.solve()
    return spent_by_all(world).seconds.elapsed_s


def main(path: str) -> None:
    """Make the runs of a file; the first process prints the answer."""
    from koala.examples.applications.world import connected

    asked: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    comm = connected()
    seconds = measure(comm, msgspec.convert(asked["runs"], list[SolverRun]), asked["rounds"])
    if comm.rank == 0:
        sys.stdout.write(json.dumps({"seconds": seconds, "cores": len(os.sched_getaffinity(0))}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
