"""``koala dashboard``: a link that opens the dashboard once, for the daemon's own user."""

from __future__ import annotations

import ipaddress
import socket
import sys
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

import click
import msgspec

from koala.cli.connection import with_client
from koala.cli.errors import FailedError
from koala.cli.terminal.output import print_json
from koala.cli.terminal.words import span

if TYPE_CHECKING:
    from koala.client import Client


@click.command()
@click.option("--open/--no-open", "to_open", default=False, help="Open it in a browser of this machine.")
@click.option("--host", metavar="NAME", help="The name of this machine in the link, where the daemon has several.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def dashboard(client: Client, /, to_open: bool, host: str | None, as_json: bool) -> None:
    """Print a link that opens the dashboard.

    It works once and only for a short time; the browser stays signed in afterwards. If the daemon listens on all
    addresses of the machine, the link has the machine's name; --host names another.
    """
    made = client.login()
    if made.url is not None:
        made = msgspec.structs.replace(made, url=reachable(made.url, host))
    if as_json:
        print_json(made)
        return
    if made.url is None:
        raise FailedError(
            "the daemon listens on its socket alone; start it with an address for browsers, "
            "such as koala up --listen 127.0.0.1:8080"
        )
    click.echo(made.url)
    if sys.stdout.isatty():
        click.echo(f"It works once, within {span(made.expires_at - time.time())}.", err=True)
    if to_open:
        import webbrowser

        if not webbrowser.open(made.url):
            raise FailedError("no browser could be started here; open the link above yourself")


def reachable(url: str, host: str | None = None) -> str:
    """Return the link with this host; without one, with the name of this machine if its host is the address for all
    addresses, which no browser can open."""
    parts = urlsplit(url)
    try:
        anywhere = ipaddress.ip_address(parts.hostname or "").is_unspecified
    except ValueError:
        anywhere = False
    if host is None and not anywhere:
        return url
    name = socket.getfqdn() if host is None else host
    shown = f"[{name}]" if ":" in name and not name.startswith("[") else name
    return urlunsplit(parts._replace(netloc=shown if parts.port is None else f"{shown}:{parts.port}"))
