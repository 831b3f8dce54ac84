"""The typed clients: ``Client`` for plain code and ``AsyncClient`` for asyncio, with the same methods.

``koala.client.calls`` has one function for the request of each call; ``koala.client.exchange`` repeats calls and
turns answers into errors. This module has the two classes, each with its own way of sending. Annotations are
evaluated here, so that ``help`` and ``inspect`` show the types of arguments and answers.
"""

import asyncio
import inspect
import os
import socket
import ssl
import time
import traceback
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from types import GenericAlias, TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import httpx

from koala.client import calls
from koala.client.address import CA_FILE_VARIABLE, Address, checked_token, find_address, find_token
from koala.client.calls import Call, checked
from koala.client.errors import UnavailableError, WrongAddressError
from koala.client.exchange import PATIENCE_S, Exchange, Pause, Reply, Send, Step, Steps, timeout_of
from koala.client.fetching import FetchProgress, fetch, fetch_all
from koala.client.journal_stream import JournalStream
from koala.client.parcel import Files, SendProgress, gather, send
from koala.model.api import (
    PAGE_ITEMS_MAX,
    DryRun,
    DryRunGraph,
    FileInfo,
    JobSummary,
    JournalEntry,
    OutputInfo,
    Page,
    Submitted,
    SubmittedGraph,
)
from koala.version import __version__

P = ParamSpec("P")
Value = TypeVar("Value")
Item = TypeVar("Item")
Function = TypeVar("Function", bound=Callable[..., Any])

# The verification that httpx performs where there is no TLS. By default it would read the system's authorities first.
NO_TLS = False


def _call(describe: Callable[P, Call[Value]]) -> Callable[Concatenate["Client", P], Value]:
    """Make the method of ``Client`` for a call."""

    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Value:
        return self._take(self.exchange.perform(checked(describe, *args, **kwargs)))

    return _described(method, "Client", describe.__name__, describe, _answer_of(describe))


def _async_call(describe: Callable[P, Call[Value]]) -> Callable[Concatenate["AsyncClient", P], Awaitable[Value]]:
    """Make the method of ``AsyncClient`` for a call."""

    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[Value]:
        return self._take(self.exchange.perform(checked(describe, *args, **kwargs)))

    answer = GenericAlias(Awaitable, (_answer_of(describe),))
    return _described(method, "AsyncClient", describe.__name__, describe, answer)


def _each(
    item: type[Item], name: str, describe: Callable[P, Call[Any]]
) -> Callable[Concatenate["Client", P], Iterator[Item]]:
    """Make the method of ``Client`` that yields every item of a long list, page after page."""
    page: Callable[..., Call[Any]] = describe
    paging = {"limit": PAGE_ITEMS_MAX} if "limit" in inspect.signature(describe).parameters else {}

    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Iterator[Item]:
        asked: dict[str, Any] = {**paging, **kwargs}
        following: dict[str, Any] | None = {}
        while following is not None:
            call = checked(page, *args, **{**asked, **following})
            items, following = _page_of(self._take(self.exchange.perform(call)))
            yield from items

    return _described(method, "Client", name, describe, GenericAlias(Iterator, (item,)))


def _async_each(
    item: type[Item], name: str, describe: Callable[P, Call[Any]]
) -> Callable[Concatenate["AsyncClient", P], AsyncIterator[Item]]:
    """Do the same as ``_each``, for ``AsyncClient``."""
    page: Callable[..., Call[Any]] = describe
    paging = {"limit": PAGE_ITEMS_MAX} if "limit" in inspect.signature(describe).parameters else {}

    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[Item]:
        asked: dict[str, Any] = {**paging, **kwargs}
        following: dict[str, Any] | None = {}
        while following is not None:
            call = checked(page, *args, **{**asked, **following})
            items, following = _page_of(await self._take(self.exchange.perform(call)))
            for each in items:
                yield each

    return _described(method, "AsyncClient", name, describe, GenericAlias(AsyncIterator, (item,)))


