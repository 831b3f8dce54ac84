"""``koala jobs``: the jobs on record, the newest first."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

import click

from koala.cli.connection import ARRAY_ID, with_client
from koala.cli.errors import UserError
from koala.cli.terminal.output import console, print_json
from koala.cli.terminal.refusals import Verdicts
from koala.cli.terminal.words import (
    STATE_STYLES,
    clean,
    job_note,
    job_when,
    places_words,
    shown_state,
    span,
    state_text,
)
from koala.descriptions.fields import duration_s
from koala.model.job_array import element_tail

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from koala.client import Client
    from koala.model.api import JobSummary

LIMIT_DEFAULT = 20
LIMIT_MAX = 100_000
NAME_WIDTH_MAX = 16
OWNER_WIDTH_MAX = 10
# The widest table with --wide.
WIDE_COLUMNS = 10_000


class PastTime(click.ParamType[float]):
    """A time as seconds since 1970, written as a duration before now, or as a day with or without a time."""

    name = "time"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Return its placeholder in the help."""
        return "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Parse it."""
        text = str(value)
        ago_s = duration_s(text)
        try:
            at = time.time() - ago_s if ago_s is not None else datetime.fromisoformat(text).timestamp()
        except (ValueError, OverflowError):
            at = -1.0
        if at < 0:
            self.fail(
                f"{text!r} is not a time; write how long ago, such as 2h, or a day, such as 2030-01-31", param, ctx
            )
        return at


@click.command()
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(list(STATE_STYLES)),
    help="Only jobs in this state; repeatable.",
)
@click.option("--mine/--all", default=False, help="Only your own jobs, or all that you may see (the default).")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    metavar="N",
    help="The most jobs to list.",
)
@click.option("--array", type=ARRAY_ID, metavar="ID", help="The elements of this array, as far as they are jobs.")
@click.option("--name", metavar="TEXT", help="Only jobs of this name; 'sweep*' means all that begin so.")
@click.option("--since", type=PastTime(), help="Only jobs that were submitted from this time on.")
@click.option("--until", type=PastTime(), help="Only jobs that were submitted before this time.")
@click.option("--wide", is_flag=True, help="Cut nothing off, however wide the terminal is.")
@click.option("--watch", is_flag=True, help="Show the list until Ctrl-C or q, renewed as things happen.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def jobs(
    client: Client,
    /,
    states: tuple[str, ...],
    mine: bool,
    limit: int,
    array: int | None,
    name: str | None,
    since: float | None,
    until: float | None,
    wide: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """List jobs, the newest first.

    The time is how long a job has been in its state, or how long it ran; its age counts from its submission. An
    array is one of them; --array lists its elements.

    TIME is how long ago, such as 90m, 2h or 1h30m, or a day with or without a time, such as 2030-01-31 or
    2030-01-31T08:00, in the local time zone unless it names another.
    """
    owner = client.whoami().name if mine else None

    def listed(most: int) -> list[JobSummary]:
        page = min(most, 1_000)
        found = client.each_job(
            states=states, owner=owner, limit=page, array=array, name=name, from_at=since, to_at=until
        )
        return list(islice(found, most))

    verdicts = Verdicts(client)
    if watch:
        if wide:
            raise UserError("--watch fits its terminal; leave out --wide")
        if as_json:
            raise UserError("--watch draws a table; for a program use koala events --follow --json")
        from koala.cli.terminal.live_screen import watch_screen

        def drawn(screen: Console, _: object) -> Table:
            found = listed(min(limit, max(1, screen.height - 2)))
            return jobs_table(found, verdicts.of(found))

        watch_screen(client, drawn, instead="leave out --watch")
        return
    found = listed(limit + 1)
    if as_json:
        print_json(found[:limit])
        return
    if not found:
        fitting = " that match" if name is not None or since is not None or until is not None else ""
        click.echo(f"No jobs{fitting}." if not states else f"No jobs that are {' or '.join(states)}.")
        return
    out = console()
    if wide:
        out.width = WIDE_COLUMNS
    out.print(jobs_table(found[:limit], verdicts.of(found[:limit]), wide=wide))
    if len(found) > limit:
        click.echo(f"and older ones; --limit {limit * 2} shows more")


def jobs_table(found: Sequence[JobSummary], verdicts: Mapping[int, str], *, wide: bool = False) -> Table:
    """Make a table of jobs that fits a terminal, or a complete one if it may be wide. It has owners if there are
    several, and ``verdicts`` on jobs that wait in vain."""
    from rich.table import Table
    from rich.text import Text

    several = len({job.owner for job in found}) > 1
    now = time.time()
    table = Table(box=None, pad_edge=False)
    table.add_column("job", justify="right", no_wrap=True)
    table.add_column("name", no_wrap=True)
    if several:
        table.add_column("owner", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for column in ("procs", "time", "age"):
        table.add_column(column, justify="right", no_wrap=True)
    # The one column that gives way in a narrow terminal; its cells are cut and not wrapped.
    table.add_column("where, and what to know")
    for job in found:
        note = job_note(job, verdicts.get(job.id, ""), short=not wide)
        # The last line of a failed program must not be cut off.
        pieces = (note, places_words(job.places)) if job.stderr_line else (places_words(job.places), note)
        last_cell = "; ".join(filter(None, pieces))
        table.add_row(
            str(job.id),
            _cut(job.name, WIDE_COLUMNS if wide else NAME_WIDTH_MAX, tail=element_tail(job.name, job.array_index)),
            *([_cut(job.owner, WIDE_COLUMNS if wide else OWNER_WIDTH_MAX)] if several else []),
            state_text(shown_state(job)),
            str(job.processors),
            job_when(job, now),
            span(now - job.submitted_at),
            Text(last_cell, no_wrap=True, overflow="ellipsis"),
        )
    return table


def _cut(text: str, width: int, tail: str = "") -> Text:
    """Cut the text before its tail to the width."""
    from rich.text import Text

    cell = Text(clean(text.removesuffix(tail)))
    cell.truncate(max(1, width - len(tail)), overflow="ellipsis")
    return cell.append(tail)
