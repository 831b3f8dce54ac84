"""``koala events``: the journal of what happened and what was decided, now or as it happens."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import click

from koala.cli.connecting import be_patient, complete_job, with_client
from koala.cli.output import console
from koala.cli.words import clean, clock

if TYPE_CHECKING:
    from rich.text import Text

    from koala.client import Client
    from koala.wire import JournalEntry

LIMIT_DEFAULT = 50
LIMIT_MAX = 10_000_000
_KIND_STYLES = {"event": "cyan", "command": "yellow"}
_WHAT_WIDTH = 18


@click.command()
@click.option("-f", "--follow", is_flag=True, help="Go on as things happen, until Ctrl-C.")
@click.option(
    "--job", "job_id", type=click.IntRange(1, 2**63 - 1), metavar="ID", shell_complete=complete_job,
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one entry a line.")
@with_client
def events(
    client: Client, /, follow: bool, job_id: int | None, after: int | None, limit: int | None, as_json: bool
) -> None:
    """Print the journal: every event and every command, in order.

    Without --after these are the newest entries, or with --follow those from now on.
    """
    entries: Iterable[JournalEntry]
    if follow:
        be_patient(client)
        entries = islice(client.follow(after=after, job=job_id), limit)
    else:
        entries = _past(client, job_id, after, LIMIT_DEFAULT if limit is None else limit)
    out = console()
    for entry in entries:
        if as_json:
            click.echo(entry.model_dump_json())
        else:
            out.print(entry_line(entry), soft_wrap=True)


def _past(client: Client, job_id: int | None, after: int | None, limit: int) -> list[JournalEntry]:
    if after is not None:
        return list(islice(client.each_entry(after=after, job=job_id, limit=min(limit, 1_000)), limit))
    if job_id is not None:
        return list(client.each_entry(job=job_id))[-limit:]
    # Numbers go up by one, so that the last of them are the newest, but for those that one may not see.
    newest = client.overview().last_seq
    return list(client.each_entry(after=max(0, newest - limit)))[-limit:]


def entry_line(entry: JournalEntry, now: float | None = None) -> Text:
    """An entry in one line: number, time, what, and what it says."""
    from rich.text import Text

    line = Text()
    line.append(f"{entry.seq:>6} {clock(entry.at, now)} ", "dim")
    line.append(f"{clean(entry.what):<{_WHAT_WIDTH}} ", _KIND_STYLES[entry.kind])
    line.append(clean(entry.text))
    return line
