"""The directory of a component as an embedded site reads and writes it.

Files appear whole, by rename. What an answer to the driver depends on is synced to disk before the answer. What the
files are, and that none of them is trusted, is in ``koala.sites.component_directory``.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from koala.model.errors import Fault
from koala.model.launch import (
    ABORT,
    EXIT,
    GO,
    INBOX,
    LAST_LINE,
    MAIL_BYTES_MAX,
    OUTBOX,
    PID,
    READY,
    SCRIPT,
    USAGE,
    WORK,
    Go,
)
from koala.model.messages import ComponentEnded, Token
from koala.model.request import Application
from koala.sites.component import NOT_MEASURED, Usage, stderr_line, usage
from koala.sites.component_directory import (
    ENDED,
    EXIT_BYTES_MAX,
    MAILS_MAX,
    OVERLONG,
    RECORD,
    RELEASED,
    SPAWNED,
    AbortRecord,
    AcceptanceRecord,
    RecordedComponent,
    bytes_max,
    output_paths,
    parse_component,
)
from koala.sites.processes import Identity, parse_identity
from koala.sites.protocol import Stream

# How the hidden names of directories end: of one that is being made, and of one that is being removed.
NEW = ".new"
GONE = ".gone"

# The script writes a word and a number; whatever is longer is not its work.
_SMALL_FILE_BYTES_MAX = 1_024
# The numbers of as many GPUs as a machine may have, and the digits of one.
_GPUS_BYTES_MAX = 16_384
_GPU_DIGITS_MAX = 6

# What goes wrong because of one component's directory, and not because of the site's disk.
_SPOILT = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ELOOP,
        errno.EEXIST,
        errno.ENOTEMPTY,
        errno.ENXIO,
    }
)


def is_spoilt(error: OSError) -> bool:
    """Whether an error tells of a component's directory that was removed or altered, and not of the site's disk."""
    return error.errno in _SPOILT


class UnreadableError(ValueError):
    """A file of a component's directory is not what the site has written there: that is how the component ended."""

    def __init__(self, problem: str, fault: Fault | None = None) -> None:
        super().__init__(problem)
        self.fault = fault


