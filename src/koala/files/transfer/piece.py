"""The transfer of a piece of a file: continued where it stopped, verified, and only then named.

Subclasses move the bytes and perform each step: ``koala.files.transfer.local_piece`` on this machine,
``koala.files.transfer.remote_piece`` by processes at the sites. ``koala.files.transfer.mover`` decides who shares a
copy.
"""

from __future__ import annotations

import asyncio
import errno
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar

import msgspec

from koala.files.errors import (
    ChangedFileError,
    ChecksumError,
    FilesError,
    NoSpaceError,
    TransferInterruptedError,
    UnwritableError,
    damaged,
    of_another_size,
    unreadable,
)
from koala.files.sources import Stamp
from koala.files.transfer.order import Order, Progress, TransferResult

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Clock: TypeAlias = Callable[[], float]
Pause: TypeAlias = Callable[[float], Awaitable[None]]
# Returns the SHA-256 of the whole file at the source. Raises ``OSError``.
Whole: TypeAlias = Callable[[], Awaitable[str]]
T = TypeVar("T")


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of an unfinished copy. The copy is begun anew if any of it differs."""

    stamp: Stamp
    checksum: str | None


class PieceWork(Protocol):
    """The transfer of the piece of one order, as the mover sees it."""

    order: Order
    listeners: list[Progress]

    @property
    def flowing(self) -> bool: ...

    def stop(self) -> None: ...

    async def run(self) -> TransferResult: ...


class PieceTransfer(ABC):
    """Transfers the piece of one order into its copy. ``run`` is called once; ``stop`` ends it soon.

    The order's rate is for all transfers on its link together: ``sharing`` counts them, this one included. ``whole``
    is called only for an order of a chunk.
    """

    def __init__(
        self, order: Order, path: str, *, whole: Whole, clock: Clock, pause: Pause, sharing: Callable[[], int]
    ) -> None:
        self.order = order
        self.flowing = False
        self.listeners: list[Progress] = []
        self._path = path
        self._whole = whole
        self._clock = clock
        self._pause = pause
        self._sharing = sharing
        self._stopping = asyncio.Event()
        self._copied = 0
        self._flowing_s = 0.0

    def stop(self) -> None:
        """End soon, with ``TransferInterruptedError``."""
        self._stopping.set()

    async def run(self) -> TransferResult:
        """Transfer the piece. Raises a ``FilesError``; an unfinished copy stays, for the caller to keep or remove."""
        order = self.order
        checksum = await self._finished()
        if checksum is not None:
            self._tell(order.size_bytes)
            return self._result(checksum)
        stamp = await self._stamp()
        self._check_size(stamp)
        await self._check_whole()
        origin = Origin(stamp=stamp, checksum=order.checksum)
        start = await self._begin(origin, True)
        checksum = await self._move_and_verify(stamp, start)
        if checksum is None and start > 0:
            # The earlier bytes may have been bad, so none of them are used.
            await self._begin(origin, False)
            checksum = await self._move_and_verify(stamp, 0)
        if checksum is None:
            raise ChecksumError(
                order.file, order.target, "the bytes written differ from the bytes read; check this site's disk"
            )
        await self._finish(checksum)
        return self._result(checksum)

    # ------------------------------------------------------------------------------------ steps of a subclass

    @abstractmethod
    async def _finished(self) -> str | None:
        """Return the checksum of the finished copy, if there is one and it still equals the verified one."""

    @abstractmethod
    async def _stamp(self) -> Stamp:
        """Return the present stamp of the source."""

    @abstractmethod
    async def _begin(self, origin: Origin, may_continue: bool) -> int:
        """Prepare the copy and return the byte to write from."""

    @abstractmethod
    async def _move_bytes(self, done: int) -> None:
        """Move the bytes beyond the first ``done`` ones, and report progress."""

    @abstractmethod
    async def _digest_there(self) -> str:
        """Return the SHA-256 of what has arrived."""

    @abstractmethod
    async def _digest_here(self) -> str:
        """Return the SHA-256 of the same piece at the source."""

    @abstractmethod
    async def _digest_whole(self) -> str:
        """Return the SHA-256 of the whole file at the source, for an order of a chunk."""

    @abstractmethod
    async def _finish(self, checksum: str) -> None:
        """Give the arrived file its name."""

    # --------------------------------------------------------------------------------------- shared steps

    def _check_size(self, stamp: Stamp) -> None:
        order = self.order
        fits = stamp.size_bytes == order.size_bytes if order.chunk is None else stamp.size_bytes >= sum(order.chunk)
        if not fits:
            wanted = f"{order.size_bytes}" if order.chunk is None else f"at least {sum(order.chunk)}"
            raise of_another_size(order.file, order.source, stamp.size_bytes, wanted)

    async def _check_whole(self) -> None:
        """Check a chunk's whole file against the catalogue, because a chunk has no checksum of its own."""
        order = self.order
        if order.chunk is None or order.checksum is None:
            return
        there = await self._digest_whole()
        if there != order.checksum:
            raise damaged(order.file, order.source, there, order.checksum)

    async def _move_and_verify(self, stamp: Stamp, start: int) -> str | None:
        """Return the checksum of the target's bytes, or None if they differ from the source's."""
        order = self.order
        self.flowing = True
        try:
            await self._move_bytes(start)
        finally:
            self.flowing = False
        if await self._stamp() != stamp:
            raise ChangedFileError(
                order.file, order.source, "it changed while it was copied; leave it alone and register it again"
            )
        there = await self._digest_there()
        whole = order.checksum if order.chunk is None else None
        if there == whole:
            return there
        here = await self._digest_here()
        if whole is not None and here != whole:
            raise damaged(order.file, order.source, here, whole)
        return there if there == here else None

    def _rate_bytes_s(self) -> float | None:
        """Return this transfer's share of the link's rate."""
        return None if self.order.rate_bytes_s is None else self.order.rate_bytes_s / max(1, self._sharing())

    def _tell(self, done: int) -> None:
        for listener in self.listeners:
            listener(done)

    async def _unless_stopped(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a step, which is abandoned if the transfer is stopped meanwhile."""
        self._check_stopped()
        working = asyncio.ensure_future(step())
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            self._check_stopped()
            return working.result()
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)

    def _check_stopped(self) -> None:
        if self._stopping.is_set():
            raise TransferInterruptedError(
                self.order.file, self.order.target, "the transfer was stopped; order it again to go on"
            )

    def _result(self, checksum: str) -> TransferResult:
        speed = self._copied / self._flowing_s if self._copied and self._flowing_s > 0 else None
        return TransferResult(
            transfer=self.order.transfer,
            path=self._path,
            size_bytes=self.order.size_bytes,
            checksum=checksum,
            copied_bytes=self._copied,
            bytes_per_s=speed,
        )


def reading_error(order: Order, error: OSError) -> FilesError:
    """Return the user's error for a failure to read at the source."""
    return unreadable(order.file, order.source, error)


def writing_error(order: Order, error: OSError) -> FilesError:
    """Return the user's error for a failure to write at the target."""
    if error.errno in _FULL:
        why = f"no room for its {order.size_bytes} bytes ({error.strerror}); make room at this site"
        return NoSpaceError(order.file, order.target, why)
    why = f"it cannot be written: {error.strerror or error}; check this site's disk"
    return UnwritableError(order.file, order.target, why)
