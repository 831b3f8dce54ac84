"""``koala sites`` and ``koala site``: who holds each site's processors, and taking a site out or back."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from koala.cli.connecting import complete_site, with_client
from koala.cli.output import console, print_json
from koala.cli.words import IDLE, OTHERS, OURS, clean, site_bar, site_state, span

if TYPE_CHECKING:
    from rich.table import Table

    from koala.client import Client
    from koala.wire import SiteInfo

BAR_WIDTH = 16
JOBS_SHOWN_MAX = 4


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def sites(client: Client, /, as_json: bool) -> None:
    """List the sites: who holds their processors, and whether they can be used."""
    found = client.sites()
    if as_json:
        print_json([each.model_dump(mode="json") for each in found])
        return
    out = console()
    out.print(sites_table(found, time.time()))
    out.print(f"{OURS} ours  {OTHERS} others  {IDLE} idle", style="dim")
    for each in found:
        if each.silent_reason:
            out.print(f"{clean(each.name)} does not answer: {clean(each.silent_reason)}", style="red", markup=False)


def sites_table(found: Sequence[SiteInfo], now: float) -> Table:
    """The sites as a table that fits a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("site", no_wrap=True, overflow="ellipsis", max_width=16)
    table.add_column("kind", no_wrap=True)
    table.add_column("use", no_wrap=True)
    for column in ("procs", "ours", "others", "idle"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True, overflow="ellipsis")
    table.add_column("jobs", no_wrap=True, overflow="ellipsis")
    for each in found:
        state, colour = site_state(each, now)
        counts = (each.processors, each.ours, each.others, each.idle)
        jobs = ", ".join(map(str, each.jobs[:JOBS_SHOWN_MAX])) + (", ..." if len(each.jobs) > JOBS_SHOWN_MAX else "")
        table.add_row(
            Text(clean(each.name)),
            each.kind,
            site_bar(each, BAR_WIDTH),
            *map(str, counts),
            Text(state, style=colour),
            jobs,
        )
    return table


@click.group()
def site() -> None:
    """Take a site out, put it back, or ask how it is."""


@site.command()
@click.argument("name", metavar="SITE", shell_complete=complete_site)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def drain(client: Client, /, name: str, as_json: bool) -> None:
    """Send nothing new to a site; what runs there goes on."""
    found = client.drain(name)
    held = f"; {found.ours} of its processors are still ours" if found.ours else ""
    _tell(found, as_json, f"{clean(found.name)} is drained: nothing new goes there{held}.")


@site.command()
@click.argument("name", metavar="SITE", shell_complete=complete_site)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def resume(client: Client, /, name: str, as_json: bool) -> None:
    """Use a site again, and forget its errors."""
    found = client.resume(name)
    _tell(
        found, as_json, f"{clean(found.name)} is used again; {found.idle} of {found.processors} processors are idle."
    )


@site.command()
@click.argument("name", metavar="SITE", shell_complete=complete_site)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def probe(client: Client, /, name: str, as_json: bool) -> None:
    """Ask a site for its state now."""
    found = client.probe(name)
    if found.silent_since is not None:
        silent = f"for {span(time.time() - found.silent_since)}: {clean(found.silent_reason)}"
        _tell(found, as_json, f"{clean(found.name)} has not answered {silent}.")
        return
    state, _ = site_state(found)
    held = f"{found.ours} ours, {found.others} others', {found.idle} idle"
    _tell(found, as_json, f"{clean(found.name)} answers: {found.processors} processors, {held}; {state}.")


def _tell(found: SiteInfo, as_json: bool, words: str) -> None:
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(words)
