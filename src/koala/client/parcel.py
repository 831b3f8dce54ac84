"""Files of this machine that travel with a job: how they are gathered and measured, and the steps that send them.

``koala.client.client`` does the sending. Content that was sent before an interruption is not sent again.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from koala.client.errors import ConflictError, InvalidError
from koala.model.travelling import (
    MODE_BITS,
    PIECE_BYTES_MAX,
    TRAVELLING_BYTES_MAX,
    TRAVELLING_FILES_MAX,
    TravellingError,
    TravellingFile,
    check_travelling,
    write_manifest,
)

if TYPE_CHECKING:
    from koala.client.exchange import Exchange, Steps

# Paths, each of which appears under its last name where the job runs; or names there, with the paths here.
Files: TypeAlias = Iterable[str | Path] | Mapping[str, str | Path]
# Receives the number of bytes that are at the daemon, and of all bytes.
SendProgress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class FileParcel:
    """The files that travel, and the path of each content here, by checksum."""

    files: tuple[TravellingFile, ...]
    sources: Mapping[str, Path]

    @property
    def listed(self) -> str | None:
        """The list for a submission; None if it is empty."""
        return self.manifest if self.files else None

    @property
    def manifest(self) -> str:
        """The list of files as a submission sends it."""
        return write_manifest(self.files)


def gather(files: Files) -> FileParcel:
    """Measure files and directories of this machine. Raises ``InvalidError`` for a file that cannot travel."""
    named = files.items() if isinstance(files, Mapping) else ((_last_name(path), path) for path in files)
    try:
        return _gathered([(name, Path(path)) for name, path in named])
    except TravellingError as error:
        raise InvalidError(error.for_user()) from None


def _last_name(path: str | Path) -> str:
    name = Path(os.path.abspath(path)).name  # noqa: PTH100 - a link is not followed: its own name counts
    if not name:
        raise InvalidError(f"file {str(path)!r}: it has no name of its own; name a file or a directory")
    return name


def _gathered(named: list[tuple[str, Path]]) -> FileParcel:
    found: dict[str, tuple[TravellingFile, Path]] = {}
    total = 0
    for name, path in named:
        for place, entry in _entries(name, path):
            if place in found and found[place][1] != entry:
                raise TravellingError(place, "is listed twice; rename one")
            if place in found:
                continue
            if len(found) >= TRAVELLING_FILES_MAX:
                raise TravellingError(
                    name,
                    f"with it there are more than {TRAVELLING_FILES_MAX} files and directories "
                    "(TRAVELLING_FILES_MAX); send fewer, or one archive that the job unpacks",
                )
            found[place] = (
                _measured(place, entry, named_itself=entry == path, left=TRAVELLING_BYTES_MAX - total),
                entry,
            )
            total += found[place][0].size_bytes
    files = tuple(file for file, _ in found.values())
    check_travelling(files)
    return FileParcel(files, {file.checksum: path for file, path in found.values() if file.is_content})


def _entries(name: str, path: Path) -> Iterator[tuple[str, Path]]:
    """Yield the path itself, and everything below it if it is a directory. Links below it are not followed."""
    plain = name.rstrip("/")
    yield plain, path
    if path.is_dir():
        try:
            below = sorted(path.iterdir())
        except OSError as error:
            raise TravellingError(name, f"{path}: {error.strerror}; give yourself the right to read it") from None
        for entry in below:
            if entry.is_dir() and not entry.is_symlink():
                yield from _entries(f"{plain}/{entry.name}", entry)
            else:
                yield f"{plain}/{entry.name}", entry


def _measured(place: str, path: Path, *, named_itself: bool, left: int) -> TravellingFile:
    """Measure one entry. A link that was named stands for its target; a link in a directory stays a link."""
    try:
        seen = path.stat() if named_itself else path.lstat()
    except OSError as error:
        raise TravellingError(place, f"{path}: {error.strerror}; name a file that is there") from None
    mode = stat.S_IMODE(seen.st_mode) & MODE_BITS
    if stat.S_ISLNK(seen.st_mode):
        return TravellingFile(path=place, link=str(path.readlink()))
    if stat.S_ISDIR(seen.st_mode):
        return TravellingFile(path=place, directory=True, mode=mode)
    if not stat.S_ISREG(seen.st_mode):
        raise TravellingError(place, f"{path} is not a file, directory or link; leave it out")
    if seen.st_size > left:
        raise TravellingError(
            place,
            f"with its {seen.st_size} bytes there are more than {TRAVELLING_BYTES_MAX} together "
            "(TRAVELLING_BYTES_MAX); register large data as input files",
        )
    size_bytes, checksum = _read(place, path)
    return TravellingFile(path=place, size_bytes=size_bytes, checksum=checksum, mode=mode)


def _read(place: str, path: Path) -> tuple[int, str]:
    digest, size_bytes = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE_BYTES_MAX):
                digest.update(piece)
                size_bytes += len(piece)
    except OSError as error:
        raise TravellingError(place, f"{path}: {error.strerror}; give yourself the right to read it") from None
    return size_bytes, digest.hexdigest()


def send(exchange: Exchange, parcel: FileParcel, progress: SendProgress | None = None) -> Steps[None]:
    """Send the contents that the daemon does not have from the caller, piece by piece, each from where it stopped."""
    from koala.client import calls

    if not parcel.sources:
        return
    missing = (yield from exchange.perform(calls.missing_contents(parcel.manifest))).missing
    total = sum(each.size_bytes for each in missing)
    there = sum(each.received_bytes for each in missing)
    for content in missing:
        path = parcel.sources[content.checksum]
        offset, complete = content.received_bytes, False
        while not complete:
            data = _piece(path, offset)
            if not data and offset < content.size_bytes:
                raise _changed(path)
            call: Any = calls.send_content(content.checksum, content.size_bytes, offset, data)
            try:
                state = yield from exchange.perform(call)
            except ConflictError as error:
                if "SHA-256" in error.message:
                    raise _changed(path) from None
                raise
            there += max(0, state.received_bytes - offset)
            offset, complete = state.received_bytes, state.complete
            if progress is not None:
                progress(there, total)


def _piece(path: Path, offset: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES_MAX)
    except OSError as error:
        raise InvalidError(f"file {str(path)!r}: {error.strerror}; leave it alone and submit again") from None


def _changed(path: Path) -> InvalidError:
    return InvalidError(f"file {str(path)!r}: it changed while it was sent; leave it alone and submit again")
