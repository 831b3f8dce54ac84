"""The directory of a component as an embedded site reads and writes it.

Files appear complete, by rename. Everything that an answer to the driver depends on is synced to disk before the
answer. ``koala.sites.component_directory`` describes the files, and why none of them is trusted.
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

# The suffixes of hidden directories: one that is being created, and one that is being removed.
NEW = ".new"
GONE = ".gone"

# The script writes a word and a number; a longer file has another origin.
_SMALL_FILE_BYTES_MAX = 1_024
# Enough for the numbers of as many GPUs as a machine may have.
_GPUS_BYTES_MAX = 16_384
_GPU_DIGITS_MAX = 6

# Errors caused by one component's directory, and not by the site's disk.
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
    """Return True if an error means that a component's directory was removed or altered, and not that the disk
    failed."""
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
        """Return True if the site has ever received the token."""
        try:
            return stat.S_ISDIR(os.lstat(self.home).st_mode)
        except (FileNotFoundError, NotADirectoryError):
            return False

    def check(self) -> None:
        """Raise ``FileNotFoundError`` if the directory is gone."""
        if not self.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.home))

    def create(self, record: AcceptanceRecord, script: str) -> None:
        """Accept a component: the directory appears complete or not at all, and survives a crash."""
        fresh = self._fresh()
        self._write(fresh / SCRIPT, script.encode())
        self._write(fresh / RECORD, msgspec.json.encode(record))
        for name in (WORK, INBOX, OUTBOX):
            (fresh / name).mkdir()
        self._appear(fresh)

    def settle(self, event: ComponentEnded) -> None:
        """Record the end of a component for good, whether it was ever here or not.

        If its directory is unusable, or something else is in its place, a new one holds only the end.
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
        """Move anything with the directory's name aside."""
        if not self.exists():
            self._clear(self.home)
            return
        self._put_aside(self.home)

    def hide(self) -> Path | None:
        """Hide the directory at once and for good; the caller removes the returned path, if any."""
        self._move_aside()
        sync_directory(self.home.parent)
        return self._gone if self._gone.exists() else None

    @property
    def _gone(self) -> Path:
        """The directory for everything that was put aside."""
        return self.home.with_name(f".{self.token}{GONE}")

    def _put_aside(self, directory: Path) -> None:
        """Move a directory out of the way; removing what an application has put there may take long."""
        directory.chmod(stat.S_IRWXU)  # without this it cannot be moved
        self._gone.mkdir(exist_ok=True)
        directory.rename(tempfile.mkdtemp(dir=self._gone))

    def _clear(self, path: Path) -> None:
        """Remove anything with this name."""
        try:
            path.unlink()
        except FileNotFoundError:
            return
        except (IsADirectoryError, PermissionError):  # the system decides which of them a directory raises
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

    # ------------------------------------------------------------------------------- from the component

    def has_record(self) -> bool:
        """Return True if it was accepted, and is not only remembered."""
        return (self.home / RECORD).exists()

    def recorded(self, *names: str) -> RecordedComponent:
        """Return what is on record about it, or what these files say."""
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
        """Return the process that runs the script, once there is one."""
        text = self._read_small(PID)
        return None if text is None else parse_identity(text)

    def exit_words(self) -> list[str] | None:
        """Return what the script recorded as its end."""
        text = self._read_small(EXIT)
        if text is None:
            return None
        return [OVERLONG] if len(text) > EXIT_BYTES_MAX else text.split()

    def last_line(self) -> str:
        """Return the last line that the failed application wrote to its standard error."""
        text = self._read_small(LAST_LINE)
        return "" if text is None else stderr_line(text.partition("\n")[0])

    def usage(self) -> Usage:
        """Return what the application has used."""
        text = None
        with contextlib.suppress(OSError):  # it does not justify an end
            text = self._read_small(USAGE)
        return NOT_MEASURED if text is None else usage(text)

    def is_ready(self) -> bool:
        """Return True if the script has reached the barrier."""
        return (self.home / READY).exists()

    def was_spawned(self) -> bool:
        """Return True if a process was started for it, or was about to be."""
        return (self.home / SPAWNED).exists()

    def gpus(self, given: int, machine: int) -> tuple[int, ...]:
        """Return the GPUs that it received when its process was to be started, without those that the machine has
        lost since. Raises ``UnreadableError`` if they are not on record."""
        if not given:
            return ()
        words = (read_regular(self.home / SPAWNED, _GPUS_BYTES_MAX) or b"").decode(errors="replace").split(",")
        numbers = {int(word) for word in words if len(word) <= _GPU_DIGITS_MAX and word.isascii() and word.isdigit()}
        if not len(numbers) == len(words) == given:
            raise UnreadableError(f"{SPAWNED} does not name the GPUs that it was given, {given}")
        return tuple(sorted(number for number in numbers if number < machine))

    def outbox(self) -> list[str]:
        """Return the names of the mail that the component has for others; at most ``MAILS_MAX`` of them."""
        try:
            with os.scandir(self.home / OUTBOX) as entries:
                names = [entry.name for entry in itertools.islice(entries, MAILS_MAX)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.startswith("."))

    def output(self, stream: Stream, application: Application, offset: int, limit: int) -> bytes:
        """Return what the application has written from ``offset`` on."""
        for path in output_paths(stream, application):
            found = read_regular(self.home / path, limit, offset)
            if found is not None:
                return found
        return b""

    def mail(self, name: str) -> bytes | None:
        """Return a piece of mail from the outbox. Overlong mail is cut one byte beyond its limit, so that its reader
        notices."""
        return read_regular(self.home / OUTBOX / name, MAIL_BYTES_MAX + 1)

    # ---------------------------------------------------------------------------------- to the component

    def put_spawned(self, gpus: Sequence[int] = ()) -> None:
        """Record that a process is about to be started, with these GPUs of the machine."""
        self._put(SPAWNED, ",".join(map(str, gpus)).encode())

    def put_abort(self, abort: AbortRecord) -> None:
        """Record an abort: from now on the application must not start, and its end is to say this."""
        self._put(ABORT, msgspec.json.encode(abort))
        sync_directory(self.home)

    def put_go(self, go: Go, at: float) -> None:
        """Open the barrier; the time comes first, so that a walltime always has a beginning."""
        self._put(RELEASED, repr(at).encode())
        self._put(GO, go.text.encode())

    def put_mail(self, name: str, data: bytes) -> None:
        """Write mail for the script."""
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
        """Write a new file to disk. Anything with its name is removed first: it may be a pipe, or a link."""
        self._clear(path)
        with path.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _read_small(self, name: str) -> str | None:
        data = read_regular(self.home / name, _SMALL_FILE_BYTES_MAX)
        return None if data is None else data.decode(errors="replace")


def read_regular(path: Path, limit: int, offset: int = 0) -> bytes | None:
    """Read at most this many bytes of a file; None if there is none, or if it is a link, a pipe or another special
    file.

    Never blocks: opening a pipe would, until someone writes into it.
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
