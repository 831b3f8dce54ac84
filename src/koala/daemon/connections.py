"""One connection of a caller: uvicorn's, made to end when the caller takes too long over a request's head, to keep a
limit on how many there are, and to tell errors in the API's own form."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from koala.daemon.api.limits import CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_S_MAX
from koala.model.api import ErrorAnswer, ErrorBody


class Connection(H11Protocol):
    """A connection whose request heads are limited in time as they are in size."""

    _head_timer: asyncio.TimerHandle | None = None
    _is_refused = False

    def connection_made(self, transport: Any) -> None:
        """Begin; one connection too many is told so and closed."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            self._is_refused = True
            self._refuse(503, "unavailable", f"{CONNECTIONS_MAX} connections are open (CONNECTIONS_MAX); come back")
        else:
            self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that has begun must become complete in time."""
        if self._is_refused:
            return
        super().data_received(data)
        under_way: RequestResponseCycle | None = self.cycle
        if under_way is None or under_way.response_complete:
            self._await_head()
        else:
            self._head_came()

    def on_response_complete(self) -> None:
        """One request is answered. The next one may take its time to begin, within the keep-alive time."""
        self._head_came()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP, or its head is too large."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._refuse(
                400, "invalid", f"this is no HTTP request, or its head has more than {HEADER_BYTES_MAX} bytes"
            )
        else:
            self.transport.close()

    def _await_head(self) -> None:
        if self._head_timer is None and not self.transport.is_closing():
            self._head_timer = self.loop.call_later(HEADER_S_MAX, self._head_is_late)

    def _head_came(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _head_is_late(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self._refuse(408, "too_slow", f"the request's head did not come within {HEADER_S_MAX:.0f} s")

    def _refuse(self, status: int, code: str, message: str) -> None:
        """Say so in the API's form, and close."""
        body = ErrorAnswer(error=ErrorBody(code=code, message=message)).model_dump_json().encode()
        head = (
            f"HTTP/1.1 {status} {code}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode("ascii") + body)
        self.transport.close()
