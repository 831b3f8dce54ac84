"""``koala demo``: one co-allocation on three simulated sites, drawn as it happens.

The scheduler is the real one, and the picture is drawn from the log of its run; nothing here is staged but the
grid and the jobs, which are the examples of the same name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from koala.cli.examples import read_named
from koala.cli.output import console, counted

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from koala.grid import Grid
    from koala.simulator import Result
    from koala.simulator.timeline import Timeline

SHOW_S = 3.0
FRAMES = 40
_PROCESSORS_PER_ROW = 3
_NAMES_WIDTH = 11
_PICTURE_WIDTH_MAX = 100
_COLOURS = ("cyan", "magenta", "yellow", "green", "blue")
_IDLE, _WAITING, _DOWN, _MOVING = (
    "\N{MIDDLE DOT}",
    "\N{LIGHT SHADE}",
    "\N{MULTIPLICATION SIGN}",
    "\N{BLACK RECTANGLE}",
)


@click.command()
@click.option("--seed", type=int, default=1, show_default=True, help="The seed of the simulation.")
@click.option("--still", is_flag=True, help="Show the end at once, without the animation.")
def demo(seed: int, still: bool) -> None:
    """Run one co-allocation on a simulated grid and show it.

    Three sites, three jobs: a flexible one that is split over two sites and waits for its input file, one of
    high priority that preempts, and the one that it preempts. Then a site breaks down.
    """
    grid, result, timeline = _run(seed)
    screen = console()
    picture = _Picture(grid, timeline, min(screen.width, _PICTURE_WIDTH_MAX))
    screen.print("Koala: one queue over three clusters\n", style="bold")
    if screen.is_terminal and not still:
        _animate(screen, picture, timeline.end_s)
    else:
        screen.print(picture.at(timeline.end_s))
    screen.print(_jobs_table(result, picture))
    screen.print(f"\n{_closing(result)}")


def _run(seed: int) -> tuple[Grid, Result, Timeline]:
    from koala.descriptions import read_grid
    from koala.descriptions.workload import read_workload
    from koala.simulator import simulate
    from koala.simulator.generators import workload_from_file
    from koala.simulator.timeline import Timeline

    grid = read_grid(*read_named("grid", "demo"))
    workload = workload_from_file(read_workload(*read_named("workload", "demo")))
    log: list[bytes] = []
    result = simulate(grid, workload, seed=seed, log=log.append)
    return grid, result, Timeline.from_log(b"".join(log).splitlines())


def _animate(screen: Console, picture: _Picture, end_s: float) -> None:
    from rich.live import Live

    with Live(console=screen, auto_refresh=False) as live:
        for frame in range(1, FRAMES):
            live.update(picture.at(end_s * frame / FRAMES, height=screen.height), refresh=True)
            time.sleep(SHOW_S / FRAMES)
        live.update(picture.at(end_s), refresh=True)


class _Picture:
    """The run as rows of characters: one column is a stretch of time, one row a few processors of a site."""

    def __init__(self, grid: Grid, timeline: Timeline, width: int) -> None:
        self._grid = grid
        self._timeline = timeline
        self._columns = max(20, width - _NAMES_WIDTH - 1)
        self._column_s = max(1.0, math.ceil(timeline.end_s / self._columns))
        self._columns = math.ceil(timeline.end_s / self._column_s)
        self._rows = {site.name: self._lanes(site.name, site.processors) for site in grid.sites}
        self.colours = {job: _COLOURS[(job - 1) % len(_COLOURS)] for job in timeline.names}

    def _lanes(self, site: str, processors: int) -> list[list[int]]:
        """For each row of a site, the indexes of the holds that are drawn in it."""
        holds = self._timeline.holds
        lanes: list[list[int]] = [[] for _ in range(math.ceil(processors / _PROCESSORS_PER_ROW))]
        free_at = [0.0] * len(lanes)
        for index, hold in enumerate(holds):
            if hold.site != site:
                continue
            wanted = math.ceil(hold.processors / _PROCESSORS_PER_ROW)
            for lane in [lane for lane, free_s in enumerate(free_at) if free_s <= hold.from_s][:wanted]:
                lanes[lane].append(index)
                free_at[lane] = hold.to_s
        return lanes

    def letter(self, job: int) -> str:
        """The letter that stands for a job in the picture."""
        return chr(ord("A") + (job - 1) % 26)

    def _legend(self) -> Text:
        """What the signs mean, under the picture, where it stays in sight on a small terminal."""
        from rich.text import Text

        return Text(
            f"{_WAITING} at the barrier  {_DOWN} site down  {_MOVING} file moves"
            f"  column {self._column_s:.0f} s  row {_PROCESSORS_PER_ROW} processors",
            style="dim",
            no_wrap=True,
            overflow="ellipsis",
        )

    def at(self, until_s: float, height: int | None = None) -> RenderableType:
        """The picture as far as the time given, with what was said; only the newest of it in a given height."""
        from rich.console import Group

        rows = [*self._site_rows(until_s), *self._file_rows(until_s), self._ruler(), self._legend()]
        remarks = [*self._remarks(until_s)]
        if height is None:
            return Group(*rows, "", *remarks)
        return Group(*rows, *remarks[-max(1, height - len(rows) - 1) :])

    def _times(self, until_s: float) -> Iterator[float]:
        """The middle of each column that has begun."""
        for column in range(self._columns):
            if column * self._column_s < until_s:
                yield (column + 0.5) * self._column_s

    def _site_rows(self, until_s: float) -> Iterator[Text]:
        from rich.text import Text

        for site in self._grid.sites:
            for number, lane in enumerate(self._rows[site.name]):
                row = Text(f"{site.name if number == 0 else '':<{_NAMES_WIDTH}}", no_wrap=True)
                for at_s in self._times(until_s):
                    row.append(*self._cell(site.name, lane, at_s))
                yield row
            yield Text("")

    def _cell(self, site: str, lane: list[int], at_s: float) -> tuple[str, str]:
        if any(each.site == site and each.from_s <= at_s < each.to_s for each in self._timeline.silences):
            return _DOWN, "red"
        for index in lane:
            hold = self._timeline.holds[index]
            if hold.from_s <= at_s < hold.to_s:
                colour = self.colours[hold.job]
                return (self.letter(hold.job), f"black on {colour}") if hold.runs_s <= at_s else (_WAITING, colour)
        return _IDLE, "dim"

    def _file_rows(self, until_s: float) -> Iterator[Text]:
        """One row for each file, whichever way it goes."""
        from rich.text import Text

        for file in dict.fromkeys(move.file for move in self._timeline.moves):
            row = Text(f"{file[: _NAMES_WIDTH - 1]:<{_NAMES_WIDTH}}", no_wrap=True)
            moves = [move for move in self._timeline.moves if move.file == file]
            for at_s in self._times(until_s):
                moving = any(move.from_s <= at_s < move.to_s for move in moves)
                row.append(_MOVING if moving else " ", "bright_white")
            yield row

    def _ruler(self) -> Text:
        from rich.text import Text

        ruler = [" "] * (self._columns + 8)
        step_s = self._column_s * 10
        for mark in range(math.ceil(self._timeline.end_s / step_s)):
            label = f"|{mark * step_s:.0f} s"
            ruler[mark * 10 : mark * 10 + len(label)] = label
        return Text(" " * _NAMES_WIDTH + "".join(ruler).rstrip(), style="dim", no_wrap=True)

    def _remarks(self, until_s: float) -> Iterator[Text]:
        from rich.text import Text

        for remark in self._timeline.remarks:
            if remark.at_s > until_s:
                return
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{remark.at_s:5.0f} s  ", "dim")
            line.append(f"{self.letter(remark.job)} {self._timeline.names[remark.job]:<6} ", self.colours[remark.job])
            line.append(remark.text)
            yield line


def _jobs_table(result: Result, picture: _Picture) -> RenderableType:
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
            Text(f"{picture.letter(row.job)} {row.name}", style=picture.colours[row.job]),
            row.sites.replace("+", " + "),
            *("-" if value is None else f"{value:.0f}" for value in times),
            _what_happened(row.preemptions, row.failures, row.outcome),
        )
    return table


def _what_happened(preemptions: int, failures: int, outcome: str) -> str:
    events = []
    if preemptions:
        events.append("preempted" if preemptions == 1 else f"preempted {preemptions} times")
    if failures:
        events.append("restarted" if failures == 1 else f"restarted {failures} times")
    return ", ".join([*events, outcome])


def _closing(result: Result) -> str:
    return (
        f"{counted(result.jobs, 'job')}, {counted(result.events, 'event')}, {result.end_s:.0f} s of virtual time\n"
        "next: koala simulate --grid das2 --workload koala2006-w1 --policy CM"
    )