def _page_of(answer: Page[Any] | list[JournalEntry] | list[OutputInfo]) -> tuple[list[Any], dict[str, Any] | None]:
    """Return the items of one page, and the parameters for the next page; None after the last page."""
    if isinstance(answer, Page):
        return answer.items, None if answer.next is None else {"cursor": answer.next}
    if not answer:
        return [], None
    last = answer[-1]
    return list(answer), {"after": last.job if isinstance(last, OutputInfo) else last.seq}


def _answer_of(describe: Callable[..., Call[Any]]) -> Any:
    """Return the type of a call's answer."""
    return typing.get_args(describe.__annotations__["return"])[0]


def _described(method: Function, owner: str, name: str, describe: Callable[..., Any], returns: Any) -> Function:
    """Give the method the docstring and the arguments of the function that describes its call."""
    signature = inspect.signature(describe)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    method.__name__ = name
    method.__qualname__ = f"{owner}.{name}"
    method.__doc__ = describe.__doc__
    method.__annotations__ = {**describe.__annotations__, "return": returns}
    shown = signature.replace(parameters=[own, *signature.parameters.values()], return_annotation=returns)
    setattr(method, "__signature__", shown)  # noqa: B010 -- inspect looks for it, and the type does not have it
    return method


class _Sender:
    """The common part of both clients: the daemon's address, and the repetition of calls."""

    def __init__(self, server: str | None, patience_s: float) -> None:
        self.address = find_address(server)
        self.exchange = Exchange(self.address, patience_s)

    def _options(self, token: str | None, ca_file: str | Path | None) -> dict[str, Any]:
        """Return the arguments for httpx. No token goes over the socket, where the daemon sees who calls."""
        headers = {"User-Agent": f"koala/{__version__}"}
        if self.address.socket is None:
            secret = find_token() if token is None else checked_token(token, "token")
            if secret is not None:
                headers["Authorization"] = f"Bearer {secret}"
        return {
            "base_url": self.address.url,
            "headers": headers,
            "verify": _verification(self.address, ca_file),
            "trust_env": not self.address.is_local,
        }


