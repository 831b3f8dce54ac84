"""``koala demo --simulated``: one co-allocation on three simulated sites, drawn from the log of its run.

The scheduler is the real one; nothing here is staged but the grid and the jobs, which are the examples named demo.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from koala.cli.demo.picture import TITLE, GridPicture, colour, columns_in, letter, what_happened
from koala.cli.examples import read_named
from koala.cli.terminal.output import console, counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from koala.model.grid import Grid
    from koala.simulator import Result
    from koala.simulator.report.timeline import Timeline

SHOW_S = 3.0
FRAMES = 40
_PROCESSORS_PER_ROW = 3


def show_simulated(seed: int, *, still: bool) -> None:
    """Run the simulation and show it, as an animation where there is a terminal."""
    grid, result, timeline = _run(seed)
    screen = console()
    column_s = max(1.0, math.ceil(timeline.end_s / columns_in(screen.width)))
    picture = GridPicture(
        {site.name: site.processors for site in grid.sites},
        timeline,
        columns=math.ceil(timeline.end_s / column_s),
        column_s=column_s,
        processors_per_row=_PROCESSORS_PER_ROW,
    )
    screen.print(f"{TITLE}\n", style="bold")
    if screen.is_terminal and not still:
        _animate(screen, picture, timeline.end_s)
    else:
        screen.print(_at(picture, timeline.end_s))
    screen.print(_jobs_table(result))
    screen.print(f"\n{_closing(result)}")


def _run(seed: int) -> tuple[Grid, Result, Timeline]:
    from koala.descriptions import read_grid
    from koala.descriptions.workload.form import read_workload
    from koala.simulator import simulate
    from koala.simulator.report.timeline import Timeline
    from koala.simulator.workloads.generators import workload_from_file

    grid = read_grid(*read_named("grid", "demo"))
    workload = workload_from_file(read_workload(*read_named("workload", "demo")))
    log: list[bytes] = []
    result = simulate(grid, workload, seed=seed, log=log.append)
    return grid, result, Timeline.from_log(b"".join(log).splitlines())


def _at(picture: GridPicture, until_s: float, height: int | None = None) -> RenderableType:
    """The picture and what was said; in a given height only the newest of it."""
    from rich.console import Group

    rows, remarks = picture.rows(until_s), picture.remarks(until_s)
    if height is None:
        return Group(*rows, "", *remarks)
    return Group(*rows, *remarks[-max(1, height - len(rows) - 1) :])


def _animate(screen: Console, picture: GridPicture, end_s: float) -> None:
    from rich.live import Live

    with Live(console=screen, auto_refresh=False) as live:
        for frame in range(1, FRAMES):
            live.update(_at(picture, end_s * frame / FRAMES, screen.height), refresh=True)
            time.sleep(SHOW_S / FRAMES)
        live.update(_at(picture, end_s), refresh=True)


def _jobs_table(result: Result) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=None,
        pad_edge=False,
        title="\ntimes in seconds; those of the last start, where a job was started again",
        title_justify="left",
        title_style="dim",
    )
    table.add_column("job", no_wrap=True)
    table.add_column("sites", no_wrap=True)
    for column in ("queue", "overhead", "execution"):
        table.add_column(column, justify="right")
    table.add_column("what happened")
    for row in result.rows():
        times = (row.queue_s, row.overhead_s, row.execution_s)
        table.add_row(
            Text(f"{letter(row.job)} {row.name}", style=colour(row.job)),
            row.sites.replace("+", " + "),
            *("-" if value is None else f"{value:.0f}" for value in times),
            what_happened(row.preemptions, row.failures, row.outcome),
        )
    return table


def _closing(result: Result) -> str:
    return (
        f"{counted(result.jobs, 'job')}, {counted(result.events, 'event')}, {result.end_s:.0f} s of virtual time\n"
        "next: koala simulate --grid das2 --workload koala2006-w1 --policy CM"
    )
