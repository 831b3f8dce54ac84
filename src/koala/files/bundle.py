"""The files of a job as one archive, which every site with a ``tar`` unpacks.

The same list always gives the same archive, byte for byte: it is made when it is needed, and after a restart its
checksum identifies a copy at a site.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from koala.files.checksums import of_path
from koala.files.errors import FilesError
from koala.model.errors import Fault
from koala.model.travelling import TravellingFile, write_manifest

# The user that runs a job must be able to read, write and remove the files that travelled with it.
_OWNER_FILE = stat.S_IRUSR | stat.S_IWUSR
_OWNER_DIRECTORY = _OWNER_FILE | stat.S_IXUSR


class Bundle(NamedTuple):
    """An archive on this machine."""

    path: Path
    size_bytes: int
    checksum: str


def bundle_key(files: Sequence[TravellingFile]) -> str:
    """Return the key of the archive of these files."""
    return hashlib.sha256(write_manifest(files).encode()).hexdigest()


def make_bundle(files: Sequence[TravellingFile], content: Callable[[str], Path], path: Path) -> Bundle:
    """Write the archive as a whole or not at all. ``content`` returns the path of a content by its checksum. Raises
    ``FilesError`` for a content that is missing or has changed."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        # Long names are stored as in GNU tar, which all others read, and in UTF-8, whatever the daemon's locale is.
        with (
            fresh.open("wb") as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8") as archive,
        ):
            for each in sorted(files, key=lambda file: file.path):
                _add(archive, each, content)
        fresh.rename(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return Bundle(path, path.stat().st_size, of_path(path))


def _add(archive: tarfile.TarFile, each: TravellingFile, content: Callable[[str], Path]) -> None:
    entry = tarfile.TarInfo(each.path)
    if each.directory:
        entry.type, entry.mode = tarfile.DIRTYPE, each.mode | _OWNER_DIRECTORY
        archive.addfile(entry)
    elif each.link:
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, each.link, 0o777
        archive.addfile(entry)
    else:
        entry.size, entry.mode = each.size_bytes, each.mode | _OWNER_FILE
        try:
            with content(each.checksum).open("rb") as data:
                if os.fstat(data.fileno()).st_size != each.size_bytes:
                    raise FilesError(
                        each.path, "the daemon", "its content has changed there; submit the job again", Fault.OURS
                    )
                archive.addfile(entry, data)
        except FileNotFoundError:
            raise FilesError(
                each.path, "the daemon", "its content is not there any more; submit the job again", Fault.OURS
            ) from None
