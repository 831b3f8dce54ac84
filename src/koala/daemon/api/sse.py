"""Server-sent events: an answer that goes on, with the journal's numbers as ids so that a reader can resume."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from koala.daemon.api.limits import HEARTBEAT_S, STREAM_SEND_S_MAX
from koala.daemon.service.journal import RenderedEntry
from koala.model.errors import ClientError

RETRY_MS = 1_000
HEARTBEAT = b": still here\n\n"
# Events that come together are sent together, up to about so much.
PART_BYTES = 65_536


def event_of(told: RenderedEntry) -> bytes:
    """An entry as an event. JSON holds no line break, so one line of data is enough."""
    return f"id: {told.entry.seq}\nevent: journal\ndata: {told.json}\n\n".encode()


def parts_of(found: Iterable[RenderedEntry]) -> Iterator[bytes]:
    """Entries as events, several in one part."""
    part = b""
    for told in found:
        part += event_of(told)
        if len(part) >= PART_BYTES:
            yield part
            part = b""
    if part:
        yield part


class EventStream(Response):
    """The entries as they come, and a comment every ``HEARTBEAT_S``.

    It ends when the daemon stops, when the reader has gone or takes nothing for ``STREAM_SEND_S_MAX``, and when
    ``check`` raises because the reader may no longer read; nothing is sent after that. ``place`` is entered for as
    long as the stream lasts.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        rounds: AsyncIterator[list[RenderedEntry]],
        *,
        check: Callable[[], None],
        stopped: Callable[[], Coroutine[Any, Any, None]],
        place: AbstractContextManager[None],
        heartbeat_s: float | None = None,
    ) -> None:
        super().__init__(media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._rounds = rounds
        self._check = check
        self._stopped = stopped
        self._place = place
        self._heartbeat_s = HEARTBEAT_S if heartbeat_s is None else heartbeat_s

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
            await _send_part(send, b"", more=False)

    async def _pump(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await _send_part(send, f"retry: {RETRY_MS}\n\n".encode())
        following = asyncio.ensure_future(_next(self._rounds))
        try:
            while True:
                done, _ = await asyncio.wait({following}, timeout=self._heartbeat_s)
                self._check()
                if not done:
                    await _send_part(send, HEARTBEAT)
                    continue
                found = following.result()
                if found is None:
                    return
                for part in parts_of(found):
                    self._check()
                    await _send_part(send, part)
                following = asyncio.ensure_future(_next(self._rounds))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            close = getattr(self._rounds, "aclose", None)
            if close is not None:
                await close()


async def _next(rounds: AsyncIterator[list[RenderedEntry]]) -> list[RenderedEntry] | None:
    return await anext(rounds, None)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_part(send: Send, body: bytes, *, more: bool = True) -> None:
    async with asyncio.timeout(STREAM_SEND_S_MAX):
        await send({"type": "http.response.body", "body": body, "more_body": more})
