"""One copy on its way, piece by piece: continued where it stopped, verified, and only then given its name.

Between two pieces it may be stopped, and a kill between or within them loses nothing. Who shares a copy, and what
becomes of one that nobody needs, is in ``koala.files.copying``.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
from collections.abc import Awaitable, Callable
from typing import ParamSpec, Protocol, TypeAlias, TypeVar

import msgspec

from koala.files.area import Copy, appear
from koala.files.errors import (
    ChangedFileError,
    ChecksumError,
    FilesError,
    MissingFileError,
    NoSpaceError,
    TransferInterruptedError,
    UnwritableError,
)
from koala.files.mover import Brought, Order, Progress
from koala.files.sources import PathSource, Source, Stamp

# How much is moved at once; in memory for each copy that runs.
PIECE_BYTES = 1 << 20
# With a rate, pieces are so small that each takes about this long: the flow is even, and a stop is seen soon.
PIECE_S = 0.1

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
P = ParamSpec("P")
T = TypeVar("T")
Clock: TypeAlias = Callable[[], float]
Pause: TypeAlias = Callable[[float], Awaitable[None]]


class _Attempt(Protocol):
    """A step in a thread, whose ``OSError`` becomes an error that names the file and the site at fault."""

    async def __call__(self, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T: ...


class _Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What an unfinished copy is a copy of. Any difference, and it is begun anew."""

    stamp: Stamp
    checksum: str | None


