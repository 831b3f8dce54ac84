"""``koala up``: run the daemon in the foreground, until Ctrl-C or SIGTERM.

Without a grid of one's own it is the example ``embedded``: three small sites made of processes of this machine.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.errors import UserError
from koala.cli.examples import read_named
from koala.cli.output import counted

if TYPE_CHECKING:
    from koala.daemon.options import Listening
    from koala.grid import Grid

GRID_DEFAULT = "embedded"
PORT_MAX = 65_535
LOG_LEVELS = ("debug", "info", "warning", "error")


@click.command()
@click.option(
    "--grid", "grid_name", default=GRID_DEFAULT, show_default=True, metavar="GRID",
    help="A grid file or an example's name.",
)  # fmt: skip
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where it keeps everything; by default koala in $XDG_STATE_HOME or ~/.local/state.",
)
@click.option("--database", metavar="URL", help="postgresql://... ; by default SQLite in the state directory.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Also answer there, for the dashboard and for others with tokens."
)
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="The certificate for --listen.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="The key of the certificate.")
@click.option("--insecure", is_flag=True, help="Listen without TLS where others could read along.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="warning", show_default=True, help="What to log.")
def up(
    grid_name: str,
    state: Path | None,
    database: str | None,
    listen: str | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
    log_level: str,
) -> None:
    """Run the daemon: a live grid with its queue, its API and its dashboard.

    \b
    koala up                                 three sites of this machine
    koala up --listen 127.0.0.1:8080         with the dashboard
    koala up --grid grid.yaml --state DIR    a grid of one's own

    It runs until Ctrl-C or SIGTERM. What it accepted is on record: started again with the same state it goes on
    where it was, and what runs at sites runs on meanwhile.
    """
    from koala.client import default_state
    from koala.daemon.options import Options

    if (tls_cert is None) != (tls_key is None):
        raise UserError("--tls-cert and --tls-key belong together; give both")
    if listen is None and (tls_cert is not None or insecure):
        raise UserError("--tls-cert, --tls-key and --insecure are about --listen HOST:PORT; give it too")
    grid = _read_grid(grid_name)
    options = Options(
        grid=grid,
        state=default_state() if state is None else state,
        database=database,
        listen=None if listen is None else parse_listen(listen),
        tls_cert=tls_cert,
        tls_key=tls_key,
        insecure=insecure,
        log_level=log_level,
    )
    from koala.daemon.run import run

    run(options, ready=lambda listening: _greet(grid, listening, state is not None))


def _read_grid(name: str) -> Grid:
    from koala.descriptions import read_grid

    return read_grid(*read_named("grid", name))


def parse_listen(text: str) -> tuple[str, int]:
    """``HOST:PORT`` with brackets around an IPv6 address, as a host and a port."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    form = "write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"
    if not colon or not host or (":" in host and not bracketed):
        raise UserError(f"--listen: {text!r} names no host and port; {form}")
    if not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise UserError(f"--listen: {port!r} is no port from 0 to {PORT_MAX}; {form}")
    return host, int(port)


def _greet(grid: Grid, listening: Listening, named: bool) -> None:
    """Say where the daemon answers, and what to do next. Flushed: whoever started the daemon may wait for it."""
    processors = sum(site.processors for site in grid.sites)
    words = [f"koala is up: {grid.name}, {counted(len(grid.sites), 'site')}, {counted(processors, 'processor')}"]
    words.append(f"  socket     unix:{listening.socket}")
    if listening.url is not None:
        words.append(f"  address    {listening.url}")
    server = f" -s {shlex.quote(f'unix:{listening.socket}')}" if named else ""
    words.append(f"  next       koala submit hello --wait{server}")
    words.append(f"             koala top{server}")
    if listening.url is not None:
        words.append(f"             koala dashboard{server}")
    words.append("  Ctrl-C stops the daemon; what runs at sites runs on.")
    if os.geteuid() == 0:
        words.append("  Warning: the daemon runs as root, and so does every job; run it as a user of its own.")
    click.echo("\n".join(words))
    sys.stdout.flush()
