"""``koala admin``: look into the store of a stopped daemon, remove a job or a record, or export everything.

For a daemon that does not start: all other verbs need a running one.
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
    """Look into the store of a stopped daemon, and repair it.

    These verbs read the database themselves, and refuse while a daemon uses it: koala down stops it.
    """


def with_store(call: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name a store, and the store as the first argument."""

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
    """Open the store of a stopped daemon; if its database ``is_named`` and its state is not, of any daemon."""
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
@click.option("--largest", is_flag=True, help="The largest first, instead of the newest.")
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
    """Remove jobs from the store, including ones that have not ended.

    Nothing is left of them: rows, journal, commands still to be performed. Processors that a component still holds
    are given back when the daemon starts again, which ends unknown components at the sites of its grid.
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
    sentences = [f"Job {removed.job} is removed."]
    if removed.held:
        where = ", ".join(
            f"{token} at {clean(site)} ({counted(count, 'processor')})" for token, site, count in removed.held
        )
        sentences.append(
            f"It may still hold {where}: the next start of the daemon ends unknown components at the sites "
            "of its grid; at another site end it there."
        )
    return "\n".join(sentences)


@admin.command()
@click.option("--job", type=int, metavar="N", help="Only records of this job.")
@click.option("--kind", metavar="KIND", help="Only records of this kind.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_store
def records(store: Store, /, job: int | None, kind: str | None, as_json: bool) -> None:
    """List the records of the scheduler, which a start loads, and those that were set aside.

    A record that cannot be read, or that contradicts others, is set aside at a start with its job, which is then
    quarantined: koala job requeue tries it again, koala job cancel ends it.
    """
    _check_kind(kind)
    kept = [
        {"kind": row.kind, "key": row.key, "size": len(row.body or b"")}
        for row in sorted(store.records())
        if _is_meant(row.kind, row.key, kind, job)
    ]
    aside = [
        {"kind": row.kind, "key": row.key, "size": len(row.body), "problem": row.problem, "since": row.at}
        for row in store.damaged_records()
        if _is_meant(row.kind, row.key, kind, job)
    ]
    if as_json:
        print_json({"records": kept, "set_aside": aside})
        return
    if not kept and not aside:
        click.echo("No records.")
        return
    if kept:
        _print_records(kept, ("kind", "key", "size"))
    if aside:
        click.echo(f"{counted(len(aside), 'record')} set aside:")
        _print_records(aside, ("kind", "key", "size", "since", "problem"))
        click.echo("koala admin record KIND KEY shows one, koala admin forget KIND KEY removes it.")


def _print_records(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    now = time.time()
    table = Table(box=None, pad_edge=False)
    for column in columns:
        numeric = column == "size"
        table.add_column(column, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    for row in rows:
        shown = row | {"size": size_words(row["size"]), "since": ago(row.get("since", now), now)}
        table.add_row(*(Text(clean(shown[name])) for name in columns))
    console().print(table)


@admin.command()
@click.argument("kind", metavar="KIND")
@click.argument("key", default="", metavar="[KEY]")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Where to; by default standard output.",
)  # fmt: skip
@with_store
def record(store: Store, /, kind: str, key: str, output: Path | None) -> None:
    """Print one record of the scheduler as JSON, even one that was set aside.

    If a record was set aside and another has been written since, the one that a start loads is printed. A record that
    is not JSON is printed as it is.
    """
    _check_kind(kind)
    bodies = [row.body or b"" for row in store.records() if (row.kind, row.key) == (kind, key)]
    bodies += [row.body.encode() for row in store.damaged_records() if (row.kind, row.key) == (kind, key)]
    if not bodies:
        raise _no_record(store, kind, key)
    try:
        body = json.dumps(json.loads(bodies[0]), indent=2, ensure_ascii=True).encode()
    except ValueError:
        body = bodies[0]
    if output is None:
        click.echo(body)
        return
    with OutputFile("--output", output) as file:
        file.write(body + b"\n")


@admin.command()
@click.argument("kind", metavar="KIND")
@click.argument("key", default="", metavar="[KEY]")
@with_store
def forget(store: Store, /, kind: str, key: str) -> None:
    """Remove one record of the scheduler, even one that was set aside.

    The next start does without it; the command says what that means. koala admin record KIND [KEY] -o FILE keeps it.
    """
    _check_kind(kind)
    if kind == "scheduler":
        raise UserError(
            "without the record scheduler no start succeeds; restore the database from a backup, or begin a new one"
        )
    is_loaded = any((row.kind, row.key) == (kind, key) for row in store.records())
    if not store.forget_record(kind, key):
        raise _no_record(store, kind, key)
    follows = _without(kind, key) if is_loaded else "It had been set aside: nothing else changes."
    click.echo(f"The record {clean(f'{kind} {key}'.rstrip())} is removed. {follows}")


# The consequence for the next start of a missing record of a kind.
_WITHOUT = {
    "grid": "The next start treats waiting jobs as new to its grid, and tries them again.",
    "site": "Only the grid file describes the site, until it reports.",
    "queue": "Its jobs wait in the order in which they came, and are tried again.",
    "transfer": "Jobs that need the file there are set aside.",
    "link": "The link is as the grid file says, until it is measured.",
    "application": "What such jobs send is measured again.",
    "usual_run": "How long such runs take is learned again.",
    "file": "The next start takes its replicas from the catalogue.",
    "elements": "These elements of it count as done.",
    "run": "What its components have sent is forgotten; a job with outputs still to be collected is set aside.",
}


def _without(kind: str, key: str) -> str:
    if kind in _WITHOUT:
        return _WITHOUT[kind]
    return f"The next start sets job {clean(key.partition('.')[0])} aside; koala job requeue tries it again."


def _check_kind(kind: str | None) -> None:
    from koala.core import Kind
    from koala.daemon.engine.recovery import GRID

    kinds = sorted([GRID, *Kind])
    if kind is not None and kind not in kinds:
        raise UserError(f"there are no records of the kind {kind!r}; the kinds are {', '.join(kinds)}")


def _is_meant(its_kind: str, key: str, kind: str | None, job: int | None) -> bool:
    """Return True if the record is of the given kind and of the given job."""
    if kind not in (None, its_kind):
        return False
    of_job = its_kind in ("job", "places", "run", "elements", "claim") and key.partition(".")[0] == str(job)
    return job is None or of_job


def _no_record(store: Store, kind: str, key: str) -> FailedError:
    name = clean(f"{kind} {key}".rstrip())
    return FailedError(f"there is no record {name} in {store.name}; koala admin records --kind {kind} lists them")


@admin.command()
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
    help="Where to; by default standard output.",
)  # fmt: skip
@with_store
def export(store: Store, /, output: Path | None) -> None:
    """Write jobs, requests, components, transfers, files, the journal and the records of the scheduler as JSON lines.

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
    """Format a number of characters in short."""
    if characters < 1_000:
        return f"{characters} B"
    return f"{characters / 1_000:.1f} kB" if characters < 1_000_000 else f"{characters / 1_000_000:.1f} MB"
