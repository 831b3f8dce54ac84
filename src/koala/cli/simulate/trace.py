"""``koala simulate --trace``: the jobs of a trace, in the compiled kernel or in the scheduler.

The kernel runs the disciplines fcfs, first-fit and easy, and placement policies that are equivalent to one of them;
the scheduler under the simulator runs all else, and every grid that has more than the sizes of its sites.
"""

from __future__ import annotations

import csv
import gc
import io
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.cli.errors import UserError
from koala.cli.libraries import refuse_without
from koala.cli.policies import full_catalogue
from koala.cli.simulate.failures import read_failures
from koala.cli.simulate.report import facts
from koala.cli.simulate.workload import DISCIPLINES, RunOptions, RunOutputs, RunResult, run_scheduler
from koala.cli.terminal.output import counted, counted_first

if TYPE_CHECKING:
    from koala.model.grid import Grid
    from koala.policies import Catalogue
    from koala.policies.catalogue import Policy
    from koala.simulator.report.page_data import RunPicture
    from koala.simulator.result import JobRow
    from koala.simulator.trace_run import TooLarge
    from koala.simulator.traces.reader import Trace

# Times in the table of jobs are rounded to microseconds, as those of a workload.
_CSV_DIGITS = 6


class _Plan(NamedTuple):
    """How a trace will be run: ``discipline`` by the kernel, or without one by the scheduler."""

    policy: str
    discipline: str | None
    divides: bool
    notes: tuple[str, ...] = ()


class _Job(NamedTuple):
    """Everything that a run of a trace needs."""

    grid: Grid
    trace: Trace
    too_large: TooLarge
    plan: _Plan
    catalogue: Catalogue
    options: RunOptions
    outputs: RunOutputs
    read_s: float


def run_trace(grid: Grid, path: Path, options: RunOptions, outputs: RunOutputs) -> RunResult:
    """Run the trace in that file on the grid."""
    refuse_without("koala simulate --trace", "traces")
    with ExitStack() as undone:
        if gc.isenabled():
            # Loading the compiler makes many objects that stay: searching them for garbage cycles again and again
            # would take a fifth of the time of a run.
            gc.disable()
            undone.callback(gc.enable)
        return _run(grid, path, options, outputs)


def _run(grid: Grid, path: Path, options: RunOptions, outputs: RunOutputs) -> RunResult:
    from koala.simulator.trace_run import comes_first, divided_by_size
    from koala.simulator.traces.reader import read_trace

    catalogue = full_catalogue(options.policy_files, grid)
    plan = _plan(grid, catalogue, options, outputs)
    before_s = time.perf_counter()
    # The jobs' users matter to orders, and to the times that plans predict.
    users = grid.scheduler.plan_depth > 0 or not comes_first(grid)
    whole = read_trace(path, users=plan.discipline is None and users)
    read_s = time.perf_counter() - before_s
    trace, too_large = divided_by_size(whole, grid, divides=plan.divides)
    job = _Job(grid, trace, too_large, plan, catalogue, options, outputs, read_s)
    return _in_kernel(job, plan.discipline) if plan.discipline is not None else _in_scheduler(job)


# ------------------------------------------------------------------------------------------ kernel or core


