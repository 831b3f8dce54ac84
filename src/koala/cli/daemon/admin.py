"""``koala admin``: look into the store of a stopped daemon, take a job out of it, or write all of it out.

For when a daemon does not start: everything else asks a running one.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.daemon.start_record import chosen_database, database_options, read_record
from koala.cli.errors import DaemonError, FailedError, UserError
from koala.cli.terminal.output import OutputFile, console, counted, print_json
from koala.cli.terminal.words import ago, clean, state_text

if TYPE_CHECKING:
    from koala.daemon.engine.removal import JobRemoval
    from koala.store import Store

LIMIT_DEFAULT = 50
SQLITE = "sqlite:///"
NAME_WIDTH_MAX = 24
OWNER_WIDTH_MAX = 12


@click.group()
def admin() -> None:
    """Look into the store of a stopped daemon, and mend it.

    These verbs read the database themselves, and refuse while a daemon uses it: koala down stops it.
    """


def with_store(call: Callable[..., None]) -> Callable[..., None]:
    """Options that say which store, and the store as the first argument."""

    @click.option(
        "--state",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        help="The daemon's state directory; by default koala in $XDG_STATE_HOME or ~/.local/state.",
    )
    @database_options
    @click.pass_context
    @wraps(call)
    def with_options(
        ctx: click.Context,
        /,
        *args: Any,
        state: Path | None,
        database: str | None,
        database_file: Path | None,
        **options: Any,
    ) -> None:
        from koala.client import default_state

        known = read_record(default_state() if state is None else state)
        url, _ = chosen_database(ctx, known, database, database_file)
        with opened_store(state, url, is_named=database is not None or database_file is not None) as store:
            call(store, *args, **options)

    return with_options


@contextlib.contextmanager
def opened_store(state: Path | None, database: str | None, *, is_named: bool) -> Iterator[Store]:
    """The store of a daemon that does not run; where its database ``is_named`` and its state is not, of any."""
    from koala.client import default_state
    from koala.daemon.state_directory import locked
    from koala.store import Store, StoreError

    directory = default_state() if state is None else state
    is_file = database is None or database.startswith(SQLITE)
    file = directory / "koala.db" if database is None else Path(database.removeprefix(SQLITE))
    if is_file and not file.is_file():
        raise UserError(f"there is no database {file}; name the daemon's directory with --state, or its --database")
    with contextlib.ExitStack() as closing:
        if directory.is_dir() and (state is not None or not is_named):
            closing.enter_context(locked(directory.resolve()))
        try:
            store = Store.open(database or f"sqlite:///{file}")
        except StoreError as error:
            raise (UserError if error.database == "URL" else DaemonError)(error.for_user()) from None
        closing.callback(store.close)
        yield store


@admin.command()
@click.option("--largest", is_flag=True, help="The largest first, and not the newest.")
@click.option(
    "--limit", type=click.IntRange(1), default=LIMIT_DEFAULT, show_default=True, metavar="N",
    help="The most jobs to list.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_store
def jobs(store: Store, /, largest: bool, limit: int, as_json: bool) -> None:
    """List the jobs in the store with what they take there.

    A request counts what other jobs share with it, which is kept once.
    """
    found = store.job_sizes()
    if largest:
        found.sort(key=lambda job: (-(job.request + job.journal), -job.job))
    shown = found[:limit]
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(shown))
        return
    if not found:
        click.echo("No jobs.")
        return
    from rich.table import Table
    from rich.text import Text

    now = time.time()
    table = Table(box=None, pad_edge=False)
    table.add_column("job", justify="right", no_wrap=True)
    table.add_column("name", no_wrap=True, overflow="ellipsis", max_width=NAME_WIDTH_MAX)
    table.add_column("owner", no_wrap=True, overflow="ellipsis", max_width=OWNER_WIDTH_MAX)
    table.add_column("state", no_wrap=True)
    for column in ("submitted", "request", "starts", "journal"):
        table.add_column(column, justify="right", no_wrap=True)
    for job in shown:
        table.add_row(
            str(job.job),
            Text(clean(job.name)),
            Text(clean(job.owner)),
            state_text(job.state),
            ago(job.submitted_at, now),
            size_words(job.request),
            str(job.components),
            size_words(job.journal),
        )
    console().print(table)
    if len(found) > limit:
        click.echo(f"and {counted(len(found) - limit, 'more job')}; --limit {limit * 2} shows more")


@admin.command()
@click.argument("numbers", type=int, nargs=-1, required=True, metavar="JOB...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_store
def remove(store: Store, /, numbers: tuple[int, ...], as_json: bool) -> None:
    """Take jobs out of the store, also ones that have not ended.

    Nothing is left of them: rows, journal, commands still to be performed. Processors that a component still holds
    are given back when the daemon is started again, which ends what a site of its grid holds and nobody knows.
    """
    from koala.daemon.engine.removal import remove_job

    removed = [remove_job(store, number) for number in dict.fromkeys(numbers)]
    if as_json:
        import msgspec

        print_json(msgspec.to_builtins(removed))
    missing = [each.job for each in removed if not each.was_there]
    for each in removed if not as_json else ():
        if each.was_there:
            click.echo(_told(each))
    if missing:
        raise FailedError(
            f"there is no job {', '.join(map(str, missing))} in {store.name}; koala admin jobs lists them"
        )


def _told(removed: JobRemoval) -> str:
    told = [f"Job {removed.job} is removed."]
    if removed.held:
        where = ", ".join(
            f"{token} at {clean(site)} ({counted(count, 'processor')})" for token, site, count in removed.held
        )
        told.append(
            f"It may still hold {where}: the next start of the daemon ends what a site of its grid holds and nobody "
            "knows; at another site end it there."
        )
    return "\n".join(told)


@admin.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Where to; by default standard output.",
)  # fmt: skip
@with_store
def export(store: Store, /, output: Path | None) -> None:
    """Write jobs, requests, components, transfers, files and the journal as JSON lines.

    Each line is an object with one key, its kind: text and request come first, to which the others refer by key.
    Access tokens are left out.
    """
    with contextlib.ExitStack() as closing:
        file = None if output is None else closing.enter_context(OutputFile("--output", output))
        for row in store.exported():
            line = json.dumps(row, separators=(",", ":")) + "\n"
            if file is None:
                click.echo(line, nl=False)
            else:
                file.write(line.encode())


def size_words(characters: int) -> str:
    """A number of characters, short."""
    if characters < 1_000:
        return f"{characters} B"
    return f"{characters / 1_000:.1f} kB" if characters < 1_000_000 else f"{characters / 1_000_000:.1f} MB"
