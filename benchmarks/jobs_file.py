"""The file of jobs that every program of the comparison reads, and what each prints of its run.

A file is an int64 count, then as many doubles of submission, doubles of run time, and int32 sizes: columns that a C
program reads without parsing. A program is called with the file, the clusters, their processors and the rounds, and
prints a ``Measured`` as JSON.
"""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import NamedTuple

from workloads import Jobs


class Measured(NamedTuple):
    """Processor seconds of the best round, what the jobs waited in the mean, and the peak of memory that came with
    the jobs, theirs included, for each."""

    s: float
    mean_wait_s: float
    bytes_per_job: float

    def to_json(self) -> str:
        return json.dumps(self._asdict())


def write_jobs(jobs: Jobs, path: Path) -> None:
    with path.open("wb") as file:
        array("q", [len(jobs.processors)]).tofile(file)
        array("d", jobs.submit_s).tofile(file)
        array("d", jobs.execution_s).tofile(file)
        array("i", jobs.processors).tofile(file)


def read_jobs(path: Path) -> Jobs:
    count, submit_s, execution_s, processors = array("q"), array("d"), array("d"), array("i")
    with path.open("rb") as file:
        count.fromfile(file, 1)
        submit_s.fromfile(file, count[0])
        execution_s.fromfile(file, count[0])
        processors.fromfile(file, count[0])
    return Jobs(submit_s.tolist(), processors.tolist(), execution_s.tolist())


class PeakOfMemory:
    """How far the memory of this process grows from here on. Linux only."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is held now
        self._before_bytes = _peak_bytes()

    def bytes_per(self, items: int) -> float:
        return (_peak_bytes() - self._before_bytes) / items


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("/proc/self/status has no VmHWM: memory can be measured on Linux only")
