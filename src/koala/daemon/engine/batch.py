"""Passes events through the core, a batch at a time, and gathers everything that one commit holds.

A recovery replaces the state here as a whole: after a failed commit all of it is wrong.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import msgspec

from koala import files
from koala.core import HandlingError, Scheduler
from koala.core.life.collecting import Collecting
from koala.core.life.component import ComponentClaim, ComponentPhase
from koala.core.life.running import Running
from koala.core.life.states import JobState
from koala.core.state.ledger import Ledger
from koala.core.state.site_belief import SiteBelief
from koala.daemon.engine.inbox import InboxItem
from koala.daemon.engine.outbox import Outbox
from koala.daemon.engine.projection import EntryWriter, Projector, Submitter
from koala.daemon.engine.recovery import Recovery
from koala.daemon.live_rows import Draft, LiveRows
from koala.daemon.upkeep.site_poller import SiteActivity
from koala.model.facts import JobEnded, JobRequeued, OutputRegistered, SiteDistrusted, TurnEntry
from koala.model.messages import (
    AnyEvent,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    EndedJob,
    JobOutcome,
    JobSubmitted,
    LastingCommand,
    OutputsCollected,
    SiteReported,
    Tick,
    Token,
    TrafficMeasured,
    TransferEnded,
    TransferId,
)
from koala.model.nodes import NodeClass, NodeSize, releases_within
from koala.model.request import FileName, GraphJob, JobId, Request, SiteName
from koala.store import Batch

_log = logging.getLogger(__name__)

# A job in one of these states returns to its queue if something fails, and is placed again at once.
_MAY_WAIT_SOON = (JobState.STARTING, JobState.UNWINDING)


class EngineState:
    """The engine's state: the core, which may be a batch ahead of the record, and the recorded rows of live jobs."""

    def __init__(self, recovery: Recovery, kept: EngineState | None = None) -> None:
        """``kept`` is a state in which only the core is ahead of the record."""
        self.scheduler: Scheduler = recovery.scheduler
        self.rows: LiveRows = recovery.rows if kept is None else kept.rows
        self.outbox: Outbox = recovery.outbox if kept is None else kept.outbox
        self.entries: dict[FileName, files.CatalogueEntry] = recovery.entries if kept is None else kept.entries
        self.last_seq = recovery.last_seq
        self.last_job = recovery.last_job
        self.last_at = recovery.last_at
        self.events_since_pruning = 0


