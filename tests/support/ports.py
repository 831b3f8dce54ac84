"""Ports of loopback for servers of tests, which nobody else takes between the choice and the start of the server.

The system assigns ports of its own range to every connection, so a free one may be taken a moment later. These ports
are below that range; each process of a run begins elsewhere, and returns every port only once.
"""

from __future__ import annotations

import functools
import itertools
import os
import socket
from collections.abc import Iterator

# Below the ports of labs and of Grid Engine's cells.
FIRST, LAST = 10_000, 17_999
# A process returns this many ports before it reaches those of the next one.
EACH = 100


@functools.cache
def _line(pid: int) -> Iterator[int]:
    """Yield all ports in turn, from one that depends on the process."""
    ports = range(FIRST, LAST + 1)
    return itertools.cycle([*ports[pid * EACH % len(ports) :], *ports[: pid * EACH % len(ports)]])


def free_port() -> int:
    """Return a free port, which this process does not return again for long."""
    for port in itertools.islice(_line(os.getpid()), LAST - FIRST + 1):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise AssertionError(f"no port from {FIRST} to {LAST} is free")


def free_ports(count: int) -> list[int]:
    """Return several free ports."""
    return [free_port() for _ in range(count)]


# The blocks of ports that this process keeps, by their first port: sockets without a file, which the system closes
# when the process ends, in whatever way.
_kept: dict[int, int] = {}


def keep_block(first: int) -> bool:
    """Keep the block of ports that begins here, as a lab needs one, until this process ends; return False if another
    process keeps it. Between a test whether ports are free and the start of servers there, others test too."""
    if first not in _kept:
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0koala-tests-ports-{first}")
        except OSError:
            mark.close()
            return False
        _kept[first] = mark.detach()
    return True
