"""Outputs in a component's workspace, taken into the file area of its site as replicas: as a whole, or not at all.

A file is linked where the disk allows it, so that a large file needs no space twice; a directory becomes one archive.
Paths that lead out of the workspace are refused. This module works on this machine; ``area.sh`` does the same at a
site.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from koala.files.area.directory import Gate, WantedStream, appear
from koala.files.checksums import READ_BYTES, of_stream
from koala.files.errors import LargeOutputError, PathError
from koala.model.launch import WORK
from koala.model.messages import Token
from koala.model.outputs import CollectLimits
from koala.model.request import SiteName

# The directory beside an area with the directories of its site's components.
COMPONENTS = "components"
# The block size of a file system's counts, as POSIX defines it.
_BLOCK_BYTES = 512
# Permissions that every archive entry has, so that the person who unpacks it can read and remove it.
_OWNER_FILE = stat.S_IRUSR | stat.S_IWUSR
_OWNER_DIRECTORY = _OWNER_FILE | stat.S_IXUSR


class CollectedFile(msgspec.Struct, frozen=True, kw_only=True):
    """Size and SHA-256 of a collected replica. ``directory`` marks the archive of a directory; ``changed_at`` is then
    the last change of its files, by the clock of the site."""

    size_bytes: int
    checksum: str
    directory: bool = False
    changed_at: float | None = None


def refusal(site: SiteName, path: str, word: str, limits: CollectLimits) -> PathError:
    """Return the error for a path of a workspace that is not collected, by a word that ``area.sh`` may print."""
    why = {
        "gone": "the workspace is not there any more",
        "outside": "it leads out of the workspace; write the file itself there",
        "other": "it is neither a file nor a directory",
        "closed": "it cannot be read; let the job leave it readable",
        "long": "it cannot be read, because its path is too long for the system; let the job write it less deep",
        "large": f"it has more than {limits.bytes_max} bytes, holes included (output_bytes_max of the grid); let the "
        "job write less, or transfer it itself",
        "holes": f"its holes have over {limits.holes_bytes_max} bytes more than its data (OUTPUT_HOLES_BYTES_MAX); "
        "let the job write no such holes",
        "many": f"it has more than {limits.entries_max} entries (COLLECTED_ENTRIES_MAX); let the job pack it",
        "slow": f"it could not be packed and read within {limits.time_s:g} s (collect_s_max of the grid); let the "
        "job write less",
    }[word]
    return PathError(f"{path!r} at {site}: {why}")


def take_in_output(
    site: SiteName,
    workspace: Path,
    path: str,
    fresh: Path,
    final: Path,
    *,
    limits: CollectLimits,
    at_once_bytes: int | None,
    gate: Gate,
) -> tuple[bool, str] | None:
    """Make ``final`` from ``path`` in a workspace, by way of ``fresh``. Return whether it is a directory's archive,
    with its SHA-256; None if there is nothing. Raises ``PathError`` for a path that is not collected,
    ``LargeOutputError`` for an output that is not collected at once, and ``OSError``. Nothing is read once the gate
    is closed."""
    try:
        return _take_in(site, workspace, path, fresh, final, limits, at_once_bytes, gate)
    except OSError as error:
        word = {errno.EACCES: "closed", errno.EPERM: "closed", errno.ENAMETOOLONG: "long"}.get(error.errno or 0)
        # Only an error of the output itself is the job's fault: the area may have trouble of its own.
        if word is None or not error.filename or Path(error.filename).is_relative_to(final.parent):
            raise
        raise refusal(site, path, word, limits) from None


def _take_in(
    site: SiteName,
    workspace: Path,
    path: str,
    fresh: Path,
    final: Path,
    limits: CollectLimits,
    at_once_bytes: int | None,
    gate: Gate,
) -> tuple[bool, str] | None:

    def refused(word: str) -> PathError:
        return refusal(site, path, word, limits)

    def check_size(size_bytes: int) -> None:
        if size_bytes > limits.bytes_max:
            raise refused("large")
        if at_once_bytes is not None and size_bytes > at_once_bytes:
            raise LargeOutputError

    def check_holes(files: Iterable[Path]) -> None:
        """Refuse large holes, so that the bytes to read are in proportion to the space on disk, which the site may
        limit."""
        surplus = -limits.holes_bytes_max
        for file in files:
            status = file.lstat()
            # Allocated space is not a hole; a compressed file may have less space than data.
            data = status.st_blocks * _BLOCK_BYTES
            if 2 * data < status.st_size:
                data = _data_bytes(file, status.st_size, gate)
            surplus += status.st_size - 2 * data
        if surplus > 0:
            raise refused("holes")

    if any(each.is_symlink() for each in (workspace, workspace.parent)) or not workspace.is_dir():
        raise refused("gone")
    root = workspace.resolve(strict=True)
    try:
        found = (root / path).resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:  # a cycle of links; older versions of Python raise RuntimeError
        if error.errno == errno.ELOOP:
            raise refused("outside") from None
        raise
    except RuntimeError:
        raise refused("outside") from None
    if not found.is_relative_to(root) or found == root:
        raise refused("outside")
    mode = found.stat().st_mode
    if not os.access(found, os.R_OK):
        raise refused("closed")
    try:
        if stat.S_ISREG(mode):
            check_size(found.stat().st_size)
            check_holes([found])
            _link(found, fresh, gate)
        elif stat.S_ISDIR(mode):
            entries, size_bytes = _extent(found, limits.entries_max)
            if entries > limits.entries_max:
                raise refused("many")
            check_size(size_bytes)
            check_holes(each for each in _below(found) if stat.S_ISREG(each.lstat().st_mode))
            _pack(found, fresh, gate)
        else:
            raise refused("other")
        with fresh.open("rb") as file:
            checksum = of_stream(WantedStream(file, gate))
        appear(fresh, final, gate)
    finally:
        fresh.unlink(missing_ok=True)
    return stat.S_ISDIR(mode), checksum


def workspace_of(area: Path, token: Token) -> Path:
    """Return the workspace of a component whose site has this file area."""
    return area.parent / COMPONENTS / token / WORK


def last_change(directory: Path) -> float | None:
    """Return the time of the last change of a file below a directory; None if there are no files."""
    found = (each.lstat() for each in _below(directory))
    return max((each.st_mtime for each in found if stat.S_ISREG(each.st_mode)), default=None)


def _data_bytes(file: Path, size_bytes: int, gate: Gate) -> int:
    """Return how many bytes of a file are not in holes."""
    data, end = 0, 0
    with file.open("rb") as stream:
        while end < size_bytes:
            gate.check()
            try:
                begin = os.lseek(stream.fileno(), end, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # only a hole is left
                    break
                return size_bytes  # this file system cannot tell
            end = os.lseek(stream.fileno(), begin, os.SEEK_HOLE)
            data += end - begin
    return data


def _link(found: Path, fresh: Path, gate: Gate) -> None:
    fresh.unlink(missing_ok=True)
    try:
        fresh.hardlink_to(found)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP):
            raise
        with found.open("rb") as source, fresh.open("wb") as target:
            shutil.copyfileobj(WantedStream(source, gate), target, READ_BYTES)


def _extent(directory: Path, entries_max: int) -> tuple[int, int]:
    """Count the entries below a directory, and the bytes of its files; stop at one entry too many."""
    entries, size_bytes, left = 0, 0, [str(directory)]
    while left:
        with os.scandir(left.pop()) as found:  # there may be millions, so no list of them is made
            for each in found:
                entries += 1
                if entries > entries_max:
                    return entries, size_bytes
                status = each.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    size_bytes += status.st_size
                elif stat.S_ISDIR(status.st_mode):
                    left.append(each.path)
    return entries, size_bytes


def _below(directory: Path) -> Iterator[Path]:
    """Yield everything below a directory, by name, without following links, at any depth."""
    left = [iter(sorted(directory.iterdir()))]
    while left:
        each = next(left[-1], None)
        if each is None:
            left.pop()
            continue
        yield each
        if stat.S_ISDIR(each.lstat().st_mode):
            left.append(iter(sorted(each.iterdir())))


def _pack(directory: Path, fresh: Path, gate: Gate) -> None:
    """Write an archive of a directory; equal directories give equal archives. Sockets and pipes are left out."""
    with (
        fresh.open("wb") as file,
        tarfile.open(
            fileobj=file, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8", errors="surrogateescape"
        ) as tar,
    ):
        for each in _below(directory):
            if stat.S_IFMT(each.lstat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                continue
            entry = tar.gettarinfo(each, arcname=str(each.relative_to(directory)))
            if entry.islnk():  # make the archive independent of other entries
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", each.stat().st_size
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            entry.mode |= _OWNER_DIRECTORY if entry.isdir() else _OWNER_FILE
            if entry.isfile():
                with each.open("rb") as data:
                    tar.addfile(entry, WantedStream(data, gate))
            else:
                tar.addfile(entry)
