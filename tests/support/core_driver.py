"""A driver with which a test drives a scheduler: events in, commands out, and time only when the test says so.

Transfers are easy to count in the head: every link moves 1,000,000 bytes a second without latency, so a file of
``seconds(30)`` takes 30 s. The checks at the end hold after every event, whatever happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from koala.core import JobState, Scheduler
from koala.core.life.job import Job
from koala.core.life.states import GIVEN_BACK, IN_CLAIMING_QUEUE
from koala.core.state.ledger import Ledger
from koala.core.state.site_belief import Trust
from koala.model.facts import JobEnded, StoryFact, TurnEntry
from koala.model.grid import Grid, Link, Links, Network, SchedulerParameters, Site, StoredFile
from koala.model.messages import (
    AnyEvent,
    CancelAsked,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    JobSubmitted,
    Outcome,
    SiteReported,
    StartComponent,
    StartTransfer,
    Tick,
    TransferEnded,
)
from koala.model.request import Component, Flexibility, InputFile, InputMode, Priority, Request
from koala.policies import Catalogue
from koala.simulator.torture.restarts import KeptRecords, bodies_of
from koala.words.stories import Stories, ToldEntry, story

BYTES_PER_S = 1_000_000
EVENTS_MAX = 10_000

AnyKind = TypeVar("AnyKind", bound=TurnEntry)


def seconds(transfer_s: float) -> int:
    """Return the size of a file that takes this long over any link."""
    return round(transfer_s * BYTES_PER_S)


def make_grid(
    sites: Mapping[str, int],
    *,
    files: Mapping[str, tuple[float, tuple[str, ...]]] | None = None,
    quotas: Mapping[str, float] | None = None,
    network: Network | None = None,
    **parameters: Any,
) -> Grid:
    """Return a grid with sites by name and processors, files by name with (seconds, replicas), and the scheduler's
    parameters.

    Jobs whose runs fail do not rest, unless a test is about that.
    """
    return Grid(
        sites=tuple(
            Site(name=name, processors=processors, quota=(quotas or {}).get(name, 1.0))
            for name, processors in sites.items()
        ),
        links=Links(default=Link(bandwidth_mbit_s=8.0, latency_s=0.0)),
        network=network,
        files=tuple(
            StoredFile(name=name, size_bytes=seconds(transfer_s), replicas=replicas)
            for name, (transfer_s, replicas) in (files or {}).items()
        ),
        scheduler=SchedulerParameters(**{"restart_rest_s": 0.0} | parameters),
    )


def part(processors: int, site: str | None = None, *files: str, mode: InputMode = InputMode.WHOLE) -> Component:
    """Return one component, with the site that the user chose and the files that it reads."""
    return Component(
        processors=processors, site=site, input_files=tuple(InputFile(name=name, mode=mode) for name in files)
    )


def ask(*parts: int | Component, high: bool = False, **fields: Any) -> Request:
    """Return a request for these components; a number is one without site and files."""
    components = tuple(part(each) if isinstance(each, int) else each for each in parts)
    return Request(components=components, priority=Priority.HIGH if high else Priority.LOW, **fields)


def ask_total(
    processors: int, *files: str, high: bool = False, mode: InputMode = InputMode.WHOLE, **bounds: Any
) -> Request:
    """Return a flexible request under FCM."""
    return Request(
        components=(part(processors, None, *files, mode=mode),),
        flexible=Flexibility(**bounds),
        priority=Priority.HIGH if high else Priority.LOW,
        policy="FCM",
    )


def kind(commands: Iterable[TurnEntry], wanted: type[AnyKind]) -> list[AnyKind]:
    """Return the commands of one kind, in order."""
    return [command for command in commands if isinstance(command, wanted)]


class CoreDriver:
    """One scheduler and its present time; keeps every command with its time."""

    def __init__(
        self,
        sites: Mapping[str, int],
        *,
        files: Mapping[str, tuple[float, tuple[str, ...]]] | None = None,
        quotas: Mapping[str, float] | None = None,
        network: Network | None = None,
        catalogue: Catalogue | None = None,
        **parameters: Any,
    ) -> None:
        grid = make_grid(sites, files=files, quotas=quotas, network=network, **parameters)
        self.scheduler = Scheduler(grid, catalogue, recorded=True)
        self.kept = KeptRecords(self.scheduler)
        self.ledger = self.scheduler.ledger
        self.now = 0.0
        self.log: list[tuple[float, TurnEntry]] = []
        self.stories = Stories()
        self._next_job = 1

    # ------------------------------------------------------------------------------------- driving

    def send(self, event: AnyEvent) -> list[TurnEntry]:
        """Hand one event over; note the commands."""
        self.now = max(self.now, event.at)
        turn = self.scheduler.handle(event)
        self.stories.add(event, turn)
        commands: list[TurnEntry] = [entry for entry in turn.entries if not isinstance(entry, StoryFact)]
        if self.kept.scheduler is not self.scheduler:  # the test has restarted it
            self.kept = KeptRecords(self.scheduler)
            self.kept.bodies = bodies_of(self.scheduler)
        self.kept.write()
        assert not self.kept.missed(), f"{type(event).__name__}: {self.kept.missed()}"
        for command in commands:
            self.log.append((self.now, command))
        assert len(self.log) < EVENTS_MAX, "the scheduler never comes to rest"
        return commands

    def wait_until(self, at: float) -> list[TurnEntry]:
        """Let time pass: a tick whenever the scheduler is due, and at no other time."""
        commands: list[TurnEntry] = []
        while (due_at := self.scheduler.due_at) <= at:
            commands += self.send(Tick(at=max(due_at, self.now)))
        self.now = max(self.now, at)
        return commands

    def settle(self) -> list[TurnEntry]:
        """Let the present instant come to its end, and nothing later."""
        return self.wait_until(self.now)

    def next_wake(self) -> float:
        """Return the time of the next tick."""
        return self.scheduler.due_at

    def pass_time(self, seconds_: float) -> list[TurnEntry]:
        return self.wait_until(self.now + seconds_)

    def submit(self, request: Request) -> list[TurnEntry]:
        """Submit a job now, under the next free number: 1, 2, 3, ...."""
        self._next_job += 1
        return self.send(JobSubmitted(at=self.now, job=self._next_job - 1, request=request))

    def cancel(self, job: int) -> list[TurnEntry]:
        return self.send(CancelAsked(at=self.now, job=job))

    def ready(self, *tokens: str) -> list[TurnEntry]:
        """Report these components at the barrier."""
        return [command for token in tokens for command in self.send(ComponentReady(at=self.now, token=token))]

    def accept(self, *tokens: str) -> list[TurnEntry]:
        """Report that the sites have these components in their own queues."""
        return [command for token in tokens for command in self.send(ComponentAccepted(at=self.now, token=token))]

    def starting(self, *tokens: str) -> list[TurnEntry]:
        """Report that components that waited in their site's own queue have their processors."""
        return [command for token in tokens for command in self.send(ComponentStarting(at=self.now, token=token))]

    def say_running(self, *tokens: str) -> list[TurnEntry]:
        """Report, as sites answer a question, that these components run."""
        return [command for token in tokens for command in self.send(ComponentRunning(at=self.now, token=token))]

    def end(self, *tokens: str, outcome: Outcome = Outcome.DONE, **fields: Any) -> list[TurnEntry]:
        """End these components, all in the same way."""
        commands = []
        for token in tokens:
            commands += self.send(ComponentEnded(at=self.now, token=token, outcome=outcome, **fields))
        return commands

    def report(self, site: str, others: int, processors: int | None = None) -> list[TurnEntry]:
        """Report how many processors of a site other users hold."""
        index = self.ledger.sites.view.index[site]
        working = self.ledger.sites.sites[index].processors if processors is None else processors
        return self.send(SiteReported(at=self.now, site=site, processors=working, others=others))

    def end_transfer(self, transfer: str, *, ok: bool = True, reason: str = "") -> list[TurnEntry]:
        """End a transfer now."""
        return self.send(TransferEnded(at=self.now, transfer=transfer, ok=ok, reason=reason))

    def run(self, request: Request) -> list[str]:
        """Submit a job that fits at once and take it through the barrier; return its tokens."""
        tokens = [start.token for start in kind(self.submit(request), StartComponent)]
        assert tokens, "the job was to be placed at once"
        self.ready(*tokens)
        return tokens

    # ------------------------------------------------------------------------------------- looking

    def job(self, job: int) -> Job:
        """Return the core's record of a job, live or ended."""
        found = self.ledger.jobs.get(job) or self.ledger.ended.get(job)
        assert found is not None, f"job {job} is unknown"
        return found

    def state(self, job: int) -> JobState:
        return self.job(job).state

    def all(self, wanted: type[AnyKind]) -> list[AnyKind]:
        """Return every command of one kind since the beginning."""
        return kind((command for _, command in self.log), wanted)

    def times(self, wanted: type[AnyKind]) -> list[float]:
        """Return the times of the commands of one kind."""
        return [at for at, command in self.log if isinstance(command, wanted)]

    def tokens(self, job: int) -> list[str]:
        """Return the tokens of the job's live claims, in the order of its components."""
        return [claim.token for claim in self.job(job).claims]

    def transfers(self) -> list[str]:
        """Return the ids of all transfers ever started."""
        return [start.transfer for start in self.all(StartTransfer)]

    def ended(self, job: int) -> JobEnded:
        """Return the record of a job's end."""
        (record,) = [record for record in self.all(JobEnded) if record.job == job]
        return record

    def idle(self, site: str) -> int:
        """Return the processors of the site that policies may use."""
        view = self.ledger.sites.view
        return view.idle[view.index[site]]

    def story(self, job: int) -> list[str]:
        """Return the story of the job, line by line."""
        return [line.text for line in self.told(job)]

    def told(self, job: int) -> list[ToldEntry]:
        """Return the same with the times."""
        known = self.job(job)
        return story(known.described, known.submitted_at, self.stories.lines[job], owner=known.submitter)


