"""``koala simulate``: run a workload or a trace on a simulated grid, and report the results.

A workload runs in ``workload``, a trace in ``trace``; the tables are in ``report``.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import EXIT_INTERRUPTED, UserError
from koala.cli.simulate.options import FiniteRange, named_grid
from koala.cli.simulate.report import report
from koala.cli.simulate.workload import RunOptions, RunOutputs
from koala.cli.terminal.interrupts import interrupts
from koala.cli.terminal.output import OutputFile, console, print_json, refuse_clashes
from koala.model.grid import PLAN_DEPTH_MAX, Estimates

if TYPE_CHECKING:
    from koala.model.grid import Grid


@click.command()
@click.option(
    "--grid",
    "grid_name",
    required=True,
    metavar="GRID",
    help="A grid file, a shipped example such as das2, or clusters in short: 4x100.",
)
@click.option(
    "--workload",
    "workload_name",
    metavar="WORKLOAD",
    help="A workload file, or a shipped example: koala2006-w1.",
)
@click.option(
    "--trace",
    "trace_path",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="A trace in SWF or GWF instead, also packed: FILE.swf.gz.",
)
@click.option(
    "--policy",
    metavar="NAME",
    help="The placement policy, instead of the grid's; for a trace also fcfs, first-fit or easy.",
)
@click.option(
    "--engine",
    type=click.Choice(["kernel", "core"]),
    help="For a trace: the compiled kernel, or the scheduler itself; by default the kernel where it can.",
)
@click.option(
    "--policy-file", "policy_files", multiple=True, metavar="FILE.py", help="A Python file that registers policies."
)
@click.option(
    "--order",
    metavar="NAME",
    help="Which waiting job comes first, instead of the grid's order: round-robin, fcfs, easy, sjf, or one of yours.",
)
@click.option(
    "--plan-depth",
    type=click.IntRange(0, PLAN_DEPTH_MAX),
    metavar="N",
    help="Plan this many jobs of each queue ahead, instead of the grid's plan_depth: 1 is EASY, 0 plans none.",
)
@click.option(
    "--estimates",
    type=click.Choice([str(each) for each in Estimates]),
    help="How long plans expect jobs to run, instead of the grid's estimates: their walltimes, or the lengths of "
    "the last two runs of their users.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same run.")
@click.option(
    "--until",
    "until_s",
    type=FiniteRange(0.0),
    metavar="SECONDS",
    help="Cut the run off at this virtual time.",
)
@click.option(
    "--failures",
    "failures_path",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Let nodes fail as in this trace of the Failure Trace Archive (event_trace.tab, also .gz or .xz).",
)
@click.option(
    "--failures-from",
    "failures_from_s",
    type=FiniteRange(0.0),
    metavar="SECONDS",
    help="Begin this long after the beginning of the trace.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--jobs-csv", type=click.Path(path_type=Path, dir_okay=False), help="Write the table of jobs here.")
@click.option("--log", "log_path", type=click.Path(path_type=Path, dir_okay=False), help="Write every event here.")
@click.option(
    "--html", "html_path", type=click.Path(path_type=Path, dir_okay=False), help="Write a page with charts here."
)
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    grid_name: str,
    workload_name: str | None,
    trace_path: Path | None,
    as_json: bool,
    jobs_csv: Path | None,
    log_path: Path | None,
    html_path: Path | None,
    **options: Any,
) -> None:
    """Run a workload or a trace on a simulated grid.

    \b
    koala simulate --grid das2 --workload koala2006-w1 --policy CM
    koala simulate --grid my-grid.yaml --workload my-jobs.yaml --seed 7 --json
    koala simulate --grid 4x100 --trace KTH-SP2.swf.gz --policy easy --html kth.html

    'koala examples' lists the grids and workloads that ship with Koala.
    """
    chosen = RunOptions(**options)
    outputs = [("--log", log_path), ("--jobs-csv", jobs_csv), ("--html", html_path)]
    source = _one_source(workload_name, trace_path, chosen)
    refuse_clashes(outputs, [("--grid", grid_name), source, *chosen.inputs()])
    grid = _with_plans(named_grid(grid_name), chosen)
    with ExitStack() as files:
        log, table, drawn = (
            None if path is None else files.enter_context(OutputFile(option, path)) for option, path in outputs
        )
        stop = files.enter_context(interrupts())
        wanted = RunOutputs(log=log, picture=drawn is not None, stop=stop)
        if trace_path is not None:
            from koala.cli.simulate.trace import run_trace

            run = run_trace(grid, trace_path, chosen, wanted)
        else:
            from koala.cli.simulate.workload import run_workload

            run = run_workload(grid, source[1], chosen, wanted)
        if table is not None:
            table.write(run.csv().encode())
        if drawn is not None:
            from koala.simulator.report.page import page

            drawn.write(page(run.picture()).encode())
    if as_json:
        print_json(run.metrics)
    else:
        screen = console()
        for part in report(run.metrics, screen.width):
            screen.print(part)
    if stop():
        ctx.exit(EXIT_INTERRUPTED)


def _with_plans(grid: Grid, options: RunOptions) -> Grid:
    """Return the grid with the given order, plan_depth and estimates in place of its own."""
    import msgspec

    scheduler = grid.scheduler
    if options.order is not None:
        scheduler = scheduler.with_order(options.order)
    if options.plan_depth is not None:
        scheduler = scheduler.with_plans(options.plan_depth)
    if options.estimates is not None:
        scheduler = msgspec.structs.replace(scheduler, estimates=Estimates(options.estimates))
    return grid if scheduler is grid.scheduler else msgspec.structs.replace(grid, scheduler=scheduler)


def _one_source(workload_name: str | None, trace_path: Path | None, options: RunOptions) -> tuple[str, str]:
    """Return where the jobs come from: the option and its value. Exactly one is needed."""
    if trace_path is not None:
        if workload_name is not None:
            raise UserError("--workload and --trace both say which jobs to run; give one of them")
        return "--trace", str(trace_path)
    if workload_name is None:
        raise UserError("there are no jobs to run; give --workload WORKLOAD, or --trace FILE")
    if options.engine is not None:
        raise UserError("--engine chooses how a trace is run; a workload always runs in the scheduler: leave it out")
    return "--workload", workload_name
