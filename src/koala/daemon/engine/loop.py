"""The heart of the daemon: it feeds events to the core, puts everything on record, and only then acts.

Events are handled one at a time. Events that arrived while the last batch was written are handled and written
together; then their callers are answered and the commands performed. When the store fails, memory is ahead of the
record: it is discarded, and the engine goes on from the record as after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ParamSpec, TypeVar

from koala import files
from koala.core import HandlingError, Scheduler
from koala.daemon.engine.batch import EngineState, PendingBatch, activity_at
from koala.daemon.engine.clock import SteadyClock
from koala.daemon.engine.given_numbers import GivenNumbers, open_sites
from koala.daemon.engine.inbox import Inbox, InboxItem, check_text, is_said_again, put_together
from koala.daemon.engine.limits import Counters, EngineLimits
from koala.daemon.engine.outbox import Outbox
from koala.daemon.engine.projection import Submitter
from koala.daemon.engine.quarantine import Quarantine, told
from koala.daemon.engine.recovery import Recovery, live_grid, nothing_yet, recover
from koala.daemon.engine.submitting import Submissions
from koala.daemon.engine.waiters import Waiters
from koala.daemon.grid_sites import SiteMaker, check_kinds, check_ssh, make_areas, make_mover, maker_for, workspace_of
from koala.daemon.live_rows import ENDED_STATES, LiveRows
from koala.daemon.perform.bundles import Bundles
from koala.daemon.perform.interface import Silences, SiteDefects, SiteTrouble
from koala.daemon.perform.performer import Performer
from koala.daemon.upkeep.journal_pruning import JournalPruner
from koala.daemon.upkeep.machines import MachineWatch
from koala.daemon.upkeep.retention import Retention
from koala.daemon.upkeep.site_poller import SiteActivity, SitePoller
from koala.files.contents import ContentStore
from koala.model.errors import UnavailableError
from koala.model.facts import TurnEntry
from koala.model.grid import Grid, SiteKind
from koala.model.messages import AnyEvent, CancelTransfer, Command, EndedJob, Tick, Token
from koala.model.request import FileName, GraphJob, JobId, Request, SiteName
from koala.policies import Catalogue
from koala.policies.interface import link_s
from koala.sites import LiveSite, Mail
from koala.sites.backoff import Backoff
from koala.store import Batch, ComponentRow, Store, StoredJob, StoreError, TransferRow

_log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class Engine:
    """The live scheduler of one grid, from ``open`` to ``close``.

    ``root/sites/NAME`` are the directories of the embedded sites. They and their components outlive the engine. The
    grid is the one to use from now on; the files are in the store, not in the grid. ``accepts_database``: end
    components whose numbers the record has not assigned, instead of refusing to open.
    """

    def __init__(
        self,
        grid: Grid,
        catalogue: Catalogue,
        store: Store,
        root: Path,
        *,
        clock: SteadyClock | None = None,
        site_maker: SiteMaker | None = None,
        limits: EngineLimits | None = None,
        accepts_database: bool = False,
    ) -> None:
        check_kinds(grid)
        check_ssh(grid)
        self._grid = grid
        self._core_grid = live_grid(grid)
        self._catalogue = catalogue
        self._store = store
        self._limits = limits = EngineLimits() if limits is None else limits
        self._clock = SteadyClock() if clock is None else clock
        self._root = root
        self._areas = make_areas(grid, root)
        self._mover = make_mover(grid, self._areas, root, clock=self._clock)
        self._numbers = GivenNumbers(accepted=accepts_database)
        make_site = functools.partial(site_maker or maker_for(grid.scheduler), on_found=self._numbers.compare)
        self._sites: dict[SiteName, LiveSite] = {
            each.name: make_site(each, root, emit=self.report, on_mail=self._on_mail, clock=self.now)
            for each in grid.sites
        }
        self.contents = ContentStore(root / "contents", threading.Lock())
        self.bundles = Bundles(self.contents)
        self._silences = Silences(self)
        self._defects = SiteDefects()
        self._performer = Performer(
            self,
            grid,
            self._sites,
            self._areas,
            self._mover,
            self._silences,
            self._defects,
            lambda name: self.entries.get(name),
            self.bundles,
            lambda job: self.rows.owner_of(job),
            call_s=limits.site_call_s,
            commands_at_once_max=limits.commands_at_once_max,
        )
        self.prober = self._performer.prober
        self.outputs = self._performer.outputs
        self._poller = SitePoller(
            self,
            self._sites,
            self._silences,
            self._defects,
            self._activity,
            {each.name for each in grid.sites if each.kind != SiteKind.LOCAL},
            poll_s=limits.poll_s,
            call_s=limits.site_call_s,
        )
        self.machines = MachineWatch(
            self,
            grid.sites,
            self._areas,
            lambda name: self._state.scheduler.ledger.sites.sites[self._state.scheduler.ledger.index[name]].ours,
            off=grid.scheduler.probe_every_s == 0,
        )
        kept_s = grid.scheduler.keep_for_s
        self._retention = Retention(self, store, self._sites, lambda: self.rows, self._areas, retention_s=kept_s)
        self._journal_pruner = JournalPruner(store, limits.journal_entries_max)
        self._waiters = Waiters()
        self._subscribers: list[Callable[[Batch, Mapping[JobId, StoredJob]], None]] = []
        self._inbox = Inbox(limits.inbox_items_max)
        # grows until a batch works
        self._backoff = Backoff(limits.recovery_first_s, limits.recovery_most_s, growth=2.0)
        self._quarantine = Quarantine(limits.recovery_first_s, limits.recovery_most_s)
        self._wake = asyncio.Event()
        self._store_thread = ThreadPoolExecutor(1, thread_name_prefix="koala-store")
        self._state = EngineState(nothing_yet(self._core_grid, catalogue))
        self._submissions = Submissions(
            store,
            lambda: self._state.rows.jobs,
            check_able=self._check_able,
            prepare=self.freshen,
            put=self._put,
            put_together=self._put_together,
            jobs_live_max=limits.jobs_live_max,
        )
        self._settle_at: float | None = None
        self._turning: asyncio.Task[None] | None = None
        self._failure = "the daemon has not started yet"
        self._is_stuck = False  # its own core is stuck, and all who perform commands go on meanwhile
        self._closing = False
        self.died = asyncio.Event()  # set when the engine has stopped without being closed: only a restart helps
        self.counters = Counters()
        self.started_at = self.now()

    # ----------------------------------------------------------------------------------- opening and closing

    async def open(self) -> None:
        """Recover, open the sites, perform the outbox and begin to work.

        Raises an error with ``for_user`` if the record or a site cannot be used; then everything is closed again.
        """
        try:
            self._adopt(await self._in_store(recover, self._store, self._core_grid, self._catalogue))
            self._numbers.read(self._state)
            self.started_at = self.now()
            await self.bundles.open()
            await self._mover.open()
            await open_sites(self._sites.values())
            await self._in_store(self._numbers.use_up, self._store, self._state)
            await self._performer.open(self._wanted_transfers())
        except BaseException:
            await self._close_sites()
            self._store_thread.shutdown()
            raise
        self._go_on()
        self._poller.start()
        self.machines.start()
        self._retention.start()
        self._turning = asyncio.create_task(self._turn(), name="engine")
        self._turning.add_done_callback(self._turned)

    async def close(self) -> None:
        """Refuse new calls, put on record what has happened, and stop. Components go on running. Idempotent."""
        turning, self._turning = self._turning, None
        if turning is None:
            return
        self._closing = True
        await self._poller.stop()
        await self.machines.stop()
        await self._retention.stop()
        await self._performer.close()
        await self._close_sites()
        self._wake.set()
        await asyncio.wait([turning])
        await self._journal_pruner.stop()
        self._failure = "the daemon has stopped"
        self._inbox.refuse_all(self._unavailable())
        self._waiters.wake_all()
        self._store_thread.shutdown()

    async def _close_sites(self) -> None:
        for site in self._sites.values():
            await site.close()
        await self._mover.close()

    def _wanted_transfers(self) -> set[str]:
        cancels = {each.transfer for each in self._state.outbox.commands.values() if isinstance(each, CancelTransfer)}
        return set(self._state.scheduler.ledger.transfers.by_id) | cancels

    # -------------------------------------------------------------------------------------------------- queries

    @property
    def scheduler(self) -> Scheduler:
        """The core. A recovery replaces it, so nobody may keep it; its state may be a batch ahead of the record."""
        return self._state.scheduler

    @property
    def store(self) -> Store:
        """The store."""
        return self._store

    @property
    def grid(self) -> Grid:
        """The grid of the constructor."""
        return self._grid

    @property
    def catalogue(self) -> Catalogue:
        """The policies."""
        return self._catalogue

    @property
    def areas(self) -> Mapping[SiteName, files.FileArea]:
        """The sites' file areas."""
        return self._areas

    @property
    def mover(self) -> files.FileMover:
        """The mover of files between sites."""
        return self._mover

    @property
    def rows(self) -> LiveRows:
        """The recorded rows of live jobs, components and transfers."""
        return self._state.rows

    @property
    def outbox(self) -> Outbox:
        """Commands on record that are still to be performed."""
        return self._state.outbox

    @property
    def entries(self) -> Mapping[FileName, files.CatalogueEntry]:
        """The replica catalogue as it is on record."""
        return self._state.entries

    @property
    def last_seq(self) -> int:
        """The number of the newest journal entry on record."""
        return self._state.last_seq

    @property
    def failure(self) -> str:
        """Why the engine cannot work now; empty while it can."""
        return self._failure

    def now(self) -> float:
        """Return the engine's time, in seconds since the epoch. It never goes back, not even across a restart."""
        return self._clock()

    def live_row(self, job: JobId) -> StoredJob | None:
        """Return the row of a live job, None for others."""
        return self._state.rows.jobs.get(job)

    def live_rows(self) -> list[StoredJob]:
        """Return the rows of all live jobs, in order of their ids."""
        return list(self._state.rows.jobs.values())

    async def counts(self, owner: str | None) -> dict[str, int]:
        """Return how many jobs are in each state, of one owner or of all. The store is asked once for each owner,
        between two commits; from then on changes are counted."""
        if not self.rows.counts_ended(owner):
            try:
                found = await self._in_store(self._store.counts, owner)
            except StoreError as error:
                raise UnavailableError(error.for_user()) from None
            self.rows.count_ended(owner, found)
        return self.rows.counts(owner)

    def components_of(self, job: JobId) -> list[ComponentRow]:
        """Return all starts of a live job's components, the oldest first."""
        return self._state.rows.components_of(job) if job in self._state.rows.jobs else []

    def transfers_now(self) -> list[TransferRow]:
        """Return the files that are on their way for some job, or have arrived for it."""
        return list(self._state.rows.transfers.values())

    def transferred_bytes(self, transfer: str) -> int:
        """Return how many bytes of a transfer are at its target."""
        row = self._state.rows.transfers.get(transfer)
        if row is not None and row.ok:
            return row.size_bytes
        return self._performer.transferred_bytes(transfer)

    def files_under_way(self) -> Mapping[str, tuple[SiteName, int, int]]:
        """Return by token where the files that travel with its job go now, how many bytes have arrived, and of how
        many."""
        return self._performer.files_under_way()

    def workspace_of(self, component: ComponentRow) -> str:
        """Return the directory in which a component started; empty if its site is no longer in the grid."""
        site = next((each for each in self.grid.sites if each.name == component.site), None)
        return "" if site is None else workspace_of(site, self._root, component.token)

    def transfer_estimate_s(self, source: SiteName, target: SiteName, size_bytes: int) -> float:
        """Estimate the duration of a transfer from what is known of the link; infinity from a site that is not in the
        grid."""
        view = self._state.scheduler.ledger.sites.view
        begin = view.index.get(source)
        return float("inf") if begin is None else link_s(begin, view.index[target], size_bytes, view)

    def site(self, name: SiteName) -> LiveSite:
        """Return the site with this name."""
        return self._sites[name]

    def silence_of(self, site: SiteName) -> SiteTrouble | None:
        """Return since when a site cannot be used, and why; None while it can."""
        return self._silences.of(site)

    def defects_of(self, site: SiteName, token: Token | None = None) -> list[str]:
        """Describe our own code's unresolved errors at a site, or on one component there."""
        return self._defects.of(site, token)

    def silent_sites(self) -> tuple[tuple[SiteName, SiteTrouble], ...]:
        """Return the sites that cannot be used, each with its trouble."""
        found = ((name, self._silences.of(name)) for name in self._sites)
        return tuple((name, silence) for name, silence in found if silence is not None)

    def reported_at(self, site: SiteName) -> float | None:
        """Return when the site last reported its state."""
        return self._poller.reported_at.get(site)

    async def wait_ended(self, job: JobId, timeout_s: float) -> None:
        """Wait until the job's end is on record, or until the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while job in self._state.rows.jobs and not self._closing:
                    await self._waiters.job_ends(job)

    async def wait_journal(self, after: int, timeout_s: float) -> None:
        """Wait until an entry later than ``after`` is on record, or until the timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._state.last_seq <= after and not self._closing:
                    await self._waiters.journal_grows()

    def subscribe(self, subscriber: Callable[[Batch, Mapping[JobId, StoredJob]], None]) -> None:
        """Call this with each batch that goes on record from now on, and with the rows of live jobs."""
        self._subscribers.append(subscriber)

    # ------------------------------------------------------------------------------------------------ requests

    async def submit(
        self,
        request: Request,
        *,
        owner: str,
        client_token: str | None = None,
        guest: bool = False,
        ended: tuple[EndedJob, ...] = (),
    ) -> tuple[StoredJob, bool]:
        """Put a job on record. Returns its row, and True if it is new.

        The same client token of an owner gives the same job. A ``guest`` is a user other than the daemon's own;
        ``ended`` are ended jobs that it waits for. When it returns the job is durable. Raises ``UnavailableError``
        when the store cannot take it; then it may or may not be on record, and a retry with the same client token
        finds out.
        """
        submitter = Submitter(owner, client_token, guest)
        return await self._submissions.submit(request, submitter, ended)

    async def submit_together(
        self,
        graph: Sequence[GraphJob],
        *,
        owner: str,
        client_token: str | None = None,
        guest: bool = False,
        ended: Sequence[tuple[EndedJob, ...]],
    ) -> tuple[list[StoredJob], bool]:
        """Put several jobs on record in one transaction, or none; otherwise as ``submit``."""
        return await self._submissions.submit_together(graph, Submitter(owner, client_token, guest), ended)

    async def tell(self, event: AnyEvent, *, files: Sequence[files.CatalogueEntry] = ()) -> None:
        """Handle an event of a caller, and put these entries of the replica catalogue on record with it.

        The engine sets the event's time. When it returns both are durable. Raises ``UnavailableError`` as ``submit``
        does.
        """
        check_text("the call", event)
        await self._put(InboxItem(event=event, files=tuple(files)))

    async def probe(self, site: SiteName) -> None:
        """Ask a site for its state now, and pass it to the core even if nothing has changed."""
        report = await self._poller.ask(site)
        if report is not None:
            await self.tell(report)

    async def freshen(self) -> None:
        """Refresh what is known of the sites to the age that a placement requires."""
        self._check_able()
        await self._poller.freshen()

    async def _put(self, item: InboxItem) -> StoredJob | None:
        self._check_able()
        item.answer = asyncio.get_running_loop().create_future()
        self._inbox.put(item)
        self._wake.set()
        return await item.answer

    async def _put_together(self, items: Sequence[InboxItem]) -> list[StoredJob]:
        self._check_able()
        return await put_together(self._inbox, items, self._wake)

    def _check_able(self) -> None:
        if self._failure or self._closing:
            raise self._unavailable()

    def _unavailable(self) -> UnavailableError:
        return UnavailableError(f"{self._failure or 'the daemon is stopping'}; try again later")

    # ---------------------------------------------------------------------------------- reports of its helpers

    def report(self, event: AnyEvent) -> None:
        """Report an event at a site. While the engine recovers, the event is dropped: the sites are then asked, and
        all commands performed again. While only its core is stuck, events that nobody repeats are kept."""
        if self._failure and (not self._is_stuck or is_said_again(event)):
            return
        self._inbox.put(InboxItem(event=event))
        self._wake.set()

    def settle(self, seq: int) -> None:
        """Mark a command as performed."""
        self._state.outbox.settle(seq)
        if self._settle_at is None and self._state.outbox.has_settled():
            self._settle_at = self.now() + self._limits.settle_s
            self._wake.set()

    def _request_of(self, entry: TurnEntry) -> Request | None:
        """Return the request of the job that a command or a fact is about; None for a job that has ended."""
        job = self._state.scheduler.ledger.jobs.get(getattr(entry, "job", 0))
        return None if job is None else job.request

    def _activity(self, site: SiteName) -> SiteActivity:
        return activity_at(site, self._state.scheduler.ledger)

    def _on_mail(self, mail: Mail) -> None:
        self._performer.take_mail(mail)

    # ------------------------------------------------------------------------------------------------ the loop

    async def _turn(self) -> None:
        """Handle batch after batch until the engine closes; then a last one."""
        while True:
            last = self._closing and len(self._inbox) <= self._limits.batch_events_max
            try:
                await self._one_batch()
                self._prune_if_due()
            except Exception as error:
                if last:
                    _log.warning("the engine stops without its last batch: %s", _in_words(error))
                    return
                await self._start_over(error)
                last = bool(self._failure)  # closed before it could recover: memory is not the record
            if last:
                return
            await self._something_to_do()

    def _turned(self, turning: asyncio.Task[None]) -> None:
        """Record the engine's failure and refuse all callers, unless it was stopped on purpose."""
        if self._closing and not turning.cancelled() and turning.exception() is None:
            return
        error = None if turning.cancelled() else turning.exception()
        why = "it was cancelled" if error is None else _in_words(error)
        _log.critical("the engine has died: %s", why, exc_info=error)
        self._failure = f"the engine has died: {why}; nothing that was acknowledged is lost, start the daemon again"
        self._inbox.refuse_all(self._unavailable())
        self.died.set()

    async def _something_to_do(self) -> None:
        """Sleep until an event, a due tick, or a performed command that must go on record."""
        while not (self._inbox or self._closing):
            at = min(self._state.scheduler.due_at, float("inf") if self._settle_at is None else self._settle_at)
            if at <= self.now():
                return
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if at == float("inf") else at - self.now()):
                    await self._wake.wait()

    async def _one_batch(self) -> None:
        """Handle the gathered events, put them on record, and only then answer and act."""
        singly = self._quarantine.singly > 0
        items = self._inbox.take(1 if singly else self._limits.batch_events_max)
        try:
            this = PendingBatch(self._state, self._grid.scheduler.policy, self.now)
            try:
                this.handle(items, tick=not (singly and items))
            except HandlingError as defect:
                await self._set_aside(defect, items, this.current)
                return
            self.counters.events += this.events
            self._settle_at = None
            batch = this.batch()
            if batch is not None:
                await self._in_store(self._store.record, batch)
                self.counters.commits += 1
                this.take_effect()
                self._act(batch, this.turn)
        except BaseException as error:
            refusal = UnavailableError(f"{_in_words(error)}; try again later")
            for item in items:
                item.refuse(refusal)
            raise
        for item in items:
            item.done()
        self._backoff.reset()
        self._quarantine.handled(len(items), ticked=this.ticked)
        if not self._quarantine.singly and self._inbox.has_room_again():
            self._performer.reconcile()

    def _act(self, batch: Batch, turn: Sequence[tuple[int, TurnEntry]]) -> None:
        """Perform the commands of a recorded batch, and wake those who wait for it."""
        for subscriber in self._subscribers:
            subscriber(batch, self._state.rows.jobs)
        for component in batch.components:
            self._performer.recorded(component)
        if not self._closing:
            for seq, entry in turn:
                if isinstance(entry, Command):
                    self._performer.perform(seq, entry, self._request_of(entry))
                else:
                    self._performer.take_note(entry, self._request_of(entry))
        self._waiters.wake(row.id for row in batch.jobs if row.state in ENDED_STATES)

    def _prune_if_due(self) -> None:
        if self._state.events_since_pruning > self._limits.pruning_events:
            self._state.events_since_pruning = 0
            self._journal_pruner.start(self._state.last_seq)

    # ----------------------------------------------------------------------------------------------- recovery

    async def _set_aside(self, defect: HandlingError, items: list[InboxItem], current: InboxItem | None) -> None:
        """Go on from the record after our own code raised, with the cause in quarantine. Nothing of the batch has
        taken effect, so all who perform commands go on. If no cause can be set aside, callers are refused and the
        core is tried again, ever more rarely."""
        _log.error("%s", defect, exc_info=defect)
        recovery = await self._in_store(recover, self._store, self._core_grid, self._catalogue)
        if recovery.scheduler.damaged:  # then recorded rows and commands change, too
            raise defect
        self._state = EngineState(recovery, self._state)
        self.counters.recoveries += 1
        self._inbox.passed_over = True  # the item set aside may be a site's event
        planned = self._quarantine.plan(defect, items, current, self._state.scheduler.ledger)
        if planned is None:
            self._failure, self._is_stuck = told(defect), True
            self._inbox.refuse_callers(self._unavailable())
            await self._pause(self._quarantine.give_up())
            self._failure, self._is_stuck = "", False
            planned = [InboxItem(event=Tick(at=self.now()))]
        self._inbox.put_first(planned)

    async def _start_over(self, error: Exception) -> None:
        """Discard the state in memory, which is not the record, and go on from the record."""
        self._failure = _in_words(error)
        if isinstance(error, StoreError):
            _log.error("the store failed: %s", self._failure)
        else:
            _log.error("the engine failed and starts over", exc_info=error)
        self._inbox.refuse_all(self._unavailable())
        self._quarantine.singly = 0
        await self._performer.stop()
        while not self._closing:
            await self._pause(self._backoff.wait_s)
            self._backoff.grow()
            try:
                recovery = await self._in_store(recover, self._store, self._core_grid, self._catalogue)
            except Exception as again:
                self._failure = _in_words(again)
                _log.warning("the engine cannot go on yet: %s", self._failure)
                continue
            if self._closing:
                return  # everybody who would perform commands has stopped
            self._adopt(recovery)
            self.counters.recoveries += 1
            self._go_on()
            self._waiters.wake_all()
            return

    async def _pause(self, wait_s: float) -> None:
        """Sleep, unless the engine is closed meanwhile."""
        self._wake.clear()
        try:
            async with asyncio.timeout(wait_s):
                while not self._closing:
                    await self._wake.wait()
                    self._wake.clear()
        except TimeoutError:
            return

    def _adopt(self, recovery: Recovery) -> None:
        self._state = EngineState(recovery)
        self._clock.not_before(recovery.last_at)
        self._settle_at = None
        self._silences.clear()  # everybody who waited for an answer has been stopped
        self._defects.clear()
        claims = recovery.scheduler.ledger.claims
        self._performer.recovered(
            recovery.rows.components.values(), [token for token, claim in claims.items() if claim.aborting]
        )

    def _go_on(self) -> None:
        """Perform the outbox, ask the sites, and give the core the current time."""
        self._failure = ""
        commands = list(self._state.outbox.commands.items())
        self._performer.start((seq, command, self._request_of(command)) for seq, command in commands)
        self._journal_pruner.start(self._state.last_seq)
        self._inbox.put(InboxItem(event=Tick(at=self.now())))
        self._wake.set()

    async def _in_store(self, call: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
        """Run a call in the store's own thread: a commit never waits for a thread, and commits come one after the
        other."""
        return await asyncio.get_running_loop().run_in_executor(
            self._store_thread, functools.partial(call, *arguments, **named)
        )


def _in_words(error: BaseException) -> str:
    for_user = getattr(error, "for_user", None)
    return str(for_user()) if for_user is not None else f"an error inside the daemon ({error!r})"
