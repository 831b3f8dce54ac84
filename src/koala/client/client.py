"""The typed clients: ``Client`` for plain code and ``AsyncClient`` for asyncio, with the same methods.

Each method is written once: as a ``Call`` in ``koala.client.calls``, or as steps in ``koala.client.exchange``. Here
they become methods (``koala.client.endpoints``), and the two ways of sending are.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, cast

import httpx

from koala.client import calls
from koala.client.address import CA_FILE_VARIABLE, Address, checked_token, find_address, find_token
from koala.client.calls import Call
from koala.client.endpoints import Awaited, Blocking, Endpoint, Listing, endpoint
from koala.client.errors import UnavailableError, WrongAddressError
from koala.client.exchange import PATIENCE_S, Exchange, Pause, Reply, Send, Step, Steps, timeout_of
from koala.client.journal_stream import JournalStream
from koala.client.socket_transport import SocketTransport
from koala.model.api import FileInfo, JobSummary, JournalEntry, Page
from koala.version import __version__

Value = TypeVar("Value")
Item = TypeVar("Item")


def _jobs_and_next(page: Page[JobSummary]) -> tuple[list[JobSummary], Any]:
    return page.items, page.next


def _files_and_next(page: Page[FileInfo]) -> tuple[list[FileInfo], Any]:
    return page.items, page.next


def _entries_and_next(entries: list[JournalEntry]) -> tuple[list[JournalEntry], Any]:
    return entries, entries[-1].seq if entries else None


class BothClients:
    """What both clients have: an address, a token, and every endpoint of the API."""

    submit = endpoint(calls.submit)
    dry_run = endpoint(calls.dry_run)
    jobs = endpoint(calls.jobs)
    job = endpoint(calls.job)
    explain = endpoint(calls.explain)
    wait = endpoint(calls.wait)
    wait_ended = Endpoint(Exchange.wait_ended, Exchange.wait_ended)
    cancel = endpoint(calls.cancel)
    output = endpoint(calls.output)
    overview = endpoint(calls.overview)
    sites = endpoint(calls.sites)
    site = endpoint(calls.site)
    history = endpoint(calls.history)
    drain = endpoint(calls.drain)
    resume = endpoint(calls.resume)
    probe = endpoint(calls.probe)
    files = endpoint(calls.files)
    file = endpoint(calls.file)
    register = endpoint(calls.register)
    replicate = endpoint(calls.replicate)
    forget = endpoint(calls.forget)
    journal = endpoint(calls.journal)
    create_token = endpoint(calls.create_token)
    tokens = endpoint(calls.tokens)
    revoke_token = endpoint(calls.revoke_token)
    login = endpoint(calls.login)
    whoami = endpoint(calls.whoami)
    ready = endpoint(calls.ready)
    metrics = endpoint(calls.metrics)

    each_job = Listing(calls.jobs, "cursor", _jobs_and_next)
    each_file = Listing(calls.files, "cursor", _files_and_next)
    each_entry = Listing(calls.journal, "after", _entries_and_next)

    def __init__(self, server: str | None, token: str | None, patience_s: float) -> None:
        self.address = find_address(server)
        self.exchange = Exchange(self.address, patience_s)
        self._token = token

    def _options(self, ca_file: str | Path | None) -> dict[str, Any]:
        """What httpx is built with. Over its socket the daemon knows who calls, so no token goes there."""
        headers = {"User-Agent": f"koala/{__version__}"}
        if self.address.socket is None:
            token = find_token() if self._token is None else checked_token(self._token, "token")
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
        return {
            "base_url": self.address.url,
            "headers": headers,
            "verify": _verification(self.address, ca_file),
            "trust_env": not self.address.is_local,
        }


class Client(BothClients, Blocking):
    """A daemon to talk to. ``server`` is ``unix:PATH`` or ``http(s)://HOST:PORT``; without one, KOALA_SERVER, or the
    socket of the default state directory. Every method raises a ``ClientError`` when it does not succeed.

    A call that may be repeated survives a daemon that is away for up to ``patience_s``. Use it as a context, or
    call ``close``.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        patience_s: float = PATIENCE_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(server, token, patience_s)
        if transport is None and self.address.socket is not None:
            transport = SocketTransport(self.address.socket)
        self._http = httpx.Client(transport=transport, **self._options(ca_file))

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def follow(self, *, after: int | None = None, job: int | None = None) -> Iterator[JournalEntry]:
        """The journal from the entry after ``after`` on (None: from now on), as it happens and without an end.

        After a lost connection it goes on where it was; ``UnreachableError`` when the daemon stays away.
        """
        if after is None:
            # A connection lost before the first entry must not leave a gap, so "now" gets a number.
            after = self.overview().last_seq
        stream = JournalStream(self.exchange, after, job)
        while True:
            problem: httpx.TransportError | UnavailableError | None = None
            try:
                with self._http.stream(
                    "GET", stream.path, params=stream.parameters, headers=stream.headers, timeout=stream.timeout
                ) as response:
                    if not response.is_success:
                        response.read()
                    stream.opened(response)
                    for piece in response.iter_bytes():
                        yield from stream.feed(piece)
            except (httpx.TransportError, UnavailableError) as error:
                problem = error
            time.sleep(stream.broken(problem))

    def _take(self, steps: Steps[Value]) -> Value:
        reply: Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return cast(Value, end.value)
            reply = self._step(step)

    def _step(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            time.sleep(step.pause_s)
            return None
        try:
            return self._http.send(_request(self._http, step))
        except httpx.TransportError as error:
            return error

    def _list(
        self,
        exchange: Exchange,
        described: Callable[..., Call[Any]],
        cursor: str,
        next_of: Callable[[Any], tuple[list[Item], Any]],
    ) -> Iterator[Item]:
        after: dict[str, Any] = {}
        while True:
            items, following = next_of(self._take(exchange.perform(described(**after))))
            yield from items
            if following is None:
                return
            after = {cursor: following}


class AsyncClient(BothClients, Awaited):
    """The same as ``Client`` for asyncio: every method is awaited, every list and ``follow`` is an async iterator."""

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        patience_s: float = PATIENCE_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(server, token, patience_s)
        if transport is None and self.address.socket is not None:
            transport = httpx.AsyncHTTPTransport(uds=str(self.address.socket))
        self._http = httpx.AsyncClient(transport=transport, **self._options(ca_file))

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self._http.aclose()

    async def follow(self, *, after: int | None = None, job: int | None = None) -> AsyncIterator[JournalEntry]:
        """As ``Client.follow``."""
        if after is None:
            after = (await self.overview()).last_seq
        stream = JournalStream(self.exchange, after, job)
        while True:
            problem: httpx.TransportError | UnavailableError | None = None
            try:
                async with self._http.stream(
                    "GET", stream.path, params=stream.parameters, headers=stream.headers, timeout=stream.timeout
                ) as response:
                    if not response.is_success:
                        await response.aread()
                    stream.opened(response)
                    async for piece in response.aiter_bytes():
                        for entry in stream.feed(piece):
                            yield entry
            except (httpx.TransportError, UnavailableError) as error:
                problem = error
            await asyncio.sleep(stream.broken(problem))

    async def _take(self, steps: Steps[Value]) -> Value:
        reply: Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                return cast(Value, end.value)
            reply = await self._step(step)

    async def _step(self, step: Step) -> Reply:
        if isinstance(step, Pause):
            await asyncio.sleep(step.pause_s)
            return None
        try:
            return await self._http.send(_request(self._http, step))
        except httpx.TransportError as error:
            return error

    async def _list(
        self,
        exchange: Exchange,
        described: Callable[..., Call[Any]],
        cursor: str,
        next_of: Callable[[Any], tuple[list[Item], Any]],
    ) -> AsyncIterator[Item]:
        after: dict[str, Any] = {}
        while True:
            items, following = next_of(await self._take(exchange.perform(described(**after))))
            for item in items:
                yield item
            if following is None:
                return
            after = {cursor: following}


def _request(http: httpx.Client | httpx.AsyncClient, step: Send) -> httpx.Request:
    call = step.call
    content = None if call.body is None else call.body.model_dump_json(exclude_none=True)
    return http.build_request(
        call.method,
        call.path,
        params=list(call.parameters),
        content=content,
        headers=None if content is None else {"Content-Type": "application/json"},
        timeout=timeout_of(call),
    )


def _verification(address: Address, ca_file: str | Path | None) -> ssl.SSLContext | bool:
    """Whom to trust: the authorities of the system, or the one in a file, by argument or KOALA_CA_FILE."""
    if not address.url.startswith("https:"):
        return False
    named = ca_file or os.environ.get(CA_FILE_VARIABLE)
    if not named:
        return True
    try:
        return ssl.create_default_context(cafile=named)
    except (OSError, ssl.SSLError) as error:
        raise WrongAddressError(
            f"{CA_FILE_VARIABLE} {named}: no certificates can be read from it: {error.strerror or error}; name the "
            "PEM file of the authority that signed the daemon's certificate"
        ) from None
