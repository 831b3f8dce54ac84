"""One component on disk: a directory that says everything about it, to its script and to whoever opens the site.

Files appear whole, by rename. What an answer to the driver depends on is synced to disk before the answer.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec

from koala.launching import (
    ABORT,
    EXIT,
    GO,
    INBOX,
    MAIL_BYTES_MAX,
    OUTBOX,
    PID,
    READY,
    SCRIPT,
    STDERR,
    STDOUT,
    WORK,
    Go,
    Launch,
)
from koala.messages import ComponentEnded, Token
from koala.model import Application
from koala.sites.shell import Identity, parse_identity
from koala.sites.site import Stream

RECORD = "record.json"
SPAWNED = "spawned"
RELEASED = "released"
ENDED = "ended.json"
# How the hidden name of a directory ends that is being removed.
GONE = ".gone"

# The script writes a word and a number; whatever is longer is not its work.
_SMALL_FILE_BYTES_MAX = 1_024


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What was accepted, and when relative to the others."""

    sequence: int
    launch: Launch


class Folder:
    """The directory of one token below a site's root."""

    __slots__ = ("home", "token")

    def __init__(self, components: Path, token: Token) -> None:
        self.token = token
        self.home = components / token

    def exists(self) -> bool:
        """Whether the token was ever heard of here."""
        return self.home.is_dir()

    def create(self, record: Record, script: str) -> None:
        """Accept a component: the directory appears with all of it or not at all, and survives a crash."""
        fresh = self._fresh()
        _write(fresh / SCRIPT, script.encode())
        _write(fresh / RECORD, msgspec.json.encode(record))
        for name in (WORK, INBOX, OUTBOX):
            (fresh / name).mkdir()
        self._appear(fresh)

    def bury(self, event: ComponentEnded) -> None:
        """Remember a token that is not, and never will be, started here."""
        if self.exists():
            self.put_ended(event)
            return
        fresh = self._fresh()
        _write(fresh / ENDED, msgspec.json.encode(event))
        self._appear(fresh)

    def vanish(self) -> Path | None:
        """Take the directory out of sight at once and for good; the caller removes what this returns, if anything."""
        gone = self.home.with_name(f".{self.token}{GONE}")
        try:
            self.home.rename(gone)
        except FileNotFoundError:
            return gone if gone.exists() else None
        sync_directory(self.home.parent)
        return gone

    def _fresh(self) -> Path:
        fresh = self.home.with_name(f".{self.token}.new")
        if fresh.exists():
            shutil.rmtree(fresh)
        fresh.mkdir()
        return fresh

    def _appear(self, fresh: Path) -> None:
        sync_directory(fresh)
        fresh.rename(self.home)
        sync_directory(self.home.parent)

    # ------------------------------------------------------------------------------------- what it says

    def record(self) -> Record | None:
        """What was accepted; None for a token that is only remembered."""
        data = self._read(RECORD)
        return None if data is None else msgspec.json.decode(data, type=Record)

    def ended(self) -> ComponentEnded | None:
        """How it ended, once that is settled."""
        data = self._read(ENDED)
        return None if data is None else msgspec.json.decode(data, type=ComponentEnded)

    def identity(self) -> Identity | None:
        """The process that runs the script, once there is one."""
        text = self._read_small(PID)
        return None if text is None else parse_identity(text)

    def exit_words(self) -> list[str] | None:
        """What the script recorded as its end."""
        text = self._read_small(EXIT)
        return None if text is None else text.split()

    def is_ready(self) -> bool:
        """Whether the script has reported in."""
        return (self.home / READY).exists()

    def was_spawned(self) -> bool:
        """Whether a process was started for it, or was about to be."""
        return (self.home / SPAWNED).exists()

    def is_aborted(self) -> bool:
        """Whether an abort was asked for."""
        return (self.home / ABORT).exists()

    def released_at(self) -> float | None:
        """When the barrier was opened."""
        if not (self.home / GO).exists():
            return None
        text = self._read_small(RELEASED)
        return None if text is None else float(text)

    def outbox(self) -> list[str]:
        """The names of the mail that the component has for others."""
        return sorted(entry.name for entry in (self.home / OUTBOX).iterdir() if not entry.name.startswith("."))

    def output(self, stream: Stream, application: Application, offset: int, limit: int) -> bytes:
        """What the application has written from ``offset`` on."""
        named = application.stdout if stream is Stream.STDOUT else application.stderr
        if named is None:
            path = self.home / (STDOUT if stream is Stream.STDOUT else STDERR)
        else:
            path = self.home / WORK / (application.directory or ".") / named
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(limit)

    def mail(self, name: str) -> bytes | None:
        """A piece of mail from the outbox. What is too long is cut, one byte too late, so that its reader notices."""
        path = self.home / OUTBOX / name
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(MAIL_BYTES_MAX + 1)

    # ----------------------------------------------------------------------------------- what it is told

    def put_spawned(self) -> None:
        """A process is about to be started."""
        self._put(SPAWNED, b"")

    def put_abort(self) -> None:
        """From now on the application must not start."""
        self._put(ABORT, b"")
        sync_directory(self.home)

    def put_go(self, go: Go, at: float) -> None:
        """Open the barrier; the time stands first, so that a walltime always has a beginning."""
        self._put(RELEASED, repr(at).encode())
        self._put(GO, go.text.encode())

    def put_mail(self, name: str, data: bytes) -> None:
        """Mail for the script."""
        if not (self.home / INBOX / name).exists():
            self._put(f"{INBOX}/{name}", data)

    def put_ended(self, event: ComponentEnded) -> None:
        """Settle its end."""
        self._put(ENDED, msgspec.json.encode(event))
        sync_directory(self.home)

    def _put(self, name: str, data: bytes) -> None:
        fresh = self.home / f".{name.replace('/', '.')}.site"
        _write(fresh, data)
        fresh.rename(self.home / name)

    def _read(self, name: str) -> bytes | None:
        try:
            return (self.home / name).read_bytes()
        except FileNotFoundError:
            return None

    def _read_small(self, name: str) -> str | None:
        try:
            with (self.home / name).open("rb") as file:
                return file.read(_SMALL_FILE_BYTES_MAX).decode(errors="replace")
        except FileNotFoundError:
            return None


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
