"""Connections by hand: what is no HTTP, what comes too slowly, and one connection too many, at a small server."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import cast

import pytest
import uvicorn
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from koala.daemon.api.limits import CONNECTIONS_MAX, HEADER_BYTES_MAX, HEADER_S_MAX
from koala.daemon.connections import LimitedConnections
from tests.support.raw_http import connected, error_in, rest, sent

WAIT_S = 120.0
HEADER_S = 0.3
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, but at /late only when the body is complete."""
    if scope["path"] == "/late":
        await Request(scope, receive).body()
    await Response("fine")(scope, receive, send)


@contextmanager
def served(*, connections_max: int = CONNECTIONS_MAX, header_s_max: float = HEADER_S_MAX) -> Iterator[int]:
    """A server with these limits in a thread of its own; its port."""
    limited = LimitedConnections(answer, connections_max=connections_max, header_s_max=header_s_max)
    config = uvicorn.Config(
        limited,
        http=cast(type[asyncio.Protocol], limited.connect),
        ws="none",
        lifespan="off",
        log_config=None,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
    )
    server = uvicorn.Server(config)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        serving.start()
        try:
            until(lambda: server.started or not serving.is_alive())
            assert server.started
            yield bound.getsockname()[1]
        finally:
            server.should_exit = True
            serving.join(WAIT_S)


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not seen():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


@pytest.mark.parametrize(
    "text",
    [
        b"\x16\x03\x01\x02\x00\x01\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nX: " + b"x" * (HEADER_BYTES_MAX + 1),
        b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /late HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n",
    ],
    ids=["tls", "long head", "two lengths", "broken chunk"],
)
def test_what_is_no_http_is_refused_in_the_form_of_the_api(text: bytes) -> None:
    with served() as port:
        assert error_in(sent(port, text)) == (400, "invalid")


@pytest.mark.parametrize("text", [b"", b"GET / HTTP/1.1\r\nHost: he"], ids=["nothing", "a piece"])
def test_a_head_that_does_not_come_is_refused(text: bytes) -> None:
    with served(header_s_max=HEADER_S) as port:
        assert error_in(sent(port, text)) == (408, "too_slow")


def test_the_head_of_a_later_request_is_refused_too_when_it_is_slow() -> None:
    with served(header_s_max=HEADER_S) as port, connected(port) as connection:
        connection.sendall(GET)
        assert b"200 OK" in connection.recv(65_536)
        connection.sendall(GET[:10])
        assert error_in(rest(connection)) == (408, "too_slow")


def test_a_body_is_not_counted_as_a_slow_head() -> None:
    with served(header_s_max=HEADER_S) as port, connected(port) as connection:
        connection.sendall(b"POST /late HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\nConnection: close\r\n\r\na")
        connection.settimeout(3 * HEADER_S)
        with pytest.raises(TimeoutError):
            connection.recv(1)
        connection.settimeout(WAIT_S)
        connection.sendall(b"b")
        assert b"200 OK" in rest(connection)


def test_a_broken_body_after_the_answer_ends_only_its_connection() -> None:
    with served() as port:
        with connected(port) as connection:
            connection.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n")
            assert b"200 OK" in connection.recv(65_536)
            connection.sendall(b"no length\r\n")
            rest(connection)
        assert b"200 OK" in sent(port, GET.replace(b"1.1", b"1.0"))


def test_no_more_connections_are_held_than_the_limit() -> None:
    with served(connections_max=4) as port, ExitStack() as held:
        for _ in range(4):
            connection = held.enter_context(connected(port))
            connection.sendall(GET)
            assert b"200 OK" in connection.recv(65_536)
        assert error_in(sent(port)) == (503, "unavailable")
        held.close()
        until(lambda: b"200 OK" in sent(port, GET.replace(b"1.1", b"1.0")))
