"""Torture: the scheduler in a storm, its promises checked after every event; then the storm ends and all must finish.

A failing seed is reduced as far as possible while the same promise stays broken, and shown as a story.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from koala.core import JobState, Scheduler
from koala.model.facts import Preempts, StoryFact, TasksSpawned, Turn, TurnEntry
from koala.model.grid import AnswerFaults, SiteFaults, Startup
from koala.model.messages import (
    AnyEvent,
    CancelAsked,
    ComponentEnded,
    JobOutcome,
    JobQuarantined,
    RequeueAsked,
    SpawnAsked,
    StartComponent,
)
from koala.model.request import JobId
from koala.simulator.torture.calm import PlanPromises, draw_calm
from koala.simulator.torture.checkpoints import CheckpointPromises
from koala.simulator.torture.early_promises import EarlyClaimPromises, ToldPromises
from koala.simulator.torture.link_promises import LinkPromises
from koala.simulator.torture.order import (
    OF_USERS,
    OrderPromises,
    QueueOrderPromises,
    catalogue_with_orders,
    numbers_of,
    renumbered,
    without_arrivals,
)
from koala.simulator.torture.outputs import OutputPromises, renumbered_inputs
from koala.simulator.torture.preemption_promises import PreemptionPromises
from koala.simulator.torture.promises import PromiseBrokenError, PromiseChecker, nothing_left_behind
from koala.simulator.torture.restart_promises import ExclusionPromises, RestartPromises, TrustPromises
from koala.simulator.torture.restarts import Twin
from koala.simulator.torture.silence_promises import SilencePromises
from koala.simulator.torture.spawning import SpawnPromises
from koala.simulator.torture.storms import Storm, draw_storm, may_fail
from koala.simulator.torture.traffic import TrafficPromises
from koala.simulator.workloads.workload import Workload
from koala.simulator.world.world import World
from koala.words.stories import Stories, ToldEntry, job_of, story

# After the storm every job must have ended within this time; the longest drawn job takes about ten minutes. A
# transfer over a link that is believed to be slow, because answers were lost, may be awaited for longer if its own
# answer is lost, too: then the time counts from its end.
SETTLE_S = 50_000.0
# No transfer of a storm may be awaited for longer than this beyond that time.
PATIENCE_S_MAX = 100_000.0
# A scheduler in an endless loop must not hang the torture. A storm in which jobs restart every second may have any
# number of events, but not within a second.
EVENTS_OF_A_SECOND_MAX = 10_000
# At most this many smaller storms are tried to find a small one that still fails.
MINIMISE_RUNS_MAX = 120
# This much of the end of the log is shown with a failure.
TAIL_LINES = 30
# A quarantined job is put back after this time, repeatedly until no site has a component of it.
QUARANTINE_S = 60.0

# The errors that our own defects can raise; each counts as a broken promise with its seed.
_DEFECTS = (AssertionError, ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


class StormVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one storm. ``broken`` names the broken promise; None if all held."""

    seed: int
    jobs: int
    events: int
    happened: dict[str, int]
    broken: str | None = None
    detail: str = ""
    story: tuple[str, ...] = ()


def torture(seed: int) -> StormVerdict:
    """Run the storm of this seed, and then its calm grid; a failure comes with the story of the smallest storm found
    that fails alike."""
    storm = draw_storm(seed)
    verdict = weather(storm)
    if verdict.broken is None:
        storm, stormy = draw_calm(seed), verdict
        verdict = weather(storm)
        if verdict.broken is None:
            return msgspec.structs.replace(
                stormy,
                jobs=stormy.jobs + verdict.jobs,
                events=stormy.events + verdict.events,
                happened=dict(Counter(stormy.happened) + Counter(verdict.happened)),
            )
    small = minimise(storm, verdict.broken)
    smallest = weather(small)
    return msgspec.structs.replace(verdict, detail=smallest.detail, story=(_size(small), *smallest.story))


def weather(storm: Storm) -> StormVerdict:
    """Run the storm and the calm after it, once."""
    return _Run(storm).run()