def _plan(grid: Grid, catalogue: Catalogue, options: RunOptions, outputs: RunOutputs) -> _Plan:
    """Choose the engine for the trace, and how it runs. Raises UserError if the requested one cannot run it."""
    from koala.policies import UnknownPolicyError
    from koala.policies.errors import PolicyParameterError
    from koala.simulator.trace_run import PLANS, discipline_for, obstacles

    name = grid.scheduler.policy if options.policy is None else options.policy
    beyond = [f"{option} is given" for option in _scheduler_options(options, outputs)]
    if name.casefold() in DISCIPLINES:
        if options.engine == "core" or beyond:
            what = "--engine core" if options.engine == "core" else beyond[0].removesuffix(" is given")
            raise UserError(
                f"--policy {name}: a discipline runs in the kernel, which does not go with {what}; "
                "name a placement policy, of which WF is the same as first-fit"
            )
        ignored = obstacles(grid, plans=options.plan_depth is not None)
        note = f"{name.casefold()} considers only the sizes of the sites, without {', '.join(ignored)}"
        return _Plan(name.casefold(), name.casefold(), divides=False, notes=(note,) if ignored else ())
    try:
        policy = catalogue.find(name)
    except PolicyParameterError:
        raise
    except UnknownPolicyError as error:
        raise UnknownPolicyError(name, (*DISCIPLINES, *error.known)) from None
    discipline = discipline_for(policy)
    known = obstacles(grid)
    beyond = [*([f"the grid has {', '.join(known)}"] if known else []), *beyond]
    if options.engine == "kernel" and _plans_in_kernel(grid, policy) and not _scheduler_options(options, outputs):
        return _Plan(name, PLANS, divides=policy.form.divides)
    if options.engine == "kernel" and discipline is None:
        raise UserError(
            f"--engine kernel: it does not know the policy {name}; "
            f"it runs {', '.join(DISCIPLINES)}, policies such as WF that do the same, and FCM with --plan-depth 1: "
            "leave --engine out"
        )
    if options.engine == "kernel" and beyond:
        why = " and ".join(beyond)
        cure = ", or make no plans: --plan-depth 0" if grid.scheduler.plan_depth else ""
        raise UserError(f"--engine kernel: {name} needs the scheduler, since {why}; leave --engine out{cure}")
    if discipline is None or beyond or options.engine == "core":
        return _Plan(name, None, divides=policy.form.divides, notes=_about_links(grid, policy))
    return _Plan(name, discipline, divides=False)


def _plans_in_kernel(grid: Grid, policy: Policy) -> bool:
    """Return True if the kernel can make the plans of the grid."""
    from koala.model.grid import Estimates
    from koala.simulator.trace_run import obstacles, planned_alike

    scheduler = grid.scheduler
    plain = scheduler.plan_depth == 1 and scheduler.estimates is Estimates.WALLTIME
    return plain and planned_alike(policy) and not obstacles(grid, plans=False)


def _about_links(grid: Grid, policy: Policy) -> tuple[str, ...]:
    """Return a note for readers who expect links to fill up: a trace does not contain what its jobs send."""
    from koala.policies import Form

    if grid.network is None or policy.form is not Form.LINKS:
        return ()
    return ("a trace does not have what its jobs send, so all links stay empty; a workload can have it",)


def _scheduler_options(options: RunOptions, outputs: RunOutputs) -> list[str]:
    """Return the given options that only the scheduler under the simulator can follow."""
    given = {
        "--failures": options.failures_path is not None or options.failures_from_s is not None,
        "--until": options.until_s is not None,
        "--log": outputs.log is not None,
    }
    return [option for option, is_given in given.items() if is_given]


# ------------------------------------------------------------------------------------------ the two runs


def _in_kernel(job: _Job, discipline: str) -> RunResult:
    refuse_without("koala simulate --trace", "kernel")
    from koala.simulator.trace_run import (
        PLANS,
        KernelRun,
        headline,
        run_in_kernel,
        run_planned_in_kernel,
        too_large_rows,
        warm_up,
    )

    before_s = time.perf_counter()
    warm_up(discipline)
    begun_s = time.perf_counter()
    run: KernelRun
    if discipline == PLANS:
        run = run_planned_in_kernel(job.trace, job.grid, job.catalogue.find(job.plan.policy))
    else:
        run = run_in_kernel(job.trace, job.grid, discipline, job.plan.policy)
    ended_s = time.perf_counter()
    timings = {"read_s": job.read_s, "load_s": begun_s - before_s, "simulate_s": ended_s - begun_s}
    own = {**run.metrics(), "notes": [], **headline(run.start_s - job.trace.submit_s, job.trace.run_s)}
    metrics = _metrics(job, "kernel", own, timings)

    def table() -> str:
        return _csv([*run.rows(), *too_large_rows(job.too_large, job.plan.policy)])

    return RunResult(metrics, table, lambda: run.picture(**_words(job, metrics)))


