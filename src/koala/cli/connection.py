"""Connects a verb to its daemon: the common option ``--server``, the client, and jobs as arguments and in completion.

The client is imported when a verb runs, so that help and completion of options stay fast.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

import click

from koala.cli.errors import UserError, say

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from koala.client import Client, ClientError

P = ParamSpec("P")
R = TypeVar("R")

JOB_ID_MAX = 2**63 - 1
# At most this many jobs are offered for completion.
JOBS_OFFERED_MAX = 50
# A verb that waits for events also waits this long for a daemon that went away.
WAITING_PATIENCE_S = 600.0


class ElementId(NamedTuple):
    """An element of an array by its index there: 17_3. A client looks up its job number."""

    array: int
    element: int


class _JobId(click.ParamType[int]):
    """The number of a job, or an element of an array."""

    name = "ID"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if isinstance(value, ElementId):
            return value
        text = str(value)
        found = re.fullmatch("([0-9]{1,18})_([0-9]{1,10})", text, re.ASCII)
        if found is not None:
            return ElementId(int(found[1]), int(found[2]))
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(JOB_ID_MAX))):
            self.fail(f"{value!r} is not a job number; koala jobs lists the jobs with their numbers", param, ctx)
        if not 1 <= int(text) <= JOB_ID_MAX:
            self.fail(f"there is no job {text}; jobs are numbered from 1, and koala jobs lists them", param, ctx)
        return int(text)


class _ArrayId(_JobId):
    """The number of an array."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        found = super().convert(value, param, ctx)
        if isinstance(found, ElementId):
            self.fail(f"{value} is an element and has no elements; see koala job show {value}", param, ctx)
        return found


JOB_ID = _JobId()
ARRAY_ID = _ArrayId()

server_option = click.option(
    "-s",
    "--server",
    metavar="ADDRESS",
    help="Where the daemon is: unix:SOCKET or http(s)://HOST:PORT. By default KOALA_SERVER, else the socket of the "
    "default state directory.",
)


# The reason of a change of a job or a site.
reason_option = click.option(
    "--reason", metavar="TEXT", default="", help="Why, for the record and for whom it concerns."
)


def with_client(verb: Callable[Concatenate[Client, P], R]) -> Callable[P, R]:
    """Give a verb the option ``--server`` and a client as its first argument, which is closed when the verb ends.

    Over a network the token comes from KOALA_TOKEN, KOALA_TOKEN_FILE or ~/.config/koala/token.
    """

    @server_option
    @functools.wraps(verb)
    def connected(*args: P.args, **kwargs: P.kwargs) -> R:
        client = open_client(kwargs.pop("server", None))
        for name, value in kwargs.items():
            if isinstance(value, ElementId):
                kwargs[name] = _number_of(client, value)
            elif isinstance(value, tuple) and any(isinstance(each, ElementId) for each in value):
                kwargs[name] = tuple(
                    _number_of(client, each) if isinstance(each, ElementId) else each for each in value
                )
        return verb(client, *args, **kwargs)

    return connected


def _number_of(client: Client, element: ElementId) -> int:
    """Return the number of an array's element."""
    from koala.model.job_array import element_number, read_array

    counts = client.job(element.array).elements
    if counts is None:
        raise UserError(f"job {element.array} is not an array; koala jobs lists arrays with their elements")
    number = element_number(element.array, read_array(counts.indices), element.element)
    if number is None:
        raise UserError(f"array {element.array} has no element {element.element}; its indices are {counts.indices}")
    return number


def open_client(server: Any) -> Client:
    """Open a client for the daemon, closed with the command. On a terminal it reports waits for a daemon that cannot
    work, and warns of a token that others can read."""
    from koala.client import Client

    client = click.get_current_context().with_resource(Client(server))
    if sys.stderr.isatty():
        client.exchange.on_wait = _tell_wait
    if client.address.socket is None:
        _warn_of_open_token()
    return client


def _tell_wait(problem: ClientError, patience_s: float) -> None:
    say(f"{problem.message}; waiting up to {patience_s:.0f} s", err=True)


def _warn_of_open_token() -> None:
    from koala.client.address import token_file

    path = token_file()
    try:
        readable = path is not None and path.stat().st_mode & 0o077
    except OSError:  # the client has reported the error
        return
    if readable:
        say(f"Warning: others can read the token in {path}; chmod 600 {path}", err=True)


def be_patient(client: Client) -> None:
    """Let the client wait for a daemon that goes away, since the verb itself waits for events."""
    client.exchange.patience_s = WAITING_PATIENCE_S


def complete_job(ctx: click.Context, _: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete the newest jobs; nothing if no daemon answers."""
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
    """Complete the sites; nothing if no daemon answers."""
    from click.shell_completion import CompletionItem

    return _offered(
        ctx,
        lambda client: [
            CompletionItem(site.name, help=f"{site.idle} of {site.processors} processors idle")
            for site in client.sites()
            if site.name.startswith(begun)
        ],
    )


def complete_example(kind: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Return the completion of the examples of a kind, and of files."""

    def complete(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from koala.cli.examples import shipped

        named = [
            CompletionItem(each.name, help=each.summary()) for each in shipped(kind) if each.name.startswith(begun)
        ]
        return [*named, CompletionItem(begun, type="file")]

    return complete


def _offered(ctx: click.Context, ask: Callable[[Client], list[CompletionItem]]) -> list[CompletionItem]:
    from koala.client import Client, ClientError

    try:
        with Client(ctx.params.get("server"), patience_s=0) as client:
            return ask(client)
    except ClientError:
        return []
