"""uvicorn as the daemon uses it: at one socket, with connections from an acceptor."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from koala.daemon.api.limits import HANDSHAKE_S_MAX, HEADER_BYTES_MAX, HEADER_S_MAX, KEEP_ALIVE_S
from koala.daemon.http_server.acceptor import Acceptor
from koala.daemon.http_server.admission import Admission
from koala.daemon.http_server.connections import Connection, LimitedConnections

# Answers under way may take this long when the daemon stops.
ANSWERS_S_MAX = 10


class AcceptorServer(uvicorn.Server):
    """A server at one socket, whose connections come from an acceptor. It leaves signals to the daemon."""

    def __init__(
        self,
        app: ASGIApp,
        bound: socket.socket,
        admission: Admission,
        tls: ssl.SSLContext | None = None,
        *,
        header_s_max: float = HEADER_S_MAX,
        handshake_s_max: float = HANDSHAKE_S_MAX,
    ) -> None:
        self._connections = LimitedConnections(app, admission, header_s_max=header_s_max)
        super().__init__(_config(self._connections))
        self._acceptor = Acceptor(bound, admission, self._connect, tls=tls, handshake_s_max=handshake_s_max)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept. At the end uvicorn closes the acceptor."""
        self._acceptor.open()
        self.servers = cast(list[asyncio.Server], [self._acceptor])
        self.started = True

    def _connect(self) -> Connection:
        return self._connections.connect(config=self.config, server_state=self.server_state, app_state={})

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def _config(app: ASGIApp) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=ANSWERS_S_MAX,
    )
    config.load()
    return config
