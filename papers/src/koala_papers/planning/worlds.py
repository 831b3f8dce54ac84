"""The worlds of the planning study: parts of traces, drawn workloads of several loads, and the DAS-2 with its users.

A world is identified by a name and, if it comes from a trace, by the file and its hash. ``study`` defines its runs.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from koala.model.grid import PLAN_DEPTH_MAX, Grid, SchedulerParameters, Site
from koala.study import ParameterError, trace_of

if TYPE_CHECKING:
    from koala.simulator import Trace

CLUSTERS = 4
LUBLIN_NODES = 128
# The model has no estimates: a drawn user requests between once and this many times the run time.
ASKED_MOST = 5.0
DAS2_GRID, DAS2_WORKLOAD = "das2", "koala2006-w1"
DAS2 = "DAS-2"
ALL = "all"
# The maximum number of files in a folder of traces.
TRACES_MAX = 20
_ENDINGS = (".swf", ".gwf")


class TraceFile(NamedTuple):
    """A trace that the user named: its name, its path, and the hash of its content."""

    name: str
    path: str
    identity: str


def traces_in(folder: str) -> list[TraceFile]:
    """Return the traces in a folder, by name; raise ParameterError if there are none."""
    from koala.simulator import trace_name

    if not folder:
        return []
    try:
        found = sorted(path for path in Path(folder).iterdir() if _is_trace(path))
    except OSError as error:
        raise ParameterError(
            f"planning, parameter traces: {folder}: {error.strerror}; name a folder with traces in SWF or GWF"
        ) from None
    if not found:
        raise ParameterError(
            f"planning, parameter traces: there is no trace in {folder}; put files there that end in .swf or .gwf, "
            "packed or not"
        )
    if len(found) > TRACES_MAX:
        raise ParameterError(
            f"planning, parameter traces: {folder} has {len(found)} traces, more than {TRACES_MAX} (TRACES_MAX); "
            "name a folder with fewer"
        )
    return [
        TraceFile(trace_name(path), str(path), hashlib.sha256(path.read_bytes()).hexdigest()[:32]) for path in found
    ]


def _is_trace(path: Path) -> bool:
    return any(suffix.casefold() in _ENDINGS for suffix in path.suffixes) and path.is_file()


def part_of(file: TraceFile, jobs: int, seed: int) -> Trace:
    """Return this many consecutive jobs of a trace; another part for each seed, and the first again after the
    last."""
    import numpy as np

    trace = trace_of(file.path, file.identity)
    begin = (seed % max(1, trace.jobs // jobs)) * jobs
    part = trace.chosen(np.arange(begin, min(begin + jobs, trace.jobs)))
    return dataclasses.replace(part, submit_s=part.submit_s - part.submit_s[0]) if part.jobs else part


def processors_of(file: TraceFile) -> int:
    """Return the size of the machine: by the trace, and at least that of its largest job."""
    trace = trace_of(file.path, file.identity)
    return max(trace.processors or 1, int(trace.size.max()))


def drawn(load: float, jobs: int, seed: int) -> Trace:
    """Return jobs of the model of Lublin and Feitelson, with gaps stretched so that they use that share of the
    machine."""
    import numpy as np

    from koala.simulator import lublin

    trace = lublin(jobs, seed, nodes=LUBLIN_NODES)
    span_s = float(trace.submit_s[-1] - trace.submit_s[0])
    offered = float((trace.size * trace.run_s).sum()) / (LUBLIN_NODES * span_s) if span_s > 0 else load
    asked = np.random.default_rng([seed, 1]).uniform(1.0, ASKED_MOST, trace.jobs)
    submit_s = (trace.submit_s - trace.submit_s[0]) * (offered / load)
    return dataclasses.replace(trace, submit_s=submit_s, requested_s=trace.run_s * asked)


def clusters_of(processors: int, clusters: int) -> Grid:
    """Return this number of processors in equal clusters, the last of which may be smaller."""
    size = -(-processors // clusters)
    sizes = [min(size, processors - size * index) for index in range(clusters)]
    return Grid(
        name=f"{clusters} clusters",
        sites=tuple(Site(name=f"c{index + 1}", processors=each) for index, each in enumerate(sizes) if each > 0),
        scheduler=SchedulerParameters(scan_interval_s=0.0, check_interval_s=None),
    )


def depth_of(text: str) -> int:
    """Return a plan_depth as a user writes it."""
    return PLAN_DEPTH_MAX if text == ALL else int(text)


def with_plans(grid: Grid, depth: int) -> Grid:
    """Return the same grid with plans for this many jobs of each queue."""
    return msgspec.structs.replace(grid, scheduler=msgspec.structs.replace(grid.scheduler, plan_depth=depth))