# ------------------------------------------------------------------------------- what must always hold


def assert_ledger_balances(ledger: Ledger) -> None:
    """Check that the numbers of each site are the sums over its jobs, and that each job is where its state says."""
    _assert_sites_balance(ledger)
    _assert_links_balance(ledger)
    _assert_profiles_balance(ledger)
    for queue, high in ((ledger.high, True), (ledger.low, False)):
        waiting = {job.id for job in ledger.jobs.values() if job.state is JobState.WAITING and job.high is high}
        assert {job.id for job in queue} == waiting
        assert len(queue) == len(waiting)
    claiming = {job.id for job in ledger.jobs.values() if job.state in IN_CLAIMING_QUEUE}
    assert {job.id for job in ledger.claiming} == claiming
    for transfer in ledger.transfers.by_key.values():
        assert transfer.jobs, "a transfer that no job needs"
        assert ledger.transfers.by_id[transfer.id] is transfer
    assert len(ledger.transfers.by_id) == len(ledger.transfers.by_key)
    for job in ledger.jobs.values():
        if job.placement is not None:
            placed = job.placement
            assert placed.transfers_open == sum(not transfer.done for transfer in placed.transfers.values())


def _assert_sites_balance(ledger: Ledger) -> None:
    book = ledger.sites
    for index, site in enumerate(book):
        claims = [claim for claim in ledger.claims.values() if claim.site == index]
        assert set(site.claims) == {claim.token for claim in claims}
        assert site.ours == sum(claim.processors for claim in claims)
        assert site.promised == sum(_promised(job, index) for job in ledger.jobs.values())
        placed = [job for job in ledger.jobs.values() if job.placement is not None]
        waiters = {job.id: _earmarked(job, index) for job in placed if index in job.earmarks.values()}
        assert set(site.waiters) == set(waiters)
        assert site.earmarked == sum(waiters.values())
        idle = site.limit - site.others - site.ours - site.earmarked - (site.promised if book.hold_placed else 0)
        probed = site.trust is Trust.PROBING and site.probe_job is not None
        if site.trust is Trust.UNUSABLE or site.is_closed or probed:
            idle = 0
        assert book.view.idle[index] == max(0, idle)