class Client(_Sender):
    """A connection to a daemon. Every method raises a ``ClientError`` when it fails.

    ``server`` is ``unix:PATH`` or ``http(s)://HOST:PORT``; the default is KOALA_SERVER, or else the socket of the
    default state directory. A repeatable call survives an absence of the daemon of up to ``patience_s``. Use the
    client as a context manager, or call ``close``.

    >>> from koala import Client
    >>> text = "{application: {executable: echo, arguments: [hello]}, processors: 1}"
    >>> with Client() as koala:
    ...     job = koala.submit(text, source="job.yaml").job
    ...     done = koala.wait_ended(job.id)
    ...     print(done.state, koala.output(job.id).text.strip())
    done hello
    """

    jobs = _call(calls.jobs)
    job = _call(calls.job)
    explain = _call(calls.explain)
    wait = _call(calls.wait)
    cancel = _call(calls.cancel)
    requeue = _call(calls.requeue)
    hold = _call(calls.hold)
    release = _call(calls.release)
    change = _call(calls.change)
    spawn = _call(calls.spawn)
    output = _call(calls.output)
    overview = _call(calls.overview)
    network = _call(calls.network)
    link = _call(calls.link)
    probe_link = _call(calls.probe_link)
    sites = _call(calls.sites)
    site = _call(calls.site)
    history = _call(calls.history)
    drain = _call(calls.drain)
    declare_lost = _call(calls.declare_lost)
    resume = _call(calls.resume)
    probe = _call(calls.probe)
    files = _call(calls.files)
    file = _call(calls.file)
    outputs = _call(calls.outputs)
    read_file = _call(calls.read_file)
    read_files = _call(calls.read_files)
    register = _call(calls.register)
    replicate = _call(calls.replicate)
    forget = _call(calls.forget)
    journal = _call(calls.journal)
    create_token = _call(calls.create_token)
    tokens = _call(calls.tokens)
    revoke_token = _call(calls.revoke_token)
    login = _call(calls.login)
    whoami = _call(calls.whoami)
    ready = _call(calls.ready)
    metrics = _call(calls.metrics)

    each_job = _each(JobSummary, "each_job", calls.jobs)
    each_file = _each(FileInfo, "each_file", calls.files)
    each_entry = _each(JournalEntry, "each_entry", calls.journal)
    each_output = _each(OutputInfo, "each_output", calls.outputs)

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        patience_s: float = PATIENCE_S,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        super().__init__(server, patience_s)
        if transport is None and self.address.socket is not None:
            transport = _SocketTransport(uds=str(self.address.socket), verify=NO_TLS)
        self._http = httpx.Client(transport=transport, **self._options(token, ca_file))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(
        self,
        description: str,
        *,
        source: str = "job",
        client_token: str | None = None,
        files: Files = (),
        progress: SendProgress | None = None,
    ) -> Submitted:
        """Submit a job; it is durable when this returns. ``source`` is a file name, whose ending selects the format.

        A client token makes the call safe to repeat: the same token gives the same job. Without one the client makes
        a token, so that a lost connection never makes two jobs.

        ``files`` travel with the job: paths of this machine, each of which appears under its last name where the
        components start, or names there with their paths here. Directories travel as a whole. ``progress`` receives
        the number of bytes sent and in total.
        """
        parcel = gather(files)
        self._take(send(self.exchange, parcel, progress))
        call = checked(calls.submit, description, source=source, client_token=client_token, manifest=parcel.listed)
        return self._take(self.exchange.perform(call))

    def dry_run(self, description: str, *, source: str = "job", files: Files = ()) -> DryRun:
        """Return where the job would go now, or why it cannot; nothing is submitted or sent."""
        call = checked(calls.dry_run, description, source=source, manifest=gather(files).listed)
        return self._take(self.exchange.perform(call))

    def submit_graph(
        self,
        description: str,
        *,
        source: str = "graph.yaml",
        client_token: str | None = None,
        files: Files = (),
        progress: SendProgress | None = None,
    ) -> SubmittedGraph:
        """Submit several jobs that wait for each other, all or none; otherwise like ``submit``. ``files`` travel with
        each job."""
        parcel = gather(files)
        self._take(send(self.exchange, parcel, progress))
        call = checked(
            calls.submit_graph, description, source=source, client_token=client_token, manifest=parcel.listed
        )
        return self._take(self.exchange.perform(call))

    def dry_run_graph(self, description: str, *, source: str = "graph.yaml", files: Files = ()) -> DryRunGraph:
        """Return where the jobs of a graph would go now; nothing is submitted or sent."""
        call = checked(calls.dry_run_graph, description, source=source, manifest=gather(files).listed)
        return self._take(self.exchange.perform(call))

    def fetch_file(self, name: str, path: str | Path, *, progress: FetchProgress | None = None) -> FileInfo:
        """Copy a file of the catalogue to a path of this machine: piece by piece, continuing an interrupted copy,
        verified by its checksum. ``progress`` receives the number of bytes here and in total."""
        return self._take(fetch(self.exchange, name, Path(path), progress))

    def fetch_files(
        self, wanted: Iterable[tuple[FileInfo | OutputInfo, str | Path]], *, progress: FetchProgress | None = None
    ) -> dict[Path, str]:
        """Copy files of the catalogue to paths of this machine, many small ones at a time, each verified by its
        checksum. A file that is there already is not copied again. Return the paths of the files that failed, each
        with the reason."""
        return self._take(fetch_all(self.exchange, wanted, progress))

    def wait_ended(self, job: int, timeout_s: float | None = None) -> JobSummary:
        """Return the job when it has ended, or at the timeout (None: however long it takes)."""
        return self._take(self.exchange.wait_ended(job, timeout_s))

    def follow(self, *, after: int | None = None, job: int | None = None) -> Iterator[JournalEntry]:
        """Yield the journal from the entry after ``after`` on (None: from now on), as it happens and without end.

        After a lost connection it continues where it was. Raises ``UnreachableError`` when the daemon stays away.
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


class AsyncClient(_Sender):
    """``Client`` for asyncio: every method is awaited, every list and ``follow`` is an async iterator.

    >>> import asyncio
    >>> from koala import AsyncClient
    >>> async def names_of_sites():
    ...     async with AsyncClient() as koala:
    ...         return [site.name for site in await koala.sites()]
    >>> asyncio.run(names_of_sites())
    ['amsterdam', 'berlin', 'cracow']
    """

    jobs = _async_call(calls.jobs)
    job = _async_call(calls.job)
    explain = _async_call(calls.explain)
    wait = _async_call(calls.wait)
    cancel = _async_call(calls.cancel)
    requeue = _async_call(calls.requeue)
    hold = _async_call(calls.hold)
    release = _async_call(calls.release)
    change = _async_call(calls.change)
    spawn = _async_call(calls.spawn)
    output = _async_call(calls.output)
    overview = _async_call(calls.overview)
    network = _async_call(calls.network)
    link = _async_call(calls.link)
    probe_link = _async_call(calls.probe_link)
    sites = _async_call(calls.sites)
    site = _async_call(calls.site)
    history = _async_call(calls.history)
    drain = _async_call(calls.drain)
    declare_lost = _async_call(calls.declare_lost)
    resume = _async_call(calls.resume)
    probe = _async_call(calls.probe)
    files = _async_call(calls.files)
    file = _async_call(calls.file)
    outputs = _async_call(calls.outputs)
    read_file = _async_call(calls.read_file)
    read_files = _async_call(calls.read_files)
    register = _async_call(calls.register)
    replicate = _async_call(calls.replicate)
    forget = _async_call(calls.forget)
    journal = _async_call(calls.journal)
    create_token = _async_call(calls.create_token)
    tokens = _async_call(calls.tokens)
    revoke_token = _async_call(calls.revoke_token)
    login = _async_call(calls.login)
    whoami = _async_call(calls.whoami)
    ready = _async_call(calls.ready)
    metrics = _async_call(calls.metrics)

    each_job = _async_each(JobSummary, "each_job", calls.jobs)
    each_file = _async_each(FileInfo, "each_file", calls.files)
    each_entry = _async_each(JournalEntry, "each_entry", calls.journal)
    each_output = _async_each(OutputInfo, "each_output", calls.outputs)

    def __init__(
        self,
        server: str | None = None,
        *,
        token: str | None = None,
        ca_file: str | Path | None = None,
        patience_s: float = PATIENCE_S,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        super().__init__(server, patience_s)
        if transport is None and self.address.socket is not None:
            transport = httpx.AsyncHTTPTransport(uds=str(self.address.socket), verify=NO_TLS)
        self._http = httpx.AsyncClient(transport=transport, **self._options(token, ca_file))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    def submit(
        self,
        description: str,
        *,
        source: str = "job",
        client_token: str | None = None,
        files: Files = (),
        progress: SendProgress | None = None,
    ) -> Awaitable[Submitted]:
        """Do the same as ``Client.submit``; files are measured in a thread."""
        return self._submit(description, source, client_token, files, progress)

    async def _submit(
        self,
        description: str,
        source: str,
        client_token: str | None,
        files: Files,
        progress: SendProgress | None,
    ) -> Submitted:
        parcel = await asyncio.to_thread(gather, files)
        await self._take(send(self.exchange, parcel, progress))
        call = checked(calls.submit, description, source=source, client_token=client_token, manifest=parcel.listed)
        return await self._take(self.exchange.perform(call))

    def dry_run(self, description: str, *, source: str = "job", files: Files = ()) -> Awaitable[DryRun]:
        """Do the same as ``Client.dry_run``."""
        return self._dry_run(description, source, files)

    async def _dry_run(self, description: str, source: str, files: Files) -> DryRun:
        parcel = await asyncio.to_thread(gather, files)
        call = checked(calls.dry_run, description, source=source, manifest=parcel.listed)
        return await self._take(self.exchange.perform(call))

    def submit_graph(
        self,
        description: str,
        *,
        source: str = "graph.yaml",
        client_token: str | None = None,
        files: Files = (),
        progress: SendProgress | None = None,
    ) -> Awaitable[SubmittedGraph]:
        """Do the same as ``Client.submit_graph``; files are measured in a thread."""
        return self._submit_graph(description, source, client_token, files, progress)

    async def _submit_graph(
        self,
        description: str,
        source: str,
        client_token: str | None,
        files: Files,
        progress: SendProgress | None,
    ) -> SubmittedGraph:
        parcel = await asyncio.to_thread(gather, files)
        await self._take(send(self.exchange, parcel, progress))
        call = checked(
            calls.submit_graph, description, source=source, client_token=client_token, manifest=parcel.listed
        )
        return await self._take(self.exchange.perform(call))

    def dry_run_graph(
        self, description: str, *, source: str = "graph.yaml", files: Files = ()
    ) -> Awaitable[DryRunGraph]:
        """Do the same as ``Client.dry_run_graph``."""
        return self._dry_run_graph(description, source, files)

    async def _dry_run_graph(self, description: str, source: str, files: Files) -> DryRunGraph:
        parcel = await asyncio.to_thread(gather, files)
        call = checked(calls.dry_run_graph, description, source=source, manifest=parcel.listed)
        return await self._take(self.exchange.perform(call))

    def fetch_file(
        self, name: str, path: str | Path, *, progress: FetchProgress | None = None
    ) -> Awaitable[FileInfo]:
        """Do the same as ``Client.fetch_file``."""
        return self._take(fetch(self.exchange, name, Path(path), progress))

    def fetch_files(
        self, wanted: Iterable[tuple[FileInfo | OutputInfo, str | Path]], *, progress: FetchProgress | None = None
    ) -> Awaitable[dict[Path, str]]:
        """Do the same as ``Client.fetch_files``."""
        return self._take(fetch_all(self.exchange, wanted, progress))

    def wait_ended(self, job: int, timeout_s: float | None = None) -> Awaitable[JobSummary]:
        """Do the same as ``Client.wait_ended``."""
        return self._take(self.exchange.wait_ended(job, timeout_s))

    async def follow(self, *, after: int | None = None, job: int | None = None) -> AsyncIterator[JournalEntry]:
        """Do the same as ``Client.follow``."""
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


class _SocketTransport(httpx.HTTPTransport):
    """Connections to the daemon's unix socket. Closes the socket that httpcore leaves open where nobody listens."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions = {**request.extensions, "trace": _close_unconnected}
        return super().handle_request(request)


def _close_unconnected(event: str, details: dict[str, Any]) -> None:
    """Close the socket of a failed connection, which only the frames of the exception's traceback still refer to."""
    if event != "connection.connect_unix_socket.failed":
        return
    failure = details["exception"]
    for error in filter(None, (failure, failure.__cause__)):
        for frame, _ in traceback.walk_tb(error.__traceback__):
            for left in frame.f_locals.values():
                if isinstance(left, socket.socket):
                    left.close()


def _request(http: httpx.Client | httpx.AsyncClient, step: Send) -> httpx.Request:
    call = step.call
    content: str | bytes | None = call.content
    kind = "application/octet-stream"
    if call.body is not None:
        content, kind = call.body.model_dump_json(exclude_none=True), "application/json"
    return http.build_request(
        call.method,
        call.path,
        params=list(call.parameters),
        content=content,
        headers=None if content is None else {"Content-Type": kind},
        timeout=timeout_of(call),
    )


def _verification(address: Address, ca_file: str | Path | None) -> ssl.SSLContext | bool:
    """Return the trusted authorities: those of the system, or the one in a file, by argument or KOALA_CA_FILE."""
    if not address.url.startswith("https:"):
        return NO_TLS
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
