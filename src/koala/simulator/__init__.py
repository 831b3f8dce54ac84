"""Runs the scheduler in virtual time, with simulated sites, links, users and faults.

Grids and workloads are read from files, taken from the examples, or made from arrays and traces; ``simulate`` runs
them. Reading and drawing traces needs numpy, see the extra ``traces``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from koala.descriptions.grid.short import ShortGridError, clusters_in_short
    from koala.descriptions.workload.form import (
        WorkloadFile,
        read_workload,
    )
    from koala.policies.interface import quota_processors
    from koala.simulator.examples import ExampleError, example_grid, example_workload, fingerprint
    from koala.simulator.kernels.mini_grid import MiniGrid, MiniGridRun, run_mini_grid
    from koala.simulator.reading import read_grid_file, read_workload_file
    from koala.simulator.report.page_data import PageHold
    from koala.simulator.result import DONE, JobRow, Result, SiteUse
    from koala.simulator.run import BrokenPolicyError, simulate
    from koala.simulator.trace_run import BOUND_S, divided_by_size, run_in_kernel, trace_workload
    from koala.simulator.traces.failures import FailureTrace, FailureTraceError, read_failure_trace
    from koala.simulator.traces.node_mapping import SiteFailures
    from koala.simulator.traces.reader import Trace, TraceError, read_trace, trace_name
    from koala.simulator.traces.summary import trace_summary
    from koala.simulator.traces.writer import swf_bytes
    from koala.simulator.utilisation import WINDOW_S, UtilisationRecorder
    from koala.simulator.workloads.draws import exponential, stream
    from koala.simulator.workloads.generators import equal_parts, workload_from_file
    from koala.simulator.workloads.lublin import lublin
    from koala.simulator.workloads.mini_grid import MiniGridJobs, mini_grid_workload
    from koala.simulator.workloads.synthetic import SyntheticError, fitted, poisson
    from koala.simulator.workloads.workload import Arrival, Workload, WorkloadError
    from koala.simulator.world.background import users_stream

__all__ = [
    "BOUND_S",
    "DONE",
    "WINDOW_S",
    "Arrival",
    "BrokenPolicyError",
    "ExampleError",
    "FailureTrace",
    "FailureTraceError",
    "JobRow",
    "MiniGrid",
    "MiniGridJobs",
    "MiniGridRun",
    "PageHold",
    "Result",
    "ShortGridError",
    "SiteFailures",
    "SiteUse",
    "SyntheticError",
    "Trace",
    "TraceError",
    "UtilisationRecorder",
    "Workload",
    "WorkloadError",
    "WorkloadFile",
    "clusters_in_short",
    "divided_by_size",
    "equal_parts",
    "example_grid",
    "example_workload",
    "exponential",
    "fingerprint",
    "fitted",
    "lublin",
    "mini_grid_workload",
    "poisson",
    "quota_processors",
    "read_failure_trace",
    "read_grid_file",
    "read_trace",
    "read_workload",
    "read_workload_file",
    "run_in_kernel",
    "run_mini_grid",
    "simulate",
    "stream",
    "swf_bytes",
    "trace_name",
    "trace_summary",
    "trace_workload",
    "users_stream",
    "workload_from_file",
]

# These names are imported at their first use: a compiled kernel starts without the core.
_HOME = {
    "Arrival": "simulator.workloads.workload",
    "BOUND_S": "simulator.trace_run",
    "BrokenPolicyError": "simulator.run",
    "DONE": "simulator.result",
    "ExampleError": "simulator.examples",
    "FailureTrace": "simulator.traces.failures",
    "FailureTraceError": "simulator.traces.failures",
    "JobRow": "simulator.result",
    "MiniGrid": "simulator.kernels.mini_grid",
    "MiniGridJobs": "simulator.workloads.mini_grid",
    "MiniGridRun": "simulator.kernels.mini_grid",
    "PageHold": "simulator.report.page_data",
    "Result": "simulator.result",
    "ShortGridError": "descriptions.grid.short",
    "SiteFailures": "simulator.traces.node_mapping",
    "SiteUse": "simulator.result",
    "SyntheticError": "simulator.workloads.synthetic",
    "Trace": "simulator.traces.reader",
    "TraceError": "simulator.traces.reader",
    "UtilisationRecorder": "simulator.utilisation",
    "WINDOW_S": "simulator.utilisation",
    "Workload": "simulator.workloads.workload",
    "WorkloadError": "simulator.workloads.workload",
    "WorkloadFile": "descriptions.workload.form",
    "clusters_in_short": "descriptions.grid.short",
    "divided_by_size": "simulator.trace_run",
    "equal_parts": "simulator.workloads.generators",
    "example_grid": "simulator.examples",
    "example_workload": "simulator.examples",
    "exponential": "simulator.workloads.draws",
    "fingerprint": "simulator.examples",
    "fitted": "simulator.workloads.synthetic",
    "lublin": "simulator.workloads.lublin",
    "mini_grid_workload": "simulator.workloads.mini_grid",
    "poisson": "simulator.workloads.synthetic",
    "quota_processors": "policies.interface",
    "read_failure_trace": "simulator.traces.failures",
    "read_grid_file": "simulator.reading",
    "read_trace": "simulator.traces.reader",
    "read_workload": "descriptions.workload.form",
    "read_workload_file": "simulator.reading",
    "run_in_kernel": "simulator.trace_run",
    "run_mini_grid": "simulator.kernels.mini_grid",
    "simulate": "simulator.run",
    "stream": "simulator.workloads.draws",
    "swf_bytes": "simulator.traces.writer",
    "trace_name": "simulator.traces.reader",
    "trace_summary": "simulator.traces.summary",
    "trace_workload": "simulator.trace_run",
    "users_stream": "simulator.world.background",
    "workload_from_file": "simulator.workloads.generators",
}

if not TYPE_CHECKING:  # a type checker knows the names above, and should report others

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"koala.{_HOME[name]}"), name)

    def __dir__() -> list[str]:
        return sorted(__all__)
