"""Routes about events: a piece of the journal, and its stream as server-sent events with the journal's numbers as
ids, so that a reader can resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Annotated, Any

from fastapi import Header, Query, Request, Response
from starlette.types import Receive, Scope, Send

from koala.daemon.api.callers import Who, caller_of
from koala.daemon.api.errors import declared
from koala.daemon.api.limits import HEARTBEAT_S, STREAM_SEND_S_MAX
from koala.daemon.api.listeners import listener_of
from koala.daemon.api.parameters import After, JobFilter, Limit, The, routes_about
from koala.daemon.service.journal import RenderedEntry
from koala.model.api import PAGE_ITEMS_DEFAULT, JournalEntry
from koala.model.errors import ClientError
from koala.store import NUMBER_MAX

router = routes_about("events", prefix="/v1/events")

RETRY_MS = 1_000
HEARTBEAT = b": still here\n\n"
# Events that arrive together are sent together, in chunks of about this size.
CHUNK_BYTES = 65_536

STREAM_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events without end: `id` is the entry's number, `event` is `journal`, `data` the "
        "entry as JSON. A comment comes every 15 s.",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 17\nevent: journal\ndata: {"seq":17,"what":"JobSubmitted"}\n\n',
            }
        },
    }
}


@router.get("", summary="A piece of the journal", responses=declared())
async def list_events(
    who: Who, service: The, after: After = 0, limit: Limit = PAGE_ITEMS_DEFAULT, job: JobFilter = None
) -> list[JournalEntry]:
    """Return events and decisions, oldest first, from the entry after `after` on."""
    return await service.journal(who, after=after, limit=limit, job=job)


@router.get(
    "/stream",
    summary="The journal as it grows",
    response_class=Response,
    responses={**declared(), **STREAM_ANSWER},
)
async def stream_events(
    request: Request,
    who: Who,
    service: The,
    after: Annotated[int | None, Query(ge=0, le=NUMBER_MAX, description="By default only what is new.")] = None,
    job: JobFilter = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=NUMBER_MAX, description="Goes before `after`; browsers send it by themselves.")
    ] = None,
) -> Response:
    """Stream the entries after `Last-Event-ID`, or `after`, without gaps."""
    listener, caller = listener_of(request), caller_of(request)
    begin = last_event_id if last_event_id is not None else after
    if begin is None:
        begin = service.last_seq
    # An error of access is raised here, while the answer can still report it.
    await service.journal(who, after=begin, limit=1, job=job)
    return EventStream(
        service.follow_rounds(who, after=begin, job=job),
        check=lambda: caller.check(listener),
        stopped=listener.traffic.stopped,
        place=listener.traffic.stream_of(who),
        heartbeat_s=listener.traffic.heartbeat_s,
        send_s_max=listener.traffic.stream_send_s_max,
    )


def event_of(entry: RenderedEntry) -> bytes:
    """Return an entry as an event. JSON holds no line break, so one line of data is enough."""
    return f"id: {entry.entry.seq}\nevent: journal\ndata: {entry.json}\n\n".encode()


def chunks_of(found: Iterable[RenderedEntry]) -> Iterator[bytes]:
    """Yield entries as events, several in one chunk."""
    chunk = b""
    for entry in found:
        chunk += event_of(entry)
        if len(chunk) >= CHUNK_BYTES:
            yield chunk
            chunk = b""
    if chunk:
        yield chunk


class EventStream(Response):
    """The entries as they come, and a comment every ``heartbeat_s``.

    It ends when the daemon stops, when the reader has gone or takes nothing for ``send_s_max``, and when ``check``
    raises because the reader may no longer read; nothing is sent after that. ``place`` is entered for as long as the
    stream lasts.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        rounds: AsyncIterator[list[RenderedEntry]],
        *,
        check: Callable[[], None],
        stopped: Callable[[], Coroutine[Any, Any, None]],
        place: AbstractContextManager[None],
        heartbeat_s: float = HEARTBEAT_S,
        send_s_max: float = STREAM_SEND_S_MAX,
    ) -> None:
        super().__init__(media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._rounds = rounds
        self._check = check
        self._stopped = stopped
        self._place = place
        self._heartbeat_s = heartbeat_s
        self._send_s_max = send_s_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until there is a reason to end."""
        with self._place:
            tasks = [asyncio.ensure_future(work) for work in (self._pump(send), _gone(receive), self._stopped())]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                ends = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(ends[0], Exception) and not isinstance(ends[0], ClientError | OSError):
            raise ends[0]
        with suppress(OSError, TimeoutError):
            await self._send_chunk(send, b"", more=False)

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await self._send_chunk(send, f"retry: {RETRY_MS}\n\n".encode())
        following = asyncio.ensure_future(_next(self._rounds))
        try:
            while True:
                done, _ = await asyncio.wait({following}, timeout=self._heartbeat_s)
                self._check()
                if not done:
                    await self._send_chunk(send, HEARTBEAT)
                    continue
                found = following.result()
                if found is None:
                    return
                for chunk in chunks_of(found):
                    self._check()
                    await self._send_chunk(send, chunk)
                following = asyncio.ensure_future(_next(self._rounds))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            close = getattr(self._rounds, "aclose", None)
            if close is not None:
                await close()

    async def _send_chunk(self, send: Send, body: bytes, *, more: bool = True) -> None:
        async with asyncio.timeout(self._send_s_max):
            await send({"type": "http.response.body", "body": body, "more_body": more})


async def _next(rounds: AsyncIterator[list[RenderedEntry]]) -> list[RenderedEntry] | None:
    return await anext(rounds, None)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