def _assert_profiles_balance(ledger: Ledger) -> None:
    """Check, where plans are made, that the processors expected to come free are those held, each once."""
    if ledger.sites.availability is None:
        return
    for site, profile in zip(ledger.sites, ledger.sites.availability.profiles, strict=True):
        profile.bring_up()
        coming = profile.released[-1]
        assert coming == site.ours + site.promised + site.earmarked + site.others


def _assert_links_balance(ledger: Ledger) -> None:
    """Check that every link has the demand of its placed jobs, and none of a job that is being ended."""
    view = ledger.sites.view
    asked = [0] * len(view.wiring.names)
    for job in ledger.jobs.values():
        if job.placement is None or job.state in GIVEN_BACK:
            assert job.placement is None or not job.placement.link_demands
            continue
        parts = [0] * len(view.names)
        for site, size in zip(job.placed.spots.sites, job.placed.spots.sizes, strict=True):
            parts[site] += size
        traffic = job.demand.traffic
        demands = view.wiring.demands_bit_s(traffic.pattern, traffic.dimensions, parts, traffic.per_processor_bit_s)
        for link, bit_s in demands:
            asked[link] += bit_s
    assert view.link_demand_bit_s == asked


def _promised(job: Job, index: int) -> int:
    if job.state not in IN_CLAIMING_QUEUE or job.placement is None:
        return 0
    placed = job.placed
    parts = zip(placed.spots.sites, placed.spots.sizes, placed.claims, strict=True)
    return sum(
        size
        for part, (site, size, claim) in enumerate(parts)
        if site == index and claim is None and part not in job.earmarks
    )


def _earmarked(job: Job, index: int) -> int:
    return sum(job.placed.spots.sizes[part] for part, site in job.earmarks.items() if site == index)


def assert_clean(ledger: Ledger) -> None:
    """Check that no job lives, and that nothing is held, queued, promised, earmarked or transferred for anybody."""
    assert_ledger_balances(ledger)
    assert ledger.jobs == {}
    assert ledger.claims == {}
    assert ledger.planned == {}
    assert ledger.avoiders == {}
    assert len(ledger.high) == len(ledger.low) == len(ledger.claiming) == 0
    assert ledger.transfers.by_id == {}
    assert ledger.transfers.by_key == {}
    assert not any(ledger.sites.view.link_demand_bit_s)
    for site in ledger.sites:
        assert (site.ours, site.promised, site.earmarked, site.waiters) == (0, 0, 0, {})
        assert site.probe_job is None
