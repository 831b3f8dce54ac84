"""A client that costs next to nothing, so that what it measures is the server: plain HTTP over a unix socket.

As a program, ``lean_client.py SOCKET FIRST COUNT`` says ``ready``, waits for a line, submits so many jobs one after
the other, and prints the seconds that each took as JSON. Any server that answers with a success will do.
"""

from __future__ import annotations

import http.client
import json
import socket
import sys
import time

DESCRIPTION = "name: job-{number}\napplication: {{script: sleep 600}}\ncomponents: [{{processors: 1, count: 2}}]\n"
TIMEOUT_S = 120.0


class UnixConnection(http.client.HTTPConnection):
    """A connection to a socket of this machine."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket instead of a port."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def submit(connection: UnixConnection, number: int) -> None:
    """Submit one job and wait until the server has it; with a client token, as every real client."""
    wish = {"description": DESCRIPTION.format(number=number), "client_token": f"token-{number}"}
    connection.request("POST", "/v1/jobs", json.dumps(wish), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    if answer.status not in (200, 201):
        raise SystemExit(f"submission {number} was answered with {answer.status}: {body.decode(errors='replace')}")


def main() -> None:
    path, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    connection = UnixConnection(path)
    connection.connect()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    taken_s = []
    for number in range(first, first + count):
        before = time.perf_counter()
        submit(connection, number)
        taken_s.append(time.perf_counter() - before)
    connection.close()
    json.dump(taken_s, sys.stdout)


if __name__ == "__main__":
    main()
