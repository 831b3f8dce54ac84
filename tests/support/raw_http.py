"""HTTP by hand: bytes sent to a port of the loopback, and the answer."""

from __future__ import annotations

import json
import socket
from contextlib import suppress

WAIT_S = 120.0


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)


def rest(connection: socket.socket) -> bytes:
    """Return what comes until the server closes."""
    parts = []
    with suppress(ConnectionError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def sent(port: int, *pieces: bytes) -> bytes:
    """Send these pieces; return the server's answer until it closes."""
    with connected(port) as connection:
        with suppress(ConnectionError):  # it may close before all was sent
            for piece in pieces:
                connection.sendall(piece)
        return rest(connection)


def error_in(answer: bytes) -> tuple[int, str]:
    """Return the status and the code of an error."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]["code"]
