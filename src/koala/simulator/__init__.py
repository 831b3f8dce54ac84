"""Runs the scheduler in virtual time, with simulated sites, links, users and faults.

Grids and workloads are read from files, taken from the examples, or made from arrays and traces; ``simulate`` runs
them. What reads and draws traces needs numpy, see the extra ``traces``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koala.descriptions.grid.short import ShortGridError, clusters_in_short
    from koala.descriptions.workload.form import WorkloadFile
    from koala.simulator.examples import ExampleError, example_grid, example_workload
    from koala.simulator.reading import read_grid_file, read_workload_file
    from koala.simulator.result import JobRow, Result, SiteUse
    from koala.simulator.run import BrokenPolicyError, simulate
    from koala.simulator.trace_run import trace_workload
    from koala.simulator.traces.failures import FailureTrace, FailureTraceError, read_failure_trace
    from koala.simulator.traces.node_mapping import SiteFailures
    from koala.simulator.traces.reader import Trace, TraceError, read_trace
    from koala.simulator.traces.summary import trace_summary
    from koala.simulator.traces.writer import swf_bytes
    from koala.simulator.workloads.lublin import lublin
    from koala.simulator.workloads.synthetic import SyntheticError, fitted, poisson
    from koala.simulator.workloads.workload import Arrival, Workload, WorkloadError

__all__ = [
    "Arrival",
    "BrokenPolicyError",
    "ExampleError",
    "FailureTrace",
    "FailureTraceError",
    "JobRow",
    "Result",
    "ShortGridError",
    "SiteFailures",
    "SiteUse",
    "SyntheticError",
    "Trace",
    "TraceError",
    "Workload",
    "WorkloadError",
    "WorkloadFile",
    "clusters_in_short",
    "example_grid",
    "example_workload",
    "fitted",
    "lublin",
    "poisson",
    "read_failure_trace",
    "read_grid_file",
    "read_trace",
    "read_workload_file",
    "simulate",
    "swf_bytes",
    "trace_summary",
    "trace_workload",
]

# What is named here is imported when it is first used: a compiled kernel starts without the core.
_HOME = {
    "Arrival": "simulator.workloads.workload",
    "BrokenPolicyError": "simulator.run",
    "ExampleError": "simulator.examples",
    "FailureTrace": "simulator.traces.failures",
    "FailureTraceError": "simulator.traces.failures",
    "JobRow": "simulator.result",
    "Result": "simulator.result",
    "ShortGridError": "descriptions.grid.short",
    "SiteFailures": "simulator.traces.node_mapping",
    "SiteUse": "simulator.result",
    "SyntheticError": "simulator.workloads.synthetic",
    "Trace": "simulator.traces.reader",
    "TraceError": "simulator.traces.reader",
    "Workload": "simulator.workloads.workload",
    "WorkloadError": "simulator.workloads.workload",
    "WorkloadFile": "descriptions.workload.form",
    "clusters_in_short": "descriptions.grid.short",
    "example_grid": "simulator.examples",
    "example_workload": "simulator.examples",
    "fitted": "simulator.workloads.synthetic",
    "lublin": "simulator.workloads.lublin",
    "poisson": "simulator.workloads.synthetic",
    "read_failure_trace": "simulator.traces.failures",
    "read_grid_file": "simulator.reading",
    "read_trace": "simulator.traces.reader",
    "read_workload_file": "simulator.reading",
    "simulate": "simulator.run",
    "swf_bytes": "simulator.traces.writer",
    "trace_summary": "simulator.traces.summary",
    "trace_workload": "simulator.trace_run",
}

if not TYPE_CHECKING:  # a type checker knows the names above, and should complain of others

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"koala.{_HOME[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
