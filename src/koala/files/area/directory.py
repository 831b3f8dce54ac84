"""A site's file area in a directory of this machine: replicas, and the copies for jobs while they are needed.

A file appears under its name as a whole and at once, or not at all. Everything here blocks;
``koala.files.area.local`` offers it to event loops.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO

from koala.files.area.layout import (
    COPIES,
    DOUBTS,
    HOLDERS,
    INCOMING,
    REPLICAS,
    TRASH,
    copy_path,
    decode,
    encode,
)
from koala.model.messages import TransferId
from koala.model.request import FileName, SiteName

# Replicas and copies have many readers: nobody must write to them by accident.
_READ_ONLY = 0o444


def flush_directory(path: Path) -> None:
    """Make files that were created, renamed or removed in a directory survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Gate:
    """The agreement on whether a file is still wanted, between the thread that makes it and the caller that may give
    it up."""

    def __init__(self, fresh: Path) -> None:
        self._fresh = fresh
        self._closed = False

    def close(self) -> None:
        """Let nothing through from now on. A thread that has just checked finds no file to rename."""
        self._closed = True
        self._fresh.unlink(missing_ok=True)

    def check(self) -> None:
        """Raise ``OSError`` if nobody wants the file any more."""
        if self._closed:
            raise OSError(errno.ECANCELED, "nobody wants it any more", str(self._fresh))

    def rename(self, final: Path) -> None:
        """Give the file its name, unless it is no longer wanted."""
        self.check()
        self._fresh.replace(final)


class WantedStream:
    """A stream that can be read while the gate of the file made from it is open."""

    def __init__(self, stream: BinaryIO, gate: Gate) -> None:
        self._stream = stream
        self._gate = gate

    def read(self, size_bytes: int = -1, /) -> bytes:
        """Read this many bytes; fewer only at the end."""
        self._gate.check()
        return self._stream.read(size_bytes)


def appear(fresh: Path, final: Path, gate: Gate | None = None) -> None:
    """Give a finished file its name: its bytes are on disk before the name is, and nobody sees half of it."""
    fresh.chmod(_READ_ONLY)
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    (gate or Gate(fresh)).rename(final)
    flush_directory(final.parent)


class Copy:
    """The files of one copy for jobs: the finished file, the unfinished one and its holders."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data = home / "data"
        self.part = home / "part"
        self.stamp = home / "stamp"
        self.checksum = home / "checksum"

    @property
    def relative(self) -> str:
        """The path of the finished file in the site's file area, as the links of components name it."""
        return copy_path(self.home.name)

    def hold(self, transfer: TransferId) -> None:
        """Note that a transfer needs this copy; a repeated note changes nothing."""
        assert decode(encode(transfer)) == transfer, "the scheduler's transfer ids are short"
        holders = self.home / HOLDERS
        holders.mkdir(parents=True, exist_ok=True)
        (holders / encode(transfer)).touch()
        flush_directory(holders)
        flush_directory(self.home)
        flush_directory(self.home.parent)

    def let_go(self, transfer: TransferId) -> None:
        """Note that a transfer no longer needs it."""
        (self.home / HOLDERS / encode(transfer)).unlink(missing_ok=True)

    def holders(self) -> set[TransferId]:
        """Return all transfers that need it."""
        with contextlib.suppress(FileNotFoundError):
            return {text for each in (self.home / HOLDERS).iterdir() if (text := decode(each.name)) is not None}
        return set()


