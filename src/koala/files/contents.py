"""The files that users have sent for their jobs, stored once by content in the daemon's state directory.

Files only, no clock: callers pass the time. The bytes of a user gather in a part that belongs to that user. When the
part is complete and its checksum is right, it becomes a content under its SHA-256; so nobody can reach what another
user has sent. A mark notes that a user has sent a content, and only then may a job of the user refer to it. Each
answer comes after its result is on disk.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from koala.files.area.layout import encode
from koala.files.checksums import of_path

# A content that no live job refers to is kept this long after it was last sent or referred to.
CONTENT_GRACE_S = 3_600.0
# The limits of one user, and of a guest, in bytes and in number, incomplete contents included.
USER_CONTENT_BYTES_MAX = 8_589_934_592
GUEST_CONTENT_BYTES_MAX = 2_147_483_648
USER_CONTENTS_MAX = 20_000


class WrongOffsetError(ValueError):
    """A piece does not begin where the bytes so far end; ``received_bytes`` is that place."""

    def __init__(self, received_bytes: int) -> None:
        super().__init__(f"{received_bytes} bytes are here")
        self.received_bytes = received_bytes


class WrongContentError(ValueError):
    """All bytes have arrived and do not match the checksum; they are deleted."""

    def __init__(self, checksum: str) -> None:
        super().__init__(checksum)
        self.checksum = checksum


class ContentStore:
    """The contents below a directory that belongs to the store alone. Threads may share it if ``alone`` is their
    lock; the pieces of one content of one user must come one after the other."""

    def __init__(self, root: Path, alone: contextlib.AbstractContextManager[Any] | None = None) -> None:
        self.root = root
        self.bundles = root / "bundles"
        self._data = root / "data"
        self._users = root / "users"
        self._alone = contextlib.nullcontext() if alone is None else alone

    def open(self) -> None:
        """Make the directories. Incomplete contents stay, to be continued."""
        for directory in (self.root, self._data, self._users, self.bundles):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    # ---------------------------------------------------------------------------------------- sending

    def received_bytes(self, user: str, checksum: str, size_bytes: int) -> int | None:
        """Return how much of a content this user has sent; None if it is complete and verified."""
        if self._is_sent(user, checksum):
            return None
        try:
            return self._part(user, checksum, size_bytes).stat().st_size
        except FileNotFoundError:
            return 0

    def append(self, user: str, checksum: str, size_bytes: int, offset: int, data: bytes, now: float) -> int | None:
        """Append one piece; return how much has arrived, or None when the content is complete. Raises
        ``WrongOffsetError``, and ``WrongContentError`` for a complete content that does not match its checksum."""
        if self._is_sent(user, checksum):
            return None
        part = self._part(user, checksum, size_bytes)
        received = self.received_bytes(user, checksum, size_bytes) or 0
        if offset + len(data) <= received:  # a repeated piece; the checksum of the whole will verify it
            if received < size_bytes:
                return received
            offset, data = received, b""  # a kill came after the last piece and before the check
        if offset != received or offset + len(data) > size_bytes:
            raise WrongOffsetError(received)
        made = not part.exists()
        part.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(part, "ab", opener=_private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.utime(part, (now, now))
        if made:
            _sync(part.parent)
        if received + len(data) < size_bytes:
            return received + len(data)
        if of_path(part) != checksum:
            part.unlink()
            raise WrongContentError(checksum)
        self._complete(user, checksum, size_bytes, part, now)
        return None

    def _complete(self, user: str, checksum: str, size_bytes: int, part: Path, now: float) -> None:
        """Write the mark first, then the name: a kill in between leaves a complete part, which is requested once
        more."""
        with self._alone:
            mark = self._mark(user, checksum)
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(mark, "w", opener=_private) as file:
                file.write(f"{size_bytes}\n")
                file.flush()
                os.fsync(file.fileno())
            os.utime(mark, (now, now))
            _sync(mark.parent)
            data = self.path(checksum)
            if data.exists():
                part.unlink()
            else:
                part.chmod(0o400)
                part.rename(data)
                _sync(self._data)

    # ------------------------------------------------------------------------------------- what is here

    def path(self, checksum: str) -> Path:
        """Return the path of a content, whether it exists or not."""
        return self._data / checksum

    def used(self, user: str) -> tuple[int, int]:
        """Return the bytes and the number of the contents that a user has sent or is sending."""
        bytes_, count = 0, 0
        for mark in _names(self._users / encode(user) / "sent"):
            with contextlib.suppress(OSError, ValueError):
                bytes_ += int(mark.read_text())
                count += 1
        for part in _names(self._users / encode(user) / "parts"):
            _, _, size = part.name.partition(".")
            bytes_ += int(size) if size.isdigit() else 0
            count += 1
        return bytes_, count

    def refer(self, user: str, contents: Mapping[str, int], now: float) -> list[str]:
        """Note that a job of the user will refer to these contents, given by checksum with their sizes: each is kept
        for at least the grace time from now on. Return those that the user has not sent, or that have another
        size."""
        with self._alone:
            missing = [
                checksum
                for checksum, size_bytes in contents.items()
                if not self._is_sent(user, checksum) or self.path(checksum).stat().st_size != size_bytes
            ]
            if not missing:
                for checksum in contents:
                    os.utime(self._mark(user, checksum), (now, now))
            return missing

    def sweep(
        self, live: Mapping[str, Collection[str]], now: float, *, grace_s: float = CONTENT_GRACE_S
    ) -> list[str]:
        """Remove contents that nobody needs, and return them. ``live`` has the checksums that the live jobs of each
        user refer to."""
        wanted = {checksum for checksums in live.values() for checksum in checksums}
        owners = {encode(user): set(checksums) for user, checksums in live.items()}
        with self._alone:
            marked: set[str] = set()
            for home in _names(self._users):
                own = owners.get(home.name, set())
                for part in _names(home / "parts"):
                    if part.stat().st_mtime + grace_s <= now:
                        part.unlink()
                for mark in _names(home / "sent"):
                    if mark.name in own or mark.stat().st_mtime + grace_s > now:
                        marked.add(mark.name)
                    else:
                        mark.unlink()
            gone = [each.name for each in _names(self._data) if each.name not in marked | wanted]
            for checksum in gone:
                self.path(checksum).unlink()
        return gone

    def _is_sent(self, user: str, checksum: str) -> bool:
        return self._mark(user, checksum).exists() and self.path(checksum).exists()

    def _mark(self, user: str, checksum: str) -> Path:
        return self._users / encode(user) / "sent" / checksum

    def _part(self, user: str, checksum: str, size_bytes: int) -> Path:
        """Return the path of a part. The size is in the name, so that a wrong one does no harm."""
        return self._users / encode(user) / "parts" / f"{checksum}.{size_bytes}"


def _names(directory: Path) -> Iterator[Path]:
    with contextlib.suppress(FileNotFoundError):
        yield from sorted(directory.iterdir())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
