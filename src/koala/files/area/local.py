"""The file area of a site whose files this machine sees, for event loops.

It exists beside ``koala.files.area.remote``, which could run the same scripts on this machine, for two reasons: it
syncs the note of a copy's holder to disk with its directory, which POSIX sh cannot do, and it needs no process for
that.
"""

from __future__ import annotations

import asyncio
import contextlib
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ParamSpec, Protocol, TypeVar

from koala.files.area.directory import AreaDirectory, Gate
from koala.files.area.interface import FileArea
from koala.files.area.layout import fresh_name
from koala.files.area.workspace import CollectedFile, last_change, take_in_output, workspace_of
from koala.files.checksums import of_path
from koala.files.errors import PathError
from koala.files.hosts import Host
from koala.files.remote_process import PROCESS, RemoteProcess
from koala.files.sources import PathSource, Stamp
from koala.model.messages import Token, TransferId
from koala.model.outputs import CollectLimits
from koala.model.request import FileName

P = ParamSpec("P")
T = TypeVar("T")


class Offload(Protocol):
    """Run blocking work beside the event loop."""

    async def __call__(self, work: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> T: ...


class LocalArea(FileArea):
    """An area that this machine sees. ``offload`` runs the work that reads or copies whole files."""

    def __init__(
        self,
        directory: AreaDirectory,
        host: Host,
        offload: Offload = asyncio.to_thread,
        *,
        limits: CollectLimits | None = None,
    ) -> None:
        super().__init__(directory.site, host, limits)
        self.directory = directory
        self._offload = offload

    async def root(self) -> str:
        return str(await asyncio.to_thread(self.directory.root.resolve))

    async def prepare(self) -> dict[str, set[TransferId]]:
        return await asyncio.to_thread(self._prepare)

    def _prepare(self) -> dict[str, set[TransferId]]:
        self.directory.open()
        return {copy.home.name: copy.holders() for copy in self.directory.copies()}

    async def size_bytes(self, path: str) -> int | None:
        return await asyncio.to_thread(self.directory.size_bytes, path)

    async def stamp(self, path: str) -> Stamp:
        return await asyncio.to_thread(PathSource(self.directory.root / path).stamp)

    async def digest(self, path: str, size_bytes: int) -> str:
        return await self._offload(of_path, self.directory.root / path)

    async def _take_in(self, file: FileName, path: str) -> tuple[Stamp, str]:
        def take_in() -> tuple[Stamp, str]:
            size_of(Path(path))
            taken = self.directory.adopt(file, Path(path))
            return PathSource(taken).stamp(), of_path(taken)

        return await self._offload(take_in)

    async def _collect(
        self, file: FileName, token: Token, path: str, at_once_bytes: int | None
    ) -> tuple[Stamp, CollectedFile] | None:
        final = self.directory.replica(file)
        fresh = final.with_name(fresh_name(file))
        gate = Gate(fresh)

        def collect() -> tuple[Stamp, CollectedFile] | None:
            workspace = workspace_of(self.directory.root, token)
            taken = take_in_output(
                self.site, workspace, path, fresh, final, limits=self._limits, at_once_bytes=at_once_bytes, gate=gate
            )
            if taken is None:
                return None
            packed, checksum = taken
            stamp = PathSource(final).stamp()
            changed_at = last_change(workspace / path) if packed else None
            made = CollectedFile(
                size_bytes=stamp.size_bytes, checksum=checksum, directory=packed, changed_at=changed_at
            )
            return stamp, made

        try:
            return await self._offload(collect)
        except asyncio.CancelledError:
            gate.close()  # the thread continues until it next checks the gate
            raise

    async def read(self, path: str, offset: int, size_bytes: int) -> bytes:
        return await self._offload(PathSource(self.directory.root / path).read, offset, size_bytes)

    async def read_whole(self, files: Mapping[FileName, int]) -> dict[FileName, bytes]:
        def read() -> dict[FileName, bytes]:
            found = {}
            for file, size_bytes in files.items():
                with contextlib.suppress(OSError), self.directory.replica(file).open("rb") as stream:
                    data = stream.read(size_bytes + 1)
                    if len(data) == size_bytes:
                        found[file] = data
            return found

        return await self._offload(read)

    async def _promote(self, file: FileName, copy: str) -> tuple[Stamp, str]:
        def promote() -> tuple[Stamp, str]:
            """Link the replica to the file of the copy, which was verified when it arrived."""
            verified = self.directory.copy_named(copy)
            stamp = PathSource(self.directory.promote(file, verified)).stamp()
            return stamp, verified.checksum.read_text().strip() if verified.checksum.exists() else ""

        return await asyncio.to_thread(promote)

    async def _take_name(self, incoming: FileName, file: FileName) -> None:
        await asyncio.to_thread(self.directory.take_name, incoming, file)

    async def forget(self, file: FileName) -> None:
        await asyncio.to_thread(self.directory.forget, file)

    async def doubt(self, *files: FileName) -> None:
        await asyncio.to_thread(self.directory.doubt, *files)

    async def settle(self, *files: FileName, keep: bool) -> None:
        await asyncio.to_thread(self.directory.settle, *files, keep=keep)

    async def doubts(self) -> list[FileName]:
        return await asyncio.to_thread(self.directory.doubts)

    async def hold(self, copy: str, transfer: TransferId) -> None:
        self.directory.copy_named(copy).hold(transfer)  # too short for a thread, like all that only changes names

    async def let_go(self, copy: str, transfer: TransferId) -> None:
        self.directory.copy_named(copy).let_go(transfer)

    async def remove(self, copy: str) -> None:
        home = self.directory.copy_named(copy).home
        if (home / PROCESS).exists():
            await RemoteProcess(self.host, str(home)).stop()
        trash = self.directory.discard(self.directory.copy_named(copy))
        if trash is not None:
            await asyncio.to_thread(self.directory.empty, trash)


def size_of(path: Path) -> int:
    """Return the size of a file of this machine. Raises ``PathError`` if it is not a readable file."""
    try:
        found = path.stat()
    except OSError as error:
        why = error.strerror or str(error)
        raise PathError(f"path: {str(path)!r}: {why}; name a file that the daemon can read") from None
    if not stat.S_ISREG(found.st_mode):
        raise PathError(f"path: {str(path)!r} is not a regular file; name a file")
    return found.st_size