class AreaDirectory:
    """The file area of one site in a directory ``root`` of this machine; only one process at a time may use it."""

    def __init__(self, site: SiteName, root: Path) -> None:
        self.site = site
        self.root = root
        self._discarded = 0

    def open(self) -> None:
        """Make the directories, and remove what a killed process was about to remove or had begun to add."""
        for name in (REPLICAS, COPIES, TRASH):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        for fresh in (self.root / REPLICAS).glob(".*"):
            fresh.unlink()
        for copy in self.copies():
            if not copy.holders():
                self.discard(copy)
        for left in (self.root / TRASH).iterdir():
            shutil.rmtree(left)

    # ---------------------------------------------------------------------------------------- replicas

    def replica(self, file: FileName) -> Path:
        """Return the path of a file's replica, whether it exists or not."""
        return self.root / REPLICAS / encode(file)

    def size_bytes(self, path: str) -> int | None:
        """Return the size of a file, given by its path relative to the area; None if there is none."""
        try:
            return (self.root / path).stat().st_size
        except FileNotFoundError:
            return None

    def adopt(self, file: FileName, path: Path) -> Path:
        """Copy a file from anywhere on this machine into the area, as the replica of that name, replacing the old
        one."""
        final = self.replica(file)
        fresh = final.with_name(f".{final.name}")
        try:
            shutil.copyfile(path, fresh)
            appear(fresh, final)
        finally:
            fresh.unlink(missing_ok=True)
        return final

    def promote(self, file: FileName, copy: Copy) -> Path:
        """Make a finished copy of the whole file a replica; the two share their space on disk."""
        final = self.replica(file)
        fresh = final.with_name(f".{final.name}")
        fresh.unlink(missing_ok=True)
        fresh.hardlink_to(copy.data)
        appear(fresh, final)
        return final

    def forget(self, file: FileName) -> None:
        """Remove the replica, if there is one."""
        self.replica(file).unlink(missing_ok=True)

    def take_name(self, incoming: FileName, file: FileName) -> None:
        """Rename a replica that arrived under a temporary name, as a whole and at once."""
        final = self.replica(file)
        self.replica(incoming).replace(final)
        flush_directory(final.parent)

    # ------------------------------------------------------------------------------------------ doubts

    def doubt(self, *files: FileName) -> None:
        """Write marks that survive a kill: replicas of these names may be unknown to the catalogue."""
        doubts = self.root / DOUBTS
        doubts.mkdir(parents=True, exist_ok=True)
        for file in files:
            mark = self._mark(file)
            fresh = mark.with_name(f".{mark.name}")
            # The mark contains the name itself, because a long name is cut in the name of the mark.
            fresh.write_bytes(file.encode("utf-8", "surrogatepass"))
            fresh.replace(mark)
        flush_directory(doubts)

    def settle(self, *files: FileName, keep: bool) -> None:
        """Remove the marks, and the replicas too unless they are to be kept."""
        if not keep:
            for file in files:
                self.forget(file)
            # The marks are removed last, so that a kill in between leaves them to be settled again.
            flush_directory(self.root / REPLICAS)
        for file in files:
            self._mark(file).unlink(missing_ok=True)

    def doubts(self) -> list[FileName]:
        """Remove files that never got their names; return the names of all replicas in doubt."""
        for came in (self.root / REPLICAS).glob(f"{encode(INCOMING)}*"):
            came.unlink()
        doubts = self.root / DOUBTS
        if not doubts.is_dir():
            return []
        marks = [mark for mark in sorted(doubts.iterdir()) if not mark.name.startswith(".")]
        return [mark.read_bytes().decode("utf-8", "surrogatepass") for mark in marks]

    def _mark(self, file: FileName) -> Path:
        return self.root / DOUBTS / encode(file)

    # ------------------------------------------------------------------------------------------ copies

    def copy_named(self, name: str) -> Copy:
        """Return the copy whose directory has this name."""
        return Copy(self.root / COPIES / name)

    def copies(self) -> list[Copy]:
        """Return all copies, finished or not."""
        return [Copy(home) for home in sorted((self.root / COPIES).iterdir())]

    def discard(self, copy: Copy) -> Path | None:
        """Move a copy to the trash at once, for ``empty`` to remove; return None if there is nothing."""
        while True:
            self._discarded += 1
            trash = self.root / TRASH / f"{copy.home.name}.{self._discarded}"
            if trash.exists():
                continue
            try:
                copy.home.rename(trash)
            except FileNotFoundError:
                return None
            return trash

    def empty(self, trash: Path) -> None:
        """Remove a discarded copy."""
        shutil.rmtree(trash, ignore_errors=True)
