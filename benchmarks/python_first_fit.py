"""First fit in Python and from Python: the kernel, the core under the simulator, and the plain loop.

``python python_first_fit.py SYSTEM JOBS CLUSTERS PROCESSORS ROUNDS`` runs one of them in a process of its own, with
the file of ``jobs_file``. What is measured is the run alone, from columns of jobs to their starts. Each loads only
what it needs, which keeps the others' processes short.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from first_fit import start_times
from jobs_file import Measured, PeakOfMemory, read_jobs
from workloads import Jobs


def mean_wait_s(starts: Sequence[float], submits: Sequence[float]) -> float:
    return sum(start - submit for start, submit in zip(starts, submits, strict=True)) / len(starts)


def run_kernel(path: Path, clusters: int, processors: int, rounds: int) -> Measured:
    import numpy

    from koala.simulator.kernels.plain import run_plain

    run_plain([0.0], [1.0], [1], [1], "first-fit")  # compiled, or read from disk
    memory = PeakOfMemory()
    with path.open("rb") as file:
        count = int(numpy.fromfile(file, numpy.int64, 1)[0])
        submit_s = numpy.fromfile(file, numpy.float64, count)
        run_s = numpy.fromfile(file, numpy.float64, count)
        size = numpy.fromfile(file, numpy.int32, count)
    best_s = float("inf")
    for _ in range(rounds):
        before_s = time.process_time()
        ran = run_plain(submit_s, run_s, size, [processors] * clusters, "first-fit")
        best_s = min(best_s, time.process_time() - before_s)
        bytes_per_job = memory.bytes_per(count)
        waited_s = float((ran.start_s - submit_s).mean())
        del ran
    return Measured(best_s, waited_s, bytes_per_job)


def by_columns(run: Callable[[Jobs, int, int], list[float]]) -> Callable[[Path, int, int, int], Measured]:
    def measured(path: Path, clusters: int, processors: int, rounds: int) -> Measured:
        memory = PeakOfMemory()
        jobs = read_jobs(path)
        best_s = float("inf")
        for _ in range(rounds):
            before_s = time.process_time()
            starts = run(jobs, clusters, processors)
            best_s = min(best_s, time.process_time() - before_s)
        return Measured(best_s, mean_wait_s(starts, jobs.submit_s), memory.bytes_per(len(starts)))

    return measured


def run_core(jobs: Jobs, clusters: int, processors: int) -> list[float]:
    """The scheduler that runs live, its queue scanned at every event that could help."""
    from koala.model.grid import Grid, SchedulerParameters, Site
    from koala.simulator import Workload, simulate

    grid = Grid(
        sites=tuple(Site(name=f"c{index}", processors=processors) for index in range(clusters)),
        scheduler=SchedulerParameters(scan_interval_s=0.0, check_interval_s=None),
    )
    rows = simulate(grid, Workload.from_arrays(*jobs), policy="WF").rows()
    return [row.started for row in rows if row.started is not None]


SYSTEMS = {"kernel": run_kernel, "core": by_columns(run_core), "loop": by_columns(start_times)}


if __name__ == "__main__":
    clusters, processors, rounds = (int(number) for number in sys.argv[3:6])
    print(SYSTEMS[sys.argv[1]](Path(sys.argv[2]), clusters, processors, rounds).to_json())
