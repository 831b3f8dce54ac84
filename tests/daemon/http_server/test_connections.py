"""Connections by hand: what is no HTTP, what comes too slowly, who holds too many connections, at a small server."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from koala.daemon.api.limits import HANDSHAKE_S_MAX, HEADER_BYTES_MAX, HEADER_S_MAX
from koala.daemon.api.listeners import CONNECTION
from koala.daemon.http_server.admission import Admission
from koala.daemon.http_server.server import AcceptorServer
from koala.model.errors import TooManyError
from tests.support.certificates import self_signed
from tests.support.raw_http import connected, error_in, rest, sent

WAIT_S = 120.0
HEADER_S = 0.3
GET = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers at once, but at /late only when the body is complete. Callers of /as/... are signed in as those."""
    if scope["path"] == "/late":
        await Request(scope, receive).body()
    if scope["path"].startswith("/as/"):
        try:
            scope["state"][CONNECTION].identify(scope["path"])
        except TooManyError:
            await Response("too many", status_code=429)(scope, receive, send)
            return
    await Response("fine")(scope, receive, send)


@contextmanager
def served(
    admission: Admission | None = None,
    *,
    header_s_max: float = HEADER_S_MAX,
    tls: ssl.SSLContext | None = None,
    handshake_s_max: float = HANDSHAKE_S_MAX,
) -> Iterator[int]:
    """A server with these limits in a thread of its own; its port."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        server = AcceptorServer(
            answer,
            bound,
            Admission() if admission is None else admission,
            tls,
            header_s_max=header_s_max,
            handshake_s_max=handshake_s_max,
        )
        serving = threading.Thread(target=server.run)
        serving.start()
        try:
            until(lambda: server.started or not serving.is_alive())
            assert server.started
            yield port
        finally:
            server.should_exit = True
            serving.join(WAIT_S)


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not seen():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.01)


def test_the_body_of_an_answer_does_not_wait_until_its_header_is_acknowledged() -> None:
    async def scene(bound: socket.socket) -> None:
        server = AcceptorServer(answer, bound, Admission())
        await server.startup()
        bound.settimeout(WAIT_S)  # accepted here, before the server has its turn
        with socket.create_connection(bound.getsockname()), bound.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        server.servers[0].close()

    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        asyncio.run(scene(bound))


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


def ask(connection: socket.socket, request: bytes = GET) -> None:
    """Send a request and read its whole answer; the connection stays."""
    connection.sendall(request)
    answer = b""
    while not answer.endswith(b"fine"):
        part = connection.recv(65_536)
        assert part, answer
        answer += part


def signed_in(port: int, user: str) -> socket.socket:
    connection = connected(port)
    ask(connection, GET.replace(b"/ ", f"/as/{user} ".encode()))
    return connection


def is_answered(port: int) -> bool:
    return b"200 OK" in sent(port, GET.replace(b"1.1", b"1.0"))


def is_closed(connection: socket.socket) -> bool:
    """Whether the server closes it."""
    rest(connection)
    return True


def test_no_more_connections_of_users_are_held_than_the_limit() -> None:
    with served(Admission(connections_max=4)) as port, ExitStack() as held:
        for user in range(4):
            held.enter_context(signed_in(port, f"user-{user}"))
        assert error_in(sent(port)) == (503, "unavailable")
        held.close()
        until(lambda: is_answered(port))


def test_whoever_opens_connections_and_says_nothing_shuts_nobody_out() -> None:
    admission = Admission(connections_max=300, strangers_per_address_max=20)
    with served(admission) as port, ExitStack() as held, signed_in(port, "ada") as ada:
        silent = [held.enter_context(connected(port)) for _ in range(360)]
        for connection in silent[::2]:
            with suppress(ConnectionError):
                connection.sendall(b"GET / HTTP/1.1\r\nHost: he")
        assert is_answered(port)
        assert admission.count <= 22
        assert is_closed(silent[1])
        ask(ada)


def test_when_no_room_is_left_strangers_make_room_and_users_do_not() -> None:
    with served(Admission(connections_max=3)) as port, signed_in(port, "ada"), signed_in(port, "bob") as bob:
        with connected(port) as stranger, connected(port) as newer:
            assert is_closed(stranger)
            ask(newer)
        ask(bob)


def test_one_user_holds_so_many_connections_and_others_theirs() -> None:
    with served(Admission(connections_per_user_max=2)) as port, ExitStack() as held:
        for user in ("ada", "ada", "bob"):
            held.enter_context(signed_in(port, user))
        asked = GET.replace(b"/ ", b"/as/ada ").replace(b"1.1", b"1.0")
        assert b"429" in sent(port, asked)
        held.close()
        until(lambda: b"200 OK" in sent(port, asked))


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    cert, key = self_signed(tmp_path_factory.mktemp("tls"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return context


def over_tls(port: int) -> bytes:
    """What a caller who speaks TLS is answered."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with connected(port) as plain, context.wrap_socket(plain) as connection:
        connection.sendall(GET.replace(b"1.1", b"1.0"))
        return rest(connection)


def test_connections_count_before_their_handshake_and_shut_nobody_out(tls: ssl.SSLContext) -> None:
    admission = Admission(connections_max=300, strangers_per_address_max=20)
    with served(admission, tls=tls) as port, ExitStack() as held:
        silent = [held.enter_context(connected(port)) for _ in range(200)]
        assert b"200 OK" in over_tls(port)
        assert admission.count <= 21
        assert is_closed(silent[0])


def test_a_handshake_has_its_time_and_no_more(tls: ssl.SSLContext) -> None:
    admission = Admission()
    with served(admission, tls=tls, handshake_s_max=HEADER_S) as port, connected(port) as silent:
        assert is_closed(silent)
        until(lambda: admission.count == 0)
        assert b"200 OK" in over_tls(port)


def test_what_is_no_tls_ends_its_connection_only(tls: ssl.SSLContext) -> None:
    with served(tls=tls) as port:
        assert b"200 OK" not in sent(port, GET)
        assert b"200 OK" in over_tls(port)


def test_of_one_tick_too_many_connections_are_all_closed() -> None:
    """They come before the first of them was set up."""
    admission = Admission(strangers_per_address_max=2)
    with served(admission) as port, ExitStack() as held:
        silent = [held.enter_context(connected(port)) for _ in range(50)]
        assert is_answered(port)
        assert all(is_closed(each) for each in silent[:-2])
