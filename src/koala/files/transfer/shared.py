"""Who shares which copy, and what becomes of one that nobody needs: what all movers have in common.

How the bytes of an order are brought is for those who inherit. What is held by whom is on disk at the target, so that
a mover made anew after a kill finds it; times and pauses come from what the mover was built with.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeAlias

import msgspec

from koala.files.area.interface import FileArea
from koala.files.area.layout import copy_name, copy_path
from koala.files.area.verified import Proofs, whole_at_url
from koala.files.errors import FilesError, TransferCancelledError, TransferInterruptedError, UnwritableError
from koala.files.transfer.interface import Brought, Order, Progress
from koala.files.transfer.piece import Pause, Work, writing_error
from koala.model.messages import TransferId
from koala.model.request import SiteName

_log = logging.getLogger(__name__)

# An area that could not be opened is tried again after so long, then ever more rarely.
LATE_FIRST_S = 1.0
LATE_MOST_S = 60.0

_Key: TypeAlias = tuple[SiteName, str]
# Hears of transfers that were found to hold something, in an area that could not be looked at before.
Found: TypeAlias = Callable[[frozenset[TransferId]], None]


class _Running:
    """A copy on its way, and the answers that wait for it."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.answers: dict[TransferId, asyncio.Future[Brought]] = {}
        self.unwanted = False
        self.not_removed: OSError | None = None
        self.task: asyncio.Task[None] | None = None


class _Coming:
    """An order that is not yet on its way: it waits for a copy to leave, or for its target to note it."""

    def __init__(self, transfer: TransferId, key: _Key) -> None:
        self.transfer = transfer
        self.key = key
        self.cancelled = False


