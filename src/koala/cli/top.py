"""``koala top``: the whole grid in a terminal, live: sites, jobs, files on their way, events.

The picture is made of sections of lines, which share the height of the terminal; see ``fit``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from koala.cli.connection import with_client
from koala.cli.events import told
from koala.cli.terminal.live_screen import LatestEntries, watch_screen
from koala.cli.terminal.output import console, counted
from koala.cli.terminal.words import (
    STATE_STYLES,
    clean,
    clock,
    job_note,
    job_when,
    places_words,
    progress_bar,
    site_bar,
    site_legend,
    site_state,
    size,
    span,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from koala.client import Client
    from koala.model.api import JobSummary, JournalEntry, Overview, SiteInfo, TransferInfo

# The most lines of one section if the height is not limited.
LINES_MAX = 50
EVENTS_ONCE = 10
NAME_WIDTH_MAX = 16
BAR_WIDTH_MIN, BAR_WIDTH_MAX = 8, 60


@dataclass
class ScreenSection:
    """Some lines under a title; if only a part of several is shown, the last one counts the rest."""

    title: Text
    lines: Sequence[Text]
    newest_last: bool = False

    def shown(self, rows: int) -> list[Text]:
        """Return the title and as many lines as fit the rows."""
        from rich.text import Text

        if rows <= 0:
            return []
        room = rows - 1
        if len(self.lines) <= room:
            return [self.title, *self.lines]
        if self.newest_last:
            return [self.title, *self.lines[len(self.lines) - room :]]
        if room <= 1:
            return [self.title, *self.lines[:room]]
        more = Text(f"  and {len(self.lines) - room + 1} more", style="dim")
        return [self.title, *self.lines[: room - 1], more]


def fit(sections: Sequence[ScreenSection], rows: int | None) -> list[Text]:
    """Return the sections' lines for a number of rows: each gets its title and a line first, then one more in
    turn."""
    if rows is None:
        return [line for section in sections for line in section.shown(LINES_MAX + 1)]
    wanted = [1 + len(section.lines) for section in sections]
    given = [0] * len(sections)
    while rows > 0 and given != wanted:
        for index in range(len(sections)):
            if given[index] < wanted[index] and rows > 0:
                # A title alone says little: the first grant is two rows if there are lines.
                grant = min(rows, 2 if given[index] == 0 else 1, wanted[index] - given[index])
                given[index] += grant
                rows -= grant
    return [line for section, room in zip(sections, given, strict=True) for line in section.shown(room)]


@click.command()
@click.option("--once", is_flag=True, help="Print one picture and end, for pipes.")
@with_client
def top(client: Client, /, once: bool) -> None:
    """Show the whole grid in the terminal, as things happen.

    Sites with bars of who holds them, queues, running jobs, files on their way, the last events. q or Ctrl-C ends it;
    the exit code is then 0, since it has no other end.
    """
    if not once:
        watch_screen(client, lambda screen, latest: _frame_now(client, screen, latest), instead="use --once")
        return
    overview = client.overview()
    recent = list(client.each_entry(after=max(0, overview.last_seq - 5 * EVENTS_ONCE)))
    screen = console()
    screen.print(frame(overview, list(told(recent))[-EVENTS_ONCE:], screen.width, None))


def _frame_now(client: Client, screen: Console, latest: LatestEntries) -> RenderableType:
    return frame(client.overview(), list(told(list(latest.entries))), screen.width, screen.height, latest.away)


def frame(
    overview: Overview, entries: Sequence[JournalEntry], width: int, height: int | None, away: str = ""
) -> RenderableType:
    """Draw one picture of the grid that fits the terminal; without a height, everything."""
    from rich.console import Group
    from rich.text import Text

    sections = [
        _sites(overview, width),
        _jobs("running", overview.active, overview),
        _jobs("claiming", overview.claiming, overview),
        _jobs("waiting, high priority", overview.waiting_high, overview),
        _jobs("waiting", overview.waiting_low, overview),
        _jobs("held", overview.held, overview),
        _transfers(overview, width),
        ScreenSection(Text("last events", style="bold"), [_event_line(each, overview.now) for each in entries], True),
    ]
    present = [section for section in sections if section.lines]
    head = [_head(overview, away)]
    lines = fit(present, None if height is None else height - len(head))
    for line in (*head, *lines):
        line.no_wrap = True
        line.overflow = "ellipsis"
        line.truncate(width, overflow="ellipsis")
    return Group(*head, *lines)


def _head(overview: Overview, away: str) -> Text:
    from rich.text import Text

    if away:
        return Text(f"koala {clean(overview.grid)}: {clean(away)}", style="bold red")
    counts = overview.counts
    words = [f"{counts[state]} {state}" for state in ("waiting", "running", "done", "failed") if counts.get(state)]
    head = Text(f"koala {clean(overview.grid)}", style="bold")
    head.append(f"  {clock(overview.now, overview.now)}  up {span(overview.now - overview.started_at)}", "default")
    head.append(f"  {overview.policy}  {', '.join(words) or 'no jobs yet'}", "default")
    if overview.order_problem:
        head.append(f"  {clean(overview.order_problem)}", "bold red")
    return head


def _sites(overview: Overview, width: int) -> ScreenSection:
    from rich.text import Text

    names = min(NAME_WIDTH_MAX, max(len(clean(site.name)) for site in overview.sites))
    bar = max(BAR_WIDTH_MIN, min(BAR_WIDTH_MAX, width - names - 40))
    title = Text(f"{counted(len(overview.sites), 'site'):<{names}} ", style="bold")
    title.append(f" {site_legend(bar):<{bar}}  ours others  idle", "dim")
    return ScreenSection(title, [_site_line(site, names, bar, overview.now) for site in overview.sites])


def _site_line(site: SiteInfo, names: int, bar: int, now: float) -> Text:
    from rich.text import Text

    state, colour = site_state(site, now)
    line = Text(f" {clean(site.name)[:names]:<{names}} ")
    line.append_text(site_bar(site, bar))
    line.append(f" {site.ours:>5} {site.others:>6} {site.idle:>5}  ")
    return line.append(state, colour)


def _event_line(entry: JournalEntry, now: float) -> Text:
    from rich.text import Text

    return Text(f" {clock(entry.at, now)} ", style="dim").append(clean(entry.text), "default")


def _jobs(what: str, jobs: Sequence[JobSummary], overview: Overview) -> ScreenSection:
    from rich.text import Text

    title = Text(f"{what} {len(jobs)}", style="bold")
    return ScreenSection(title, [_job_line(job, overview.now) for job in jobs])


def _job_line(job: JobSummary, now: float) -> Text:
    from rich.text import Text

    line = Text(f" {job.id:>5} {clean(job.name)[:NAME_WIDTH_MAX]:<{NAME_WIDTH_MAX}} ")
    line.append(f"{job.state:<9} ", STATE_STYLES.get(job.state, ""))
    line.append(f"{job.processors:>4}  {job_when(job, now):<7} ")
    return line.append("  ".join(filter(None, (places_words(job.places), job_note(job)))))


def _transfers(overview: Overview, width: int) -> ScreenSection:
    from rich.text import Text

    moving = [each for each in overview.transfers if each.ended_at is None]
    bar = max(BAR_WIDTH_MIN, min(BAR_WIDTH_MAX // 2, width - 68))
    lines = [_transfer_line(each, bar, overview.now) for each in moving]
    return ScreenSection(Text(f"files on their way {len(moving)}", style="bold"), lines)


def _transfer_line(each: TransferInfo, bar: int, now: float) -> Text:
    from rich.text import Text

    line = Text(f" {clean(each.file)[-NAME_WIDTH_MAX:]:<{NAME_WIDTH_MAX}} ")
    line.append_text(progress_bar(each.brought_bytes, max(1, each.size_bytes), bar))
    line.append(f" {100 * each.brought_bytes // max(1, each.size_bytes):>3}% of {size(each.size_bytes)}")
    line.append(f"  {clean(each.source)} to {clean(each.target)}")
    passed_s = now - each.started_at
    if each.brought_bytes > 0 and passed_s > 0:
        line.append(f"  {span((each.size_bytes - each.brought_bytes) * passed_s / each.brought_bytes)} left", "dim")
    return line