class ComponentDirectory:
    """The directory of one token below a site's root."""

    __slots__ = ("home", "token")

    def __init__(self, components: Path, token: Token) -> None:
        self.token = token
        self.home = components / token

    def exists(self) -> bool:
        """Whether the token was ever heard of here."""
        try:
            return stat.S_ISDIR(os.lstat(self.home).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def check(self) -> None:
        """Raises ``FileNotFoundError`` when the directory is gone."""
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.home))

    def create(self, record: AcceptanceRecord, script: str) -> None:
        """Accept a component: the directory appears with all of it or not at all, and survives a crash."""
        fresh = self._fresh()
        self._write(fresh / SCRIPT, script.encode())
        self._write(fresh / RECORD, msgspec.json.encode(record))
        for name in (WORK, INBOX, OUTBOX):
            (fresh / name).mkdir()
        self._appear(fresh)

    def settle(self, event: ComponentEnded) -> None:
        """Settle the end of a component for good, whether it was ever here or not.

        Where its directory cannot be used, or something else is in its place, a new one holds the end alone.
        """
        try:
            if self.exists():
                self._put_ended(event)
                return
        except OSError as error:
            if not is_spoilt(error):
                raise
        fresh = self._fresh()
        self._write(fresh / ENDED, msgspec.json.encode(event))
        self._move_aside()
        self._appear(fresh)

    def _move_aside(self) -> None:
        """Away with whatever has the name of the directory."""
        if not self.exists():
            self._clear(self.home)
            return
        self._put_aside(self.home)

    def hide(self) -> Path | None:
        """Take the directory out of sight at once and for good; the caller removes what this returns, if anything."""
        self._move_aside()
        sync_directory(self.home.parent)
        return self._gone if self._gone.exists() else None

    @property
    def _gone(self) -> Path:
        """Where all is that was put aside."""
        return self.home.with_name(f".{self.token}{GONE}")

    def _put_aside(self, directory: Path) -> None:
        """Out of the way with a directory; to remove what an application has put there may take long."""
        directory.chmod(stat.S_IRWXU)  # without it, it cannot be moved
        self._gone.mkdir(exist_ok=True)
        directory.rename(tempfile.mkdtemp(dir=self._gone))

    def _clear(self, path: Path) -> None:
        """Away with whatever has this name."""
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):  # which of them a directory gives depends on the system
            if not path.is_dir():
                raise
            self._put_aside(path)

    def _fresh(self) -> Path:
        fresh = self.home.with_name(f".{self.token}{NEW}")
        self._clear(fresh)
        fresh.mkdir()
        return fresh

    def _appear(self, fresh: Path) -> None:
        sync_directory(fresh)
        fresh.rename(self.home)
        sync_directory(self.home.parent)

    # ------------------------------------------------------------------------------------- what it says

    def has_record(self) -> bool:
        """Whether it was accepted, and is not only remembered."""
        return (self.home / RECORD).exists()

    def recorded(self, *names: str) -> RecordedComponent:
        """What is on record of it, or what these files say of it."""
        files, spoilt = {}, ""
        for name in names or (RECORD, ABORT, RELEASED, GO, READY, ENDED):
            data = read_regular(self.home / name, bytes_max(name) + 1)
            if data is None and os.path.lexists(self.home / name):
                data = b""  # which is an abort all the same
                spoilt = spoilt if name in (ABORT, GO, READY) else f"{name} is not a file"
            if data is not None:
                files[name] = data
        found = parse_component(self.token, files)
        found.spoilt = found.spoilt if found.by_job else spoilt or found.spoilt
        return found

    def identity(self) -> Identity | None:
        """The process that runs the script, once there is one."""
        text = self._read_small(PID)
        return None if text is None else parse_identity(text)

    def exit_words(self) -> list[str] | None:
        """What the script recorded as its end."""
        text = self._read_small(EXIT)
        if text is None:
            return None
        return [OVERLONG] if len(text) > EXIT_BYTES_MAX else text.split()

    def last_line(self) -> str:
        """What the application that failed wrote last to its standard error."""
        text = self._read_small(LAST_LINE)
        return "" if text is None else stderr_line(text.partition("\n")[0])

    def usage(self) -> Usage:
        """What the application has used."""
        text = None
        with contextlib.suppress(OSError):  # it is not worth an end
            text = self._read_small(USAGE)
        return NOT_MEASURED if text is None else usage(text)

    def is_ready(self) -> bool:
        """Whether the script has reported in."""
        return (self.home / READY).exists()

    def was_spawned(self) -> bool:
        """Whether a process was started for it, or was about to be."""
        return (self.home / SPAWNED).exists()

    def gpus(self, given: int, machine: int) -> tuple[int, ...]:
        """The GPUs that it was given when its process was to be started: so many, less those that a machine with
        fewer now no longer has. Raises ``UnreadableError`` where they are not on record."""
        if not given:
            return ()
        words = (read_regular(self.home / SPAWNED, _GPUS_BYTES_MAX) or b"").decode(errors="replace").split(",")
        numbers = {int(word) for word in words if len(word) <= _GPU_DIGITS_MAX and word.isascii() and word.isdigit()}
        if not len(numbers) == len(words) == given:
            raise UnreadableError(f"{SPAWNED} does not name the GPUs that it was given, {given}")
        return tuple(sorted(number for number in numbers if number < machine))

    def outbox(self) -> list[str]:
        """The names of the mail that the component has for others: of more than ``MAILS_MAX`` files some."""
        try:
            with os.scandir(self.home / OUTBOX) as entries:
                names = [entry.name for entry in itertools.islice(entries, MAILS_MAX)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.startswith("."))

    def output(self, stream: Stream, application: Application, offset: int, limit: int) -> bytes:
        """What the application has written from ``offset`` on."""
        for path in output_paths(stream, application):
            found = read_regular(self.home / path, limit, offset)
            if found is not None:
                return found
        return b""

    def mail(self, name: str) -> bytes | None:
        """A piece of mail from the outbox. What is too long is cut, one byte too late, so that its reader notices."""
        return read_regular(self.home / OUTBOX / name, MAIL_BYTES_MAX + 1)

    # ----------------------------------------------------------------------------------- what it is told

    def put_spawned(self, gpus: Sequence[int] = ()) -> None:
        """A process is about to be started, which has these GPUs of the machine."""
        self._put(SPAWNED, ",".join(map(str, gpus)).encode())

    def put_abort(self, abort: AbortRecord) -> None:
        """From now on the application must not start, and its end is to say this."""
        self._put(ABORT, msgspec.json.encode(abort))
        sync_directory(self.home)

    def put_go(self, go: Go, at: float) -> None:
        """Open the barrier; the time stands first, so that a walltime always has a beginning."""
        self._put(RELEASED, repr(at).encode())
        self._put(GO, go.text.encode())

    def put_mail(self, name: str, data: bytes) -> None:
        """Mail for the script."""
        if not (self.home / INBOX / name).exists():
            self._put(f"{INBOX}/{name}", data)

    def _put_ended(self, event: ComponentEnded) -> None:
        self._put(ENDED, msgspec.json.encode(event))
        sync_directory(self.home)

    def _put(self, name: str, data: bytes) -> None:
        fresh = self.home / f".{name.replace('/', '.')}.site"
        self._write(fresh, data)
        fresh.rename(self.home / name)

    def _write(self, path: Path, data: bytes) -> None:
        """A new file, on disk. What has its name is removed: it may be a pipe, or lead elsewhere."""
        self._clear(path)
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _read_small(self, name: str) -> str | None:
        data = read_regular(self.home / name, _SMALL_FILE_BYTES_MAX)
        return None if data is None else data.decode(errors="replace")


def read_regular(path: Path, limit: int, offset: int = 0) -> bytes | None:
    """So many bytes of a file; None if there is none, or if it is a link, a pipe or anything else but a file.

    Never waits for anybody: opening a pipe would, until someone writes into it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO):
            return None
        raise
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        file.seek(offset)
        return file.read(limit)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
