"""Driver one: the scheduler in virtual time, with simulated sites, links, users and faults.

What is named here is imported when it is first used: a compiled kernel starts without the core.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koala.simulator.reading import read_grid_file, read_workload_file
    from koala.simulator.result import JobRow, Result
    from koala.simulator.run import simulate
    from koala.simulator.trace_run import trace_workload
    from koala.simulator.traces.reader import Trace, read_trace
    from koala.simulator.workloads.workload import Arrival, Workload, WorkloadError
    from koala.simulator.world.world import World

__all__ = [
    "Arrival",
    "JobRow",
    "Result",
    "Trace",
    "Workload",
    "WorkloadError",
    "World",
    "read_grid_file",
    "read_trace",
    "read_workload_file",
    "simulate",
    "trace_workload",
]

_HOME = {
    "Arrival": "workloads.workload",
    "JobRow": "result",
    "Result": "result",
    "Trace": "traces.reader",
    "Workload": "workloads.workload",
    "WorkloadError": "workloads.workload",
    "World": "world.world",
    "read_grid_file": "reading",
    "read_trace": "traces.reader",
    "read_workload_file": "reading",
    "simulate": "run",
    "trace_workload": "trace_run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
