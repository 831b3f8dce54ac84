"""SHA-256 of files and of pieces of them, read in small parts so that memory does not grow with the file.

The plain functions block; ``of_file`` and ``of_pieces`` are for callers in an event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

# The number of bytes that are read at once.
READ_BYTES = 1 << 20
# A checksum in text: 64 hexadecimal digits, in lower case.
DIGITS = 64


class Readable(Protocol):
    """A stream that can be read to its end."""

    def read(self, size_bytes: int, /) -> bytes:
        """Read this many bytes; fewer only at the end."""
        ...


def is_checksum(text: str) -> bool:
    """Return True if the text has the form of a checksum."""
    return len(text) == DIGITS and all(digit in "0123456789abcdef" for digit in text)


def of_stream(stream: Readable, size_bytes: int | None = None) -> str:
    """Return the checksum of the next ``size_bytes`` of the stream, or of the rest if that is less."""
    digest = hashlib.sha256()
    left = size_bytes
    while left is None or left > 0:
        piece = stream.read(READ_BYTES if left is None else min(READ_BYTES, left))
        if not piece:
            break
        digest.update(piece)
        if left is not None:
            left -= len(piece)
    return digest.hexdigest()


def of_path(path: Path, offset: int = 0, size_bytes: int | None = None) -> str:
    """Return the checksum of a file, or of ``size_bytes`` of it from ``offset`` on."""
    with path.open("rb") as stream:
        stream.seek(offset)
        return of_stream(stream, size_bytes)


async def of_file(path: Path, offset: int = 0, size_bytes: int | None = None) -> str:
    """Run ``of_path`` in a thread."""
    return await asyncio.to_thread(of_path, path, offset, size_bytes)


async def of_pieces(read: Callable[[int, int], Awaitable[bytes]], offset: int, size_bytes: int) -> str:
    """Return the checksum of ``size_bytes`` from ``offset`` on, or of as many bytes as there are, read piece by
    piece.

    ``read`` returns the bytes from an offset on, fewer only at the end of the file.
    """
    digest = hashlib.sha256()
    end = offset + size_bytes
    while offset < end:
        piece = await read(offset, min(READ_BYTES, end - offset))
        if not piece:
            break
        digest.update(piece)
        offset += len(piece)
    return digest.hexdigest()
