"""The model of the plain kernel in AccaSim, as its users write it: FIFO that skips what does not fit, one cluster.

``python accasim_first_fit.py JOBS 1 PROCESSORS ROUNDS``, with the file of ``jobs_file``. AccaSim knows nodes of one
cluster, so that one fat node stands for it. Its plan and its statistics, which it would write to files for a good
part of the time, are switched off.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import logging
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from jobs_file import Measured, PeakOfMemory, read_jobs
from workloads import Jobs


def base(module: str) -> Any:
    """A module of AccaSim, which has no types and need not be installed for this one to be checked."""
    # AccaSim 1.1.3 looks for it where Python had it before 3.10.
    collections.Mapping = collections.abc.Mapping  # type: ignore[attr-defined]
    return import_module(f"accasim.base.{module}_class")


def write_swf(jobs: Jobs, path: Path) -> None:
    with path.open("w", encoding="ascii") as file:
        for row, (submit_s, size, run_s) in enumerate(zip(*jobs, strict=True), 1):
            seconds = f"{run_s:.0f}"
            file.write(
                f"{row} {submit_s:.0f} -1 {seconds} {size} {seconds} -1 {size} {seconds} -1 1 1 1 1 1 1 -1 -1\n"
            )


def write_system(processors: int, path: Path) -> None:
    system = {
        "system_name": "one cluster",
        "start_time": 0,
        "equivalence": {"processor": {"core": 1}},
        "groups": {"node": {"core": processors, "mem": 2**20}},
        "resources": {"node": 1},
    }
    path.write_text(json.dumps(system))


def run_once(workload: Path, system: Path, results: Path) -> tuple[float, float]:
    """Processor seconds of the run, with reading, which AccaSim does as it goes along; and the mean wait."""
    simulator = base("simulator").Simulator(
        str(workload),
        str(system),
        base("scheduler").FirstInFirstOut(base("allocator").FirstFit(), skip_jobs_on_allocation=True),
        scheduling_output=False,
        statistics_output=False,
        show_statistics=False,
        LOG_LEVEL="ERROR",
        RESULTS_FOLDER_PATH=str(results),
    )
    before_s = time.process_time()
    simulator.start_simulation()
    taken_s = time.process_time() - before_s
    waits_s = simulator.mapper.wtimes
    return taken_s, sum(waits_s) / len(waits_s)


def main() -> None:
    jobs_path, clusters, processors, rounds = Path(sys.argv[1]), *(int(number) for number in sys.argv[2:5])
    if clusters != 1:
        raise SystemExit("accasim_first_fit: AccaSim runs one cluster; give 1")
    logging.raiseExceptions = False
    with tempfile.TemporaryDirectory() as folder:
        workload, system = Path(folder, "jobs.swf"), Path(folder, "system.config")
        jobs = read_jobs(jobs_path)
        count = len(jobs.processors)
        write_swf(jobs, workload)
        write_system(processors, system)
        del jobs
        memory = PeakOfMemory()
        runs = [run_once(workload, system, Path(folder)) for _ in range(rounds)]
    taken_s, mean_wait_s = min(runs)
    print(Measured(taken_s, mean_wait_s, memory.bytes_per(count)).to_json())


if __name__ == "__main__":
    main()
