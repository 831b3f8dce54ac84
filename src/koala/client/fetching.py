"""Files of the catalogue on their way to this machine: piece by piece, gone on with after an interruption, verified.

What has come so far lies beside the file under a hidden name, and becomes the file when all of it is there and right.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
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
    with _told(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = part.open("ab+")
    with file:
        with _told(path):
            digest, offset = _so_far(file, info.size_bytes)
        while offset < info.size_bytes:
            piece = yield from exchange.perform(calls.read_file(name, offset=offset))
            if not piece or offset + len(piece) > info.size_bytes:
                raise _changed(name)
            with _told(path):
                file.write(piece)
            digest.update(piece)
            offset += len(piece)
            if progress is not None:
                progress(offset, info.size_bytes)
        if digest.hexdigest() != info.checksum:
            part.unlink()
            raise _changed(name)
        with _told(path):
            file.flush()
            os.fsync(file.fileno())
    with _told(path):
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


def unpack(archive: Path, directory: Path) -> list[str]:
    """Unpack the archive of a directory, and remove it; the entries that are not unpacked, as they lead out of the
    directory or are no files. Files that are there are replaced."""
    with _told(directory):
        directory.mkdir(parents=True, exist_ok=True)
        root = directory.resolve()
        with tarfile.open(archive) as tar:
            tar.extraction_filter = lambda entry, _: entry  # tarfile's own judgement differs from Python to Python
            left_out = [entry.name for entry in tar if not _extracts(tar, entry, root)]
        archive.unlink()
    return left_out


def _extracts(tar: tarfile.TarFile, entry: tarfile.TarInfo, root: Path) -> bool:
    """Whether the entry is harmless, and was unpacked. What is written never goes through a link, whoever made it."""
    path = root / entry.name
    if not _is_below(root, entry.name) or not _is_harmless(entry, root):
        return False
    if path.is_symlink() or (entry.islnk() and path.is_file()):
        if entry.isdir():
            return False
        path.unlink()
    entry.uid, entry.gid, entry.uname, entry.gname = os.getuid(), os.getgid(), "", ""
    entry.mode = entry.mode & 0o755 | (0o700 if entry.isdir() else 0o600)
    tar.extract(entry, root)
    return True


def _is_below(root: Path, name: str) -> bool:
    """Whether a name is one of something in the directory, on a way without links."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return False
    return not any((root / parent).is_symlink() for parent in path.parents)


def _is_harmless(entry: tarfile.TarInfo, root: Path) -> bool:
    """Whether it is a file, a directory, or a link to something in the directory."""
    if entry.issym():
        target = os.path.realpath((root / entry.name).parent / entry.linkname)
        return not entry.linkname.startswith("/") and Path(target).is_relative_to(root)
    if entry.islnk():
        other = root / entry.linkname
        return _is_below(root, entry.linkname) and not other.is_symlink() and other != root / entry.name
    return entry.isfile() or entry.isdir()


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except tarfile.TarError as error:
        raise InvalidError(f"{path}: what came is no archive ({error}); fetch it again") from None
    except OSError as error:
        raise InvalidError(f"{path}: {error.strerror or error}; name a place with --to that can be written") from None


def _changed(name: str) -> ConflictError:
    return ConflictError(f"file {name!r}: what came is not what the catalogue knows; fetch it again")