class OneCopy:
    """Moves the bytes of one order. ``run`` is called once; ``stop`` ends it at the next piece.

    The order's rate is for all copies on its link together: ``sharing`` says how many flow there now, this included.
    """

    def __init__(
        self,
        order: Order,
        find: Callable[[], Source],
        place: Copy,
        *,
        clock: Clock,
        pause: Pause,
        sharing: Callable[[], int] = lambda: 1,
    ) -> None:
        self.order = order
        self._find = find
        self._place = place
        self._clock = clock
        self._pause = pause
        self._sharing = sharing
        self._stopped = False
        self.flowing = False
        self._copied = 0
        self._flowing_s = 0.0
        self.listeners: list[Progress] = []

    def stop(self) -> None:
        """End soon, with ``TransferInterruptedError``."""
        self._stopped = True

    async def run(self) -> Brought:
        """Bring the piece. Raises a ``FilesError``; what is unfinished stays, for the caller to keep or remove."""
        order, place = self.order, self._place
        checksum = await self._finished()
        if checksum is not None:
            self._tell(order.size_bytes)
            return self._brought(checksum)
        source = await self._reading(self._find)
        stamp = await self._reading(source.stamp)
        self._check_size(stamp)
        origin = _Origin(stamp=stamp, checksum=order.checksum)
        start = await self._writing(self._begin, origin, True)
        checksum = await self._copy_and_verify(source, stamp, start)
        if checksum is None and start > 0:
            # What was there before may have been bad, so nothing of it is used.
            await self._writing(self._begin, origin, False)
            checksum = await self._copy_and_verify(source, stamp, 0)
        if checksum is None:
            raise ChecksumError(
                order.file, order.target, "what was written is not what was read; check this site's disk"
            )
        await self._writing(place.checksum.write_text, checksum)
        await self._writing(appear, place.part, place.data)
        return self._brought(checksum)

    async def _finished(self) -> str | None:
        """The checksum of the finished copy, if there is one and it is still what was once verified."""
        place = self._place
        if not await self._writing(place.data.is_file):
            return None
        if (await self._writing(place.data.stat)).st_size != self.order.size_bytes:
            return None
        verified = await self._writing(place.checksum.read_text)
        there = await self._digest(self._writing, PathSource(place.data), 0)
        return there if there == verified else None

    def _check_size(self, stamp: Stamp) -> None:
        order = self.order
        fits = stamp.size_bytes == order.size_bytes if order.chunk is None else stamp.size_bytes >= sum(order.chunk)
        if not fits:
            wanted = f"{order.size_bytes}" if order.chunk is None else f"at least {sum(order.chunk)}"
            raise ChangedFileError(
                order.file,
                order.source,
                f"it has {stamp.size_bytes} bytes and should have {wanted}; register it again or forget this replica",
            )

    def _begin(self, origin: _Origin, may_continue: bool) -> int:
        """Prepare the place and say from which byte on to copy."""
        place = self._place
        wanted = msgspec.json.encode(origin)
        if may_continue and place.part.exists() and place.stamp.read_bytes() == wanted:
            size = place.part.stat().st_size
            if size <= self.order.size_bytes:
                return size
        place.part.unlink(missing_ok=True)
        fresh = place.stamp.with_name("stamp.fresh")
        fresh.write_bytes(wanted)
        fresh.replace(place.stamp)
        # Only after its origin is written, so that no byte is ever taken for one of another file.
        place.part.touch()
        return 0

    async def _copy_and_verify(self, source: Source, stamp: Stamp, start: int) -> str | None:
        """The checksum of what is at the target, or None when that is not what the source has."""
        order = self.order
        await self._copy(source, start)
        if await self._reading(source.stamp) != stamp:
            raise ChangedFileError(
                order.file, order.source, "it changed while it was copied; leave it alone and register it again"
            )
        there = await self._digest(self._writing, PathSource(self._place.part), 0)
        whole = order.checksum if order.chunk is None else None
        if there == whole:
            return there
        here = await self._digest(self._reading, source, order.offset)
        if whole is not None and here != whole:
            raise ChecksumError(
                order.file,
                order.source,
                f"its SHA-256 is {here} and the catalogue says {whole}; forget this replica, it is damaged",
            )
        return there if there == here else None

    async def _copy(self, source: Source, done: int) -> None:
        self.flowing = True
        try:
            await self._let_flow(source, done)
        finally:
            self.flowing = False

    async def _let_flow(self, source: Source, done: int) -> None:
        order = self.order
        self._tell(done)
        while done < order.size_bytes:
            self._check_stopped()
            began = self._clock()
            rate = None if order.rate_bytes_s is None else order.rate_bytes_s / self._sharing()
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
        with self._place.part.open("r+b", buffering=0) as file:
            file.seek(offset)
            left = memoryview(piece)
            while left:
                left = left[file.write(left) :]

    async def _digest(self, attempt: _Attempt, source: Source, offset: int) -> str:
        """SHA-256 of the ordered piece, read in pieces so that a stop is seen soon."""
        digest = hashlib.sha256()
        end = offset + self.order.size_bytes
        while offset < end:
            self._check_stopped()
            piece = await attempt(source.read, offset, min(PIECE_BYTES, end - offset))
            if not piece:
                break  # shorter than it should be, so the digest differs too
            digest.update(piece)
            offset += len(piece)
        return digest.hexdigest()

    def _tell(self, done: int) -> None:
        for listener in self.listeners:
            listener(done)

    def _check_stopped(self) -> None:
        if self._stopped:
            raise TransferInterruptedError(
                self.order.file, self.order.target, "the transfer was stopped; order it again to go on"
            )

    def _brought(self, checksum: str) -> Brought:
        seen = self._copied / self._flowing_s if self._copied and self._flowing_s > 0 else None
        return Brought(
            transfer=self.order.transfer,
            path=self._place.relative,
            size_bytes=self.order.size_bytes,
            checksum=checksum,
            copied_bytes=self._copied,
            bytes_per_s=seen,
        )

    async def _reading(self, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """A step at the source, in a thread."""
        order = self.order
        try:
            return await asyncio.to_thread(step, *arguments, **named)
        except FileNotFoundError:
            raise MissingFileError(
                order.file, order.source, "it is not there; forget this replica or bring it back"
            ) from None
        except OSError as error:
            raise MissingFileError(
                order.file, order.source, f"it cannot be read: {error.strerror or error}; check this site's disk"
            ) from None

    async def _writing(self, step: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """A step at the target, in a thread."""
        try:
            return await asyncio.to_thread(step, *arguments, **named)
        except OSError as error:
            raise writing_error(self.order, error) from None


def writing_error(order: Order, error: OSError) -> FilesError:
    """What a failure to write at the target means for its user."""
    if error.errno in _FULL:
        why = f"no room for its {order.size_bytes} bytes ({error.strerror}); make room at this site"
        return NoSpaceError(order.file, order.target, why)
    why = f"it cannot be written: {error.strerror or error}; check this site's disk"
    return UnwritableError(order.file, order.target, why)
