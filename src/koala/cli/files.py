"""``koala files`` and ``koala file``: the replica catalogue, and changing it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.connection import complete_site, with_client
from koala.cli.errors import UserError
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.progress import byte_counter
from koala.cli.terminal.words import clean, clock, size

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import FileInfo, Forgotten

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000_000
# At most this many files or jobs are named in a question.
NAMED_MAX = 5


@click.command()
@click.option("--prefix", default="", metavar="TEXT", help="Only files whose names begin like this.")
@click.option(
    "--limit",
    type=click.IntRange(1, LIMIT_MAX),
    default=LIMIT_DEFAULT,
    show_default=True,
    metavar="N",
    help="The most files to list.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def files(client: Client, /, prefix: str, limit: int, as_json: bool) -> None:
    """List the files that jobs can read, and the sites that hold replicas of them."""
    found = list(islice(client.each_file(prefix=prefix, limit=min(limit + 1, 1_000)), limit + 1))
    if as_json:
        print_json(found[:limit])
        return
    if not found:
        click.echo("No files. Register one with koala file register NAME SITE --path FILE.")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("file", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("replicas at", overflow="fold")
    kept = any(each.kept_until is not None for each in found[:limit])
    if kept:
        table.add_column("kept until", no_wrap=True)
    for each in found[:limit]:
        until = [_until(each.kept_until)] if kept else []
        table.add_row(Text(clean(each.name)), size(each.size_bytes), Text(_replicas(each)), *until)
    console().print(table)
    if len(found) > limit:
        click.echo(f"and more; --limit {limit * 2} shows them, --prefix narrows them")


def _until(at: float | None) -> str:
    return "" if at is None else clock(at)


def _replicas(file: FileInfo) -> str:
    return ", ".join(
        clean(each.site) + ("" if each.url is None else f" ({clean(each.url)})") for each in file.replicas
    )


@click.group()
def file() -> None:
    """Register a file, bring it to another site or here, or forget it."""


@file.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def show(client: Client, /, name: str, as_json: bool) -> None:
    """Show a file: its size, its checksum, its replicas."""
    found = client.file(name)
    _tell(found, as_json, f"{clean(found.name)}: {size(found.size_bytes)}, {clean(found.checksum)}")
    if not as_json:
        for each in found.replicas:
            click.echo(f"  {clean(each.site)}" + ("" if each.url is None else f"  {clean(each.url)}"))
        if found.kept_until is not None:
            click.echo(f"  kept until {_until(found.kept_until)}")


@file.command()
@click.argument("name")
@click.option("--to", "target", metavar="PATH", help="The file, or a directory that is there. By default the name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def get(client: Client, /, name: str, target: str | None, as_json: bool) -> None:
    """Bring the file NAME of the catalogue to this machine.

    It comes in pieces; after an interruption the same command continues where it stopped. The file is verified.
    """
    last = name.rstrip("/").rsplit("/", 1)[-1]
    if last in ("", ".", ".."):
        raise UserError(f"{clean(name)} has no name that a file here can have; write --to PATH")
    path = Path(last) if target is None else Path(target) / last if Path(target).is_dir() else Path(target)
    with byte_counter() as progress:
        found = client.fetch_file(name, path, progress=progress)
    _tell(found, as_json, f"{clean(found.name)}: {size(found.size_bytes)} in {clean(str(path))}.")


@file.command()
@click.argument("name")
@click.argument("site", shell_complete=complete_site)
@click.option(
    "--path",
    metavar="FILE",
    help="A file of the daemon's machine, or SITE:/path for one at the site; it is copied into the site's area.",
)
@click.option("--url", metavar="URL", help="Where the replica is and stays, such as https://... or s3://...")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def register(client: Client, /, name: str, site: str, path: str | None, url: str | None, as_json: bool) -> None:
    """Register the file NAME with a replica at SITE, or one more replica of it."""
    if (path is None) == (url is None):
        raise UserError("say where the file is: --path FILE or --url URL, one of the two")
    if path is not None and client.address.socket is not None and not path.startswith(f"{site}:/"):
        path = str(Path(path).absolute())  # the daemon is on this machine, but in another directory
    found = client.register(name, site, path=path, url=url)
    _tell(found, as_json, f"{clean(found.name)}: {size(found.size_bytes)} at {_replicas(found)}.")


@file.command()
@click.argument("name")
@click.argument("site", shell_complete=complete_site)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def replicate(client: Client, /, name: str, site: str, as_json: bool) -> None:
    """Copy the file NAME to SITE; returns when the replica is there."""
    found = client.replicate(name, site)
    _tell(found, as_json, f"{clean(found.name)}: {counted(len(found.replicas), 'replica')}, at {_replicas(found)}.")


@file.command()
@click.argument("name", metavar="NAME|PATTERN|jobs/ID")
@click.argument("site", required=False, shell_complete=complete_site)
@click.option("--all", "--yes", "sure", is_flag=True, help="All of it, without being asked.")
@click.option("--force", is_flag=True, help="Also files that waiting jobs need.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def forget(client: Client, /, name: str, site: str | None, sure: bool, force: bool, as_json: bool) -> None:
    """Forget a replica at SITE; without SITE, files with all their replicas.

    NAME is a file; jobs/ID is every output of a job, or of an array's elements; a PATTERN with *, ? or [...] is every
    file whose name matches, where * also matches slashes.

    Replicas in a site's own area are removed; files at a URL stay there. You see what would go, and are asked; if
    nobody can answer, --all is required. Files that waiting jobs need are forgotten only with --force: then these
    jobs go back to their queue, or end if the file can never come again.
    """
    meant = _meant(name)
    before = client.forget(site=site, preview=True, **meant)
    force = _is_sure(before, site, sure=sure or (site is not None and "name" in meant), force=force)
    gone: list[str] = []
    more = True
    while more:
        found = client.forget(site=site, force=force, **meant)
        gone, more = gone + found.files, found.more > 0
    if as_json:
        print_json({"forgotten": gone})
        return
    what = clean(gone[0]) if len(gone) == 1 else counted(len(gone), "file")
    if site is not None:
        what = f"the {'replica' if len(gone) == 1 else 'replicas'} of {what} at {clean(site)}"
    click.echo(f"Forgot {what}.")


def _meant(name: str) -> dict[str, Any]:
    """Return what a name on the command line stands for."""
    job = name.rstrip("/").removeprefix("jobs/")
    if name.startswith("jobs/") and job.isascii() and job.isdecimal():
        return {"job": int(job)}
    return {"pattern": name} if any(sign in name for sign in "*?[") else {"name": name}


def _is_sure(found: Forgotten, site: str | None, *, sure: bool, force: bool) -> bool:
    """Show what would go and who waits for it, and ask for confirmation unless it was given. Returns True if
    forced."""
    count = len(found.files) + found.more
    at = "" if site is None else f" at {clean(site)}"
    what = f"{counted(count, 'file')}{at}, {size(found.size_bytes)}: {_some(found.files, count)}"
    jobs = list(dict.fromkeys(str(each.job) for each in found.waiting))
    waits = ""
    if jobs:
        one = len(jobs) == 1
        waits = f" {'Job' if one else 'Jobs'} {_some(jobs, len(jobs))} {'waits' if one else 'wait'} for it."
    if (sure or not sys.stdin.isatty()) and jobs and not force:
        raise UserError(f"{what}.{waits} Nothing was forgotten: give --force to forget it all the same")
    if sure:
        return force
    if not sys.stdin.isatty():
        raise UserError(f"{what}. Give --all to forget it, or name the SITE of one replica")
    if not click.confirm(f"{what}.{waits} Forget it{' all the same' if jobs else ''}?", err=True):
        raise UserError("nothing was forgotten")
    return force or bool(jobs)


def _some(names: Sequence[str], count: int) -> str:
    more = count - NAMED_MAX
    return ", ".join(map(clean, names[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def _tell(found: FileInfo, as_json: bool, words: str) -> None:
    if as_json:
        print_json(found)
    else:
        click.echo(words)
