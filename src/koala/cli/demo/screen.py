"""How the live demo is shown while it runs: a growing picture on a terminal, lines in a pipe, or nothing.

Each ``show`` draws or prints what is new. The summary at the end is not here.
"""

from __future__ import annotations

import math
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from koala.cli.demo.picture import TITLE, GridPicture, colour, columns_in, letter, remark_line
from koala.cli.terminal.words import STATE_STYLES, clean, places_words, progress_bar, size, span

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from koala.cli.demo.chronicle import Chronicle
    from koala.client import Client
    from koala.model.api import JobSummary, Overview, TransferInfo

# The picture has room for this long from the start; a longer run makes its columns longer.
EXPECTED_S = 24.0
# A terminal with fewer lines shows two processors in a row of the picture, and no empty lines between sites.
TALL_LINES = 36
PROGRESS_WIDTH = 16


class Screen(Protocol):
    """Something to show the run on, as a context."""

    def __enter__(self) -> Screen: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, client: Client, chronicle: Chronicle) -> None:
        """Show what is new."""
        ...


class NoScreen:
    """Shows nothing."""

    def __enter__(self) -> NoScreen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, client: Client, chronicle: Chronicle) -> None:
        """Nothing."""


class Lines(NoScreen):
    """Prints every remark when it is made, for pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = 0

    def show(self, client: Client, chronicle: Chronicle) -> None:
        """Print what was said since the last time."""
        for remark in chronicle.remarks[self._printed :]:
            self._console.print(remark_line(remark, chronicle.names), soft_wrap=True)
        self._printed = len(chronicle.remarks)


class Moving:
    """A picture that grows, never taller than the terminal, with the jobs and the newest remarks under it. It is gone
    when the context ends."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live: Live = Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop")

    def __enter__(self) -> Moving:
        from rich.text import Text

        self._live.__enter__()
        self._live.update(Text("Starting a daemon with three sites of this machine ...", style="dim"), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, client: Client, chronicle: Chronicle) -> None:
        """Draw the picture as it is now."""
        from rich.console import Group

        lines = frame(client.overview(), chronicle, self._console.width, self._console.height)
        self._live.update(Group(*lines), refresh=True)


def column_s_for(end_s: float, columns: int) -> float:
    """The length of a column, in tenths of a second, with which so much time has room."""
    return max(1, math.ceil(10 * end_s / columns)) / 10


def frame(overview: Overview, chronicle: Chronicle, width: int, height: int) -> list[Text]:
    """The lines of one picture; one less than the terminal has, for the cursor."""
    from rich.text import Text

    now_s = chronicle.since_start(overview.now)
    tall = height >= TALL_LINES
    columns = columns_in(width)
    picture = GridPicture(
        {site.name: site.processors for site in overview.sites},
        chronicle,
        columns=columns,
        column_s=column_s_for(max(EXPECTED_S, now_s), columns),
        processors_per_row=1 if tall else 2,
        airy=tall,
    )
    title = Text(TITLE, style="bold").append(f"  live, {now_s:.1f} s", "dim")
    jobs = job_lines(overview, chronicle)
    gap = [Text("")] if tall else []
    lines = [title, *gap, *picture.rows(now_s), *gap, *jobs, Text("")]
    room = height - 1 - len(lines)
    lines += picture.remarks(now_s)[-room:] if room > 0 else []
    for line in lines:
        line.no_wrap = True
        line.truncate(width, overflow="ellipsis")
    return lines[: max(1, height - 1)]


def job_lines(overview: Overview, chronicle: Chronicle) -> list[Text]:
    """Every job in a line: what it does now, where, and whether its files are on the way."""
    live = [*overview.active, *overview.claiming, *overview.waiting_high, *overview.waiting_low]
    by_id = {job.id: job for job in live}
    return [_job_line(job, by_id.get(job), overview, chronicle) for job in sorted(chronicle.names)]


def _job_line(job: int, summary: JobSummary | None, overview: Overview, chronicle: Chronicle) -> Text:
    from rich.text import Text

    width = max(map(len, chronicle.names.values()))
    line = Text().append(f"{letter(job)} {clean(chronicle.names[job]):<{width}}  ", colour(job))
    if summary is None:
        ending = chronicle.ends.get(job)
        state = "ending" if ending is None else ending.outcome
        return line.append(state, STATE_STYLES.get(state, "dim"))
    line.append(f"{summary.state:<9} ", STATE_STYLES.get(summary.state, ""))
    line.append(f"{span(overview.now - summary.since):>5}  ", "dim")
    if summary.place_in_line is None:
        line.append(places_words(summary.places))
    else:
        line.append(f"number {summary.place_in_line} in its queue")
    for transfer in overview.transfers:
        if transfer.ended_at is None and job in transfer.jobs:
            line.append("  ").append_text(_progress(transfer))
    return line


def _progress(transfer: TransferInfo) -> Text:
    from rich.text import Text

    text = Text(f"{clean(transfer.file)} ", style="default")
    text.append_text(progress_bar(transfer.brought_bytes, max(1, transfer.size_bytes), PROGRESS_WIDTH))
    return text.append(f" of {size(transfer.size_bytes)}", "dim")
