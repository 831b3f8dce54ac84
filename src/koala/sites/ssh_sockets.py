"""Where the sockets of shared ssh connections are: one directory for each user of this machine, and in it one for
each set of connections, which goes with who made it.

What was killed before it could remove its own leaves it to the next one.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Not below TMPDIR: the path of a socket must be short.
_ABOVE = Path("/tmp")  # noqa: S108 - what is in it is checked to be ours alone
_LOCK = ".lock"


class SocketDirectory:
    """A directory for sockets that only this user sees, from its making until ``remove``, or until this process ends
    in whichever way: then another one finds that nobody holds its lock.
    """

    def __init__(self, above: Path = _ABOVE) -> None:
        home = above / f"koala-ssh-{os.getuid()}"
        try:
            home.mkdir(mode=0o700, exist_ok=True)
            if not _is_ours_alone(home):
                raise PermissionError
            with _locked(home / _LOCK, make=True):
                _sweep(home)
                self.path, self._lock = _make(home)
        except OSError:
            # Somebody else has taken the name. The directory goes only with who made it, then.
            self.path, self._lock = _make(above, "koala-ssh-")

    def remove(self) -> None:
        """Give it back. May be repeated."""
        if self._lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = None


def _make(above: Path, prefix: str = "") -> tuple[Path, int | None]:
    path = Path(tempfile.mkdtemp(prefix=prefix, dir=above))
    lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return path, lock


def _sweep(home: Path) -> None:
    """Remove what nobody holds. A connection that still has its socket there ends by itself when it was idle long."""
    for each in home.iterdir():
        if each.name == _LOCK:
            continue
        try:
            with _locked(each / _LOCK, make=False):
                shutil.rmtree(each, ignore_errors=True)
        except BlockingIOError:
            continue  # it is in use
        except OSError:
            # Who made it did not even come to lock it, or somebody cleaned up: then sockets may be in use.
            with contextlib.suppress(OSError):
                each.rmdir()


@contextlib.contextmanager
def _locked(path: Path, *, make: bool) -> Iterator[None]:
    """Hold the lock of a file: one that is made if need be is waited for, another is to be free."""
    wanted = os.O_CREAT if make else 0
    descriptor = os.open(path, os.O_RDWR | wanted | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if make else fcntl.LOCK_NB))
        yield
    finally:
        os.close(descriptor)


def _is_ours_alone(home: Path) -> bool:
    found = home.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
