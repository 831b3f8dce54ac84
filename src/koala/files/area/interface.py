"""A site's file area as the daemon and the mover use it, whether this machine sees the files or not.

This class has the common part of all areas: the knowledge of which replicas have been read completely and have not
changed since. ``koala.files.area.local`` is the area in a directory of this machine, ``koala.files.area.remote`` the
area of a site whose files this machine does not see.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial

import msgspec

from koala.files.area.known_checksums import KnownChecksums, WholeFile
from koala.files.area.layout import replica_path
from koala.files.area.workspace import CollectedFile, refusal
from koala.files.checksums import is_checksum
from koala.files.hosts import Host
from koala.files.sources import Stamp
from koala.model.messages import Token, TransferId
from koala.model.outputs import CollectLimits
from koala.model.request import FileName, SiteName


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """Size and SHA-256 of a file."""

    size_bytes: int
    checksum: str


class FileArea(ABC):
    """The file area of one site; only one daemon at a time may use it. Scripts about its files run on ``host``.

    Every call may be repeated. A call that raises ``OSError`` may have been performed or not: the site's disk failed,
    or the site cannot be reached. Paths are relative to the area; ``copy_name`` names copies.
    """

    def __init__(self, site: SiteName, host: Host, limits: CollectLimits | None = None) -> None:
        self.site = site
        self.host = host
        self._limits = CollectLimits() if limits is None else limits
        self._known = KnownChecksums()

    @abstractmethod
    async def root(self) -> str:
        """Return the area's directory, as an absolute path at the site."""

    @abstractmethod
    async def prepare(self) -> dict[str, set[TransferId]]:
        """Make the directories, and remove what a killed daemon was about to remove or had begun to add.

        Returns the existing copies, and the transfers that hold them.
        """

    async def close(self) -> None:
        """Stop reading replicas. All methods may be called again."""
        await self._known.close()

    # ---------------------------------------------------------------------------------------- replicas

    @abstractmethod
    async def size_bytes(self, path: str) -> int | None:
        """Return the size of a file; None if there is none."""

    @abstractmethod
    async def stamp(self, path: str) -> Stamp:
        """Return the present stamp of a file in the area. Raises ``FileNotFoundError`` if there is none."""

    @abstractmethod
    async def digest(self, path: str, size_bytes: int) -> str:
        """Return the SHA-256 of a whole file of this size."""

    async def measure(self, file: FileName) -> Measured:
        """Read the whole replica of a file."""
        path = replica_path(file)
        size_bytes = (await self.stamp(path)).size_bytes
        return Measured(size_bytes=size_bytes, checksum=await self.digest(path, size_bytes))

    async def verified_checksum(self, file: FileName, size_bytes: int | None = None) -> str:
        """Return the SHA-256 of the replica of a file as it is now. The replica is read only if it has changed since
        the last reading.

        Raises ``ChangedFileError`` if it changes while it is read, or does not have the given size.
        """
        path = replica_path(file)
        whole = WholeFile(file, self.site, path, partial(self.stamp, path), partial(self.digest, path))
        return await self._known.checksum(whole, size_bytes)

    async def take_in(self, file: FileName, path: str) -> Measured:
        """Copy a file from an absolute path at the site into the area, as the replica of that name.

        Raises ``PathError`` if the path is not a readable file.
        """
        stamp, checksum = await self._take_in(file, path)
        self._known.note(replica_path(file), stamp, checksum)
        return Measured(size_bytes=stamp.size_bytes, checksum=checksum)

    async def collect(
        self,
        file: FileName,
        token: Token,
        path: str,
        *,
        at_once_bytes: int | None = None,
    ) -> CollectedFile | None:
        """Make what a component of this site left at ``path``, below its workspace, the replica of that name: a file,
        or a directory as one archive. Return None if there is nothing.

        Raises ``PathError`` for a path that leads out of the workspace, is not a file or directory, is too large or
        takes too long, and ``LargeOutputError`` for more than ``at_once_bytes``. A caller that stops waiting ends the
        work.
        """
        limits = self._limits
        try:
            async with asyncio.timeout(limits.time_s):
                found = await self._collect(file, token, path, at_once_bytes)
        except TimeoutError:
            await self.forget(file)
            raise refusal(self.site, path, "slow", limits) from None
        if found is None:
            return None
        stamp, made = found
        self._known.note(replica_path(file), stamp, made.checksum)
        return made

    @abstractmethod
    async def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        """Return the bytes of a file of the area from ``offset`` on; fewer only at its end."""

    @abstractmethod
    async def read_whole(self, files: Mapping[FileName, int]) -> dict[FileName, bytes]:
        """Return the bytes of these replicas, each of the given size. A replica that is missing, cannot be read or
        has another size is left out."""

    async def promote(self, file: FileName, copy: str) -> None:
        """Make a finished copy of the whole file a replica; where the disk has hard links, the two share their
        space."""
        promoted = await self._promote(file, copy)
        if promoted is not None and is_checksum(promoted[1]):
            self._known.note(replica_path(file), *promoted)

    async def take_name(self, incoming: FileName, file: FileName) -> None:
        """Rename a replica that arrived under a temporary name, as a whole and at once."""
        await self._take_name(incoming, file)
        self._known.rename(replica_path(incoming), replica_path(file))

    @abstractmethod
    async def _take_in(self, file: FileName, path: str) -> tuple[Stamp, str]: ...

    @abstractmethod
    async def _collect(
        self, file: FileName, token: Token, path: str, at_once_bytes: int | None
    ) -> tuple[Stamp, CollectedFile] | None: ...

    @abstractmethod
    async def _promote(self, file: FileName, copy: str) -> tuple[Stamp, str] | None:
        """Return the replica's stamp and the verified checksum of the copy; None if it is another file now."""

    @abstractmethod
    async def _take_name(self, incoming: FileName, file: FileName) -> None: ...

    @abstractmethod
    async def forget(self, file: FileName) -> None:
        """Remove the replica, if there is one."""

    @abstractmethod
    async def doubt(self, *files: FileName) -> None:
        """Write marks that survive a kill: replicas of these names may be unknown to the catalogue."""

    @abstractmethod
    async def settle(self, *files: FileName, keep: bool) -> None:
        """Remove the marks, and the replicas too unless they are to be kept."""

    @abstractmethod
    async def doubts(self) -> list[FileName]:
        """Remove replicas that still have a temporary name; return the names of all replicas in doubt."""

    # ------------------------------------------------------------------------------------------ copies

    @abstractmethod
    async def hold(self, copy: str, transfer: TransferId) -> None:
        """Note that a transfer needs a copy, which need not exist yet; a repeated note changes nothing."""

    @abstractmethod
    async def let_go(self, copy: str, transfer: TransferId) -> None:
        """Note that a transfer no longer needs a copy."""

    @abstractmethod
    async def remove(self, copy: str) -> None:
        """End the process that writes a copy, move the copy to the trash at once, and then delete it."""
