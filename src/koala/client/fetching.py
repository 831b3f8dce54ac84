"""Files of the catalogue on their way to this machine: piece by piece, gone on with after an interruption, verified.

What has come so far lies beside the file under a hidden name, and becomes the file when all of it is there and right.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from koala.client.errors import ConflictError, InvalidError

if TYPE_CHECKING:
    from koala.client.exchange import Exchange, Steps
    from koala.model.api import FileInfo

# Hears how many bytes of how many are here.
FetchProgress: TypeAlias = Callable[[int, int], None]
_READ_BYTES = 1_048_576


def fetch(exchange: Exchange, name: str, path: Path, progress: FetchProgress | None = None) -> Steps[FileInfo]:
    """Bring a file of the catalogue to this path, which it replaces. Raises ``InvalidError`` for what this machine's
    disk refuses, and ``ConflictError`` when what came is not what the catalogue knows."""
    from koala.client import calls

    info = yield from exchange.perform(calls.file(name))
    part = path.with_name(f".{path.name}.{info.checksum[:16]}.part")
    with told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = part.open("ab+")
    with file:
        with told(path):
            digest, offset = _so_far(file, info.size_bytes)
        while offset < info.size_bytes:
            piece = yield from exchange.perform(calls.read_file(name, offset=offset))
            if not piece or offset + len(piece) > info.size_bytes:
                raise _changed(name)
            with told(path):
                file.write(piece)
            digest.update(piece)
            offset += len(piece)
            if progress is not None:
                progress(offset, info.size_bytes)
        if digest.hexdigest() != info.checksum:
            part.unlink()
            raise _changed(name)
        with told(path):
            file.flush()
            os.fsync(file.fileno())
    with told(path):
        part.replace(path)
    return info


def _so_far(file: BinaryIO, size_bytes: int) -> tuple[Any, int]:
    """The digest of what has come, and how much that is; what can be no beginning of the file is thrown away."""
    digest, offset = hashlib.sha256(), file.seek(0, os.SEEK_END)
    if offset > size_bytes:
        file.truncate(0)
        return digest, 0
    file.seek(0)
    while piece := file.read(_READ_BYTES):
        digest.update(piece)
    return digest, offset


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """What this machine's disk refuses, as the user's error."""
    try:
        yield
    except OSError as error:
        raise InvalidError(f"{path}: {error.strerror or error}; name a place with --to that can be written") from None


def _changed(name: str) -> ConflictError:
    return ConflictError(f"file {name!r}: what came is not what the catalogue knows; fetch it again")
