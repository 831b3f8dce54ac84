"""``koala site``: take a site out or back, ask how it is, and check whether it can be used at all."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from koala.cli.connection import complete_site, with_client
from koala.cli.errors import FailedError
from koala.cli.site.check import check
from koala.cli.terminal.output import counted, print_json
from koala.cli.terminal.words import clean, site_state, span

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import SiteInfo


@click.group()
def site() -> None:
    """Check a site, take it out, put it back, or ask how it is."""


site.add_command(check)


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
    """Ask a site for its state now. Exits with 1 when it does not answer."""
    found = client.probe(name)
    if found.silent_since is not None:
        if as_json:
            print_json(found.model_dump(mode="json"))
        silent = f"for {span(time.time() - found.silent_since)}: {clean(found.silent_reason)}"
        raise FailedError(f"{clean(found.name)} has not answered {silent}; it is asked again by itself")
    state, _ = site_state(found)
    held = f"{found.ours} ours, {found.others} others', {found.idle} idle"
    _tell(found, as_json, f"{clean(found.name)} answers: {counted(found.processors, 'processor')}, {held}; {state}.")


def _tell(found: SiteInfo, as_json: bool, words: str) -> None:
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(words)
