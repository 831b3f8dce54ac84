"""``koala torture``: storms of faults over the scheduler, many seeds at once, and the story of any that breaks it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

import click

from koala.cli.errors import EXIT_FAILED
from koala.cli.output import console, print_json

if TYPE_CHECKING:
    from koala.simulator.torture import Verdict

SEEDS_MAX = 1_000_000
# Seeds that one process takes at a time.
CHUNK_SEEDS = 10

# What the storms should have brought about, by the words of the jobs' stories.
HAPPENINGS = {
    "started": "runs started together on all sites",
    "refused": "jobs that found no place at once",
    "component_failed": "components that failed",
    "returned": "jobs sent back to their queue as a whole",
    "not_taken": "components that a site did not take",
    "too_few_startable": "claims put off because too few components could start",
    "moved": "components moved to another site while claiming",
    "preempted": "low-priority jobs preempted",
    "file_arrived": "files that arrived",
    "transfer_broke": "transfers that broke",
    "site_back": "sites trusted again",
}


@click.command()
@click.option("--seeds", type=click.IntRange(1, SEEDS_MAX), default=100, show_default=True, help="How many storms.")
@click.option("--seed", type=click.IntRange(0), help="Run just this storm; on failure the whole story is told.")
@click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first seed of --seeds.")
@click.option("--workers", type=click.IntRange(1), help="Processes to use; by default one for each core.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def torture(
    context: click.Context, seeds: int, seed: int | None, first: int, workers: int | None, as_json: bool
) -> None:
    """Run the scheduler under storms of faults and check that it keeps its promises.

    Each seed draws a grid, a workload and faults: components and whole sites that fail, transfers that break,
    answers that come late, twice or never, cancels and drained sites. While the storm lasts, named properties
    are checked after every event; then the world heals, and every job must finish.
    """
    chosen = [seed] if seed is not None else list(range(first, first + seeds))
    verdicts = list(_run_all(chosen, workers, show_progress=not as_json))
    broken = [verdict for verdict in verdicts if verdict.broken is not None]
    if as_json:
        _print_json(verdicts, broken)
    else:
        _print_for_people(verdicts, broken)
    if broken:
        context.exit(EXIT_FAILED)


def _run_all(seeds: list[int], workers: int | None, *, show_progress: bool) -> Iterator[Verdict]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from koala.simulator.torture import torture as one

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
        with ProcessPoolExecutor(count) as pool:
            for verdict in pool.map(one, seeds, chunksize=min(CHUNK_SEEDS, -(-len(seeds) // count))):
                yield verdict
                progress.advance(task)


def _print_json(verdicts: list[Verdict], broken: list[Verdict]) -> None:
    happened: Counter[str] = Counter()
    for verdict in verdicts:
        happened.update(verdict.happened)
    print_json(
        {
            "seeds": len(verdicts),
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


def _print_for_people(verdicts: list[Verdict], broken: list[Verdict]) -> None:
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
        else f"[bold red]{len(broken)} storms broke a promise[/]"
    )
    storms = "1 storm" if len(verdicts) == 1 else f"{len(verdicts):,} storms"
    out.print(f"\n{storms}, {jobs:,} jobs, {events:,} events: {kept}")
