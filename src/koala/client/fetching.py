"""Downloads of catalogue files: piece by piece, continued after an interruption, verified.

A partial file lies beside its path under a hidden name, and gets its name when it is complete and verified.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from koala.client.errors import ConflictError, InvalidError, NotFoundError, UnavailableError

if TYPE_CHECKING:
    from koala.client.exchange import Exchange, Steps
    from koala.model.api import FileInfo, OutputInfo

# Receives the number of bytes that are here, and of all bytes.
FetchProgress: TypeAlias = Callable[[int, int], None]
_READ_BYTES = 1_048_576
# A file of at most this size shares an answer with others.
SMALL_BYTES_MAX = 1_048_576
_CHANGED = "its content differs from the catalogue; fetch it again"
# A file of the catalogue, and its path here.
_Wanted: TypeAlias = "tuple[FileInfo | OutputInfo, Path]"


def fetch(exchange: Exchange, name: str, path: Path, progress: FetchProgress | None = None) -> Steps[FileInfo]:
    """Copy a file of the catalogue to this path, which it replaces. Raises ``InvalidError`` for errors of this
    machine's disk, and ``ConflictError`` when the content differs from the catalogue."""
    from koala.client import calls

    info = yield from exchange.perform(calls.file(name))
    yield from _bring(exchange, info, path, progress)
    return info


def fetch_all(
    exchange: Exchange,
    wanted: Iterable[tuple[FileInfo | OutputInfo, str | Path]],
    progress: FetchProgress | None = None,
) -> Steps[dict[Path, str]]:
    """Copy files of the catalogue to paths of this machine: small ones many at a time, larger ones piece by piece. A
    file that is there already is not copied again. Return the paths of the files that failed, each with the
    reason."""
    left: list[_Wanted] = [(info, Path(path)) for info, path in wanted]
    problems: dict[Path, str] = {}
    total, done = sum(info.size_bytes for info, _ in left), 0

    def came(info: FileInfo | OutputInfo) -> None:
        nonlocal done
        done += info.size_bytes
        tell(0)

    def tell(more: int, _: int = 0) -> None:
        if progress is not None:
            progress(done + more, total)

    small: list[_Wanted] = []
    for info, path in left:
        if _is_here(info, path):
            came(info)
        elif info.size_bytes <= SMALL_BYTES_MAX:
            small.append((info, path))
        else:
            try:
                yield from _bring(exchange, info, path, tell)
            except (ConflictError, NotFoundError, UnavailableError) as error:
                problems[path] = str(error)
            came(info)
    while small:
        small = yield from _bring_some(exchange, small, problems, came)
    return problems


def _bring_some(
    exchange: Exchange,
    wanted: list[_Wanted],
    problems: dict[Path, str],
    came: Callable[[FileInfo | OutputInfo], None],
) -> Steps[list[_Wanted]]:
    """Copy as many files as fit into one answer; return the others."""
    from koala.client import calls
    from koala.model.api import DOWNLOAD_BYTES_MAX, DOWNLOAD_FILES_MAX

    room, asked, left = DOWNLOAD_BYTES_MAX, dict[str, _Wanted](), list[_Wanted]()
    for info, path in wanted:
        if len(asked) < DOWNLOAD_FILES_MAX and info.size_bytes <= room and info.name not in asked:
            asked[info.name] = info, path
            room -= info.size_bytes
        else:
            left.append((info, path))
    read = yield from exchange.perform(calls.read_files(list(asked)))
    for told, data in read:
        info, path = asked.pop(told.name)
        if told.problem:
            problems[path] = told.problem
        elif hashlib.sha256(data).hexdigest() != info.checksum:
            problems[path] = _CHANGED
        else:
            with told_of(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                part = _part_of(path, info)
                part.write_bytes(data)
                part.replace(path)
        came(info)
    if not read:
        problems |= {path: "the daemon does not provide it" for _, path in asked.values()}
        asked.clear()
    return [*asked.values(), *left]


def _bring(
    exchange: Exchange, info: FileInfo | OutputInfo, path: Path, progress: FetchProgress | None
) -> Steps[None]:
    """Copy one file piece by piece, from where an earlier attempt stopped."""
    from koala.client import calls

    part = _part_of(path, info)
    with told_of(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = part.open("ab+")
    with file:
        with told_of(path):
            digest, offset = _so_far(file, info.size_bytes)
        while offset < info.size_bytes:
            piece = yield from exchange.perform(calls.read_file(info.name, offset=offset))
            if not piece or offset + len(piece) > info.size_bytes:
                raise _changed(info.name)
            with told_of(path):
                file.write(piece)
            digest.update(piece)
            offset += len(piece)
            if progress is not None:
                progress(offset, info.size_bytes)
        if digest.hexdigest() != info.checksum:
            part.unlink()
            raise _changed(info.name)
        with told_of(path):
            file.flush()
            os.fsync(file.fileno())
    with told_of(path):
        part.replace(path)


def _part_of(path: Path, info: FileInfo | OutputInfo) -> Path:
    """Return the path of a file until it is complete."""
    return path.with_name(f".{path.name}.{info.checksum[:16]}.part")


def _is_here(info: FileInfo | OutputInfo, path: Path) -> bool:
    """Return True if the file is complete at its path already."""
    try:
        if not path.is_file() or path.stat().st_size != info.size_bytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == info.checksum
    except OSError:
        return False


def _so_far(file: BinaryIO, size_bytes: int) -> tuple[Any, int]:
    """Return the digest and the size of what has arrived; content that cannot be the start of the file is
    discarded."""
    digest, offset = hashlib.sha256(), file.seek(0, os.SEEK_END)
    if offset > size_bytes:
        file.truncate(0)
        return digest, 0
    file.seek(0)
    while piece := file.read(_READ_BYTES):
        digest.update(piece)
    return digest, offset


@contextlib.contextmanager
def told_of(path: Path) -> Iterator[None]:
    """Turn errors of this machine's disk into errors for the user."""
    try:
        yield
    except OSError as error:
        raise InvalidError(f"{path}: {error.strerror or error}; name a place with --to that can be written") from None


def _changed(name: str) -> ConflictError:
    return ConflictError(f"file {name!r}: {_CHANGED}")