class SharingMover(ABC):
    """Brings files into the areas it was built with. Keeps the promises of ``Mover``."""

    def __init__(self, areas: Iterable[FileArea], *, pause: Pause) -> None:
        self._areas = {area.site: area for area in areas}
        self._pause = pause
        self._holders: dict[_Key, set[TransferId]] = {}
        self._key_of: dict[TransferId, _Key] = {}
        self._running: dict[_Key, _Running] = {}
        self._coming: list[_Coming] = []
        self._locks: dict[_Key, tuple[asyncio.Lock, int]] = {}
        self._late: dict[SiteName, asyncio.Task[None]] = {}
        self._urls = Proofs()
        self.when_found: Found | None = None

    @abstractmethod
    def _work(self, order: Order, copy: str) -> Work:
        """What brings the piece of an order into a copy."""

    async def _prepare(self, area: FileArea) -> dict[str, set[TransferId]]:
        """Get an area ready; what is held there."""
        return await area.prepare()

    async def _take_away(self, area: FileArea, copy: str) -> None:
        """Remove a copy and all that was made for it."""
        await area.remove(copy)

    # ------------------------------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        """Find again what was brought here or is on its way. Without ``open`` nothing else may be called.

        A site that cannot be reached is tried again later; ``when_found`` then hears of what is there.
        """
        await asyncio.gather(*(self._open(area) for area in self._areas.values()))

    async def _open(self, area: FileArea) -> None:
        try:
            self._note_all(area, await self._prepare(area))
        except OSError as error:
            if area.place.is_here:
                raise
            _log.warning("the files of site %s cannot be looked at yet: %s", area.site, error)
            self._late[area.site] = asyncio.create_task(self._open_late(area), name=f"open files of {area.site}")

    async def _open_late(self, area: FileArea) -> None:
        wait_s = LATE_FIRST_S
        while True:
            await self._pause(wait_s)
            wait_s = min(2 * wait_s, LATE_MOST_S)
            try:
                held = await self._prepare(area)
            except OSError:
                continue
            del self._late[area.site]
            self._note_all(area, held)
            if self.when_found is not None:
                self.when_found(frozenset(transfer for holders in held.values() for transfer in holders))
            return

    async def close(self) -> None:
        """Stop all copies where they are; after the next ``open`` the same orders continue them."""
        late = list(self._late.values())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for running in list(self._running.values()):
            running.work.stop()
        await self._settled(*self._running.values())
        await asyncio.gather(self._urls.close(), *(area.close() for area in self._areas.values()))

    # ------------------------------------------------------------------------------------------ the promises

    @property
    def transfers(self) -> frozenset[TransferId]:
        """All transfers that hold something: after a restart the driver cancels those that it does not know."""
        return frozenset(self._key_of)

    def path_of(self, transfer: TransferId) -> str | None:
        """Where a transfer's copy is in its site's file area, or will be."""
        key = self._key_of.get(transfer)
        return None if key is None else copy_path(key[1])

    async def bring(self, order: Order, progress: Progress | None = None) -> Brought:
        """Bring a file, or join those who do. See ``Mover.bring``."""
        area = self._area(order, order.target)
        key = (order.target, copy_name(order.file, order.chunk, order.checksum))
        if self._key_of.get(order.transfer, key) != key:
            raise FilesError(
                order.file, order.target, f"transfer {order.transfer} brings something else; use a new id for this"
            )
        running = await self._joined(order, key, area)
        if progress is not None:
            running.work.listeners.append(progress)
        answer = running.answers.setdefault(order.transfer, asyncio.get_running_loop().create_future())
        # Shielded, since the same transfer may be awaited twice: giving up the wait is not cancelling the transfer.
        brought = await asyncio.shield(answer)
        return msgspec.structs.replace(brought, transfer=order.transfer)

    async def cancel(self, transfer: TransferId) -> None:
        """Stop bringing it, or delete it, unless another transfer needs it. See ``Mover.cancel``."""
        key = self._key_of.get(transfer)
        for coming in self._coming:
            if coming.transfer == transfer:
                coming.cancelled = True
                key = coming.key
        if key is None:
            return
        async with self._alone(key):
            if self._key_of.get(transfer) != key:
                return
            running = self._running.get(key)
            if self._holders[key] != {transfer}:
                await self._areas[key[0]].let_go(key[1], transfer)
                self._forget(transfer, key)
                _cancel_answer(running, transfer)
                return
            if running is None:
                await self._remove(key)
                return
            _cancel_answer(running, transfer)
            running.unwanted = True
            running.work.stop()
        await self._settled(running)
        if running.not_removed is not None:
            raise running.not_removed

    # ------------------------------------------------------------------------------------ a copy's life

    async def _joined(self, order: Order, key: _Key, area: FileArea) -> _Running:
        """Hold the copy for the order, and bring it unless it is on its way. One that leaves is waited for; the
        order may be cancelled meanwhile."""
        coming = _Coming(order.transfer, key)
        self._coming.append(coming)
        try:
            while True:
                async with self._alone(key):
                    if coming.cancelled:
                        raise _cancelled(order)
                    running = self._running.get(key)
                    if running is None or not running.unwanted:
                        await self._hold(order, key, area)
                        # It may have failed meanwhile; then all who hold it are forgotten with it.
                        if running is None:
                            return self._start(order, key)
                        if not running.unwanted:
                            return running
                await self._settled(running)
        finally:
            self._coming.remove(coming)

    async def _hold(self, order: Order, key: _Key, area: FileArea) -> None:
        if area.site in self._late:
            why = "the site has not been reached since Koala started; see what koala site check says of it"
            raise UnwritableError(order.file, order.target, why)
        try:
            await area.hold(key[1], order.transfer)
        except OSError as error:
            # If this fails too, the next ``open`` finds that nobody holds it.
            with contextlib.suppress(OSError):
                if key not in self._holders:
                    await area.remove(key[1])
            raise writing_error(order, error) from None
        self._note(order.transfer, key)

    def _start(self, order: Order, key: _Key) -> _Running:
        running = self._running[key] = _Running(self._work(order, key[1]))
        running.task = asyncio.create_task(self._carry(running, key), name=f"bring {order.transfer}")
        return running

    async def _carry(self, running: _Running, key: _Key) -> None:
        """See one copy to its end and answer all who wait. When the loop itself ends, what is on disk stays."""
        work = asyncio.create_task(running.work.run())
        await asyncio.wait([work])
        error = work.exception()
        if error is not None and not isinstance(error, TransferInterruptedError):
            # From here on nobody joins: who comes now waits until it is gone, and begins anew.
            running.unwanted = True
        async with self._alone(key):
            try:
                if running.unwanted:
                    await self._remove(key)
            except OSError as left:
                running.not_removed = left
            finally:
                del self._running[key]
                for answer in running.answers.values():
                    if error is not None:
                        _refuse(answer, error)
                    elif not answer.done():
                        answer.set_result(work.result())

    async def _remove(self, key: _Key) -> None:
        """Take it away. After an ``OSError`` it is still known."""
        await self._take_away(self._areas[key[0]], key[1])
        for transfer in self._holders.pop(key, ()):
            self._key_of.pop(transfer, None)

    async def _whole(self, order: Order) -> str:
        """SHA-256 of all of an order's file at its source, read only if it has changed since it was known."""
        if order.url is None:
            return await self._area(order, order.source).proven(order.file)
        return await self._urls.checksum(await asyncio.to_thread(whole_at_url, order.file, order.source, order.url))

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

    @contextlib.asynccontextmanager
    async def _alone(self, key: _Key) -> AsyncIterator[None]:
        """Nobody else changes who holds this copy meanwhile, in the order of asking."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)

    def _area(self, order: Order, site: SiteName) -> FileArea:
        area = self._areas.get(site)
        if area is None:
            known = ", ".join(sorted(self._areas)) or "none"
            raise FilesError(order.file, site, f"this mover sees no file area of that site; it sees: {known}")
        return area

    def _note_all(self, area: FileArea, held: dict[str, set[TransferId]]) -> None:
        for copy, holders in held.items():
            for transfer in holders:
                self._note(transfer, (area.site, copy))

    def _note(self, transfer: TransferId, key: _Key) -> None:
        self._key_of[transfer] = key
        self._holders.setdefault(key, set()).add(transfer)

    def _forget(self, transfer: TransferId, key: _Key) -> None:
        self._key_of.pop(transfer, None)
        self._holders.get(key, set()).discard(transfer)


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