class _Run:
    def __init__(self, storm: Storm) -> None:
        self.storm = storm
        self.world = World(storm.grid, Workload.from_arrivals(storm.arrivals), storm.seed)
        self.scheduler = Scheduler(storm.grid, catalogue_with_orders(), recorded=True)
        self.stories = Stories()
        self.watch = PromiseChecker(self.scheduler, self.world)
        self.exclusions = ExclusionPromises(self.scheduler, self.watch.fail)
        self.restarts = RestartPromises(self.scheduler, self.watch.fail, self.exclusions.closed_to)
        self.trust = TrustPromises(self.scheduler, self.watch.fail)
        self.order = OrderPromises(self.scheduler, self.watch.fail)
        self.queue_order = QueueOrderPromises(self.scheduler, self.watch.fail)
        self.links = LinkPromises(self.scheduler, self.watch.fail)
        self.checkpoints = CheckpointPromises(self.scheduler, self.world, self.watch.fail)
        self.traffic = TrafficPromises(self.scheduler, self.watch.fail)
        self.plans = PlanPromises(self.scheduler, storm, self.watch.fail)
        self.preemption = PreemptionPromises(self.scheduler, self.watch.fail)
        self.early = EarlyClaimPromises(self.scheduler, self.watch.fail)
        self.told = ToldPromises(self.scheduler, self.watch.fail)
        self.outputs = OutputPromises(self.scheduler, self.watch.fail)
        self.spawning = SpawnPromises(self.scheduler, self.watch.fail)
        self.silence = SilencePromises(self.watch.fail)
        self.twin = Twin(self.scheduler, storm.seed)
        self.numbers = numbers_of(storm.arrivals)
        self.defects = {self.numbers[arrival][0]: messages for arrival, messages in storm.defects}
        self.tail: deque[tuple[float, str, AnyEvent | TurnEntry]] = deque(maxlen=TAIL_LINES)
        self.happened: Counter[str] = Counter()
        self.events = 0
        self.second_began = (0.0, 0)  # when, and after how many events
        for at, arrival in storm.cancels:
            self.world.plan(CancelAsked(at=at, job=self.numbers[arrival][-1]))
        for event in storm.operators:
            self.world.plan(event)

    def run(self) -> StormVerdict:
        try:
            self._live_through()
            self._all_finished()
        except PromiseBrokenError as error:
            return self._verdict(error.name, str(error))
        except _DEFECTS as error:
            return self._verdict(f"no defect: {type(error).__name__}", f"{type(error).__name__}: {error}")
        return self._verdict(None, "")

    def _live_through(self) -> None:
        until, waits = (self.storm.grid.simulation.heal_at_s or 0.0) + SETTLE_S, True
        while not self._over():
            event = self.world.next(self.scheduler.due_at)
            if event is not None and event.at > until and waits:
                waits = False  # once, not for ever
                under_way = [each.timer for each in self.scheduler.ledger.transfers.by_id.values()]
                given_up = [min(timer.at, until + PATIENCE_S_MAX) for timer in under_way if timer is not None]
                until = max(given_up) + SETTLE_S if given_up else until
            if event is None or event.at > until:
                break
            for job in [job for job, messages in self.defects.items() if messages <= 0]:
                # As if the handling of this event had raised on the job: it has no effect, and the quarantine of the
                # job comes first.
                del self.defects[job]
                self._handle(JobQuarantined(at=event.at, job=job, reason="a defect that was drawn"))
                self.world.plan(RequeueAsked(at=event.at + QUARANTINE_S, job=job))
            self._handle(event)
            if type(event) is RequeueAsked and self._in_quarantine(event.job):
                self.world.plan(RequeueAsked(at=event.at + QUARANTINE_S, job=event.job))
        self.twin.compare()

    def _handle(self, event: AnyEvent) -> None:
        self.events += 1
        began_at, events_before = self.second_began
        if event.at >= began_at + 1.0:
            self.second_began = event.at, self.events
        elif self.events - events_before > EVENTS_OF_A_SECOND_MAX:
            self.watch.fail("time goes on", f"more than {EVENTS_OF_A_SECOND_MAX} events since {began_at:.3f}")
        turn = self.scheduler.handle(event)
        self._note(event, turn)
        performed = [entry for entry in turn.entries if not isinstance(entry, StoryFact)]
        for entry in performed:
            self.world.perform(entry, event.at)
        self.watch.after(event, turn)
        self.restarts.after(event, turn, self.watch.site_of)
        self.trust.after(event, turn)
        self.queue_order.after(turn)
        self.order.after(event, turn)
        self.links.after(event, turn)
        self.checkpoints.after(event, turn)
        self.traffic.after(event, turn)
        self.plans.after(event, turn)
        self.preemption.after(event, turn)
        self.early.after(event)
        self.told.after()
        self.outputs.after(event, turn)
        self.spawning.after(event, turn)
        self.silence.after(event, turn)
        self.exclusions.after(event, turn)
        self.twin.after(event, turn)
        if self.defects:
            for message in (event, *performed):
                job = job_of(message)
                if job in self.defects:
                    self.defects[job] -= 1

    def _in_quarantine(self, job_id: JobId) -> bool:
        job = self.scheduler.ledger.jobs.get(job_id)
        return job is not None and job.state is JobState.QUARANTINED

    def _over(self) -> bool:
        """True if all jobs came and ended, the storm is over, and every abort has been answered."""
        ledger = self.scheduler.ledger
        healed = ledger.now >= (self.storm.grid.simulation.heal_at_s or 0.0)
        everyone = self.watch.arrived == len(self.storm.arrivals)
        return healed and everyone and not ledger.jobs and not ledger.claims

    def _note(self, event: AnyEvent, turn: Turn) -> None:
        self.tail.append((event.at, ">", event))
        self.tail.extend((event.at, " ", entry) for entry in turn.entries)
        self.stories.add(event, turn)
        for message in (event, *turn.entries):
            self.happened[_word_for(message, event)] += 1

    def _all_finished(self) -> None:
        watch, ledger = self.watch, self.scheduler.ledger
        for job in list(ledger.jobs.values()):
            last = self._story_of(job.id)[-1].text
            watch.fail("every job finishes", f"job {job.id} is still {job.state}: {last}")
        if watch.arrived < len(self.storm.arrivals):
            watch.fail("every job finishes", "not all jobs were submitted before the time was up")
        nothing_left_behind(watch)
        requests = {
            number: arrival.request
            for numbers, arrival in zip(self.numbers, self.storm.arrivals, strict=True)
            for number in numbers
        }
        for job_id, ended in watch.ended.items():
            request = requests[job_id]
            if ended.outcome is JobOutcome.FAILED and not may_fail(request):
                watch.fail("every job finishes", f"job {job_id} failed: {ended.reason}")

    def _verdict(self, broken: str | None, detail: str) -> StormVerdict:
        for ended in self.watch.ended.values():
            self.happened[str(ended.outcome)] += 1
        return StormVerdict(
            seed=self.storm.seed,
            jobs=len(self.storm.arrivals),
            events=self.events,
            happened=dict(self.happened),
            broken=broken,
            detail=detail,
            story=tuple(self._story()) if broken is not None else (),
        )

    def _story(self) -> list[str]:
        lines = []
        for job_id in sorted(self.watch.submitted):
            told = self._story_of(job_id)
            lines += [f"job {job_id}:", *(f"{line.at:12.3f}    {line.text}" for line in told)]
        return [*lines, "the last messages:", *(f"{at:12.3f}  {mark} {message}" for at, mark, message in self.tail)]

    def _story_of(self, job_id: JobId) -> list[ToldEntry]:
        ledger = self.scheduler.ledger
        job = ledger.jobs.get(job_id) or ledger.ended.get(job_id)
        if job is None:
            return []
        return story(job.described, job.submitted_at, self.stories.lines[job_id], owner=job.submitter)


