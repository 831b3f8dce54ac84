"""The way to a daemon over its unix socket, for ``Client``. A try that fails leaves no open socket behind."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpcore
import httpx


class _Stream(httpcore.NetworkStream):
    """The bytes of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """What has come, at most so much; nothing at the end."""
        self._socket.settimeout(timeout)
        try:
            return self._socket.recv(max_bytes)
        except TimeoutError as error:
            raise httpcore.ReadTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ReadError(str(error)) from error

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send all of it."""
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(buffer)
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.WriteError(str(error)) from error

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def get_extra_info(self, info: str) -> Any:
        """Whether something waits to be read, which on an idle connection is its end."""
        if info != "is_readable":
            return None
        poller = select.poll()
        poller.register(self._socket, select.POLLIN)
        return bool(poller.poll(0))


class _Backend(httpcore.SyncBackend):
    """Connects by itself: the library forgets to close its socket when nobody listens."""

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connecting.settimeout(timeout)
        try:
            connecting.connect(path)
        except OSError as error:
            connecting.close()
            kind = httpcore.ConnectTimeout if isinstance(error, TimeoutError) else httpcore.ConnectError
            raise kind(str(error)) from error
        return _Stream(connecting)


class SocketTransport(httpx.HTTPTransport):
    """Connections to a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__(verify=False)
        self._pool = httpcore.ConnectionPool(uds=str(path), network_backend=_Backend())
