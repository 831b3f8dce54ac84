"""The content of a trace in numbers: jobs, sizes, run times, arrivals, and the load that they make."""

from __future__ import annotations

from typing import Any

import numpy as np

from koala.simulator.traces.reader import Floats, Integers, Trace

PERCENTILES = (5, 25, 50, 75, 95)


def trace_summary(trace: Trace) -> dict[str, Any]:
    """Return what ``koala trace show`` prints of a trace, ready for JSON: jobs, span, load, and the spread of sizes
    and times.

    The load is the work of all jobs over the machine's capacity while they were submitted; None if the trace does not
    contain the size of the machine.

    >>> from koala.simulator import lublin, trace_summary
    >>> summary = trace_summary(lublin(1500, seed=1))
    >>> summary["jobs"], round(summary["load"], 2), summary["size"]["p50"]
    (1500, 0.96, 4.0)
    """
    span_s = float(trace.submit_s[-1] - trace.submit_s[0]) if trace.jobs else 0.0
    work = float((trace.size * trace.run_s).sum())
    known = trace.processors is not None and span_s > 0
    return {
        "trace": trace.name,
        "format": trace.format,
        "jobs": trace.jobs,
        "skipped": skipped_json(trace),
        "reordered": trace.reordered,
        "processors": trace.processors,
        "start_unix_s": trace.start_unix_s,
        "span_s": span_s,
        "work_processor_s": work,
        "load": work / (span_s * trace.processors) if known and trace.processors else None,
        "size": spread(trace.size),
        "serial_share": _share(trace.size == 1),
        "power_of_two_share": _share((trace.size > 1) & (trace.size & (trace.size - 1) == 0)),
        "run_s": spread(trace.run_s),
        "interarrival_s": spread(np.diff(trace.submit_s)),
        "requested_s": spread(trace.requested_s),
        "exceeded_request_share": _share(trace.run_s > trace.requested_s),
        "header": trace.header,
    }


def skipped_json(trace: Trace) -> dict[str, Any]:
    """Return the jobs of the file that cannot be run, by reason."""
    return {
        "jobs": sum(each.jobs for each in trace.skipped),
        "reasons": [{"reason": each.reason, "jobs": each.jobs, "first": list(each.first)} for each in trace.skipped],
    }


def spread(values: Floats | Integers) -> dict[str, float] | None:
    """Return minimum, some percentiles, maximum and mean; None without values."""
    if not len(values):
        return None
    percentiles = np.percentile(values, PERCENTILES).tolist()
    return {
        "min": float(values.min()),
        **{f"p{percent}": value for percent, value in zip(PERCENTILES, percentiles, strict=True)},
        "max": float(values.max()),
        "mean": float(values.mean()),
    }


def _share(mask: np.ndarray[Any, np.dtype[np.bool_]]) -> float | None:
    return float(mask.mean()) if len(mask) else None