def _word_for(message: AnyEvent | TurnEntry, event: AnyEvent) -> str:
    """Return the word under which a message is counted: its type, and a distinction within the type."""
    word = type(message).__name__
    match message:
        case ComponentEnded():
            return f"{word}:{message.outcome}"
        case StartComponent() if message.exclude_nodes:
            return f"{word}:kept off nodes"
        case Preempts():
            return f"{word}:{'places' if message.component is None else 'processors'}"
        case TasksSpawned() if message.reason:
            return f"{word}:{'refused' if isinstance(event, SpawnAsked) else 'withdrawn'}"
    return word


# ------------------------------------------------------------------------------------------ minimising


def minimise(storm: Storm, broken: str) -> Storm:
    """Return a storm with fewer jobs and fewer kinds of trouble in which the same promise is broken."""
    runs_left = MINIMISE_RUNS_MAX

    def fails(candidate: Storm) -> bool:
        nonlocal runs_left
        runs_left -= 1
        return runs_left >= 0 and weather(candidate).broken == broken

    for simpler in (
        _without_operators,
        _without_defects,
        _without_answers,
        _without_site_faults,
        _without_background,
        _without_startup,
    ):
        candidate = simpler(storm)
        if fails(candidate):
            storm = candidate
    chunk = len(storm.arrivals) // 2
    while chunk >= 1 and runs_left > 0:
        start = 0
        while start < len(storm.arrivals) and len(storm.arrivals) > 1:
            candidate = _without_jobs(storm, start, start + chunk)
            if candidate.arrivals and fails(candidate):
                storm = candidate
            else:
                start += chunk
        chunk //= 2
    return storm


