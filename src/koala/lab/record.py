"""The record of a lab in its directory: its options and its daemons, so that any later call finds them.

The record is written before the first start and after every start, atomically by rename. Only one call at a time
works on a directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec

from koala.lab.errors import LabError, LabFailedError
from koala.lab.options import LabOptions
from koala.sites.processes import Identity

FILE = "lab.json"
VERSION = 1


class Daemon(msgspec.Struct, frozen=True, kw_only=True):
    """A started daemon: its site (None for the whole lab), and its process."""

    name: str
    site: str | None
    process: Identity


class LabRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A lab as it was started; ``complete`` once the whole lab was up."""

    version: int = VERSION
    options: LabOptions
    complete: bool = False
    daemons: tuple[Daemon, ...] = ()


class Recorder:
    """The record of a lab that is being started or changed; several threads may add to it."""

    def __init__(self, record: LabRecord) -> None:
        self._record = record
        self._lock = threading.Lock()

    @property
    def record(self) -> LabRecord:
        """The present record."""
        return self._record

    def write(self) -> None:
        """Write the record into its file."""
        with self._lock:
            self._write()

    def add(self, daemon: Daemon) -> None:
        """Add a daemon, in place of an earlier one with its name."""
        with self._lock:
            others = tuple(each for each in self._record.daemons if each.name != daemon.name)
            self._record = msgspec.structs.replace(self._record, daemons=(*others, daemon))
            self._write()

    def change(self, options: LabOptions) -> None:
        """Note other options."""
        with self._lock:
            self._record = msgspec.structs.replace(self._record, options=options)
            self._write()

    def complete(self) -> None:
        """Note that the whole lab is up."""
        with self._lock:
            self._record = msgspec.structs.replace(self._record, complete=True)
            self._write()

    def _write(self) -> None:
        path = self._record.options.directory / FILE
        beside = path.with_suffix(".part")
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(self._record, enc_hook=_encode), indent=2))
        beside.replace(path)


def read(directory: Path) -> LabRecord | None:
    """Return the record of the lab in a directory; None if there is no lab. Raises LabError if it cannot be read."""
    try:
        text = (directory / FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        record = msgspec.json.decode(text, type=LabRecord, dec_hook=_decode)
    except msgspec.DecodeError as error:
        raise LabError(
            f"{directory / FILE}: {error}; it is not a record of a lab; remove the directory by hand"
        ) from None
    if record.version != VERSION:
        raise LabError(
            f"{directory / FILE}: it has version {record.version}, and this Koala reads {VERSION}; use the "
            "Koala that wrote it"
        )
    return record


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Hold an existing directory against other calls. Raises LabFailedError if another call is at work."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LabFailedError(
                f"{directory}: another koala lab is at work on it; wait until it has finished"
            ) from None
        yield
    finally:
        os.close(descriptor)


def _encode(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(type(value))


def _decode(wanted: type, value: object) -> object:
    if wanted is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(wanted)
