"""``koala up``: run the daemon, in the foreground until Ctrl-C or SIGTERM, or in the background until ``koala down``.

The grid of each start is kept in the state directory for the next one unless another is named; ``start_record`` keeps
other options. The first grid, if none is named, is the example ``embedded``: three small sites made of processes of
this machine.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.daemon.background import LOG_NAME, into_background
from koala.cli.daemon.start_record import (
    chosen_database,
    database_options,
    keep_record,
    read_record,
    with_address,
)
from koala.cli.errors import DaemonError, UserError
from koala.cli.examples import read_named
from koala.cli.terminal.output import OutputFile, counted
from koala.cli.terminal.words import clean

if TYPE_CHECKING:
    from koala.daemon.options import DaemonOptions, Listening
    from koala.model.grid import Grid

GRID_DEFAULT = "embedded"
GRID_FILE = "grid.yaml"
PORT_MAX = 65_535
LOG_LEVELS = ("debug", "info", "warning", "error")
ACCEPTABLE = ("clock", "database")


@click.command()
@click.option(
    "--grid", "grid_name", metavar="GRID",
    help="A grid file or an example's name; by default the grid of the last start with this state, or embedded.",
)  # fmt: skip
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where it keeps everything; by default koala in $XDG_STATE_HOME or ~/.local/state.",
)
@click.option(
    "--policy-file", "policy_files", multiple=True, metavar="FILE.py",
    help="A Python file that registers policies of your own; the grid that is kept names it for later starts.",
)  # fmt: skip
@database_options
@click.option(
    "--listen", metavar="HOST:PORT",
    help="Also answer there, for the dashboard and for others with tokens; by default where the last start did.",
)  # fmt: skip
@click.option("--no-listen", is_flag=True, help="Answer at no address, although the last start did.")
@click.option("--tls-cert", type=click.Path(path_type=Path), metavar="FILE", help="The certificate for --listen.")
@click.option("--tls-key", type=click.Path(path_type=Path), metavar="FILE", help="The key of the certificate.")
@click.option("--insecure", is_flag=True, help="Listen without TLS where others could read along.")
@click.option(
    "--accept", "accepted", multiple=True, type=click.Choice(ACCEPTABLE),
    help="Start although the clock, or the database, is not as it was at the last start.",
)  # fmt: skip
@click.option("--detach", is_flag=True, help="Run in the background; return when it answers. koala down stops it.")
@click.option("--log-level", type=click.Choice(LOG_LEVELS), default="warning", show_default=True, help="What to log.")
@click.pass_context
def up(
    ctx: click.Context,
    /,
    grid_name: str | None,
    state: Path | None,
    policy_files: tuple[str, ...],
    database: str | None,
    database_file: Path | None,
    listen: str | None,
    no_listen: bool,
    tls_cert: Path | None,
    tls_key: Path | None,
    insecure: bool,
    accepted: tuple[str, ...],
    detach: bool,
    log_level: str,
) -> None:
    """Run the daemon: a live grid with its queue, its API and its dashboard.

    \b
    koala up                                 three sites of this machine
    koala up --detach                        in the background; koala down stops it
    koala up --listen 127.0.0.1:8080         with the dashboard
    koala up --grid grid.yaml --state DIR    a grid of your own

    It runs until Ctrl-C or SIGTERM. What it accepted is on record: started again with the same state it continues
    where it was, and what runs at sites keeps running meanwhile. The grid, the address with its certificate and the
    database are those of the last start unless they are named: the state directory has them as grid.yaml and
    start.json. A policy file is your own code: the daemon runs it, and submitting jobs gives nobody the right to name
    one.
    """
    from koala.client import default_state
    from koala.daemon.options import DaemonOptions
    from koala.daemon.state_directory import prepare

    directory = default_state() if state is None else state
    known = read_record(directory)
    address = with_address(known, listen=listen, no_listen=no_listen, cert=tls_cert, key=tls_key, insecure=insecure)
    url, record = chosen_database(ctx, address, database, database_file)
    grid_text, source = _grid_text(grid_name, directory)
    grid = _read_grid(grid_text, source, policy_files)
    options = DaemonOptions(
        grid=grid,
        state=directory,
        database=url,
        listen=None if record.listen is None else parse_listen(record.listen),
        tls_cert=None if record.tls_cert is None else Path(record.tls_cert),
        tls_key=None if record.tls_key is None else Path(record.tls_key),
        insecure=record.insecure,
        log_level=log_level,
        accepts=frozenset(accepted),
        detached=detach,
    )
    tell: Callable[[str], None] = _print_now
    if detach:
        tell = into_background(prepare(directory) / LOG_NAME)

    def greet(listening: Listening) -> None:
        _keep_grid(directory, grid_text, grid)
        keep_record(directory, record)
        kept = source if grid_name is None and source == str(directory / GRID_FILE) else None
        again = record.in_words() if record == known else ""
        tell(greeting(grid, listening, state, kept_grid=kept, kept_options=again, detached=detach))

    _run(options, greet)


def _run(options: DaemonOptions, greet: Callable[[Listening], None]) -> None:
    from koala.daemon.run import run
    from koala.store.errors import StoreError

    try:
        run(options, ready=greet)
    except StoreError as error:
        # A URL that names no database is wrong use; a database that cannot be used keeps the daemon from working.
        kind = UserError if error.database == "URL" else DaemonError
        raise kind(error.for_user()) from None


def _grid_text(name: str | None, directory: Path) -> tuple[str, str]:
    """Return the text of the named grid, otherwise of the last start with this state, otherwise of the example; and
    its name in messages."""
    kept = directory / GRID_FILE
    if name is not None:
        return read_named("grid", name)
    return read_named("grid", str(kept) if kept.is_file() else GRID_DEFAULT)


def _read_grid(text: str, source: str, policy_files: Sequence[str]) -> Grid:
    from koala.descriptions import read_grid
    from koala.simulator.reading import with_policy_files

    return with_policy_files(read_grid(text, source), policy_files)


def _keep_grid(directory: Path, text: str, grid: Grid) -> None:
    """Keep the grid for the next start, atomically; its policy files stay where they are."""
    from koala.descriptions.grid.policy_paths import with_policy_paths

    paths = [str(Path(file.path).absolute()) for file in grid.policy_files]
    with OutputFile("--state", directory / GRID_FILE) as kept:
        kept.write(with_policy_paths(text, paths).encode())


def parse_listen(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``, with brackets around an IPv6 address, into a host and a port."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    form = "write HOST:PORT, such as 127.0.0.1:8080 or [::1]:8080"
    if not colon or not host or (":" in host and not bracketed):
        raise UserError(f"--listen: {text!r} names no host and port; {form}")
    if not (port.isascii() and port.isdigit()) or int(port) > PORT_MAX:
        raise UserError(f"--listen: {port!r} is not a port from 0 to {PORT_MAX}; {form}")
    return host, int(port)


def greeting(
    grid: Grid,
    listening: Listening,
    named: Path | None,
    *,
    kept_grid: str | None,
    kept_options: str = "",
    detached: bool,
) -> str:
    """Describe where the daemon answers, and what to do next. ``named`` is the state directory if it is not the usual
    one, ``kept_grid`` the file of the grid if it comes from the last start, and ``kept_options`` the options that
    do."""
    processors = sum(site.processors for site in grid.sites)
    words = [f"koala is up: {grid.name}, {counted(len(grid.sites), 'site')}, {counted(processors, 'processor')}"]
    if kept_grid is not None:
        words.append(f"  grid       {kept_grid}, from the last start; --grid names another")
    if kept_options:
        words.append(f"  options    {clean(kept_options)}, from the last start")
    words.append(f"  socket     unix:{listening.socket}")
    if listening.url is not None:
        words.append(f"  address    {listening.url}")
    if detached:
        words.append(f"  process    {os.getpid()}, which writes {listening.socket.with_name(LOG_NAME)}")
    server = f" -s {shlex.quote(f'unix:{listening.socket}')}" if named is not None else ""
    words.append(f"  next       koala submit hello --wait{server}")
    words.append(f"             koala top{server}")
    if listening.url is not None:
        words.append(f"             koala dashboard{server}")
    state = "" if named is None else f" --state {shlex.quote(str(named))}"
    stops = f"koala down{state}" if detached else "Ctrl-C"
    words.append(f"  {stops} stops the daemon; what runs at sites keeps running.")
    words += [
        f"  Warning: {clean(name)} {clean(wrong)}; koala site check {clean(name)} shows more"
        for name, wrong in listening.silent
    ]
    words += [f"  Warning: {clean(warning)}." for warning in listening.warnings]
    if os.geteuid() == 0:
        words.append("  Warning: the daemon runs as root, and so does every job; run it as a user of its own.")
    return "\n".join(words)


def _print_now(words: str) -> None:
    """Print and flush: the process that started the daemon may wait for it."""
    click.echo(words)
    sys.stdout.flush()