def _in_scheduler(job: _Job) -> RunResult:
    import numpy as np

    from koala.simulator.result import DONE
    from koala.simulator.trace_run import headline, renamed, too_large_rows, trace_workload

    failures, about_failures = read_failures(job.grid, job.options.failures_path, job.options.failures_from_s)
    workload = trace_workload(job.trace, divides=job.plan.divides)
    before_s = time.perf_counter()
    run = run_scheduler(job.grid, workload, job.trace.name, job.catalogue, job.options, job.outputs, failures)
    timings = {"read_s": job.read_s, "simulate_s": time.perf_counter() - before_s}
    rows = list(run.result.rows())
    done = [row for row in rows if row.outcome == DONE]
    waits_s = np.array([row.wait_s for row in done], dtype=float)
    runs_s = np.array([row.execution_s for row in done], dtype=float)
    own = {**about_failures, **_with_ids(run.result.metrics(), job.trace), **headline(waits_s, runs_s)}
    metrics = _metrics(job, "core", own, timings)
    named = renamed(rows, job.trace)

    def table() -> str:
        return _csv([*named, *too_large_rows(job.too_large, job.plan.policy)])

    def picture() -> RunPicture:
        from koala.simulator.report.page_holds import run_picture

        ids = [row.job for row in named]
        unix_s = job.trace.start_unix_s
        return run_picture(rows, run.holds, job.grid, ids=ids, start_unix_s=unix_s, **_words(job, metrics))

    return RunResult(metrics, table, picture)


def _with_ids(metrics: dict[str, Any], trace: Trace) -> dict[str, Any]:
    """Return the scheduler's metrics with the trace's ids for the jobs that they name."""
    ids = trace.ids.tolist()
    for reasons in (metrics["failed"], metrics["unfinished_by_reason"]):
        for reason in reasons:
            reason["first"]["job"] = ids[reason["first"]["job"] - 1]
    for left in metrics["unfinished"]:
        left["job"] = ids[left["job"] - 1]
    return metrics


# ------------------------------------------------------------------------------------------ the report


def _metrics(job: _Job, engine: str, own: dict[str, Any], timings: dict[str, float]) -> dict[str, Any]:
    from koala.simulator.traces.summary import skipped_json

    trace = job.trace
    jobs_per_s = trace.jobs / timings["simulate_s"] if timings["simulate_s"] > 0 else 0.0
    return {
        "grid": job.grid.name,
        "trace": trace.name,
        "format": trace.format,
        "engine": engine,
        **own,
        "notes": [*job.plan.notes, *_about_too_large(job.too_large), *trace_remarks(trace), *own["notes"]],
        "too_large": job.too_large.as_json(),
        "skipped": skipped_json(trace),
        "reordered": trace.reordered,
        "jobs_per_s": jobs_per_s,
        "timings": timings,
    }


def _about_too_large(too_large: TooLarge) -> list[str]:
    left_out = too_large.as_json()
    if not left_out["jobs"]:
        return []
    jobs = counted_first(left_out["jobs"], "job", left_out["first"])
    return [f"too large for the grid, which holds {too_large.limit} processors of one job: {jobs}"]


def trace_remarks(trace: Trace) -> list[str]:
    """Return notes on the jobs of a trace that are never run, or not in the order of the file."""
    remarks = [f"not run, for {each.reason}: {counted_first(each.jobs, 'job', each.first)}" for each in trace.skipped]
    if trace.reordered:
        remarks.append(f"put in order of submission: {counted(trace.reordered, 'job')}")
    return remarks


def _words(job: _Job, metrics: dict[str, Any]) -> dict[str, Any]:
    """Return the text of the run's page around its charts."""
    return {
        "title": f"{job.trace.name} on {job.grid.name}",
        "subtitle": f"policy {job.plan.policy}, by the {metrics['engine']}",
        "facts": facts(metrics),
        "notes": metrics["notes"],
    }


def _csv(rows: Iterable[JobRow]) -> str:
    """Return the table of jobs in a workload's form."""
    from koala.simulator.result import JobRow

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(JobRow._fields)
    for row in rows:
        writer.writerow([round(cell, _CSV_DIGITS) if type(cell) is float else cell for cell in row])
    return text.getvalue()