def _without_jobs(storm: Storm, start: int, stop: int) -> Storm:
    """Remove some arrivals; the cancels of the others follow them to their new places."""
    kept = [index for index in range(len(storm.arrivals)) if not start <= index < stop]
    place = {index: position for position, index in enumerate(kept)}
    number = renumbered(storm.arrivals, kept)
    return msgspec.structs.replace(
        storm,
        arrivals=tuple(
            each._replace(request=renumbered_inputs(without_arrivals(each.request, number), number))
            for each in (storm.arrivals[index] for index in kept)
        ),
        cancels=tuple((at, place[index]) for at, index in storm.cancels if index in place),
        operators=tuple(
            msgspec.structs.replace(event, job=number[event.job]) if isinstance(event, OF_USERS) else event
            for event in storm.operators
            if not isinstance(event, OF_USERS) or event.job in number
        ),
        defects=tuple((place[index], messages) for index, messages in storm.defects if index in place),
    )


def _without_defects(storm: Storm) -> Storm:
    return msgspec.structs.replace(storm, defects=())


def _without_operators(storm: Storm) -> Storm:
    arrivals = tuple(
        each._replace(request=msgspec.structs.replace(each.request, hold=False)) for each in storm.arrivals
    )
    return msgspec.structs.replace(storm, arrivals=arrivals, operators=(), cancels=())


def _without_answers(storm: Storm) -> Storm:
    simulation = msgspec.structs.replace(storm.grid.simulation, answers=AnswerFaults())
    return msgspec.structs.replace(storm, grid=msgspec.structs.replace(storm.grid, simulation=simulation))


def _without_startup(storm: Storm) -> Storm:
    simulation = msgspec.structs.replace(storm.grid.simulation, startup=Startup())
    quick = msgspec.structs.replace(storm, grid=msgspec.structs.replace(storm.grid, simulation=simulation))
    return _with_sites(quick, startup=None)


def _without_site_faults(storm: Storm) -> Storm:
    return _with_sites(storm, faults=SiteFaults())


def _without_background(storm: Storm) -> Storm:
    return _with_sites(storm, background=None)


def _with_sites(storm: Storm, **changes: object) -> Storm:
    sites = tuple(
        msgspec.structs.replace(site, simulation=msgspec.structs.replace(site.simulation, **changes))
        for site in storm.grid.sites
    )
    return msgspec.structs.replace(storm, grid=msgspec.structs.replace(storm.grid, sites=sites))


def _size(storm: Storm) -> str:
    grid = storm.grid
    sites = ", ".join(f"{site.name} {site.processors}" for site in grid.sites)
    interval_s = grid.scheduler.scan_interval_s
    return f"the smallest storm found: {len(storm.arrivals)} jobs on {sites}; scan interval {interval_s:g} s"
