"""Accepts connections at one socket, counts them before TLS, and hands them to uvicorn's protocol.

asyncio's own server accepts every connection, gives a handshake a minute that nobody counts, and writes thousands of
lines to the log when descriptors run out.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from koala.daemon.api.limits import HANDSHAKE_S_MAX, network_of
from koala.daemon.http_server.admission import Admission, Visit
from koala.daemon.http_server.connections import Connection, refusal

# At most this many connections are accepted before the event loop's other tasks run, and this many may wait.
ACCEPTED_AT_ONCE_MAX = 64
BACKLOG = 1_024
# The pause in accepting when the system has no resources for a connection.
PAUSE_S = 1.0
# The longest shutdown of a TLS connection.
GOODBYE_S_MAX = 5.0

log = logging.getLogger("koala.daemon.api")


class Acceptor:
    """Accepts at one socket from ``open`` to ``close``. uvicorn closes it like a server of asyncio."""

    def __init__(
        self,
        bound: socket.socket,
        admission: Admission,
        connect: Callable[[], Connection],
        *,
        tls: ssl.SSLContext | None = None,
        handshake_s_max: float = HANDSHAKE_S_MAX,
    ) -> None:
        self._bound = bound
        self._admission = admission
        self._connect = connect
        self._tls = tls
        self._handshake_s_max = handshake_s_max
        self._arriving: dict[asyncio.Task[None], Connection] = {}
        self._pause: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to accept."""
        if self._bound.family in (socket.AF_INET, socket.AF_INET6):
            # Accepted sockets inherit the option. Without it the body of an answer waits until the caller has
            # acknowledged its header, which takes 40 ms; asyncio sets it only for sockets that name their protocol.
            self._bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._bound.setblocking(False)
        self._bound.listen(BACKLOG)
        self._resume()

    def close(self) -> None:
        """Stop accepting, and end the handshakes under way. Connections go on."""
        if self._pause is not None:
            self._pause.cancel()
        if self._bound.fileno() >= 0:
            asyncio.get_running_loop().remove_reader(self._bound)
            self._bound.close()
        for connection in self._arriving.values():
            connection.drop()

    async def wait_closed(self) -> None:
        """Wait until no handshake is under way."""
        if self._arriving:
            await asyncio.wait(self._arriving)

    def _resume(self) -> None:
        self._pause = None
        asyncio.get_running_loop().add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                accepted, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # The socket remains readable while there are no descriptors for waiting connections.
                log.warning("no connection can be accepted for a moment", extra={"reason": error.strerror})
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._bound)
                self._pause = loop.call_later(PAUSE_S, self._resume)
                return
            accepted.setblocking(False)
            self._admit(accepted, network_of(str(address[0])) if address else "")

    def _admit(self, accepted: socket.socket, network: str) -> None:
        connection = self._connect()
        visit = self._admission.enter(network, connection.drop)
        if visit is None:
            most = self._admission.connections_max
            if self._tls is None:
                with suppress(OSError):
                    accepted.send(refusal(503, "unavailable", f"{most} connections are open; come back later"))
            accepted.close()
            return
        connection.visit = visit
        task = asyncio.get_running_loop().create_task(self._hand_over(accepted, connection, visit))
        self._arriving[task] = connection
        task.add_done_callback(self._arriving.pop)

    async def _hand_over(self, accepted: socket.socket, connection: Connection, visit: Visit) -> None:
        if connection.is_dropped:
            accepted.close()
            return
        connection.handshake = asyncio.current_task()
        over_tls = self._tls is not None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=self._handshake_s_max if over_tls else None,
                ssl_shutdown_timeout=GOODBYE_S_MAX if over_tls else None,
            )
        except (OSError, asyncio.CancelledError) as error:
            # The caller has gone, speaks no TLS, takes too long, or makes room for others.
            self._admission.leave(visit)
            log.debug("handshake not completed", extra={"reason": repr(error)})
        finally:
            connection.handshake = None
