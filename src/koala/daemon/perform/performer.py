"""Who performs which command: one worker for each site, one for transfers, one for barriers.

Commands come here only when they are on record. ``stop`` may come at any point: what is not settled then is performed
again after the next ``start``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from koala.daemon.engine.interface import EngineInterface
from koala.daemon.perform.barrier import BarrierOpener
from koala.daemon.perform.mpi_relay import MpiRelay
from koala.daemon.perform.site_worker import SiteWorker
from koala.daemon.perform.transfers import TransferWorker
from koala.files import FileArea
from koala.model.grid import SchedulerParameters
from koala.model.messages import (
    AbortComponent,
    AnyCommand,
    AskSite,
    CancelTransfer,
    JobPlaced,
    ReleaseBarrier,
    StartComponent,
    StartTransfer,
)
from koala.model.request import SiteName
from koala.sites import LiveSite, Mail


class Performer:
    """Everybody who performs commands, from ``start`` to ``stop``, and again."""

    def __init__(
        self,
        engine: EngineInterface,
        sites: Mapping[SiteName, LiveSite],
        areas: Mapping[SiteName, FileArea],
        transfers: TransferWorker,
        parameters: SchedulerParameters,
    ) -> None:
        self._engine = engine
        self._sites = sites
        self._parameters = parameters
        self._transfers = transfers
        self._barrier = BarrierOpener(engine, sites, areas, transfers)
        self._mpi_relay = MpiRelay(engine, sites)
        self._workers: dict[SiteName, SiteWorker] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Perform what is owed, in order, and then settle with each site what it holds and what it should."""
        self._transfers.go_on()
        for name, site in self._sites.items():
            worker = self._workers[name] = SiteWorker(site, self._engine, self._parameters)
            self._tasks.append(asyncio.create_task(worker.run(), name=f"site {name}"))
        for seq, command in list(self._engine.outbox.commands.items()):
            self.perform(seq, command)
        for worker in self._workers.values():
            worker.settle_difference()

    async def stop(self) -> None:
        """Give everything up where it is, but for mail and for what no command orders again."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.clear()
        await self._barrier.stop()
        await self._transfers.stop()

    async def close(self) -> None:
        """Stop for good."""
        await self.stop()
        await self._transfers.close()
        await self._mpi_relay.stop()

    def perform(self, seq: int, command: AnyCommand) -> None:
        """Hand a command to whom it is for. The others that are for the record alone are for nobody."""
        match command:
            case StartComponent() | AbortComponent() | AskSite():
                worker = self._workers.get(command.site)
                if worker is None:
                    self._engine.settle(seq)  # the site has left the grid, which it may only when it holds nothing
                else:
                    worker.put(seq, command)
            case JobPlaced():
                self._barrier.foresee(command)
            case ReleaseBarrier():
                self._barrier.start(seq, command)
            case StartTransfer():
                self._transfers.start(command)
            case CancelTransfer():
                self._transfers.cancel(seq, command)

    def take_mail(self, mail: Mail) -> None:
        """A component has something for the others of its job."""
        self._mpi_relay.take(mail)
