"""Distributes commands: one worker for each site, one for transfers, one for barriers, one for probes of links.

Commands come here only when they are on record. ``stop`` may come at any point: unsettled commands are performed
again after the next ``start``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from koala.daemon.grid_sites import GridLinks
from koala.daemon.perform.barrier import BarrierOpener
from koala.daemon.perform.bundles import Bundles
from koala.daemon.perform.checkpoints import CheckpointBringer
from koala.daemon.perform.components import ComponentRegister
from koala.daemon.perform.interface import SITE_CALL_S, EngineInterface, Silences, SiteDefects
from koala.daemon.perform.link_probes import LinkProber
from koala.daemon.perform.mpi_relay import MpiRelay
from koala.daemon.perform.outputs import OutputCollector
from koala.daemon.perform.site_worker import COMMANDS_AT_ONCE_MAX, SiteWorker
from koala.daemon.perform.transfers import FindFile, TransferWorker, bundle_transfer
from koala.files import FileArea, FileMover
from koala.model.facts import AnyFact, JobEnded, JobPlaced, JobRequeued, TurnEntry
from koala.model.grid import Grid
from koala.model.messages import (
    AbortComponent,
    AnyCommand,
    AskCheckpoint,
    AskSite,
    CancelTransfer,
    CollectOutputs,
    JobQuarantined,
    ProbeLink,
    ReleaseBarrier,
    StartComponent,
    StartTransfer,
    Token,
    TrafficMeasured,
    TransferId,
)
from koala.model.request import JobId, Request, SiteName
from koala.runners import is_traffic_mail, parse_traffic
from koala.sites import LiveSite, Mail
from koala.store.rows import ComponentRow

_log = logging.getLogger(__name__)


class Performer:
    """Everything that performs commands, from ``start`` to ``stop``, and again.

    ``find_file`` looks up a file in the replica catalogue as recorded; ``owner_of`` returns the owner of a live job.
    """

    def __init__(
        self,
        engine: EngineInterface,
        grid: Grid,
        sites: Mapping[SiteName, LiveSite],
        areas: Mapping[SiteName, FileArea],
        mover: FileMover,
        silences: Silences,
        defects: SiteDefects,
        find_file: FindFile,
        bundles: Bundles,
        owner_of: Callable[[JobId], str],
        *,
        call_s: float = SITE_CALL_S,
        commands_at_once_max: int = COMMANDS_AT_ONCE_MAX,
    ) -> None:
        self._engine = engine
        self._grid = grid
        self._sites = sites
        self._silences = silences
        self._defects = defects
        self._call_s = call_s
        self._commands_at_once_max = commands_at_once_max
        self._components = ComponentRegister()
        links = GridLinks(grid.links)
        self._transfers = TransferWorker(engine, mover, links, self._components, find_file, bundles)
        self._checkpoints = CheckpointBringer(engine, areas, self._transfers, self._components)
        self.outputs = OutputCollector(engine, areas, mover, links, owner_of)
        self._barrier = BarrierOpener(
            engine,
            sites,
            areas,
            self._transfers,
            self._components,
            silences,
            find_file,
            self._checkpoints,
            call_s=call_s,
        )
        self.prober = LinkProber(engine, grid.sites, areas)
        self._mpi_relay = MpiRelay(sites, self._components, call_s=call_s)
        self._workers: dict[SiteName, SiteWorker] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def recovered(self, components: Iterable[ComponentRow], aborted: Iterable[Token]) -> None:
        """Load these recorded components; ``aborted`` are the ones that recorded commands abort."""
        self._components.reset(components, aborted)

    async def open(self, transfers: Iterable[TransferId]) -> None:
        """Find out what is at the sites; ``transfers`` are wanted or about to be cancelled."""
        await self._transfers.open(transfers)

    def start(self, outbox: Iterable[tuple[int, AnyCommand, Request | None]]) -> None:
        """Perform the outbox in order, then compare what each site holds with what it should hold."""
        self._transfers.go_on()
        for description in self._grid.sites:
            name = description.name
            worker = self._workers[name] = SiteWorker(
                self._sites[name],
                description,
                self._engine,
                self._components,
                self._silences,
                self._defects,
                call_s=self._call_s,
                at_once_max=self._commands_at_once_max,
            )
            self._tasks.append(asyncio.create_task(worker.run(), name=f"site {name}"))
        for seq, command, request in outbox:
            self.perform(seq, command, request)
        self.reconcile()

    def reconcile(self) -> None:
        """Ask every site about all that it should hold: its reports may have been dropped."""
        for worker in self._workers.values():
            worker.reconcile()

    async def stop(self) -> None:
        """Give up all work as it is, except mail and work that no command orders again."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._workers.clear()
        await self.prober.stop()
        await self._barrier.stop()
        await self._checkpoints.stop()
        await self.outputs.stop()
        await self._transfers.stop()

    async def close(self) -> None:
        """Stop for good."""
        await self.stop()
        await self._transfers.close()
        await self._mpi_relay.stop()

    def recorded(self, component: ComponentRow) -> None:
        """Add a recorded row of a component."""
        self._components.record(component)
        if component.ended_at is not None:
            self._transfers.component_ended(component.token)
            self._checkpoints.component_ended(component.token)
            if component.site in self._workers:
                self._workers[component.site].ended(component.token)

    def perform(self, seq: int, command: AnyCommand, request: Request | None) -> None:
        """Hand a command, and the request of its job, to its performer; None means that the job has ended. If our own
        code raises on a command, its job is set aside, and the command remains in the outbox."""
        with self._setting_aside(command):
            self._hand_over(seq, command, request)

    def take_note(self, fact: AnyFact, request: Request | None) -> None:
        """Prepare for the consequences of a fact, or give up work that it makes needless. Nothing depends on it."""
        with self._setting_aside(fact):
            match fact:
                case JobPlaced():
                    if request is not None:
                        self._barrier.foresee(fact, request)
                case JobEnded() | JobRequeued():
                    self.outputs.ended(fact)

    @contextlib.contextmanager
    def _setting_aside(self, entry: TurnEntry) -> Iterator[None]:
        """Set aside the job of a command or a fact if our own code raises while the block lasts."""
        try:
            yield
        except Exception as error:
            _log.exception("%s could not be handed over", type(entry).__name__)
            job: JobId | None = getattr(entry, "job", None)
            if job is not None:
                reason = f"an error inside Koala ({error!r}) at {type(entry).__name__}"
                self._engine.report(JobQuarantined(at=self._engine.now(), job=job, reason=reason))

    def _hand_over(self, seq: int, command: AnyCommand, request: Request | None) -> None:
        match command:
            case StartComponent() | AbortComponent() | AskSite():
                if isinstance(command, AbortComponent):
                    self._components.abort(command.token)
                worker = self._workers.get(command.site)
                if worker is None:
                    self._engine.settle(seq)  # the site has left the grid, which it may only when it holds nothing
                    return
                if isinstance(command, StartComponent) and request is not None and request.files:
                    self._transfers.foresee_bundle(command.token, command.site, request.files)
                worker.put(seq, command, request)
            case AskCheckpoint():
                self._checkpoints.ask(seq, command)
            case ReleaseBarrier():
                if request is None:
                    self._engine.settle(seq)
                else:
                    self._barrier.start(seq, command, request)
            case CollectOutputs():
                self.outputs.start(command)
            case StartTransfer():
                self._transfers.start(command)
            case CancelTransfer():
                self._transfers.cancel(seq, command)
            case ProbeLink():
                self.prober.start(command)

    def take_mail(self, mail: Mail) -> None:
        """Handle mail of a component: for the others of its job, or a measurement of its traffic."""
        if not is_traffic_mail(mail.name):
            self._mpi_relay.take(mail)
        elif self._components.is_released(mail.token):
            traffic = parse_traffic(mail.data)
            self._engine.report(TrafficMeasured(at=self._engine.now(), token=mail.token, **traffic._asdict()))

    def files_under_way(self) -> dict[Token, tuple[SiteName, int, int]]:
        """Return the components whose files travel now: where to, how many bytes have arrived, and of how many."""
        done = self._transfers.transferred_bytes
        under_way = self._transfers.bundles_under_way.items()
        return {token: (site, done.get(bundle_transfer(token), 0), size) for token, (site, size) in under_way}

    def transferred_bytes(self, transfer: TransferId) -> int:
        """Return how many bytes of a transfer under way are at its target."""
        return self._transfers.transferred_bytes.get(transfer, 0)