class PendingBatch:
    """The results of some events: provisional until ``batch`` is on record; then ``take_effect`` applies them in
    memory."""

    def __init__(self, state: EngineState, policy: str, now: Callable[[], float]) -> None:
        self._state = state
        self._now = now
        self._draft = Draft(state.rows)
        self._writer = EntryWriter(self._draft, state.last_seq)
        self._projector = Projector(state.scheduler, self._draft, policy)
        self._files: list[files.CatalogueEntry] = []
        self._transfers_over: list[TransferId] = []
        self._collected: list[Token] = []
        self._over: list[JobId] = []
        self.current: InboxItem | None = None  # the item being handled; None for the tick at the end
        self.ticked = False
        self.turn: list[tuple[int, TurnEntry]] = []  # commands and facts, by their numbers in the journal
        self.events = 0

    def handle(self, items: Sequence[InboxItem], *, tick: bool = True) -> None:
        """Handle these in order, and a tick at the end if one is due. Events that the core would ignore are left out.

        Events that came together share one instant, so that the waiting jobs are tried once, on all that has become
        free. Raises ``HandlingError`` for anything that our own code raises; then the core is ahead of the record.
        """
        state, at = self._state, self._next_at()
        for item in items:
            self.current = item
            event = self._event_of(item, at)
            if item.answer is not None or is_news(event, state.scheduler.ledger):
                self._handle(event, item.submitter)
            self._files += item.files
            if item.request is not None:
                assert isinstance(event, JobSubmitted)
                item.row = self._draft.jobs[event.job]
        self.current = None
        if tick and state.scheduler.due_at <= self._now():
            self._handle(Tick(at=self._next_at()), None)

    def _next_at(self) -> float:
        """Return a time for the next event that is never earlier than the last one's, whatever the clock does."""
        self._state.last_at = max(self._state.last_at, self._now())
        return self._state.last_at

    def _event_of(self, item: InboxItem, at: float) -> AnyEvent:
        state = self._state
        if item.request is not None:
            number = state.last_job + 1
            try:
                return self._submitted(item, number, at)
            except Exception as error:  # a defect of this item, not of all others in the batch
                raise HandlingError(JobSubmitted(at=at, job=number, request=item.request), (), error) from error
        assert item.event is not None, "an item is an event or a request"
        if isinstance(item.event, SiteReported) and not state.scheduler.ledger.plans_made:
            return msgspec.structs.replace(item.event, at=at, releases=())  # recorded only when plans use them
        return msgspec.structs.replace(item.event, at=at)

    def _submitted(self, item: InboxItem, number: JobId, at: float) -> JobSubmitted:
        request = _among_others(item, number)
        self._state.last_job = number + (0 if request.array is None else request.array.size)
        guest = item.submitter is not None and item.submitter.guest
        owner = "" if item.submitter is None else item.submitter.owner
        return JobSubmitted(
            at=at,
            job=number,
            request=request,
            guest=guest,
            owner=owner,
            defect=item.defect,
            ended=self._ended(request, item.ended) if request.after else (),
        )

    def _ended(self, request: Request, known: Sequence[EndedJob]) -> tuple[EndedJob, ...]:
        """Return how the jobs that it waits for ended: as its caller looked them up, or as they have ended since."""
        ledger = self._state.scheduler.ledger
        found = {each.job: each for each in known}
        for number in {each.job for each in request.after if each.job not in ledger.jobs}:
            job = ledger.ended.get(number)
            if job is not None:
                found[number] = EndedJob(job=number, outcome=JobOutcome(str(job.state)), started=job.runs > 0)
        return tuple(found[number] for number in sorted(found) if number not in ledger.jobs)

    def _handle(self, event: AnyEvent, submitter: Submitter | None) -> None:
        state = self._state
        turn = state.scheduler.handle(event)
        try:
            self._projector.project(event, turn, submitter)
            self._writer.event(event)
        except Exception as error:
            raise HandlingError(event, self._projector.about, error) from error
        if isinstance(event, TransferEnded):
            self._transfers_over.append(event.transfer)
        elif isinstance(event, OutputsCollected):
            self._collected.append(event.token)
        elif isinstance(event, Tick):
            self.ticked = True
        for entry in turn.entries:
            if isinstance(entry, SiteDistrusted):
                _log.warning("%s is not trusted for a while: %s", entry.site, entry.reason)
            elif isinstance(entry, OutputRegistered):
                self._files.append(entry_of(entry))
            elif isinstance(entry, JobEnded | JobRequeued):
                self._over.append(entry.job)
            self.turn.append((self._writer.of_turn(entry, event.at), entry))
        self.events += 1

    def batch(self) -> Batch | None:
        """Return everything for the store, with the commands performed since the last batch; None if there is
        nothing."""
        for transfer in self._transfers_over:
            self._state.outbox.transfer_is_over(transfer)
        for token in self._collected:
            self._state.outbox.collection_is_over(token)
        for job in self._over:
            self._state.outbox.job_is_over(job)
        settled = self._state.outbox.take_settled()
        if not (self._writer.entries or settled):
            return None
        return Batch(
            entries=tuple(self._writer.entries),
            outbox=tuple(seq for seq, entry in self.turn if isinstance(entry, LastingCommand)),
            settled=settled,
            jobs=tuple(self._draft.jobs.values()),
            components=tuple(self._draft.components.values()),
            transfers=tuple(self._draft.transfers.values()),
            before=self._draft.before(),
            files=tuple(self._files),
            records=self._state.scheduler.changed_records(),
        )

    def take_effect(self) -> None:
        """Apply the batch, which is now on record, to the state that everybody sees."""
        state = self._state
        state.last_seq = self._writer.seq
        state.events_since_pruning += self.events
        state.rows.take(self._draft)
        for file in self._files:
            if file.replicas:
                state.entries[file.name] = file
            else:
                state.entries.pop(file.name, None)
        for seq, entry in self.turn:
            if isinstance(entry, LastingCommand):
                state.outbox.add(seq, entry)


