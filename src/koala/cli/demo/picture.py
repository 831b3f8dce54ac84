"""The picture of both demos: a column is an interval of time, a row some processors of a site, a letter a job.

It is drawn from a ``Timeline``, which the simulated demo makes of a log and the live one of a journal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from koala.cli.demo.journal import JournalTimeline, letter
from koala.cli.terminal.words import (
    BARRIER,
    IDLE,
    STATE_STYLES,
    clean,
    job_note,
    places_words,
    progress_bar,
    size,
    span,
)

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from koala.model.api import Overview
    from koala.simulator.report.timeline import Hold, Remark, Timeline

TITLE = "Koala: one queue over three clusters"
NAMES_WIDTH = 11
PICTURE_WIDTH_MAX = 100
COLUMNS_MIN = 20
# The distance between two marks of the ruler.
RULER_COLUMNS = 10
COLOURS = ("cyan", "magenta", "yellow", "green", "blue")
# The picture of a live run has room for this long from the start; a longer run makes its columns longer.
EXPECTED_S = 24.0
# A terminal with fewer lines shows two processors in a row of the picture, and no empty lines between sites.
TALL_LINES = 36
PROGRESS_WIDTH = 16
_DOWN, _MOVING = "\N{MULTIPLICATION SIGN}", "\N{BLACK RECTANGLE}"


def job_name(job: int, name: str, width: int = 0) -> Text:
    """Return a job's letter and name in its colour."""
    from rich.text import Text

    return Text().append(f"{letter(job)} {clean(name):<{width}}", _colour(job))


def _colour(job: int) -> str:
    return COLOURS[(job - 1) % len(COLOURS)]


def columns_in(width: int) -> int:
    """Return how many columns of time a terminal has room for."""
    return max(COLUMNS_MIN, min(width, PICTURE_WIDTH_MAX) - NAMES_WIDTH - 1)


def column_s_for(end_s: float, columns: int) -> float:
    """Return the length of a column so that the whole time has room: tenths of a second up to 1 s, then whole
    seconds."""
    tenths = max(1, math.ceil(10 * end_s / columns))
    return tenths / 10 if tenths <= 10 else float(math.ceil(end_s / columns))


@dataclass(frozen=True, kw_only=True)
class GridPicture:
    """A timeline as rows of characters. ``sites`` are names with their processors; there are ``columns`` columns of
    ``column_s`` each; ``airy`` puts an empty line under every site."""

    sites: Mapping[str, int]
    timeline: Timeline
    columns: int
    column_s: float
    processors_per_row: int
    airy: bool = True

    def rows(self, until_s: float) -> list[Text]:
        """Draw the picture up to the given time: sites, files, ruler and legend."""
        return [*self._site_rows(until_s), *self._file_rows(until_s), self._ruler(), self._legend()]

    def remarks(self, until_s: float) -> list[Text]:
        """Return the remarks until then, a line each."""
        return [remark_line(each, self.timeline.names) for each in self.timeline.remarks if each.at_s <= until_s]

    def _holds_by_row(self, site: str, processors: int) -> list[list[Hold]]:
        """Return for each row of a site the holds that are drawn in it."""
        rows: list[list[Hold]] = [[] for _ in range(math.ceil(processors / self.processors_per_row))]
        free_at = [0.0] * len(rows)
        for hold in self.timeline.holds:
            if hold.site != site:
                continue
            wanted = math.ceil(hold.processors / self.processors_per_row)
            for row in [row for row, free_s in enumerate(free_at) if free_s <= hold.from_s][:wanted]:
                rows[row].append(hold)
                free_at[row] = hold.to_s
        return rows

    def _times(self, until_s: float) -> Iterator[float]:
        """Yield the middle of each column that has begun."""
        for column in range(self.columns):
            if column * self.column_s < until_s:
                yield min((column + 0.5) * self.column_s, until_s)

    def _site_rows(self, until_s: float) -> Iterator[Text]:
        from rich.text import Text

        for site, processors in self.sites.items():
            for number, holds in enumerate(self._holds_by_row(site, processors)):
                row = _row(site if number == 0 else "")
                for at_s in self._times(until_s):
                    row.append(*self._cell(site, holds, at_s))
                yield row
            if self.airy:
                yield Text("")

    def _cell(self, site: str, holds: list[Hold], at_s: float) -> tuple[str, str]:
        if any(each.site == site and each.from_s <= at_s < each.to_s for each in self.timeline.silences):
            return _DOWN, "red"
        for hold in holds:
            if hold.from_s <= at_s < hold.to_s:
                ink = _colour(hold.job)
                # However short its wait at the barrier, a start is visible, so that two in a row can be
                # distinguished.
                runs_s = max(hold.runs_s, hold.from_s + self.column_s)
                return (letter(hold.job), f"black on {ink}") if runs_s <= at_s else (BARRIER, ink)
        return IDLE, "dim"

    def _file_rows(self, until_s: float) -> Iterator[Text]:
        """Yield one row for each file, for all its targets."""
        for file in dict.fromkeys(move.file for move in self.timeline.moves):
            row = _row(file)
            moves = [move for move in self.timeline.moves if move.file == file]
            for at_s in self._times(until_s):
                row.append(_MOVING if any(move.from_s <= at_s < move.to_s for move in moves) else " ", "bright_white")
            yield row

    def _ruler(self) -> Text:
        from rich.text import Text

        ruler = [" "] * (self.columns + 1)
        step_s = self.column_s * RULER_COLUMNS
        for mark in range(math.ceil(self.columns / RULER_COLUMNS)):
            label = f"|{mark * step_s:g} s"
            begin = mark * RULER_COLUMNS
            if begin + len(label) <= len(ruler):
                ruler[begin : begin + len(label)] = label
        return Text(" " * NAMES_WIDTH + "".join(ruler).rstrip(), style="dim", no_wrap=True)

    def _legend(self) -> Text:
        """Return the meaning of the signs, for the line under the picture, which stays visible on a small
        terminal."""
        from rich.text import Text

        down = f"  {_DOWN} site down" if self.timeline.silences else ""
        per_row = f"{self.processors_per_row} processors" if self.processors_per_row > 1 else "1 processor"
        words = f"{BARRIER} at the barrier{down}  {_MOVING} file moves  column {self.column_s:g} s  row {per_row}"
        return Text(words, style="dim", no_wrap=True, overflow="ellipsis")


