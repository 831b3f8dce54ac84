"""A copy that this machine makes itself, piece by piece, in an area that it sees.

It may be stopped between two pieces, and a kill at any time loses nothing. ``koala.files.transfer.piece`` decides
what is verified when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

import msgspec

from koala.files.area.directory import Copy, appear
from koala.files.checksums import of_pieces
from koala.files.errors import ChangedFileError
from koala.files.sources import ByteSource, PathSource, Stamp
from koala.files.transfer.order import Order
from koala.files.transfer.piece import Clock, Origin, Pause, PieceTransfer, Whole, reading_error, writing_error

# The number of bytes moved at once; each running copy has this much in memory.
PIECE_BYTES = 1 << 20
# With a rate, a piece takes about this long: the flow is even, and a stop takes effect soon.
PIECE_S = 0.1

P = ParamSpec("P")
T = TypeVar("T")


class _Attempt(Protocol):
    """A step in a thread, whose ``OSError`` becomes an error that names the file and the site at fault."""

    async def __call__(self, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T: ...


class LocalPieceTransfer(PieceTransfer):
    """Moves the bytes of one order from a source that this machine reads."""

    def __init__(
        self,
        order: Order,
        find: Callable[[], ByteSource],
        copy: Copy,
        *,
        whole: Whole,
        clock: Clock,
        pause: Pause,
        sharing: Callable[[], int] = lambda: 1,
    ) -> None:
        super().__init__(order, copy.relative, whole=whole, clock=clock, pause=pause, sharing=sharing)
        self._find = find
        self._found: ByteSource | None = None
        self._copy = copy

    async def _finished(self) -> str | None:
        copy = self._copy
        if not await self._writing(copy.data.is_file):
            return None
        if (await self._writing(copy.data.stat)).st_size != self.order.size_bytes:
            return None
        verified = await self._writing(copy.checksum.read_text)
        there = await self._digest(self._writing, PathSource(copy.data), 0)
        return there if there == verified else None

    async def _stamp(self) -> Stamp:
        return await self._reading((await self._source()).stamp)

    async def _source(self) -> ByteSource:
        if self._found is None:
            self._found = await self._reading(self._find)
        return self._found

    async def _begin(self, origin: Origin, may_continue: bool) -> int:
        return await self._writing(self._prepare, origin, may_continue)

    def _prepare(self, origin: Origin, may_continue: bool) -> int:
        copy = self._copy
        wanted = msgspec.json.encode(origin)
        if may_continue and copy.part.exists() and copy.stamp.read_bytes() == wanted:
            size = copy.part.stat().st_size
            if size <= self.order.size_bytes:
                return size
        copy.part.unlink(missing_ok=True)
        fresh = copy.stamp.with_name("stamp.fresh")
        fresh.write_bytes(wanted)
        fresh.replace(copy.stamp)
        # Only after its origin is written, so that no byte is ever attributed to another file.
        copy.part.touch()
        return 0

    async def _move_bytes(self, done: int) -> None:
        order = self.order
        source = await self._source()
        self._tell(done)
        while done < order.size_bytes:
            self._check_stopped()
            began = self._clock()
            rate = self._rate_bytes_s()
            most = PIECE_BYTES if rate is None else max(1, min(PIECE_BYTES, int(rate * PIECE_S)))
            size = min(most, order.size_bytes - done)
            piece = await self._reading(source.read, order.offset + done, size)
            if len(piece) != size:
                raise ChangedFileError(
                    order.file,
                    order.source,
                    f"it ends at byte {order.offset + done + len(piece)}; leave it alone and register it again",
                )
            await self._writing(self._write, done, piece)
            if rate is not None:
                await self._pause(size / rate)
            done += size
            self._copied += size
            self._flowing_s += self._clock() - began
            self._tell(done)

    def _write(self, offset: int, piece: bytes) -> None:
        with self._copy.part.open("r+b", buffering=0) as file:
            file.seek(offset)
            left = memoryview(piece)
            while left:
                left = left[file.write(left) :]

    async def _digest_there(self) -> str:
        return await self._digest(self._writing, PathSource(self._copy.part), 0)

    async def _digest_here(self) -> str:
        return await self._digest(self._reading, await self._source(), self.order.offset)

    async def _digest_whole(self) -> str:
        try:
            return await self._unless_stopped(self._whole)
        except OSError as error:
            raise reading_error(self.order, error) from None

    async def _finish(self, checksum: str) -> None:
        await self._writing(self._copy.checksum.write_text, checksum)
        await self._writing(appear, self._copy.part, self._copy.data)

    async def _digest(self, attempt: _Attempt, source: ByteSource, offset: int) -> str:
        """Return the SHA-256 of the ordered piece, read in pieces so that a stop takes effect soon."""

        async def read(at: int, size_bytes: int) -> bytes:
            self._check_stopped()
            return await attempt(source.read, at, size_bytes)

        return await of_pieces(read, offset, self.order.size_bytes)

    async def _reading(self, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Perform a step at the source, in a thread."""
        try:
            return await asyncio.to_thread(step, *arguments, **named)
        except OSError as error:
            raise reading_error(self.order, error) from None

    async def _writing(self, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Perform a step at the target, in a thread."""
        try:
            return await asyncio.to_thread(step, *arguments, **named)
        except OSError as error:
            raise writing_error(self.order, error) from None
