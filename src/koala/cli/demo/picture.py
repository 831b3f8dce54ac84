"""The picture of both demos: one column is a stretch of time, one row some processors of a site, one letter a job.

What is drawn comes from a ``RunRecord``, which the simulated demo makes of a log and the live one of a journal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from koala.cli.terminal.words import clean

if TYPE_CHECKING:
    from rich.text import Text

    from koala.simulator.report.timeline import Hold, Move, Silence

TITLE = "Koala: one queue over three clusters"
NAMES_WIDTH = 11
PICTURE_WIDTH_MAX = 100
COLUMNS_MIN = 20
# A mark of the ruler stands at every so many columns.
RULER_COLUMNS = 10
COLOURS = ("cyan", "magenta", "yellow", "green", "blue")
_IDLE, _WAITING, _DOWN, _MOVING = (
    "\N{MIDDLE DOT}",
    "\N{LIGHT SHADE}",
    "\N{MULTIPLICATION SIGN}",
    "\N{BLACK RECTANGLE}",
)


class Comment(Protocol):
    """One thing that was said, of a job or of none (0)."""

    @property
    def at_s(self) -> float: ...
    @property
    def job(self) -> int: ...
    @property
    def text(self) -> str: ...


class RunRecord(Protocol):
    """What happened in a run, in seconds since its beginning; what goes on has no end yet."""

    @property
    def names(self) -> Mapping[int, str]: ...
    @property
    def holds(self) -> Sequence[Hold]: ...
    @property
    def moves(self) -> Sequence[Move]: ...
    @property
    def silences(self) -> Sequence[Silence]: ...
    @property
    def remarks(self) -> Sequence[Comment]: ...


def letter(job: int) -> str:
    """The letter that stands for a job in the picture."""
    return chr(ord("A") + (job - 1) % 26)


def colour(job: int) -> str:
    """The job's colour."""
    return COLOURS[(job - 1) % len(COLOURS)]


def columns_in(width: int) -> int:
    """How many columns of time a terminal has room for."""
    return max(COLUMNS_MIN, min(width, PICTURE_WIDTH_MAX) - NAMES_WIDTH - 1)


class GridPicture:
    """A record as rows of characters. ``sites`` are names with their processors; there are so many ``columns``, of
    ``column_s`` each; ``airy`` puts an empty line under every site."""

    def __init__(
        self,
        sites: Mapping[str, int],
        record: RunRecord,
        *,
        columns: int,
        column_s: float,
        processors_per_row: int,
        airy: bool = True,
    ) -> None:
        self._sites = sites
        self._record = record
        self._columns = columns
        self._column_s = column_s
        self._per_row = processors_per_row
        self._airy = airy

    def rows(self, until_s: float) -> list[Text]:
        """The picture as far as the time given: sites, files, ruler and legend."""
        return [*self._site_rows(until_s), *self._file_rows(until_s), self._ruler(), self._legend()]

    def remarks(self, until_s: float) -> list[Text]:
        """What was said until then, a line each."""
        return [remark_line(each, self._record.names) for each in self._record.remarks if each.at_s <= until_s]

    def _lanes(self, site: str, processors: int) -> list[list[Hold]]:
        """For each row of a site, the holds that are drawn in it."""
        lanes: list[list[Hold]] = [[] for _ in range(math.ceil(processors / self._per_row))]
        free_at = [0.0] * len(lanes)
        for hold in self._record.holds:
            if hold.site != site:
                continue
            wanted = math.ceil(hold.processors / self._per_row)
            for lane in [lane for lane, free_s in enumerate(free_at) if free_s <= hold.from_s][:wanted]:
                lanes[lane].append(hold)
                free_at[lane] = hold.to_s
        return lanes

    def _times(self, until_s: float) -> Iterator[float]:
        """The middle of each column that has begun."""
        for column in range(self._columns):
            if column * self._column_s < until_s:
                yield (column + 0.5) * self._column_s

    def _site_rows(self, until_s: float) -> Iterator[Text]:
        from rich.text import Text

        for site, processors in self._sites.items():
            for number, lane in enumerate(self._lanes(site, processors)):
                row = Text(f"{clean(site)[: NAMES_WIDTH - 1] if number == 0 else '':<{NAMES_WIDTH}}", no_wrap=True)
                for at_s in self._times(until_s):
                    row.append(*self._cell(site, lane, min(at_s, until_s)))
                yield row
            if self._airy:
                yield Text("")

    def _cell(self, site: str, lane: list[Hold], at_s: float) -> tuple[str, str]:
        if any(each.site == site and each.from_s <= at_s < each.to_s for each in self._record.silences):
            return _DOWN, "red"
        for hold in lane:
            if hold.from_s <= at_s < hold.to_s:
                ink = colour(hold.job)
                # However short its wait at the barrier, a start is seen, so that two in a row are told apart.
                runs_s = max(hold.runs_s, hold.from_s + self._column_s)
                return (letter(hold.job), f"black on {ink}") if runs_s <= at_s else (_WAITING, ink)
        return _IDLE, "dim"

    def _file_rows(self, until_s: float) -> Iterator[Text]:
        """One row for each file, whichever way it goes."""
        from rich.text import Text

        for file in dict.fromkeys(move.file for move in self._record.moves):
            row = Text(f"{clean(file)[: NAMES_WIDTH - 1]:<{NAMES_WIDTH}}", no_wrap=True)
            moves = [move for move in self._record.moves if move.file == file]
            for at_s in self._times(until_s):
                moving = any(move.from_s <= min(at_s, until_s) < move.to_s for move in moves)
                row.append(_MOVING if moving else " ", "bright_white")
            yield row

    def _ruler(self) -> Text:
        from rich.text import Text

        ruler = [" "] * (self._columns + 1)
        step_s = self._column_s * RULER_COLUMNS
        for mark in range(math.ceil(self._columns / RULER_COLUMNS)):
            label = f"|{mark * step_s:g} s"
            begin = mark * RULER_COLUMNS
            if begin + len(label) <= len(ruler):
                ruler[begin : begin + len(label)] = label
        return Text(" " * NAMES_WIDTH + "".join(ruler).rstrip(), style="dim", no_wrap=True)

    def _legend(self) -> Text:
        """What the signs mean, under the picture, where it stays in sight on a small terminal."""
        from rich.text import Text

        down = f"  {_DOWN} site down" if self._record.silences else ""
        per_row = f"{self._per_row} processors" if self._per_row > 1 else "1 processor"
        return Text(
            f"{_WAITING} at the barrier{down}  {_MOVING} file moves  column {self._column_s:g} s  row {per_row}",
            style="dim",
            no_wrap=True,
            overflow="ellipsis",
        )


def remark_line(remark: Comment, names: Mapping[int, str]) -> Text:
    """A remark with its time and its job."""
    from rich.text import Text

    width = max(map(len, names.values()), default=0)
    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(f"{remark.at_s:5.{0 if remark.at_s >= 100 else 1}f} s  ", "dim")
    if remark.job:
        line.append(f"{letter(remark.job)} {clean(names[remark.job]):<{width}}  ", colour(remark.job))
    else:
        line.append(" " * (width + 4))
    return line.append(clean(remark.text))


def what_happened(preemptions: int, failures: int, outcome: str) -> str:
    """What befell a job on its way, and how it ended."""
    events = []
    if preemptions:
        events.append("preempted" if preemptions == 1 else f"preempted {preemptions} times")
    if failures:
        events.append("restarted" if failures == 1 else f"restarted {failures} times")
    return ", ".join([*events, outcome])
