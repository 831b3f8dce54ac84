"""A site's file area as the daemon and the movers use it, whether this machine sees the files or not.

``SeenArea`` is the one of a site whose files this machine sees, ``koala.files.area.remote`` has the other. Both have
the layout of ``koala.files.area.layout``, so that a component's links lead to the same places.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from koala.files.area.layout import Area, replica_path
from koala.files.area.verified import Proofs, WholeFile
from koala.files.checksums import is_checksum, of_path
from koala.files.errors import PathError
from koala.files.hosts import Place
from koala.files.sources import PathSource, Stamp
from koala.files.transfer.remote_process import CARRIER, Carriage
from koala.model.messages import TransferId
from koala.model.request import FileName, SiteName

P = ParamSpec("P")
T = TypeVar("T")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it was found."""

    size_bytes: int
    checksum: str


class FileArea(Protocol):
    """The file area of one site; one daemon at a time may use it.

    Every call may be repeated. One that raised ``OSError`` may have happened or not: the site's disk failed, or the
    site cannot be reached. Copies are named by ``copy_name``.
    """

    @property
    def site(self) -> SiteName: ...

    @property
    def place(self) -> Place:
        """Where texts about its files run."""
        ...

    async def root(self) -> str:
        """The area's directory, as an absolute path at the site."""
        ...

    async def prepare(self) -> dict[str, set[TransferId]]:
        """Make the directories, and remove what a daemon that was killed was about to remove or had begun to add.

        The copies that are there, and the transfers that hold them.
        """
        ...

    # Replicas.

    async def size_bytes(self, path: str) -> int | None:
        """How large a file is, by its path relative to the area; None where there is none."""
        ...

    async def measure(self, file: FileName) -> Measured:
        """The replica of a file, read to its end."""
        ...

    async def proven(self, file: FileName, size_bytes: int | None = None) -> str:
        """SHA-256 of the replica of a file as it is now. It is read only if it has changed since it was known.

        Raises ``ChangedFileError`` when it changed while it was read, or is not of the size that is asked for.
        """
        ...

    async def take_in(self, file: FileName, path: str) -> Measured:
        """Copy a file from an absolute path at the site into the area, as the replica of that name.

        Raises ``PathError`` when it is no file that can be read.
        """
        ...

    async def promote(self, file: FileName, copy: str) -> None:
        """Make a finished copy of the whole file a replica; it takes no more room while both are there."""
        ...

    async def take_name(self, incoming: FileName, file: FileName) -> None:
        """Let a replica that came in under one name have another, at once and whole."""
        ...

    async def forget(self, file: FileName) -> None:
        """Remove the replica, if there is one."""
        ...

    async def doubt(self, file: FileName) -> None:
        """Put a mark that outlasts a kill: the replica of this name may be one that nobody knows."""
        ...

    async def settle(self, file: FileName, *, keep: bool) -> None:
        """Take the mark away, and the replica too unless it is to be kept."""
        ...

    async def doubts(self) -> list[FileName]:
        """Remove what never got its name; the names of all replicas in doubt."""
        ...

    # Copies.

    async def hold(self, copy: str, transfer: TransferId) -> None:
        """Note that a transfer needs a copy, which need not be there yet. Noted twice it is held once."""
        ...

    async def let_go(self, copy: str, transfer: TransferId) -> None:
        """Note that a transfer needs it no more."""
        ...

    async def remove(self, copy: str) -> None:
        """End what brings a copy, take it out of its place at once, and then off the disk."""
        ...

    async def close(self) -> None:
        """Read replicas no further. Everything may be called again."""
        ...


