"""``koala events``: the journal of events and decisions, past or live."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click
import msgspec

from koala.cli.connection import JOB_ID, be_patient, complete_job, with_client
from koala.cli.terminal.output import console
from koala.cli.terminal.words import clean, clock

if TYPE_CHECKING:
    from rich.text import Text

    from koala.client import Client
    from koala.model.api import JournalEntry

    Choose = Callable[[Iterable[JournalEntry]], Iterable[JournalEntry]]

LIMIT_DEFAULT = 50
LIMIT_MAX = 10_000_000
CLOCK_ENTRIES = frozenset({"Tick"})
_KIND_STYLES = {"event": "cyan", "command": "yellow"}
_WHAT_WIDTH = 18


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@click.option(
    "--job", "job_id", type=JOB_ID, metavar="ID", shell_complete=complete_job,
    help="Only what concerns this job.",
)  # fmt: skip
@click.option(
    "--after", type=click.IntRange(min=0), metavar="SEQ", help="From the entry after this one on; 0 is the beginning."
)
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    metavar="N",
    help=f"The most entries; by default {LIMIT_DEFAULT}, with --follow no limit.",
)
@click.option("--all", "with_ticks", is_flag=True, help="Also the ticks of the scheduler's own clock.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one entry a line.")
@with_client
def events(
    client: Client,
    /,
    follow: bool,
    job_id: int | None,
    after: int | None,
    limit: int | None,
    with_ticks: bool,
    as_json: bool,
) -> None:
    """Print the journal: every event and every command, in order.

    Without --after these are the newest entries, or with --follow those from now on. The ticks of the scheduler's
    own clock are left out, so that the numbers have gaps; --all shows them.
    """
    chosen: Choose = (lambda entries: entries) if with_ticks else told
    entries: Iterable[JournalEntry]
    if follow:
        be_patient(client)
        entries = islice(chosen(client.follow(after=after, job=job_id)), limit)
    else:
        entries = _past(client, job_id, after, LIMIT_DEFAULT if limit is None else limit, chosen)
    out = console()
    for entry in entries:
        if as_json:
            click.echo(msgspec.json.encode(entry).decode())
        else:
            out.print(entry_line(entry), soft_wrap=True)


def told(entries: Iterable[JournalEntry]) -> Iterator[JournalEntry]:
    """Yield the entries of interest to people, without the scheduler's own clock."""
    return (entry for entry in entries if entry.what not in CLOCK_ENTRIES)


def _past(client: Client, job_id: int | None, after: int | None, limit: int, chosen: Choose) -> list[JournalEntry]:
    if after is not None:
        return list(islice(chosen(client.each_entry(after=after, job=job_id)), limit))
    if job_id is not None:
        return list(chosen(client.each_entry(job=job_id)))[-limit:]
    newest = client.overview().last_seq
    # Numbers go up by one, so the newest entries are the last numbers, except those that are left out or hidden from
    # the caller: for these it looks further back.
    back = limit
    while True:
        found = list(chosen(client.each_entry(after=max(0, newest - back))))
        if len(found) >= limit or back >= newest:
            return found[-limit:]
        back *= 4


def entry_line(entry: JournalEntry, now: float | None = None) -> Text:
    """Format an entry as one line: number, time, kind, and text."""
    from rich.text import Text

    line = Text()
    line.append(f"{entry.seq:>6} {clock(entry.at, now)} ", "dim")
    line.append(f"{clean(entry.what):<{_WHAT_WIDTH}} ", _KIND_STYLES[entry.kind])
    line.append(clean(entry.text))
    return line
