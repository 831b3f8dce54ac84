"""``koala simulate``: run a workload on a simulated grid with the real scheduler, and report how it went."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.examples import read_named
from koala.cli.output import console, print_json
from koala.cli.policies import full_catalogue

if TYPE_CHECKING:
    from rich.console import RenderableType

    from koala.grid import Grid
    from koala.policies import Catalogue
    from koala.simulator import Result, Workload

_TIMES = (
    ("queue_s", "queue", "submission to placement"),
    ("overhead_s", "overhead", "placement to start"),
    ("wait_s", "wait", "submission to start"),
    ("execution_s", "execution", "start to finish"),
    ("response_s", "response", "submission to finish"),
)
_BAR_WIDTH = 30
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--jobs-csv", type=click.Path(path_type=Path, dir_okay=False), help="Write the table of jobs here.")
@click.option("--log", "log_path", type=click.Path(path_type=Path, dir_okay=False), help="Write every event here.")
def simulate(
    grid_name: str,
    workload_name: str,
    policy: str | None,
    policy_files: tuple[str, ...],
    seed: int,
    as_json: bool,
    jobs_csv: Path | None,
    log_path: Path | None,
) -> None:
    """Run a workload on a simulated grid.

    \b
    koala simulate --grid das2 --workload koala2006-w1 --policy CM
    koala simulate --grid my-grid.yaml --workload my-jobs.yaml --seed 7 --json

    'koala examples' lists the grids and workloads that ship with Koala.
    """
    grid, workload = _read(grid_name, workload_name)
    catalogue = full_catalogue(policy_files)
    result = _run(grid, workload, policy, seed, catalogue, log_path)
    if jobs_csv is not None:
        jobs_csv.write_text(result.csv(), encoding="utf-8")
    metrics = {"grid": grid.name, "workload": workload.name, **result.metrics()}
    if as_json:
        print_json(metrics)
    else:
        for part in _report(metrics):
            console().print(part)


def _read(grid_name: str, workload_name: str) -> tuple[Grid, Workload]:
    from koala.descriptions import read_grid
    from koala.descriptions.workload import read_workload
    from koala.simulator.generators import workload_from_file

    grid = read_grid(*read_named("grid", grid_name))
    return grid, workload_from_file(read_workload(*read_named("workload", workload_name)))


def _run(
    grid: Grid, workload: Workload, policy: str | None, seed: int, catalogue: Catalogue, log_path: Path | None
) -> Result:
    from koala.simulator import simulate as run

    with _progress() as progress:
        if log_path is None:
            return run(grid, workload, policy=policy, seed=seed, progress=progress, catalogue=catalogue)
        with log_path.open("wb") as log:
            return run(
                grid,
                workload,
                policy=policy,
                seed=seed,
                progress=progress,
                catalogue=catalogue,
                log=_writer(log.write),
            )


def _writer(write: Callable[[bytes], int]) -> Callable[[bytes], None]:
    def put(lines: bytes) -> None:
        write(lines)

    return put


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None] | None]:
    """A bar on standard error, for whoever watches a terminal."""
    errors = console(stderr=True)
    if not errors.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn("jobs"))
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task("jobs", total=None)

        def update(ended: int, jobs: int) -> None:
            bar.update(task, completed=ended, total=jobs)

        yield update


# ------------------------------------------------------------------------------------------ for people


def _report(metrics: dict[str, Any]) -> Iterator[RenderableType]:
    from rich.text import Text

    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in metrics["outcomes"].items())
    head = Text(f"{metrics['workload']} on {metrics['grid']}, policy {metrics['policy']}, seed {metrics['seed']}\n")
    head.stylize("bold", 0, len(head) - 1)
    head.append(f"{metrics['jobs']} jobs: {outcomes}; makespan {_duration(metrics['makespan_s'])}")
    yield head
    if metrics["response_s"] is not None:
        yield ""
        yield _times_table(metrics)
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
            f"void: {len(periods)} time(s) a site's own users alone exceeded the background band, "
            f"first {periods[0]['site']} at {periods[0]['from_s']:.0f} s; run it with another seed",
            style="yellow",
        )
    yield from _unfinished(metrics["unfinished"])


def _unfinished(jobs: list[dict[str, Any]]) -> Iterator[RenderableType]:
    from rich.text import Text

    for job in jobs[:_LISTED_MAX]:
        yield Text(f"unfinished: job {job['job']} ({job['name']}): {job['reason']}", style="yellow")
    if len(jobs) > _LISTED_MAX:
        yield Text(f"... and {len(jobs) - _LISTED_MAX} more; --json and --jobs-csv list them all", style="yellow")


def _times_table(metrics: dict[str, Any]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("seconds")
    for column in ("mean", "median", "p95", "max"):
        table.add_column(column, justify="right")
    table.add_column("from - to", style="dim")
    for key, name, meaning in _TIMES:
        values = metrics[key]
        if values is not None:
            table.add_row(name, *(f"{values[column]:.1f}" for column in ("mean", "median", "p95", "max")), meaning)
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
