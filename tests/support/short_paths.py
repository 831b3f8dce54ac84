"""Directories for sockets, whose paths the kernel limits."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# The kernel's limit on the path of a socket is 107 bytes; pytest's directories can be longer.
SOCKET_PATH_BYTES_MAX = 100
SHORT_DIRECTORY = "/tmp"  # noqa: S108 - only the parent of a directory that tempfile makes


@contextmanager
def directory_for_socket(wanted: Path, name: str) -> Iterator[Path]:
    """Return this directory; or, if the path of a socket of this name below it would be too long, a new one in
    ``SHORT_DIRECTORY``, which is removed at the end."""
    if len(os.fsencode(wanted / name)) <= SOCKET_PATH_BYTES_MAX:
        yield wanted
    else:
        with tempfile.TemporaryDirectory(prefix="koala-", dir=SHORT_DIRECTORY, ignore_cleanup_errors=True) as short:
            yield Path(short)