class Aside(Protocol):
    """Does blocking work beside the event loop."""

    async def __call__(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T: ...


class SeenArea:
    """An area that this machine sees. Keeps the promises of ``FileArea``. What may take long is done ``aside``."""

    def __init__(self, area: Area, place: Place, aside: Aside = asyncio.to_thread) -> None:
        self.blocking = area
        self._place = place
        self._aside = aside
        self._proofs = Proofs()

    @property
    def site(self) -> SiteName:
        return self.blocking.site

    @property
    def place(self) -> Place:
        return self._place

    async def root(self) -> str:
        return str(await asyncio.to_thread(self.blocking.root.resolve))

    async def prepare(self) -> dict[str, set[TransferId]]:
        return await asyncio.to_thread(self._prepare)

    def _prepare(self) -> dict[str, set[TransferId]]:
        self.blocking.open()
        return {copy.home.name: copy.holders() for copy in self.blocking.copies()}

    async def size_bytes(self, path: str) -> int | None:
        try:
            return (await asyncio.to_thread((self.blocking.root / path).stat)).st_size
        except FileNotFoundError:
            return None

    async def measure(self, file: FileName) -> Measured:
        return await self._aside(_measured, self.blocking.replica(file))

    async def proven(self, file: FileName, size_bytes: int | None = None) -> str:
        path = self.blocking.replica(file)
        stamp = partial(asyncio.to_thread, PathSource(path).stamp)
        whole = WholeFile(file, self.site, replica_path(file), stamp, lambda _: self._aside(of_path, path))
        return await self._proofs.checksum(whole, size_bytes)

    async def take_in(self, file: FileName, path: str) -> Measured:
        stamp, measured = await self._aside(self._take_in, file, Path(path))
        self._proofs.note(replica_path(file), stamp, measured.checksum)
        return measured

    def _take_in(self, file: FileName, path: Path) -> tuple[Stamp, Measured]:
        size_of(path)
        taken = self.blocking.adopt(file, path)
        stamp = PathSource(taken).stamp()
        return stamp, _measured(taken)

    async def promote(self, file: FileName, copy: str) -> None:
        stamp, checksum = await asyncio.to_thread(self._promote, file, copy)
        if is_checksum(checksum):
            self._proofs.note(replica_path(file), stamp, checksum)

    def _promote(self, file: FileName, copy: str) -> tuple[Stamp, str]:
        """The replica is the file of the copy itself, which was verified when it came."""
        place = self.blocking.copy_named(copy)
        stamp = PathSource(self.blocking.promote(file, place)).stamp()
        return stamp, place.checksum.read_text().strip() if place.checksum.exists() else ""

    async def take_name(self, incoming: FileName, file: FileName) -> None:
        await asyncio.to_thread(self.blocking.take_name, incoming, file)
        self._proofs.rename(replica_path(incoming), replica_path(file))

    async def forget(self, file: FileName) -> None:
        await asyncio.to_thread(self.blocking.forget, file)

    async def doubt(self, file: FileName) -> None:
        await asyncio.to_thread(self.blocking.doubt, file)

    async def settle(self, file: FileName, *, keep: bool) -> None:
        await asyncio.to_thread(self.blocking.settle, file, keep=keep)

    async def doubts(self) -> list[FileName]:
        return await asyncio.to_thread(self.blocking.doubts)

    async def hold(self, copy: str, transfer: TransferId) -> None:
        self.blocking.copy_named(copy).hold(transfer)  # too short for a thread, as is all that only changes names

    async def let_go(self, copy: str, transfer: TransferId) -> None:
        self.blocking.copy_named(copy).let_go(transfer)

    async def remove(self, copy: str) -> None:
        home = self.blocking.copy_named(copy).home
        if (home / CARRIER).exists():
            await Carriage(self._place, str(home)).stop()
        trash = self.blocking.discard(self.blocking.copy_named(copy))
        if trash is not None:
            await asyncio.to_thread(self.blocking.empty, trash)

    async def close(self) -> None:
        await self._proofs.close()


def size_of(path: Path) -> int:
    """How large a file of this machine is. Raises ``PathError`` when it is no file that can be read."""
    try:
        found = path.stat()
    except OSError as error:
        why = error.strerror or str(error)
        raise PathError(f"path: {str(path)!r}: {why}; name a file that the daemon can read") from None
    if not stat.S_ISREG(found.st_mode):
        raise PathError(f"path: {str(path)!r} is not a regular file; name a file")
    return found.st_size


def _measured(path: Path) -> Measured:
    return Measured(size_bytes=path.stat().st_size, checksum=of_path(path))
