"""The mover for areas that this machine sees: who shares which copy, and what becomes of one that nobody needs.

The bytes themselves are moved in ``koala.files.pieces``. What is held by whom is on disk, so that a mover made anew
after a kill finds it; times and pauses come from what the mover was built with.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial
from typing import TypeAlias

import msgspec

from koala.files.area import Area, Copy
from koala.files.errors import FilesError, TransferCancelledError, TransferInterruptedError
from koala.files.mover import Brought, Order, Progress
from koala.files.pieces import Clock, OneCopy, Pause, writing_error
from koala.files.sources import PathSource, Source, UrlSource
from koala.messages import TransferId
from koala.model import SiteName

_Key: TypeAlias = tuple[SiteName, str]


class _Running:
    """A copy on its way, and the answers that wait for it."""

    def __init__(self, work: OneCopy) -> None:
        self.work = work
        self.answers: dict[TransferId, asyncio.Future[Brought]] = {}
        self.unwanted = False
        self.not_removed: OSError | None = None
        self.task: asyncio.Task[None] | None = None


class _Waiting:
    """An order that waits for a copy to leave before its own begins."""

    def __init__(self, transfer: TransferId) -> None:
        self.transfer = transfer
        self.cancelled = False


class CopyMover:
    """Copies between the areas it was built with, and from URLs into them. Keeps the promises of ``Mover``."""

    def __init__(self, areas: Iterable[Area], *, clock: Clock, pause: Pause = asyncio.sleep) -> None:
        self._areas = {area.site: area for area in areas}
        self._clock = clock
        self._pause = pause
        self._holders: dict[_Key, set[TransferId]] = {}
        self._key_of: dict[TransferId, _Key] = {}
        self._running: dict[_Key, _Running] = {}
        self._waiting: list[_Waiting] = []

    async def open(self) -> None:
        """Find again what was brought here or is on its way. Without ``open`` nothing else may be called."""
        for area in self._areas.values():
            await asyncio.to_thread(area.open)
            for copy in area.copies():
                for transfer in copy.holders():
                    self._note(transfer, (area.site, copy.home.name))

    async def close(self) -> None:
        """Stop all copies where they are; after the next ``open`` the same orders continue them."""
        for running in list(self._running.values()):
            running.work.stop()
        await self._settled(*self._running.values())

    @property
    def transfers(self) -> frozenset[TransferId]:
        """All transfers that hold something: after a restart the driver cancels those that it does not know."""
        return frozenset(self._key_of)

    async def bring(self, order: Order, progress: Progress | None = None) -> Brought:
        """Bring a file, or join those who do. See ``Mover.bring``."""
        area = self._area(order, order.target)
        place = area.copy(order.file, order.chunk, order.checksum)
        key = (order.target, place.home.name)
        if self._key_of.get(order.transfer, key) != key:
            raise FilesError(
                order.file, order.target, f"transfer {order.transfer} brings something else; use a new id for this"
            )
        await self._until_gone(order, key)
        running = self._running.get(key)
        self._hold(order, key, area, place)
        if running is None:
            running = self._start(order, key, place)
        if progress is not None:
            running.work.listeners.append(progress)
        answer = running.answers.setdefault(order.transfer, asyncio.get_running_loop().create_future())
        # Shielded, since the same transfer may be awaited twice: giving up the wait is not cancelling the transfer.
        brought = await asyncio.shield(answer)
        return msgspec.structs.replace(brought, transfer=order.transfer)

    async def cancel(self, transfer: TransferId) -> None:
        """Stop bringing it, or delete it, unless another transfer needs it. See ``Mover.cancel``."""
        for waiting in self._waiting:
            waiting.cancelled |= waiting.transfer == transfer
        key = self._key_of.get(transfer)
        if key is None:
            return
        place = self._areas[key[0]].copy_named(key[1])
        running = self._running.get(key)
        if self._holders[key] != {transfer}:
            place.let_go(transfer)
            self._holders[key].discard(transfer)
            del self._key_of[transfer]
            _cancel_answer(running, transfer)
        elif running is not None:
            _cancel_answer(running, transfer)
            running.unwanted = True
            running.work.stop()
            await self._settled(running)
            if running.not_removed is not None:
                raise running.not_removed
        else:
            await self._remove(key, place)

    # ------------------------------------------------------------------------------------ a copy's life

    async def _until_gone(self, order: Order, key: _Key) -> None:
        """Wait for an unwanted copy of the same piece to leave. The order may be cancelled meanwhile."""
        waiting = _Waiting(order.transfer)
        self._waiting.append(waiting)
        try:
            while (leaving := self._running.get(key)) is not None and leaving.unwanted:
                await self._settled(leaving)
        finally:
            self._waiting.remove(waiting)
        if waiting.cancelled:
            raise _cancelled(order)

    def _hold(self, order: Order, key: _Key, area: Area, place: Copy) -> None:
        try:
            place.hold(order.transfer)
        except OSError as error:
            # If this fails too, the next ``open`` finds that nobody holds it.
            with contextlib.suppress(OSError):
                if key not in self._holders and (trash := area.discard(place)) is not None:
                    area.empty(trash)
            raise writing_error(order, error) from None
        self._note(order.transfer, key)

    def _start(self, order: Order, key: _Key, place: Copy) -> _Running:
        work = OneCopy(
            order,
            partial(self._source, order),
            place,
            clock=self._clock,
            pause=self._pause,
            sharing=partial(self._sharing, order),
        )
        running = self._running[key] = _Running(work)
        running.task = asyncio.create_task(self._carry(running, key, place), name=f"bring {order.transfer}")
        return running

    async def _carry(self, running: _Running, key: _Key, place: Copy) -> None:
        """See one copy to its end and answer all who wait. When the loop itself ends, what is on disk stays."""
        work = asyncio.create_task(running.work.run())
        await asyncio.wait([work])
        error = work.exception()
        if error is not None and not isinstance(error, TransferInterruptedError):
            # From here on nobody joins: who comes now waits until it is gone, and begins anew.
            running.unwanted = True
        try:
            if running.unwanted:
                await self._remove(key, place)
        except OSError as left:
            running.not_removed = left
        finally:
            del self._running[key]
            for answer in running.answers.values():
                if error is not None:
                    _refuse(answer, error)
                elif not answer.done():
                    answer.set_result(work.result())

    async def _remove(self, key: _Key, place: Copy) -> None:
        """Out of its place at once, and then, in a thread, off the disk. After an ``OSError`` it is still known."""
        area = self._areas[key[0]]
        trash = area.discard(place)
        for transfer in self._holders.pop(key, ()):
            self._key_of.pop(transfer, None)
        if trash is not None:
            await asyncio.to_thread(area.empty, trash)

    def _sharing(self, order: Order) -> int:
        """How many copies flow on the order's link, in both directions together, as links are described."""
        link = {order.source, order.target}
        works = [running.work for running in self._running.values()]
        return sum(work.flowing and {work.order.source, work.order.target} == link for work in works)

    async def _settled(self, *copies: _Running) -> None:
        """Wait until these have come to their end, whatever it is."""
        tasks = [running.task for running in copies if running.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def _source(self, order: Order) -> Source:
        if order.url is not None:
            return UrlSource(order.file, order.source, order.url)
        return PathSource(self._area(order, order.source).replica(order.file))

    def _area(self, order: Order, site: SiteName) -> Area:
        area = self._areas.get(site)
        if area is None:
            known = ", ".join(sorted(self._areas)) or "none"
            raise FilesError(order.file, site, f"this mover sees no file area of that site; it sees: {known}")
        return area

    def _note(self, transfer: TransferId, key: _Key) -> None:
        self._key_of[transfer] = key
        self._holders.setdefault(key, set()).add(transfer)


def _cancelled(order: Order) -> TransferCancelledError:
    return TransferCancelledError(order.file, order.target, "the transfer was cancelled; order it again if needed")


def _cancel_answer(running: _Running | None, transfer: TransferId) -> None:
    """Whoever waits for the transfer hears that it was cancelled."""
    if running is not None and (answer := running.answers.pop(transfer, None)) is not None:
        _refuse(answer, _cancelled(running.work.order))


def _refuse(answer: asyncio.Future[Brought], error: BaseException) -> None:
    """Answer with an error; nobody need be waiting for it any more."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()
