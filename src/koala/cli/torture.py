"""``koala torture``: storms of faults over the scheduler, many seeds at once, and the story of any that breaks it."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from koala.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, UserError
from koala.cli.terminal.output import console, counted, print_json

if TYPE_CHECKING:
    from koala.simulator.torture.torture import StormVerdict

SEEDS_MAX = 1_000_000
# The number of seeds that one process takes at a time.
CHUNK_SEEDS = 10

# Events that the storms should cause, by the words that they count by.
HAPPENINGS = {
    "ReleaseBarrier": "times that a barrier opened, and all behind it started together",
    "JobRefused": "jobs that found no place at once",
    "ComponentEnded:failed": "components whose application failed",
    "ComponentEnded:site_failed": "components that their site broke",
    "JobRequeued": "jobs sent back to their queue as a whole",
    "SpawnBegan": "times that spawned tasks began in running jobs",
    "TasksSpawned:refused": "times that spawned tasks were refused",
    "TasksSpawned:withdrawn": "times that spawned tasks were withdrawn before they began",
    "ComponentEnded:refused": "components that a site did not take",
    "ClaimPutOff": "claims put off because too few components could start",
    "ComponentMoved": "components moved to another site while claiming",
    "Preempts:processors": "times that low-priority jobs were preempted for a component",
    "ClaimsEarly": "jobs that claimed their places before the times of their plans",
    "Preempts:places": "times that low-priority jobs were preempted for places",
    "FileArrived": "files that arrived",
    "TransferBroke": "transfers that broke",
    "Blamed": "jobs found to break components wherever they run",
    "JobRests": "restarts that rested first",
    "StartComponent:kept off nodes": "components kept off nodes where they failed",
    "DistrustProved": "sites found to fail applications that do well elsewhere",
    "SiteTrusted": "sites trusted again",
    "SiteLost": "sites that were lost",
    "JobHeld": "times that jobs were kept back: for other jobs, for their time, or by their users",
    "DependencyCame": "jobs that were waited for and came",
    "CheckpointBrought": "components that began where an earlier run had left off, or afresh as nothing was saved",
    "ElementMade": "elements of arrays that became jobs",
    "OutputsAwaited": "jobs whose outputs were collected",
    "JobQuarantined": "jobs set aside after an error of our own",
}


@click.command()
@click.option("--seeds", type=click.IntRange(1, SEEDS_MAX), default=100, show_default=True, help="How many storms.")
@click.option("--seed", type=click.IntRange(0), help="Run just this storm; on failure the whole story is printed.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed of --seeds.")
@click.option("--workers", type=click.IntRange(1), help="Processes to use; by default one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def torture(
    context: click.Context, seeds: int, seed: int | None, first: int, workers: int | None, as_json: bool
) -> None:
    """Run the scheduler under storms of faults and check that it keeps its promises.

    Each seed draws a grid, a workload and faults: components and whole sites that fail, transfers that break,
    answers that come late, twice or never, cancels, drained sites and errors of our own. While the storm lasts, named
    promises are checked after every event; then the world heals, and every job must finish.
    """
    if seed is not None:
        for other in ("seeds", "first"):
            if context.get_parameter_source(other) is ParameterSource.COMMANDLINE:
                raise UserError(f"--seed runs one storm and --{other} is about many; give one of the two")
    chosen = [seed] if seed is not None else list(range(first, first + seeds))
    verdicts: list[StormVerdict] = []
    try:
        verdicts.extend(_run_all(chosen, workers, show_progress=not as_json))
    except KeyboardInterrupt:
        click.echo(f"\nInterrupted after {len(verdicts):,} of {counted(len(chosen), 'storm')}.", err=True)
    broken = [verdict for verdict in verdicts if verdict.broken is not None]
    if as_json:
        _print_json(verdicts, broken, len(chosen))
    else:
        _print_for_people(verdicts, broken)
    if len(verdicts) < len(chosen):
        context.exit(EXIT_INTERRUPTED)
    if broken:
        context.exit(EXIT_FAILED)


def _run_all(seeds: list[int], workers: int | None, *, show_progress: bool) -> Iterator[StormVerdict]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from koala.simulator.torture.torture import torture as one

    count = min(workers or os.cpu_count() or 1, len(seeds))
    terminal = console(stderr=True)
    columns = (TextColumn("storms"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal, disable=not (show_progress and terminal.is_terminal)) as progress:
        task = progress.add_task("storms", total=len(seeds))
        if count == 1:
            for seed in seeds:
                yield one(seed)
                progress.advance(task)
            return
        with ProcessPoolExecutor(count, initializer=_leave_interrupts_to_parent) as pool:
            try:
                for verdict in pool.map(one, seeds, chunksize=min(CHUNK_SEEDS, -(-len(seeds) // count))):
                    yield verdict
                    progress.advance(task)
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)
                raise


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _print_json(verdicts: list[StormVerdict], broken: list[StormVerdict], asked: int) -> None:
    happened: Counter[str] = Counter()
    for verdict in verdicts:
        happened.update(verdict.happened)
    print_json(
        {
            "seeds": len(verdicts),
            "first_seed": verdicts[0].seed if verdicts else None,
            "last_seed": verdicts[-1].seed if verdicts else None,
            "complete": len(verdicts) == asked,
            "jobs": sum(verdict.jobs for verdict in verdicts),
            "events": sum(verdict.events for verdict in verdicts),
            "happened": dict(sorted(happened.items())),
            "failed": [
                {
                    "seed": verdict.seed,
                    "broken": verdict.broken,
                    "detail": verdict.detail,
                    "repeat": f"koala torture --seed {verdict.seed}",
                    "story": list(verdict.story),
                }
                for verdict in broken
            ],
        }
    )


def _print_for_people(verdicts: list[StormVerdict], broken: list[StormVerdict]) -> None:
    from rich.markup import escape
    from rich.table import Table

    out = console()
    happened: Counter[str] = Counter()
    for verdict in verdicts:
        happened.update(verdict.happened)
    table = Table(title="What the storms brought", title_justify="left", box=None, show_header=False)
    table.add_column(justify="right", style="bold")
    table.add_column()
    for word, text in HAPPENINGS.items():
        table.add_row(f"{happened[word]:,}", text)
    for verdict in broken:
        out.print(f"[bold red]seed {verdict.seed} broke a promise[/]: {escape(verdict.detail)}")
        for line in verdict.story:
            out.print(f"  {escape(line)}", soft_wrap=True)
        out.print(f"repeat it with: [bold]koala torture --seed {verdict.seed}[/]\n")
    out.print(table)
    jobs, events = (sum(getattr(verdict, field) for verdict in verdicts) for field in ("jobs", "events"))
    kept = (
        "[bold green]every promise was kept[/]"
        if not broken
        else f"[bold red]{counted(len(broken), 'storm')} broke a promise[/]"
    )
    summary = ", ".join((counted(len(verdicts), "storm"), counted(jobs, "job"), counted(events, "event")))
    out.print(f"\n{summary}: {kept}")
