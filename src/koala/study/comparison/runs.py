"""One run of a study: a policy with the jobs of a world under a seed, in the scheduler under the simulator."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import msgspec

from koala.descriptions.study.form import StudyMetric
from koala.model.grid import Grid
from koala.simulator import JobRow, Result, Workload, simulate
from koala.simulator.result import DONE
from koala.simulator.workloads.generators import workload_from_file
from koala.study.comparison.matrix import (
    Contender,
    StudyGrid,
    StudyJobs,
    catalogue_with,
    grid_of,
    trace_of,
    workload_of,
)
from koala.study.frame.measures import done_rows, means, number, varied

# Slowdowns of shorter jobs are bounded: they would only reflect that the job was short.
BOUND_S = 10.0


class MetricWords(NamedTuple):
    """The name of a metric in sentences and on axes, and its unit."""

    words: str
    unit: str


METRICS: dict[StudyMetric, MetricWords] = {
    StudyMetric.RESPONSE: MetricWords("mean response time", "s"),
    StudyMetric.RESPONSE_P95: MetricWords("95th percentile of the response time", "s"),
    StudyMetric.WAIT: MetricWords("mean wait", "s"),
    StudyMetric.WAIT_P95: MetricWords("95th percentile of the wait", "s"),
    StudyMetric.WAIT_MAX: MetricWords("longest wait", "s"),
    StudyMetric.QUEUE: MetricWords("mean queue time", "s"),
    StudyMetric.OVERHEAD: MetricWords("mean time from placement to start", "s"),
    StudyMetric.EXECUTION: MetricWords("mean execution time", "s"),
    StudyMetric.SLOWDOWN: MetricWords("mean bounded slowdown", ""),
    StudyMetric.CLUSTERS: MetricWords("mean clusters combined", ""),
    StudyMetric.COALLOCATED_SHARE: MetricWords("share of co-allocated jobs", ""),
    StudyMetric.DONE_SHARE: MetricWords("share of jobs done", ""),
    StudyMetric.UTILISATION: MetricWords("utilisation by the jobs", ""),
    StudyMetric.MAKESPAN: MetricWords("makespan", "s"),
    StudyMetric.FAILURES: MetricWords("failures of components", ""),
    StudyMetric.RESTARTS: MetricWords("restarts of jobs", ""),
}


def run_cell(
    contender: Contender, grid: StudyGrid, jobs: StudyJobs, seed: int, jobs_max: int, *, all_divide: bool
) -> dict[str, Any]:
    """Return the numbers of one run, ready for JSON. ``jobs_max`` shortens it for a first look; 0 does not."""
    world = _with_plans(grid_of(grid.content), contender.plan_depth)
    if jobs.content is not None:
        workload, left_out = _drawn(contender, jobs, jobs_max), 0
    else:
        workload, left_out = _part(contender, world, jobs, seed, jobs_max, all_divide=all_divide)
    result = simulate(world, workload, policy=contender.policy, seed=seed, catalogue=catalogue_with(contender.file))
    return {**run_numbers(result), "too_large": left_out}


def _with_plans(grid: Grid, plan_depth: int | None) -> Grid:
    if plan_depth is None:
        return grid
    return msgspec.structs.replace(grid, scheduler=grid.scheduler.with_plans(plan_depth))


def _drawn(contender: Contender, jobs: StudyJobs, jobs_max: int) -> Workload:
    assert jobs.content is not None, "these are the jobs of a workload"
    limit = {"jobs_max": jobs_max} if jobs_max else {}
    return workload_from_file(
        varied(
            workload_of(jobs.content),
            jobs=jobs.jobs,
            interarrival_s=jobs.interarrival_s,
            request=contender.request,
            keep_fixed=True,
            **limit,
        )
    )


def _part(
    contender: Contender, grid: Grid, jobs: StudyJobs, seed: int, jobs_max: int, *, all_divide: bool
) -> tuple[Workload, int]:
    """Return the seed's part of a trace as a workload, and how many of its jobs are too large.

    Jobs that are too large for a policy that does not divide are omitted for all: all policies meet the same jobs.
    """
    import numpy as np

    from koala.simulator.trace_run import divided_by_size, trace_workload

    trace = trace_of(jobs.trace, jobs.trace_identity)
    length = trace.jobs if jobs.jobs is None else jobs.jobs
    begin = (seed % jobs.parts) * length
    trace = trace.chosen(np.arange(begin, begin + min(length, jobs_max or length, trace.jobs - begin)))
    if trace.jobs:
        trace = dataclasses.replace(trace, submit_s=trace.submit_s - trace.submit_s[0])
    fitting, too_large = divided_by_size(trace, grid, divides=all_divide)
    workload = trace_workload(fitting, divides=contender.divides)
    return workload, too_large.jobs.jobs


def run_numbers(result: Result) -> dict[str, Any]:
    """Return a run in numbers: every metric by its name, None if no job was done, and further facts for the
    reader."""
    metrics = result.metrics()
    done = done_rows(result)
    jobs = metrics["jobs"] + metrics["not_submitted"]
    taken: dict[str, float | None] = {
        **means(done),
        "done_share": metrics["outcomes"].get(DONE, 0) / jobs if jobs else None,
        "utilisation": metrics["utilisation"]["ours"],
        "failures": float(metrics["failures"]),
        "restarts": float(metrics["restarts"]),
    }
    if done:
        taken |= {
            "response_p95_s": metrics["response_s"]["p95"],
            "wait_p95_s": metrics["wait_s"]["p95"],
            "wait_max_s": metrics["wait_s"]["max"],
            "slowdown": sum(map(_slowdown, done)) / len(done),
            "coallocated_share": metrics["coallocated_share"],
            "makespan_s": metrics["makespan_s"],
        }
    return {
        "metrics": {str(metric): taken.get(metric) for metric in StudyMetric},
        "jobs": jobs,
        "outcomes": metrics["outcomes"],
        "void": metrics["void"],
        "notes": metrics["notes"],
        "log_sha256": metrics.get("log_sha256"),
    }


def _slowdown(row: JobRow) -> float:
    return max(1.0, number(row, "response_s") / max(number(row, "execution_s"), BOUND_S))
