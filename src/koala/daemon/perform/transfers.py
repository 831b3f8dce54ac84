"""Performs the core's transfers, and prepares the pieces of a site's own replicas for components.

Each transfer is a task; giving up a task leaves what has arrived where it is, and the same order later continues from
there. Copies for a component or a job remain until they are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from typing import TypeAlias

from koala.daemon.grid_sites import GridLinks
from koala.daemon.perform.bundles import Bundles
from koala.daemon.perform.components import ComponentRegister
from koala.daemon.perform.interface import EngineInterface
from koala.daemon.perform.retry import retry_until_done
from koala.files import (
    CatalogueEntry,
    FileMover,
    FilesError,
    MissingReplicaError,
    Order,
    TransferCancelledError,
    TransferInterruptedError,
    order_for,
)
from koala.files.area.workspace import CollectedFile
from koala.model.errors import Fault
from koala.model.messages import CancelTransfer, StartTransfer, Token, TransferEnded, TransferId
from koala.model.request import FileName, SiteName
from koala.model.travelling import TravellingFile

_log = logging.getLogger(__name__)

# Looks up a file in the replica catalogue.
FindFile: TypeAlias = Callable[[FileName], CatalogueEntry | None]

# The id of a piece that a component needs of a replica at its own site: this, its token, and a number.
PIECE_PREFIX = "piece."
# The name of the archive of travelling files while it is transferred.
BUNDLE_FILE = "files of the job"


class TransferWorker:
    """Performs transfers with the mover, and records how far each has come and where its copy is."""

    def __init__(
        self,
        engine: EngineInterface,
        mover: FileMover,
        links: GridLinks,
        components: ComponentRegister,
        find_file: FindFile,
        bundles: Bundles,
    ) -> None:
        self._engine = engine
        self._mover = mover
        self._bundles = bundles
        self._links = links
        self._components = components
        self._find_file = find_file
        self._wanted: set[TransferId] = set()
        self._tasks: dict[TransferId, asyncio.Task[None]] = {}
        self._cancelling: dict[asyncio.Task[None], int | None] = {}
        self._paths: dict[TransferId, str] = {}
        self._pieces: dict[Token, set[TransferId]] = {}
        self._foreseen: set[asyncio.Task[None]] = set()
        self.bundles_under_way: dict[Token, tuple[SiteName, int]] = {}  # with the size in bytes
        self.transferred_bytes: dict[TransferId, int] = {}

    async def open(self, wanted: Iterable[TransferId]) -> None:
        """Find all copies again, and remove those that neither the core nor a component wants.

        ``wanted`` are the transfers of the core, including those still to be cancelled. An unreachable site is
        cleaned up once it is reachable.
        """
        self._wanted = set(wanted)
        self._mover.when_found = self._found
        self._found(self._mover.transfers)

    def _found(self, transfers: frozenset[TransferId]) -> None:
        for transfer in transfers:
            path = self._mover.path_of(transfer)
            if path is not None:
                self._paths[transfer] = path
        for transfer in transfers - self._wanted:
            token = _token_of_piece(transfer)
            if token is not None and self._components.is_held(token):
                self._pieces.setdefault(token, set()).add(transfer)
            else:
                self._cancel_soon(transfer, None)

    def go_on(self) -> None:
        """After ``stop``: remove the pieces of components whose end went on record without being reported here."""
        for token in [token for token in self._pieces if not self._components.is_held(token)]:
            self.component_ended(token)

    async def stop(self) -> None:
        """Give up what the core has ordered, to be ordered again; nothing that has arrived is lost.

        The removal of pieces, which nobody orders again, goes on.
        """
        await _end_all(list(self._foreseen))
        await _end_all([*self._tasks.values(), *(task for task, seq in self._cancelling.items() if seq is not None)])
        self._tasks.clear()

    async def close(self) -> None:
        """Give up everything; the next ``open`` finds what is to be removed."""
        await self.stop()
        await _end_all(list(self._cancelling))

    # --------------------------------------------------------------------------------- the core's transfers

    def start(self, command: StartTransfer) -> None:
        """Begin or continue; ends in ``TransferEnded``, unless it is cancelled."""
        self._wanted.add(command.transfer)
        if command.transfer not in self._tasks:
            task = asyncio.create_task(self._perform(command), name=f"transfer {command.transfer}")
            self._tasks[command.transfer] = task
            task.add_done_callback(lambda done: self._forget(command.transfer, done))

    def _forget(self, transfer: TransferId, done: asyncio.Task[None]) -> None:
        if self._tasks.get(transfer) is done:
            del self._tasks[transfer]

    def cancel(self, seq: int, command: CancelTransfer) -> None:
        """Stop a transfer, or remove its copy. Settles the command when that is done."""
        self._wanted.discard(command.transfer)
        task = self._tasks.pop(command.transfer, None)
        if task is not None:
            task.cancel()
        self._cancel_soon(command.transfer, seq)

    def path_of(self, transfer: TransferId) -> str | None:
        """Return the path of the transfer's copy in its site's file area, once it is there."""
        return self._paths.get(transfer)

    async def _perform(self, command: StartTransfer) -> None:
        try:
            entry = self._find_file(command.file)
            if entry is None:
                raise MissingReplicaError(command.file, command.source, "the catalogue does not have it any more")
            order = order_for(command, entry, self._links.rate_bytes_s(command.source, command.target))
            self._paths[command.transfer] = await self._transfer(order)
            ended = TransferEnded(at=self._engine.now(), transfer=command.transfer, ok=True)
        except (TransferCancelledError, TransferInterruptedError):
            return
        except FilesError as error:
            ended = self._broken(command.transfer, error.for_user(), error.fault)
        except Exception as error:
            _log.exception("transfer %s failed in an unforeseen way", command.transfer)
            ended = self._broken(command.transfer, repr(error), Fault.OURS)
        self._engine.report(ended)

    def _broken(self, transfer: TransferId, reason: str, fault: Fault) -> TransferEnded:
        """Return the end of a failed transfer, which should have left nothing; any remains are removed."""
        self._cancel_soon(transfer, None)
        return TransferEnded(at=self._engine.now(), transfer=transfer, ok=False, reason=reason, fault=fault)

    async def _transfer(self, order: Order) -> str:
        def progress(transferred_bytes: int) -> None:
            self.transferred_bytes[order.transfer] = transferred_bytes

        return (await self._mover.transfer(order, progress)).path

    def _cancel_soon(self, transfer: TransferId, seq: int | None) -> None:
        task = asyncio.create_task(self._cancel(transfer, seq), name=f"cancel {transfer}")
        self._cancelling[task] = seq
        task.add_done_callback(self._cancelling.pop)

    async def _cancel(self, transfer: TransferId, seq: int | None) -> None:
        def failed(error: Exception) -> None:
            story = None if isinstance(error, OSError) else error
            _log.warning("what transfer %s brought cannot be removed yet: %s", transfer, error, exc_info=story)

        await retry_until_done(lambda: self._mover.cancel(transfer), failed)
        self._paths.pop(transfer, None)
        self.transferred_bytes.pop(transfer, None)
        if seq is not None:
            self._engine.settle(seq)

    # ---------------------------------------------------------------------------- pieces for one component

    async def piece(
        self, token: Token, number: int, file: FileName, site: SiteName, chunk: tuple[int, int] | None
    ) -> str:
        """Prepare a piece of the site's own replica for a component. Returns its path in the site's file area.

        Raises a ``FilesError`` if that fails. The piece remains until ``component_ended``.
        """
        if not self._components.is_held(token):
            raise TransferCancelledError(file, site, f"component {token} needs it no more")
        entry = self._find_file(file)
        if entry is None:
            raise MissingReplicaError(file, site, "the catalogue does not have it any more")
        command = StartTransfer(
            transfer=f"{PIECE_PREFIX}{token}.{number}",
            file=file,
            source=site,
            target=site,
            size_bytes=entry.size_bytes if chunk is None else chunk[1],
            chunk=chunk,
        )
        self._pieces.setdefault(token, set()).add(command.transfer)
        return await self._transfer(order_for(command, entry))

    def foresee_bundle(self, token: Token, site: SiteName, files: tuple[TravellingFile, ...]) -> None:
        """Begin to bring the files of a component that is about to start, so that its processors wait less for
        them."""

        async def bring() -> None:
            # An error is reported when the barrier opens, if it persists.
            with contextlib.suppress(OSError, FilesError):
                await self.bundle(token, site, files)

        task = asyncio.create_task(bring(), name=f"files for {token}")
        self._foreseen.add(task)
        task.add_done_callback(self._foreseen.discard)

    async def bundle(self, token: Token, site: SiteName, files: tuple[TravellingFile, ...]) -> str:
        """Bring the archive of a job's files to the site for a component. Returns its path in the site's file area.

        Raises a ``FilesError`` if that fails. The archive remains until ``component_ended``.
        """
        made = await self._bundles.get(files)
        if not self._components.is_held(token):
            raise TransferCancelledError(BUNDLE_FILE, site, f"component {token} needs them no more")
        order = Order(
            transfer=bundle_transfer(token),
            file=BUNDLE_FILE,
            source=site,
            target=site,
            size_bytes=made.size_bytes,
            checksum=made.checksum,
        )

        def progress(transferred_bytes: int) -> None:
            self.transferred_bytes[order.transfer] = transferred_bytes

        self._pieces.setdefault(token, set()).add(order.transfer)
        self.bundles_under_way[token] = site, made.size_bytes
        try:
            return (await self._mover.send(order, made.path, progress)).path
        finally:
            self.bundles_under_way.pop(token, None)

    async def checkpoint(
        self, token: Token, file: FileName, source: SiteName, target: SiteName, made: CollectedFile
    ) -> str:
        """Bring an archive of another site's area to a component's site. Returns its path in the file area there.

        Raises a ``FilesError`` if that fails. The archive remains until ``component_ended``.
        """
        if not self._components.is_held(token):
            raise TransferCancelledError(file, target, f"component {token} needs it no more")
        order = Order(
            transfer=f"{PIECE_PREFIX}{token}.checkpoint",
            file=file,
            source=source,
            target=target,
            size_bytes=made.size_bytes,
            checksum=made.checksum,
            rate_bytes_s=self._links.rate_bytes_s(source, target),
        )
        self._pieces.setdefault(token, set()).add(order.transfer)
        return await self._transfer(order)

    def component_ended(self, token: Token) -> None:
        """Remove the pieces of a component whose end is on record."""
        for transfer in self._pieces.pop(token, ()):
            self._cancel_soon(transfer, None)


async def _end_all(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def bundle_transfer(token: Token) -> TransferId:
    """Return the id under which a component's files travel."""
    return f"{PIECE_PREFIX}{token}.files"


def _token_of_piece(transfer: TransferId) -> Token | None:
    """Return the token in the id of a piece; None for any other transfer."""
    if not transfer.startswith(PIECE_PREFIX):
        return None
    return transfer.removeprefix(PIECE_PREFIX).rpartition(".")[0]
