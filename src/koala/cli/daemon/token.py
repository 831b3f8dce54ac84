"""``koala token``: tokens with which others may call the daemon over the network, for its own user to create."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from koala.cli.connection import with_client
from koala.cli.terminal.output import console, print_json
from koala.cli.terminal.words import ago, clean

if TYPE_CHECKING:
    from koala.client import Client

SCOPES = ("read", "submit", "priority", "operate")


@click.group()
def token() -> None:
    """Create, list and revoke the tokens with which others call the daemon."""


@token.command()
@click.argument("user")
@click.option(
    "--scope",
    "scopes",
    type=click.Choice(SCOPES),
    multiple=True,
    default=("read", "submit"),
    show_default=True,
    help="What it allows; repeatable. priority: high priority; operate: everybody's jobs, the sites, the files.",
)
@click.option("--note", default="", metavar="TEXT", help="What it is for, for the list.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def create(client: Client, /, user: str, scopes: tuple[str, ...], note: str, as_json: bool) -> None:
    """Create a token for USER and print it, this once."""
    from koala.model.api import Scope

    made = client.create_token(user, [Scope(each) for each in dict.fromkeys(scopes)], note=note)
    if as_json:
        print_json(made)
        return
    click.echo(made.secret)
    if made.notice:
        click.echo(f"Notice: {clean(made.notice)}.", err=True)
    click.echo(
        f"Token {made.token.id} for {clean(made.token.user)} ({', '.join(made.token.scopes)}). "
        "It is not shown again.\nuse: KOALA_TOKEN=... koala jobs --server http(s)://HOST:PORT",
        err=True,
    )


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@with_client
def list_(client: Client, /, as_json: bool) -> None:
    """List the tokens, without their secrets."""
    found = client.tokens()
    if as_json:
        print_json(found)
        return
    if not found:
        click.echo("No tokens. Create one with koala token create USER.")
        return
    from rich.table import Table
    from rich.text import Text

    now = time.time()
    table = Table(box=None, pad_edge=False)
    for column in ("id", "user", "scopes", "created", "used", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("note", overflow="fold")
    for each in found:
        revoked = each.revoked_at is not None
        table.add_row(
            each.id,
            Text(clean(each.user)),
            ", ".join(each.scopes),
            ago(each.created_at, now),
            "never" if each.used_at is None else ago(each.used_at, now),
            Text("revoked" if revoked else "valid", style="dim" if revoked else "green"),
            Text(clean(each.note)),
        )
    console().print(table)


@token.command()
@click.argument("token_id", metavar="ID")
@with_client
def revoke(client: Client, /, token_id: str) -> None:
    """Revoke a token; it opens nothing from then on."""
    client.revoke_token(token_id)
    click.echo(f"Token {clean(token_id)} is revoked.")
