"""The way to a daemon over its unix socket, for ``Client``. A try that fails leaves no open socket behind."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx


class SocketTransport(httpx.HTTPTransport):
    """Connections to a unix socket.

    The library forgets to close its socket when nobody listens, so as long as nobody is known to, the socket is tried
    with one of our own first.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(verify=False, uds=str(path))
        self._path = str(path)
        self._answers = False

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """See ``httpx.HTTPTransport``."""
        if not self._answers:
            self._try(request)
        self._answers = False
        response = super().handle_request(request)
        self._answers = True
        return response

    def _try(self, request: httpx.Request) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as attempt:
            attempt.settimeout(request.extensions.get("timeout", {}).get("connect"))
            try:
                attempt.connect(self._path)
            except OSError as error:
                raise httpx.ConnectError(str(error), request=request) from error
