"""``koala replay``: submit a workload or a trace to the live grid at its arrival times, and report the results.

What is submitted is read in ``source``, what is said is in ``report``; the replay itself is
``koala.study.replay.replay``.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.connection import WAITING_PATIENCE_S, complete_example, with_client
from koala.cli.errors import EXIT_INTERRUPTED, FailedError, UserError, advice
from koala.cli.policies import full_catalogue
from koala.cli.replay.report import ReplayReport, compared, metrics_of, more, write_folder
from koala.cli.replay.source import ReplayOptions, ReplaySource, read_source
from koala.cli.simulate.options import FiniteRange, named_grid
from koala.cli.simulate.report import report
from koala.cli.terminal.interrupts import interrupts
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.words import span

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import Overview
    from koala.model.grid import Grid
    from koala.policies import Catalogue
    from koala.study.replay.replay import ReplayProgress, Tell
    from koala.study.replay.result import Replayed

# The interval at which a replay without a terminal reports its progress.
LOG_EVERY_S = 60.0


@click.command()
@click.argument("source", metavar="WORKLOAD|TRACE", shell_complete=complete_example("workload"))
@click.option(
    "--speed",
    type=FiniteRange(0.0, min_open=True),
    default=1.0,
    show_default=True,
    metavar="X",
    help="Submit X times as fast, and let jobs that only have a run time run 1/X of it.",
)
@click.option("--policy", metavar="NAME", help="The policy for jobs that name none; by default the daemon's.")
@click.option(
    "--policy-file", "policy_files", multiple=True, metavar="FILE.py",
    help="A Python file that registers policies; those of the daemon's grid are known if its state is readable.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N jobs.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed draws the same jobs.")
@click.option(
    "--application",
    "applications",
    multiple=True,
    metavar="NAME=JOB",
    help="Let jobs of this application run what the job file JOB runs, instead of sleeping.",
)
@click.option("--keep", is_flag=True, help="After Ctrl-C do not cancel the submitted jobs.")
@click.option("--compare", is_flag=True, help="Simulate the same jobs afterwards, and show both side by side.")
@click.option(
    "--grid",
    "grid_name",
    metavar="GRID",
    help="With --compare: simulate this grid, whose file may say more than the daemon does, such as start-up times.",
)
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Write the numbers, the tables of jobs and of submissions, and a page with charts into this folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
@click.pass_context
def replay(
    ctx: click.Context,
    client: Client,
    /,
    keep: bool,
    compare: bool,
    grid_name: str | None,
    folder: Path | None,
    as_json: bool,
    policy_files: tuple[str, ...],
    **options: Any,
) -> None:
    """Submit a workload or a trace to the live grid at its arrival times, wait for all jobs, and report.

    \b
    koala replay koala2006-w1 --speed 10 --limit 50
    koala replay KTH-SP2.swf.gz --speed 100 --limit 200 --policy CM --out kth
    koala replay my-jobs.yaml --compare --grid my-grid.yaml

    A job with its own application runs that: a script, a path, or a program with arguments. Any other has only a run
    time, and its components sleep that long, divided by --speed. Jobs that can never fit are counted and left out.
    Ctrl-C stops submitting, cancels what was submitted, and reports.
    """
    chosen = ReplayOptions(**options)
    if grid_name is not None and not compare:
        raise UserError("--grid says which grid to simulate for a comparison; give --compare too")
    model = None if grid_name is None else named_grid(grid_name)
    _make(folder)
    overview = client.overview()
    catalogue = full_catalogue(policy_files, model or _kept_grid(client))
    grid = _grid_of(overview)
    source = read_source(client, grid, catalogue, chosen)
    _check_some_fit(source)
    policy = chosen.policy or overview.policy
    with interrupts() as stop:
        replayed = asyncio.run(_replayed(client, source, policy, chosen, keep, stop, catalogue))
        if replayed.refused and not replayed.submissions and replayed.result.complete:
            raise FailedError(f"the daemon takes none of these jobs: {replayed.refused[0].reason}")
        metrics = metrics_of(replayed, source, grid, chosen.speed)
        if compare and not stop():
            metrics |= _comparison(metrics, source, model or grid, policy, chosen.seed, catalogue)
        outcome = ReplayReport(replayed, source, metrics)
        if folder is not None:
            write_folder(folder, outcome, grid)
    if as_json:
        print_json(metrics)
    else:
        screen = console()
        for part in (*report(metrics, screen.width), *more(outcome)):
            screen.print(part)
    if not replayed.result.complete:
        ctx.exit(EXIT_INTERRUPTED)


def _check_some_fit(source: ReplaySource) -> None:
    too_large = source.plan.too_large
    if too_large and not source.plan.jobs:
        least = min(each.request.processors for each in too_large)
        raise FailedError(
            f"none of the {counted(len(too_large), 'job')} fits, so there is nothing to replay: "
            f"{too_large[0].reason}, and the smallest job asks for {least}; replay a smaller workload, or take a "
            "larger grid (koala lab up has --nodes, --processors-per-node and --slots)"
        )


def _make(folder: Path | None) -> None:
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"--out {folder}: {error.strerror}; {advice(error)}") from None


def _kept_grid(client: Client) -> Grid | None:
    """Return the grid file of the daemon, if it answers at a socket beside which it keeps the file."""
    from koala.cli.daemon.up import GRID_FILE

    socket = client.address.socket
    kept = None if socket is None else Path(socket).with_name(GRID_FILE)
    return named_grid(str(kept)) if kept is not None and os.access(kept, os.R_OK) else None


def _grid_of(overview: Overview) -> Grid:
    from koala.study.replay.result import live_grid

    return live_grid(overview)


async def _replayed(
    client: Client,
    source: ReplaySource,
    policy: str,
    options: ReplayOptions,
    keep: bool,
    stop: Callable[[], bool],
    catalogue: Catalogue,
) -> Replayed:
    from koala.client import AsyncClient
    from koala.simulator.report.remarks import notes
    from koala.study.replay.replay import Replay

    remarks = [*source.remarks, *notes((job.request for job in source.plan.jobs), policy, catalogue)]
    async with AsyncClient(str(client.address), patience_s=WAITING_PATIENCE_S) as live:
        live.exchange.on_wait = client.exchange.on_wait
        overview = await live.overview()
        with _progress() as tell:
            replay = Replay(live, source.plan, stop=stop, tell=tell, keep=keep)
            return await replay.run(overview, policy=policy, seed=options.seed, notes=remarks)


def _comparison(
    metrics: dict[str, Any], source: ReplaySource, grid: Grid, policy: str, seed: int, catalogue: Catalogue
) -> dict[str, Any]:
    from koala.simulator import simulate

    simulated = simulate(grid, source.plan.simulated(), policy=policy, seed=seed, catalogue=catalogue).metrics()
    return {"simulated": simulated, "compared": compared(metrics, simulated)}


@contextmanager
def _progress() -> Iterator[Tell]:
    """Show the progress of a replay: a line that changes on a terminal, and a line a minute in a log."""
    errors = console(stderr=True)
    if errors.is_terminal:
        with errors.status("replay") as status:
            yield lambda progress: status.update(_words(progress))
        return
    told_at = time.monotonic()

    def tell(progress: ReplayProgress) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= LOG_EVERY_S:
            told_at = time.monotonic()
            click.echo(_words(progress), err=True)

    yield tell


def _words(progress: ReplayProgress) -> str:
    left = "" if progress.left_s is None else f", about {span(progress.left_s)} left"
    return (
        f"{progress.submitted} submitted, {progress.running} running, {progress.ended} ended of {progress.jobs}{left}"
    )
