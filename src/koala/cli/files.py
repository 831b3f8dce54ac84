"""``koala files`` and ``koala file``: the replica catalogue, and changing it."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from koala.cli.connection import complete_site, with_client
from koala.cli.errors import UserError
from koala.cli.terminal.output import console, counted, print_json
from koala.cli.terminal.progress import byte_counter
from koala.cli.terminal.words import clean, size

if TYPE_CHECKING:
    from koala.client import Client
    from koala.model.api import FileInfo

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000_000


@click.command()
@click.option("--prefix", default="", metavar="TEXT", help="Only files whose name begins like this.")
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
        print_json([each.model_dump(mode="json") for each in found[:limit]])
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
    for each in found[:limit]:
        table.add_row(Text(clean(each.name)), size(each.size_bytes), Text(_replicas(each)))
    console().print(table)
    if len(found) > limit:
        click.echo(f"and more; --limit {limit * 2} shows them, --prefix narrows them")


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


@file.command()
@click.argument("name")
@click.option("--to", "target", metavar="PATH", help="The file, or a directory that is there. By default the name.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def get(client: Client, /, name: str, target: str | None, as_json: bool) -> None:
    """Bring the file NAME of the catalogue to this machine.

    It comes in pieces; the same command goes on where one that was interrupted stopped. What came is verified.
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
@click.argument("name")
@click.argument("site", required=False, shell_complete=complete_site)
@click.option("--all", "everywhere", is_flag=True, help="All replicas and the file itself, without being asked.")
@with_client
def forget(client: Client, /, name: str, site: str | None, everywhere: bool) -> None:
    """Forget the replica of the file NAME at SITE; without SITE, the file with all its replicas.

    Replicas in a site's own area are removed; what stays at a URL stays there. On a terminal you are asked before a
    whole file is forgotten; elsewhere --all must be given.
    """
    if site is not None and everywhere:
        raise UserError("--all is all replicas, and SITE is one; give one of the two")
    if site is None and not everywhere:
        _confirm(client.file(name))
    client.forget(name, site=site)
    what = clean(name) if site is None else f"the replica of {clean(name)} at {clean(site)}"
    click.echo(f"Forgot {what}.")


def _confirm(found: FileInfo) -> None:
    name = clean(found.name)
    what = f"{counted(len(found.replicas), 'replica')} at {_replicas(found)}"
    if not sys.stdin.isatty():
        raise UserError(
            f"{name} has {what}; name the SITE of the one to forget, or give --all to forget the file altogether"
        )
    if not click.confirm(f"Forget {name} altogether, with {what}?", err=True):
        raise UserError("nothing was forgotten")


def _tell(found: FileInfo, as_json: bool, words: str) -> None:
    if as_json:
        print_json(found.model_dump(mode="json"))
    else:
        click.echo(words)
