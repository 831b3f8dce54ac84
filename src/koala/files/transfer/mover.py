"""The mover of files between the sites of a grid: which transfers share a copy, and when a copy is removed.

``koala.files.transfer.piece_factory`` moves the bytes of an order. The holders of a copy are on disk at the target,
so that a new mover finds them after a kill. Times and pauses come from the mover's constructor arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from koala.files.area.interface import FileArea, Measured
from koala.files.area.known_checksums import KnownChecksums, whole_at_url
from koala.files.area.layout import copy_name, copy_path
from koala.files.area.local import size_of
from koala.files.checksums import of_file
from koala.files.errors import FilesError, TransferCancelledError, TransferInterruptedError, UnwritableError
from koala.files.hosts import Host
from koala.files.remote_process import RemoteProcess
from koala.files.transfer.order import Order, Progress, TransferResult
from koala.files.transfer.piece import Clock, Pause, PieceWork, writing_error
from koala.files.transfer.piece_factory import PieceFactory
from koala.files.transfer.remote_piece import FRUITLESS_TRIES_MAX
from koala.model.errors import Fault
from koala.model.grid import Site
from koala.model.messages import TransferId
from koala.model.request import FileName, SiteName

_log = logging.getLogger(__name__)

# The first and the longest pause before an area that could not be opened is tried again.
LATE_FIRST_S = 1.0
LATE_MOST_S = 60.0
_UPLOAD_PREFIX = "upload."

_Key: TypeAlias = tuple[SiteName, str]
# Receives the transfers that hold something in an area that could not be reached before.
WhenFound: TypeAlias = Callable[[frozenset[TransferId]], None]


class _Running:
    """A copy in progress, and the answers that wait for it."""

    def __init__(self, work: PieceWork) -> None:
        self.work = work
        self.answers: dict[TransferId, asyncio.Future[TransferResult]] = {}
        self.unwanted = False
        self.not_removed: OSError | None = None
        self.task: asyncio.Task[None] | None = None


class _Queued:
    """An order that has not started: it waits for an unwanted copy to go, or for its target to note it."""

    def __init__(self, transfer: TransferId, key: _Key) -> None:
        self.transfer = transfer
        self.key = key
        self.cancelled = False


class FileMover:
    """Transfers files between the sites of a grid, and from URLs and this machine to them.

    - ``transfer`` returns when the file is there, and raises a ``FilesError`` when it cannot be transferred; then
      nothing of it is left. A repeated order, also after a kill of the driver, joins or continues what is there.
    - Orders for the same piece of the same file to the same site share one copy, which stays until each of them is
      cancelled.
    - ``cancel`` may come at any time, even for an unknown transfer. When it returns, everything that no other order
      needs is gone, and a waiting ``transfer`` has raised ``TransferCancelledError``. When it raises ``OSError``
      something of the transfer is left: call it again.

    ``relays`` is a directory of this machine that belongs to the mover alone. A transfer ends after ``tries_max``
    consecutive tries that move no byte.
    """

    def __init__(
        self,
        sites: Iterable[Site],
        areas: Mapping[SiteName, FileArea],
        here: Host,
        relays: Path,
        *,
        clock: Clock,
        pause: Pause = asyncio.sleep,
        tries_max: int = FRUITLESS_TRIES_MAX,
    ) -> None:
        self._areas = dict(areas)
        self._here = here
        self._relays = relays
        self._pause = pause
        self._pieces = PieceFactory(
            sites,
            self._areas,
            here,
            relays,
            clock=clock,
            pause=pause,
            whole=self._whole,
            sharing=self._sharing,
            tries_max=tries_max,
        )
        self._holders: dict[_Key, set[TransferId]] = {}
        self._key_of: dict[TransferId, _Key] = {}
        self._running: dict[_Key, _Running] = {}
        self._queued: list[_Queued] = []
        self._locks: dict[_Key, tuple[asyncio.Lock, int]] = {}
        self._late: dict[SiteName, asyncio.Task[None]] = {}
        self._uploads: dict[TransferId, Path] = {}
        self._urls = KnownChecksums()
        self.when_found: WhenFound | None = None

    # ------------------------------------------------------------------------------------ opening and closing

    async def open(self) -> None:
        """Find transfers that are here or in progress. Without ``open`` nothing else may be called.

        Processes on this machine are ended; repeated orders continue where they were. A site that cannot be reached
        is tried again later; ``when_found`` then receives its transfers.
        """
        if self._relays.exists():
            for home in self._relays.iterdir():
                await RemoteProcess(self._here, str(home)).stop()
            await asyncio.to_thread(shutil.rmtree, self._relays)
        await asyncio.gather(*(self._open(area) for area in self._areas.values()))

    async def _open(self, area: FileArea) -> None:
        try:
            self._note_all(area, await self._prepare(area))
        except OSError as error:
            if area.host.is_local:
                raise
            _log.warning("the files of site %s cannot be reached yet: %s", area.site, error)
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

    async def _prepare(self, area: FileArea) -> dict[str, set[TransferId]]:
        await self._pieces.open_server(area.site)
        return await area.prepare()

    async def close(self) -> None:
        """Stop all copies where they are; after the next ``open`` repeated orders continue them.

        Connections that were kept open are closed too.
        """
        late = list(self._late.values())
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for running in list(self._running.values()):
            running.work.stop()
        await self._settled(*self._running.values())
        await asyncio.gather(self._urls.close(), *(area.close() for area in self._areas.values()))
        hosts = {id(area.host): area.host for area in self._areas.values()}
        await asyncio.gather(*(host.close() for host in hosts.values()), return_exceptions=True)

    # ---------------------------------------------------------------------------------------- transfers

    @property
    def transfers(self) -> frozenset[TransferId]:
        """All transfers that hold something: after a restart the driver cancels those that it does not know."""
        return frozenset(self._key_of)

    def path_of(self, transfer: TransferId) -> str | None:
        """Return the path of a transfer's copy in its site's file area, finished or not."""
        key = self._key_of.get(transfer)
        return None if key is None else copy_path(key[1])

    async def send(self, order: Order, path: Path, progress: Progress | None = None) -> TransferResult:
        """Transfer a file of this machine, which must not change, in place of the file at the order's source."""
        self._uploads[order.transfer] = path
        try:
            return await self.transfer(order, progress)
        finally:
            self._uploads.pop(order.transfer, None)

    async def transfer(self, order: Order, progress: Progress | None = None) -> TransferResult:
        """Transfer a file, or the ordered chunk of it, or join a running transfer of the same."""
        area = self._area(order)
        key = (order.target, copy_name(order.file, order.chunk, order.checksum))
        if self._key_of.get(order.transfer, key) != key:
            raise FilesError(
                order.file,
                order.target,
                f"transfer {order.transfer} is for something else; use a new id for this",
                Fault.OURS,
            )
        running = await self._joined(order, key, area)
        if progress is not None:
            running.work.listeners.append(progress)
        answer = running.answers.setdefault(order.transfer, asyncio.get_running_loop().create_future())
        # Shielded, because the same transfer may be awaited twice: the end of one wait must not cancel the transfer.
        result = await asyncio.shield(answer)
        return msgspec.structs.replace(result, transfer=order.transfer)

    async def cancel(self, transfer: TransferId) -> None:
        """Stop a transfer, or delete its copy, unless another transfer needs it."""
        key = self._key_of.get(transfer)
        for queued in self._queued:
            if queued.transfer == transfer:
                queued.cancelled = True
                key = queued.key
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

    async def upload(self, site: SiteName, file: FileName, path: Path, name: FileName) -> Measured:
        """Transfer a file from a path of this machine into a site's area, as the replica ``name``.

        Raises ``PathError`` if it is not a readable file, and ``FilesError`` if it does not arrive.
        """
        size_bytes = await asyncio.to_thread(size_of, path)
        checksum = await of_file(path)
        transfer = f"{_UPLOAD_PREFIX}{uuid.uuid4().hex}"
        order = Order(
            transfer=transfer, file=file, source=site, target=site, size_bytes=size_bytes, checksum=checksum
        )
        try:
            await self.send(order, path)
            await self._areas[site].promote(name, copy_name(file, None, checksum))
        finally:
            # At an unreachable site it is found, and removed, at the next start.
            with contextlib.suppress(OSError):
                await self.cancel(transfer)
        return Measured(size_bytes=size_bytes, checksum=checksum)

    # ------------------------------------------------------------------------------------ a copy's life

    async def _joined(self, order: Order, key: _Key, area: FileArea) -> _Running:
        """Hold the copy for the order, and start it unless it is in progress. Wait for an unwanted copy to go; the
        order may be cancelled meanwhile."""
        queued = _Queued(order.transfer, key)
        self._queued.append(queued)
        try:
            while True:
                async with self._alone(key):
                    if queued.cancelled:
                        raise _cancelled(order)
                    running = self._running.get(key)
                    if running is None or not running.unwanted:
                        await self._hold(order, key, area)
                        # The copy may have failed meanwhile; then all its holders are forgotten with it.
                        if running is None:
                            return self._start(order, key)
                        if not running.unwanted:
                            return running
                await self._settled(running)
        finally:
            self._queued.remove(queued)

    async def _hold(self, order: Order, key: _Key, area: FileArea) -> None:
        if area.site in self._late:
            why = "the site has not been reached since Koala started; see `koala site check`"
            raise UnwritableError(order.file, order.target, why)
        try:
            await area.hold(key[1], order.transfer)
        except OSError as error:
            # If this fails too, the next ``open`` finds a copy without holders.
            with contextlib.suppress(OSError):
                if key not in self._holders:
                    await area.remove(key[1])
            raise writing_error(order, error) from None
        self._note(order.transfer, key)

    def _start(self, order: Order, key: _Key) -> _Running:
        running = self._running[key] = _Running(self._pieces.make(order, key[1], self._uploads.get(order.transfer)))
        running.task = asyncio.create_task(self._finish(running, key), name=f"transfer {order.transfer}")
        return running

    async def _finish(self, running: _Running, key: _Key) -> None:
        """Follow one copy to its end and answer all waiting orders. When the event loop ends, the files on disk
        stay."""
        work = asyncio.create_task(running.work.run())
        await asyncio.wait([work])
        error = work.exception()
        if error is not None and not isinstance(error, TransferInterruptedError):
            # From here on nobody joins: a new order waits until the copy is gone, and begins anew.
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
        """Remove a copy and all that was made for it. After an ``OSError`` it is still known."""
        await self._areas[key[0]].remove(key[1])
        await self._pieces.remove_served(*key)
        for transfer in self._holders.pop(key, ()):
            self._key_of.pop(transfer, None)

    async def _whole(self, order: Order) -> str:
        """Return the SHA-256 of an order's whole file at its source, which is read only if it has changed."""
        if order.url is None:
            return await self._areas[order.source].verified_checksum(order.file)
        return await self._urls.checksum(await asyncio.to_thread(whole_at_url, order.file, order.source, order.url))

    def _sharing(self, order: Order) -> int:
        """Return how many copies flow on the order's link, in both directions together, because links are described
        so."""
        link = {order.source, order.target}
        works = [running.work for running in self._running.values()]
        return sum(work.flowing and {work.order.source, work.order.target} == link for work in works)

    async def _settled(self, *copies: _Running) -> None:
        """Wait until these copies have ended, in whatever way."""
        tasks = [running.task for running in copies if running.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    @contextlib.asynccontextmanager
    async def _alone(self, key: _Key) -> AsyncIterator[None]:
        """Have sole control over the holders of this copy, in the order of the requests."""
        lock, users = self._locks.get(key, (asyncio.Lock(), 0))
        self._locks[key] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)

    def _area(self, order: Order) -> FileArea:
        """Return the area of the order's target. Raises ``FilesError`` for a site that the mover does not know."""
        for site in (order.target, order.source):
            if site not in self._areas and (site == order.target or order.url is None):
                known = ", ".join(sorted(self._areas)) or "none"
                raise FilesError(
                    order.file, site, f"the mover knows no file area of that site; it knows: {known}", Fault.OURS
                )
        return self._areas[order.target]

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
    """Answer a waiting transfer that it was cancelled."""
    if running is not None and (answer := running.answers.pop(transfer, None)) is not None:
        _refuse(answer, _cancelled(running.work.order))


def _refuse(answer: asyncio.Future[TransferResult], error: BaseException) -> None:
    """Answer with an error; nobody need be waiting for it any more."""
    if not answer.done():
        answer.set_exception(error)
        answer.exception()