def _among_others(item: InboxItem, number: JobId) -> Request:
    """Return the request of a new job; in a group, the numbers of the jobs before it are filled in."""
    assert item.request is not None
    if item.group is None:
        return item.request
    job = GraphJob(name=item.request.name, request=item.request, within=item.within, reads=item.reads)
    request = job.numbered(item.group.numbers, item.group.requests)
    item.group.numbers[item.position] = number
    item.group.requests[item.position] = request
    return request


def entry_of(fact: OutputRegistered) -> files.CatalogueEntry:
    """Return the catalogue's entry of an output from now on."""
    output = fact.output
    replicas = tuple(
        files.Replica(site=site, size_bytes=output.size_bytes, checksum=output.checksum) for site in fact.sites
    )
    return files.CatalogueEntry(
        name=fact.file,
        size_bytes=output.size_bytes,
        checksum=output.checksum,
        replicas=replicas,
        kept_until=fact.kept_until,
    )


def is_news(event: AnyEvent, ledger: Ledger) -> bool:
    """Return False for an event that the core would ignore: sites repeat themselves when asked, and report what is
    over."""
    match event:
        case ComponentRunning():
            return False
        case ComponentAccepted():
            claim = ledger.claims.get(event.token)
            return claim is not None and claim.phase is ComponentPhase.SENT
        case ComponentStarting():
            claim = ledger.claims.get(event.token)
            return claim is not None and not claim.aborting and claim.timer is not None
        case ComponentReady():
            claim = ledger.claims.get(event.token)
            return claim is not None and not claim.aborting and claim.phase is not ComponentPhase.READY
        case ComponentEnded():
            return event.token in ledger.claims
        case TrafficMeasured():
            claim = ledger.claims.get(event.token)
            return claim is not None and not claim.given_up and _is_newer(event, claim)
        case OutputsCollected():
            job = ledger.jobs.get(event.job)
            if job is None or not isinstance(job.phase, Collecting):
                return False
            part = next((part for part, token in job.phase.workspaces.items() if token == event.token), None)
            return part is not None and part not in job.phase.collected
        case TransferEnded():
            transfer = ledger.transfers.by_id.get(event.transfer)
            return transfer is not None and not transfer.done
        case SiteReported():
            belief = ledger.sites.sites[ledger.index[event.site]]
            says = (event.processors, event.others)
            if belief.does_not_report or says != (belief.processors, belief.others):
                return True
            if _tells_of_nodes(event, belief, ledger):
                return True
            return ledger.plans_made and releases_within(event.releases, event.others) != belief.releases_told
    return True


def _tells_of_nodes(event: SiteReported, belief: SiteBelief, ledger: Ledger) -> bool:
    """Return True if a report has other nodes, or other free nodes while tasks with a shape look for places."""
    if event.nodes == belief.nodes and dict.fromkeys(event.shown) == belief.shown:
        return False
    if ledger.high.shaped or ledger.low.shaped or ledger.claiming:
        return True
    return _installed(event.nodes) != _installed(belief.nodes)


def _installed(nodes: Iterable[NodeClass]) -> Counter[tuple[NodeSize, tuple[str, ...]]]:
    """Count the nodes of each kind, free or not."""
    counts: Counter[tuple[NodeSize, tuple[str, ...]]] = Counter()
    for each in nodes:
        counts[each.whole, each.features] += each.count
    return counts


def _is_newer(event: TrafficMeasured, claim: ComponentClaim) -> bool:
    """Return True if a measurement is newer than the known one."""
    run = claim.job.phase
    if not isinstance(run, Running):
        return False
    known = run.sent.get(claim.component)
    if event.reason:
        return known is None and run.unmeasured.get(claim.component) != event.reason
    return known is None or event.elapsed_s > known[1]


def activity_at(site: SiteName, ledger: Ledger) -> SiteActivity:
    """Return what happens at a site and in the queues, from which the poller derives how often to ask the site."""
    waits = bool(ledger.high or ledger.low or ledger.claiming) or any(
        ledger.states[state] for state in _MAY_WAIT_SOON
    )
    index = ledger.index[site]
    fails = ledger.sites.sites[index].does_not_report
    changes = ledger.high.next_position, ledger.low.next_position, ledger.sites.turnover[index], fails
    return SiteActivity(waits=waits, claims_at=ledger.claiming.next_at, changes=changes)
