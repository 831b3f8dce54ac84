"""SHA-256 of files and of pieces of them, read a little at a time so that memory does not grow with the file.

The plain functions block; ``of_file`` and ``of_pieces`` are for callers that live in an event loop.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

# How much is read at once.
READ_BYTES = 1 << 20
# A checksum in text: 64 hexadecimal digits, in lower case.
DIGITS = 64


class Readable(Protocol):
    """What can be read to its end."""

    def read(self, size_bytes: int, /) -> bytes:
        """So many bytes; fewer only at the end."""
        ...


def is_checksum(text: str) -> bool:
    """Whether the text has the form of a checksum."""
    return len(text) == DIGITS and all(digit in "0123456789abcdef" for digit in text)


def of_stream(stream: Readable, size_bytes: int | None = None) -> str:
    """The checksum of the next ``size_bytes`` of the stream, or of all that is left, if that is less."""
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
    """The checksum of a file, or of ``size_bytes`` of it from ``offset`` on."""
    with path.open("rb") as stream:
        stream.seek(offset)
        return of_stream(stream, size_bytes)


async def of_file(path: Path, offset: int = 0, size_bytes: int | None = None) -> str:
    """``of_path`` off the event loop."""
    return await asyncio.to_thread(of_path, path, offset, size_bytes)


async def of_pieces(read: Callable[[int, int], Awaitable[bytes]], offset: int, size_bytes: int) -> str:
    """The checksum of ``size_bytes`` from ``offset`` on, or of as many as there are, got piece by piece.

    ``read`` gives the bytes from an offset on, fewer only at the end of the file.
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