def whole_picture(
    sites: Mapping[str, int], timeline: Timeline, end_s: float, width: int, processors_per_row: int
) -> GridPicture:
    """Draw the picture of a finished run, for a terminal of this width."""
    column_s = column_s_for(end_s, columns_in(width))
    columns = math.ceil(end_s / column_s)
    return GridPicture(
        sites=sites, timeline=timeline, columns=columns, column_s=column_s, processors_per_row=processors_per_row
    )


def _row(name: str) -> Text:
    from rich.text import Text

    return Text(f"{clean(name)[: NAMES_WIDTH - 1]:<{NAMES_WIDTH}}", no_wrap=True)


def remark_line(remark: Remark, names: Mapping[int, str]) -> Text:
    """Return a remark with its time and its job."""
    from rich.text import Text

    width = max(map(len, names.values()), default=0)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{remark.at_s:5.{0 if remark.at_s >= 100 else 1}f} s  ", "dim")
    line.append_text(job_name(remark.job, names[remark.job], width) if remark.job else Text(" " * (width + 2)))
    return line.append(f"  {clean(remark.text)}")


def jobs_table(numbers: Sequence[str], rows: Iterable[tuple[Text, str, Sequence[str], str]]) -> Table:
    """Make a table of jobs: a row has the job, its sites, its ``numbers``, and its events."""
    from rich.table import Table

    title = "times in seconds, of the last start if a job was started again"
    table = Table(box=None, pad_edge=False, title=title, title_justify="left", title_style="dim")
    table.add_column("job", no_wrap=True)
    table.add_column("sites", no_wrap=True)
    for number in numbers:
        table.add_column(number, justify="right", no_wrap=True)
    table.add_column("what happened")
    for job, sites, cells, happened in rows:
        table.add_row(job, sites, *cells, happened)
    return table


def what_happened(preemptions: int, failures: int, outcome: str) -> str:
    """Describe a job's events before its end, and its end."""
    events = []
    if preemptions:
        events.append("preempted" if preemptions == 1 else f"preempted {preemptions} times")
    if failures:
        events.append("restarted" if failures == 1 else f"restarted {failures} times")
    return ", ".join([*events, outcome])


# ----------------------------------------------------------------------------------------- a run that goes on


def frame(overview: Overview, timeline: JournalTimeline, width: int, height: int) -> list[Text]:
    """Draw a live run with its jobs and the newest remarks; a line less than the terminal has, for the cursor."""
    from rich.text import Text

    now_s = timeline.since_start(overview.now)
    tall = height >= TALL_LINES
    columns = columns_in(width)
    picture = GridPicture(
        sites={site.name: site.processors for site in overview.sites},
        timeline=timeline,
        columns=columns,
        column_s=column_s_for(max(EXPECTED_S, now_s), columns),
        processors_per_row=1 if tall else 2,
        airy=tall,
    )
    title = Text(TITLE, style="bold").append(f"  live, {now_s:.1f} s", "dim")
    gap = [Text("")] if tall else []
    jobs = [_job_line(job, overview, timeline) for job in sorted(timeline.names)]
    lines = [title, *gap, *picture.rows(now_s), *gap, *jobs, Text("")]
    room = height - 1 - len(lines)
    lines += picture.remarks(now_s)[-room:] if room > 0 else []
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis")
    return lines[: max(1, height - 1)]


def _job_line(job: int, overview: Overview, timeline: JournalTimeline) -> Text:
    """Describe what a job does now, where, and the progress of its files."""
    line = job_name(job, timeline.names[job], max(map(len, timeline.names.values()))).append("  ")
    live = (*overview.active, *overview.claiming, *overview.waiting_high, *overview.waiting_low)
    summary = next((each for each in live if each.id == job), None)
    if summary is None:
        ended = timeline.ends.get(job)
        state = "ending" if ended is None else str(ended.outcome)
        return line.append(state, STATE_STYLES.get(state, "dim"))
    line.append(f"{summary.state:<9} ", STATE_STYLES.get(summary.state, ""))
    line.append(f"{span(overview.now - summary.since):>5}  ", "dim")
    line.append("  ".join(filter(None, (places_words(summary.places), job_note(summary)))))
    for transfer in overview.transfers:
        if transfer.ended_at is None and job in transfer.jobs:
            line.append(f"  {clean(transfer.file)} ")
            line.append_text(progress_bar(transfer.brought_bytes, max(1, transfer.size_bytes), PROGRESS_WIDTH))
            line.append(f" of {size(transfer.size_bytes)}", "dim")
    return line
