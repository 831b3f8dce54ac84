"""The daemon's directory: private to its owner, and used by one daemon at a time."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from koala.daemon.options import StartError

DIRECTORY_MODE = 0o700
PID_CHARACTERS_MAX = 20


def prepare(state: Path) -> Path:
    """Return the directory as an absolute path, made if it is missing, and closed to other users. A directory of
    another user, or one that others could have written to, is refused: its contents could be theirs."""
    try:
        state.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        state = state.resolve(strict=True)
        found = state.stat()
    except FileExistsError:
        raise StartError(f"the state directory {state} is a file; name another with --state") from None
    except OSError as error:
        raise StartError(f"the state directory {state} cannot be made: {_why(error)}; name another") from None
    if not stat.S_ISDIR(found.st_mode):
        raise StartError(f"the state directory {state} is a file; name another with --state")
    if found.st_uid != os.geteuid():
        raise StartError(f"the state directory {state} belongs to another user; name one of your own with --state")
    if found.st_mode & 0o022:
        raise StartError(
            f"others may write to the state directory {state}; look at what is in it, then `chmod 700` it, "
            "or name another with --state"
        )
    if found.st_mode & 0o077:
        state.chmod(DIRECTORY_MODE)
    return state


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Hold the directory's lock while the block lasts. A second daemon gets an error that names the first."""
    path = state / "lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise StartError(f"the lock {path} cannot be opened: {_why(error)}") from None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = os.read(handle, PID_CHARACTERS_MAX).decode("ascii", errors="replace").strip()
            who = f"another daemon (process {pid})" if pid else "another daemon"
            raise StartError(
                f"{who} uses the state directory {state}: stop it with 'koala down --state {state}', or name "
                "another directory with --state"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        # The file stays: removing it would let two daemons lock two files of the same name.
        os.close(handle)


def write_whole(path: Path, data: bytes) -> None:
    """Write a small file of the directory atomically."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            os.write(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
        fresh.replace(path)
    except OSError as error:
        raise StartError(f"{path} cannot be written: {_why(error)}; make room, or name another --state") from None


def _why(error: OSError) -> str:
    return error.strerror or str(error)
