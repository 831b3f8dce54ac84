"""``koala simulate``: run a workload on a simulated grid with the real scheduler, and report how it went."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import EXIT_INTERRUPTED, UserError
from koala.cli.examples import read_named
from koala.cli.output import OutputFile, console, counted, print_json, refuse_clashes
from koala.cli.policies import full_catalogue
from koala.cli.simulate_failures import in_words, read_failures

if TYPE_CHECKING:
    from rich.console import RenderableType

    from koala.grid import Grid
    from koala.policies import Catalogue
    from koala.simulator import Result, Workload
    from koala.simulator.node_mapping import SiteFailures

_TIMES = (
    ("queue_s", "queue", "submission to placement"),
    ("overhead_s", "overhead", "placement to start"),
    ("wait_s", "wait", "submission to start"),
    ("execution_s", "execution", "start to finish"),
    ("response_s", "response", "submission to finish"),
)
_BAR_WIDTH = 30
# Below this width the table of times does without its explanations.
_EXPLAINED_WIDTH_MIN = 72
_LISTED_MAX = 10


@click.command()
@click.option("--grid", "grid_name", required=True, metavar="GRID", help="A grid file, or a shipped example: das2.")
@click.option(
    "--workload",
    "workload_name",
    required=True,
    metavar="WORKLOAD",
    help="A workload file, or a shipped example: koala2006-w1.",
)
@click.option("--policy", metavar="NAME", help="The placement policy, instead of the grid's.")
@click.option(
    "--policy-file", "policy_files", multiple=True, metavar="FILE.py", help="A Python file that registers policies."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed gives the same run.")
@click.option(
    "--until",
    "until_s",
    type=click.FloatRange(0.0),
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
    type=click.FloatRange(0.0),
    metavar="SECONDS",
    help="Begin this long after the beginning of the trace.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--jobs-csv", type=click.Path(path_type=Path, dir_okay=False), help="Write the table of jobs here.")
@click.option("--log", "log_path", type=click.Path(path_type=Path, dir_okay=False), help="Write every event here.")
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    grid_name: str,
    workload_name: str,
    policy_files: tuple[str, ...],
    failures_path: Path | None,
    failures_from_s: float | None,
    as_json: bool,
    jobs_csv: Path | None,
    log_path: Path | None,
    **options: Any,
) -> None:
    """Run a workload on a simulated grid.

    \b
    koala simulate --grid das2 --workload koala2006-w1 --policy CM
    koala simulate --grid my-grid.yaml --workload my-jobs.yaml --seed 7 --json

    'koala examples' lists the grids and workloads that ship with Koala.
    """
    inputs = [("--grid", grid_name), ("--workload", workload_name), ("--failures", str(failures_path or ""))]
    inputs += [("--policy-file", name) for name in policy_files]
    refuse_clashes([("--log", log_path), ("--jobs-csv", jobs_csv)], inputs)
    grid, workload = _read(grid_name, workload_name)
    catalogue = full_catalogue(policy_files)
    failures, about_failures = read_failures(grid, failures_path, failures_from_s)
    with ExitStack() as files:
        log, table = (
            None if path is None else files.enter_context(OutputFile(option, path))
            for option, path in (("--log", log_path), ("--jobs-csv", jobs_csv))
        )
        stop = files.enter_context(_interrupts())
        result = _run(grid, workload_name, workload, catalogue, log, stop, failures, **options)
        if table is not None:
            table.write(result.csv().encode())
    metrics = {"grid": grid.name, "workload": workload.name, **about_failures, **result.metrics()}
    if as_json:
        print_json(metrics)
    else:
        screen = console()
        for part in _report(metrics, screen.width):
            screen.print(part)
    if stop():
        ctx.exit(EXIT_INTERRUPTED)


def _read(grid_name: str, workload_name: str) -> tuple[Grid, Workload]:
    from koala.descriptions import read_grid
    from koala.descriptions.workload import read_workload
    from koala.simulator.generators import workload_from_file

    grid = read_grid(*read_named("grid", grid_name))
    return grid, workload_from_file(read_workload(*read_named("workload", workload_name)))


def _run(
    grid: Grid,
    workload_name: str,
    workload: Workload,
    catalogue: Catalogue,
    log: OutputFile | None,
    stop: Callable[[], bool],
    failures: SiteFailures | None,
    *,
    policy: str | None,
    seed: int,
    until_s: float | None,
) -> Result:
    from koala.simulator import simulate as run
    from koala.simulator.workload import WorkloadError

    with _progress() as progress:
        try:
            return run(
                grid,
                workload,
                policy=policy,
                seed=seed,
                progress=progress,
                catalogue=catalogue,
                log=None if log is None else log.write,
                until_s=math.inf if until_s is None else until_s,
                stop=stop,
                failures=failures,
            )
        except WorkloadError as error:
            raise UserError(f"{workload_name}: {error.for_user()}") from None


@contextmanager
def _interrupts() -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C only asks the run to end, so that what is known by then is reported; a second one kills."""
    asked = False

    def ask(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error, for whoever watches a terminal."""
    errors = console(stderr=True)
    if not errors.is_terminal:
        yield None
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("jobs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("jobs", total=None)

        def update(ended: int, jobs: int) -> None:
            bar.update(task, completed=ended, total=jobs)

        yield update


# ------------------------------------------------------------------------------------------ for people


def _report(metrics: dict[str, Any], width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in metrics["outcomes"].items())
    head = Text(f"{metrics['workload']} on {metrics['grid']}, policy {metrics['policy']}, seed {metrics['seed']}\n")
    head.stylize("bold", 0, len(head) - 1)
    jobs = counted(metrics["jobs"], "job") + (f": {outcomes}" if outcomes else "")
    head.append(f"{jobs}; makespan {_duration(metrics['makespan_s'])}")
    yield head
    if "failure_trace" in metrics:
        yield Text(in_words(metrics["failure_trace"]))
    if not metrics["complete"]:
        left = f"; {counted(metrics['not_submitted'], 'job')} not submitted" if metrics["not_submitted"] else ""
        yield Text(f"incomplete: {metrics['stopped']}{left}", style="yellow")
    for note in metrics["notes"]:
        yield Text(f"note: {note}", style="yellow")
    if metrics["response_s"] is not None:
        yield ""
        yield _times_table(metrics, explained=width >= _EXPLAINED_WIDTH_MIN)
        yield ""
        yield _clusters_table(metrics)
    yield ""
    yield _use_table(metrics["utilisation"])
    yield ""
    yield Text(
        f"component failures {metrics['failures']}, restarts {metrics['restarts']}, "
        f"preemptions {metrics['preemptions']}, events {metrics['events']}"
    )
    if metrics["void"]:
        periods = metrics["void_periods"]
        yield Text(
            f"void: the sites' own users alone exceeded the background bands for too long, "
            f"{counted(len(periods), 'time')}, first at {periods[0]['from_s']:.0f} s; run it with another seed",
            style="yellow",
        )
    yield from _reasons("failed", metrics["failed"])
    yield from _reasons("unfinished", metrics["unfinished_by_reason"])


def _reasons(outcome: str, reasons: list[dict[str, Any]]) -> Iterator[RenderableType]:
    from rich.text import Text

    for each in reasons[:_LISTED_MAX]:
        first = f"job {each['first']['job']} ({each['first']['name']})"
        who = first if each["jobs"] == 1 else f"{counted(each['jobs'], 'job')}, first {first}"
        yield Text(f"{outcome}: {who}: {each['reason']}", style="yellow")
    if len(reasons) > _LISTED_MAX:
        more = counted(len(reasons) - _LISTED_MAX, "more reason")
        yield Text(f"... and {more}; --json and --jobs-csv list them all", style="yellow")


def _times_table(metrics: dict[str, Any], *, explained: bool) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("seconds")
    for column in ("mean", "median", "p95", "max"):
        table.add_column(column, justify="right")
    if explained:
        table.add_column("from - to", style="dim")
    for key, name, meaning in _TIMES:
        values = metrics[key]
        if values is not None:
            cells = [name, *(f"{values[column]:.1f}" for column in ("mean", "median", "p95", "max"))]
            table.add_row(*cells, *([meaning] if explained else []))
    return table


def _clusters_table(metrics: dict[str, Any]) -> RenderableType:
    from rich.table import Table

    combined = metrics["clusters_combined"]
    table = Table(
        box=None,
        pad_edge=False,
        title=f"clusters combined: mean {combined['mean']:.2f}; {metrics['coallocated_share']:.0%} co-allocated",
        title_justify="left",
        title_style="",
    )
    table.add_column("clusters", justify="right")
    table.add_column("jobs", justify="right")
    table.add_column("")
    most = max(combined["histogram"].values())
    for clusters, jobs in combined["histogram"].items():
        table.add_row(clusters, str(jobs), "\N{FULL BLOCK}" * max(1, round(_BAR_WIDTH * jobs / most)))
    return table


def _use_table(use: dict[str, Any]) -> RenderableType:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("utilisation")
    for column in ("ours", "others", "total"):
        table.add_column(column, justify="right")
    for site, shares in use["sites"].items():
        table.add_row(escape(site), *_percent(shares["ours"], shares["others"]))
    table.add_row("all sites", *_percent(use["ours"], use["others"]), style="bold")
    return table


def _percent(ours: float, others: float) -> tuple[str, str, str]:
    return f"{ours:.1%}", f"{others:.1%}", f"{ours + others:.1%}"


def _duration(seconds: float) -> str:
    """A long time in hours and minutes, a short one in seconds."""
    if seconds < 600:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min ({seconds:.0f} s)"
