"""A caller's connection: limits the time for the head of a request, and counts for a user.

uvicorn does not limit heads: its ``timeout_keep_alive`` begins after an answer. So an asyncio protocol stands before
uvicorn's own, and refuses in the form of the API. ``koala.daemon.http_server.admission`` limits the number of
connections.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from koala.daemon.api.limits import HEADER_BYTES_MAX, HEADER_S_MAX
from koala.daemon.api.listeners import CONNECTION
from koala.daemon.http_server.admission import Admission, Visit
from koala.model.api import ErrorAnswer, ErrorBody

log = logging.getLogger("koala.daemon.api")


class LimitedConnections:
    """An app whose connections are limited. uvicorn gets this app, and an acceptor its ``connect``."""

    def __init__(self, app: ASGIApp, admission: Admission, *, header_s_max: float = HEADER_S_MAX) -> None:
        self._app = app
        self.admission = admission
        self.header_s_max = header_s_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, whose head has come."""
        connection: Connection = scope["state"][CONNECTION]
        connection.begin_answer()
        try:
            await self._app(scope, receive, send)
        finally:
            connection.end_answer()

    def connect(self, *, app_state: dict[str, Any], **of_server: Any) -> Connection:
        """Return the protocol of a new connection, on top of uvicorn's."""
        connection = Connection(self)
        connection.server = H11Protocol(app_state={**app_state, CONNECTION: connection}, **of_server)
        return connection


def refusal(status: int, code: str, message: str) -> bytes:
    """Return a whole answer in the API's form, after which the connection is closed."""
    body = msgspec.json.encode(ErrorAnswer(error=ErrorBody(code=code, message=message)))
    head = (
        f"HTTP/1.1 {status} {code}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        "cache-control: no-store\r\nx-content-type-options: nosniff\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


class Connection(asyncio.Protocol):
    """One connection. Everything goes on to ``server``, uvicorn's protocol, unless it is refused here. An acceptor's
    ``handshake`` sets the connection up; after that it has a transport."""

    server: asyncio.Protocol
    visit: Visit
    handshake: asyncio.Task[None] | None = None
    is_dropped = False
    is_reading = False
    _transport: asyncio.Transport | None = None

    def __init__(self, limits: LimitedConnections) -> None:
        self._limits = limits
        self._answers = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.server.connection_made(cast(asyncio.Transport, _Transport(self, self._transport)))
        self._await_head()

    def connection_lost(self, error: Exception | None) -> None:
        self._limits.admission.leave(self.visit)
        self._stop_waiting()
        self.server.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self.is_reading = True
        try:
            self.server.data_received(data)
        except Exception as error:
            # Nothing may be sent any more: uvicorn answers 400 even if its answer to the request has begun.
            log.debug("connection closed", extra={"reason": repr(error)})
            self._abort()
        finally:
            self.is_reading = False
        if not self._answers:
            self._await_head()

    def eof_received(self) -> bool | None:
        return self.server.eof_received()

    def pause_writing(self) -> None:
        self.server.pause_writing()

    def resume_writing(self) -> None:
        self.server.resume_writing()

    def begin_answer(self) -> None:
        """Stop the time limit: the head of a request is complete. The next limit begins with the next request's first
        byte."""
        self._answers += 1
        self._stop_waiting()

    def end_answer(self) -> None:
        """Count the request as answered."""
        self._answers -= 1

    def identify(self, user: str | None) -> None:
        """Count the connection for this user, None for nobody known; see ``Admission``."""
        self._limits.admission.identify(self.visit, user)

    def drop(self) -> None:
        """Close at once, to make room."""
        self.is_dropped = True
        transport = self._transport
        if transport is None:
            if self.handshake is not None:
                self.handshake.cancel()
        elif self._answers or transport.get_write_buffer_size() or transport.get_extra_info("sslcontext") is not None:
            transport.abort()  # a clean TLS shutdown would take the caller's time
        else:
            self.refuse(503, "unavailable", "too many connections that are not signed in; come back")

    def refuse(self, status: int, code: str, message: str) -> None:
        """Report the reason in the API's form, and close."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(refusal(status, code, message))
            self._transport.close()

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _await_head(self) -> None:
        if self._head_timer is None and self._transport is not None and not self._transport.is_closing():
            loop = asyncio.get_running_loop()
            self._head_timer = loop.call_later(self._limits.header_s_max, self._refuse_slow_head)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse_slow_head(self) -> None:
        self._head_timer = None
        limit_s = self._limits.header_s_max
        self.refuse(408, "too_slow", f"the request's head did not come within {limit_s:g} s (HEADER_S_MAX)")


class _Transport:
    """The transport for uvicorn. Whatever uvicorn writes while it reads is its own refusal of the request, in a form
    that is not the API's."""

    def __init__(self, connection: Connection, transport: asyncio.Transport) -> None:
        self._connection = connection
        self._transport = transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if self._connection.is_reading:
            problem = (
                f"this is not an HTTP request, or its head has more than {HEADER_BYTES_MAX} bytes (HEADER_BYTES_MAX)"
            )
            self._connection.refuse(400, "invalid", problem)
        else:
            self._transport.write(data)
