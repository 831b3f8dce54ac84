"""Runs an experiment or a study from the command line: required libraries, the bar, Ctrl-C, the summary."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import EXIT_INTERRUPTED, FailedError, UserError
from koala.cli.terminal.interrupts import ended_like_ctrl_c
from koala.cli.terminal.output import console, counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from koala.study.frame.claims import PaperClaim
    from koala.study.frame.experiment import Experiment, P
    from koala.study.frame.looks import Judged
    from koala.study.frame.run import Computer
    from koala.study.frame.whole_run import SeedRange, WholeRun


def report_folder(name: str, folder: Path | None, *, quick: bool) -> Path:
    """Return the folder for the report of an experiment or a study: the named one, or one of its name here."""
    return folder or Path(f"{name}-{'first-look' if quick else 'results'}")


def cluster(chosen: Experiment[Any], address: str, processes: int | None) -> Computer:
    """Return the Dask cluster at that address, to compute on."""
    if processes is not None:
        raise UserError("--jobs: with --dask the cluster's workers decide how many; leave one of the two out")
    from koala.study.frame.dask_run import on_dask

    return on_dask(chosen, address)


def run_shown(
    chosen: Experiment[P],
    parameters: P,
    seeds: SeedRange,
    folder: Path,
    processes: int | None,
    computer: Computer | None,
    *,
    fresh: bool,
    quick: bool,
) -> WholeRun:
    """Run it to its report with a bar for whoever watches. Ctrl-C and SIGTERM take down what it has set up, and say
    how much is kept, and where."""
    from koala.study.frame.run import UNITS_FOLDER, UnitError
    from koala.study.frame.whole_run import run_to_report

    so_far = (0, 0)
    with ended_like_ctrl_c((signal.SIGTERM, signal.SIGHUP)), _progress(chosen.name) as show:

        def progress(finished: int, all_units: int) -> None:
            nonlocal so_far
            so_far = finished, all_units
            show(finished, all_units)

        try:
            return run_to_report(
                chosen,
                parameters,
                seeds,
                folder,
                processes=processes,
                computer=computer,
                fresh=fresh,
                quick=quick,
                progress=progress,
            )
        except UnitError as error:
            raise FailedError(error.for_user()) from None
        except KeyboardInterrupt:
            finished, all_units = so_far
    kept = f"{finished} of {counted(all_units, 'unit')} finished and kept in {folder / UNITS_FOLDER}"
    click.echo(f"\nInterrupted: {kept}; give the same command again to go on.", err=True)
    raise click.exceptions.Exit(EXIT_INTERRUPTED)


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with the remaining time on standard error, if it is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Left

    errors = console(stderr=True)
    columns = (TextColumn(name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), Left())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(name, total=None)

        def update(finished: int, all_units: int) -> None:
            bar.update(task, completed=finished, total=all_units)

        yield update


def summary(chosen: Experiment[Any], seen: Judged, warning: str) -> Iterator[RenderableType]:
    """Yield the claims with their verdicts, and notes for the reader."""
    from rich.text import Text

    conclusion = seen.conclusion
    yield Text(f"{chosen.name}: {chosen.title}, {counted(seen.seeds, 'seed')}", style="bold")
    yield ""
    if conclusion.claims:
        yield _claims_table(conclusion.claims)
        yield ""
    if seen.looks_max > 1:
        yield Text(f"{len(seen.looks)} of {counted(seen.looks_max, 'look')} at the data: {seen.stopped}.")
    for note in conclusion.notes:
        yield Text(note)
    if warning:
        yield Text(f"note: {warning}", style="yellow")


def _claims_table(claims: Sequence[PaperClaim]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("claim", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what it says")
    colours = {"holds": "green", "contrary": "red", "undecided": "yellow"}
    for claim in claims:
        what = Text(claim.text)
        if claim.verdict != "holds":
            what.append(f"\n{claim.why}", style="dim")
        if claim.to_go:
            what.append(f"\n{claim.to_go}", style="yellow")
        table.add_row(claim.id, Text(claim.verdict, style=colours[claim.verdict]), what)
    return table
