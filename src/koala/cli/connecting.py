"""How a verb finds its daemon: the common option ``--server``, the client that it opens, and completion of names.

The client is loaded when a verb runs, so that help and completion of options stay fast.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from koala.client import Client

P = ParamSpec("P")
R = TypeVar("R")

# How many jobs the shell is offered for completion.
JOBS_OFFERED_MAX = 50
# How long a verb that waits for things to happen also waits for a daemon that went away to come back.
WAITING_PATIENCE_S = 600.0

_server_option = click.option(
    "-s",
    "--server",
    metavar="ADDRESS",
    help="Where the daemon is: unix:SOCKET or http(s)://HOST:PORT. By default KOALA_SERVER, else the socket of the "
    "default state directory.",
)


def with_client(verb: Callable[Concatenate[Client, P], R]) -> Callable[P, R]:
    """Give a verb the option ``--server`` and a client as its first argument, which is closed when the verb ends.

    Over a network the token is that of KOALA_TOKEN, KOALA_TOKEN_FILE or ~/.config/koala/token.
    """

    @_server_option
    @functools.wraps(verb)
    def connected(*args: P.args, **kwargs: P.kwargs) -> R:
        return verb(open_client(kwargs.pop("server", None)), *args, **kwargs)

    return connected


def open_client(server: Any) -> Client:
    """A client for the daemon, closed with the command."""
    from koala.client import Client

    return click.get_current_context().with_resource(Client(server))


def be_patient(client: Client) -> None:
    """Let the client wait for a daemon that goes away meanwhile, since the verb itself waits for things to happen."""
    client.exchange.patience_s = WAITING_PATIENCE_S


def complete_job(ctx: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """The newest jobs, for the shell; nothing when no daemon answers."""
    from click.shell_completion import CompletionItem

    return _offered(
        ctx,
        lambda client: [
            CompletionItem(str(job.id), help=f"{job.name}, {job.state}")
            for job in client.jobs(limit=JOBS_OFFERED_MAX).items
            if str(job.id).startswith(begun)
        ],
    )


def complete_site(ctx: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """The sites, for the shell; nothing when no daemon answers."""
    from click.shell_completion import CompletionItem

    return _offered(
        ctx,
        lambda client: [
            CompletionItem(site.name, help=f"{site.idle} of {site.processors} processors idle")
            for site in client.sites()
            if site.name.startswith(begun)
        ],
    )


def _offered(ctx: click.Context, ask: Callable[[Client], list[CompletionItem]]) -> list[CompletionItem]:
    from koala.client import Client, ClientError

    try:
        with Client(ctx.params.get("server"), patience_s=0) as client:
            return ask(client)
    except ClientError:
        return []
