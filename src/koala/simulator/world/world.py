"""The simulated world around a scheduler: virtual time, sites, links, users and faults, all from one seed.

``World.next`` returns the next event for the scheduler and ``World.perform`` executes its commands;
``koala.simulator.run`` alternates the two. The parts (sites, links, users, faults) have their own modules; this
module connects them: time, arrivals, outages and the dispatch of commands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any

from koala.model.facts import (
    ElementMade,
    JobEnded,
    JobHeld,
    JobPlaced,
    JobRequeued,
    JobUnheld,
    OutputRegistered,
    SiteDistrusted,
    TasksSpawned,
    TurnEntry,
)
from koala.model.grid import Grid, Site
from koala.model.messages import (
    AbortComponent,
    AnyEvent,
    AskCheckpoint,
    AskSite,
    CancelTransfer,
    CollectOutputs,
    EndedJob,
    FileChanged,
    JobOutcome,
    JobSubmitted,
    ProbeLink,
    ReleaseBarrier,
    SiteSilent,
    SpawnAsked,
    StartComponent,
    StartTransfer,
    Tick,
)
from koala.model.request import FileName, JobId, Request, SiteName
from koala.simulator.traces.node_mapping import NodeChange, SiteFailures
from koala.simulator.workloads.workload import Arrival, Workload
from koala.simulator.world import event_heap as kinds
from koala.simulator.world.components import SimulatedComponents
from koala.simulator.world.delivery import Delivery
from koala.simulator.world.event_heap import JOB_ARRIVES, TICK, EventHeap
from koala.simulator.world.faults import Channel, Outage, bad_nodes, outages
from koala.simulator.world.local_queue import LocalJob
from koala.simulator.world.nodes import SiteNodes
from koala.simulator.world.overload import VoidPeriod
from koala.simulator.world.site import SimulatedJob, SimulatedSite
from koala.simulator.world.transfers import SimulatedTransfers

INFINITY = float("inf")
# The interval at which an unreachable site is asked again, if the grid says when it is lost.
ASKED_AGAIN_S = 60.0
# Sorts after every event: there are no more arrivals, or they are held back.
_NO_ARRIVAL = (INFINITY, kinds.KINDS, 0)
# The possible ends of a job, and whether it started before: a world keeps a byte for each.
_END_CODES = tuple((outcome, started) for outcome in JobOutcome for started in (False, True))
_CODE_OF_END = {end: code for code, end in enumerate(_END_CODES, start=1)}


class World:
    """One run's world. ``now`` is the virtual time in seconds; it starts at 0 and never goes back.

    With ``failures`` the nodes of the sites fail and return by a failure trace.
    """

    def __init__(self, grid: Grid, workload: Workload, seed: int, failures: SiteFailures | None = None) -> None:
        self.grid = grid
        self.now = 0.0
        self.sites: dict[SiteName, SimulatedSite] = {
            site.name: _simulated_site(site, failures, seed, tells_ends=grid.scheduler.plan_depth > 0)
            for site in grid.sites
        }
        self.jobs: dict[JobId, SimulatedJob] = {}
        self.submitted = 0
        self._ends = bytearray(1)  # the end of each job, for dependent jobs: see _END_CODES
        self._event_heap = EventHeap()
        self._kept: list[tuple[float, FileName, int]] = []  # outputs by their time of expiry
        simulation = grid.simulation
        faults = simulation.answers
        unreliable = max(faults.late, faults.twice, faults.never, faults.transfer_break) > 0.0
        self._delivery = Delivery(self._event_heap, Channel(faults, seed) if unreliable else None)
        self.components = SimulatedComponents(grid, self.sites, self.jobs, seed, self._event_heap, self._delivery)
        self.transfers = SimulatedTransfers(grid, self.sites, seed, self._event_heap, self._delivery)
        self._healed = False
        for_all = grid.scheduler.lost_after_s
        self._may_be_lost = {site.name for site in grid.sites if (site.lost_after_s or for_all) is not None}
        self._asked: dict[SiteName, int] = {}  # the next question to each unreachable site
        self._drawn_outages: dict[SiteName, Iterator[Outage]] = {}
        self._current_outages: list[Outage] = []
        self._plan_outages(grid, seed)
        self._node_changes = iter(()) if failures is None else failures.changes()
        self._nodes_will_change = False
        self.nodes_changed_s = 0.0  # when nodes last failed or returned
        self._plan_node_change()
        # If no message is ever lost, a site is asked about an ended job only after an outage, and then it is enough
        # that the components are gone.
        self._forgets = not unreliable
        if simulation.heal_at_s is not None:
            self._event_heap.add(simulation.heal_at_s, kinds.HEAL, None)
        self.components.backgrounds.open()
        self._hold_when_waiting = workload.hold_when_waiting
        self._waiting: set[JobId] = set()
        self._spawned: set[tuple[JobId, tuple[str, ...]]] = set()  # those that have places
        self._spawns: Counter[str] = Counter()
        self._held = False
        self._held_since = 0.0
        self._held_s = 0.0  # all holds together: how far the arrivals have shifted
        self._arrivals = workload.arrivals(grid, seed)
        self._arrival: Arrival | None = None
        self._arrival_key: tuple[float, int, int] = _NO_ARRIVAL
        self._expect_arrival()
        self._happen = self._handlers()
        self.performers = self._command_table()

    def _handlers(self) -> list[Callable[[Any, int, float], None]]:
        handlers: dict[int, Callable[[Any, int, float], None]] = {
            kinds.HEAL: self._heal,
            kinds.OUTAGE_BEGINS: self._outage_begins,
            kinds.OUTAGE_ENDS: self._outage_ends,
            kinds.NODES_CHANGE: self._nodes_change,
            kinds.COMPONENT_ENDS: self.components.execution_ends,
            kinds.USER_JOB_ENDS: self.components.backgrounds.user_ends,
            kinds.LINK_DELIVERS: self.transfers.delivers,
            kinds.LINK_IS_JOINED: self.transfers.joins,
            kinds.ANSWER_ARRIVES: self._delivery.arrives,
            kinds.COMPONENT_READY: self.components.is_ready,
            kinds.USER_JOB_ARRIVES: self.components.backgrounds.user_arrives,
            kinds.SITE_REPORTS: self.components.backgrounds.site_reports,
            kinds.SITE_IS_ASKED: self._site_is_asked,
            kinds.TRAFFIC_IS_MEASURED: self.components.measure_traffic,
            kinds.SHARES_SETTLE: self.components.contention.settle,
            kinds.JOB_ARRIVES: self._never,
            kinds.TICK: self._never,
        }
        return [handlers[kind] for kind in range(kinds.KINDS)]

    def _command_table(self) -> dict[type[TurnEntry], Callable[[Any, float], None]]:
        return {
            StartComponent: self.components.start,
            AskCheckpoint: self.components.ask_checkpoint,
            AbortComponent: self.components.abort,
            ReleaseBarrier: self._release,
            CollectOutputs: self.transfers.collect,
            AskSite: self.components.ask,
            StartTransfer: self.transfers.start,
            CancelTransfer: self.transfers.cancel,
            ProbeLink: self.transfers.probe,
            JobPlaced: self._job_placed,
            TasksSpawned: self._tasks_spawned,
            JobRequeued: self._job_requeued,
            ElementMade: self._element_made,
            OutputRegistered: self._keep_output,
            JobHeld: self._for_the_record,
            JobUnheld: self._for_the_record,
            SiteDistrusted: self._for_the_record,
            JobEnded: self._job_ended,
        }

    # ------------------------------------------------------------------------------ next and perform

    def next(self, due_at: float = INFINITY, until_s: float = INFINITY) -> AnyEvent | None:
        """Let time pass until there is an event for the scheduler, which is due at a given time: a tick comes after
        all other events of its instant. None if nothing will happen by the end."""
        outbox = self._delivery.outbox
        heap = self._event_heap.heap
        if due_at < self.now:
            due_at = self.now
        while not outbox:
            key = heap[0] if heap and heap[0] < self._arrival_key else self._arrival_key
            at = key[0]
            if self._kept and self._kept[0][0] <= min(at, due_at, until_s) < INFINITY:
                return self._time_is_over()
            if due_at < at or (due_at == at and key[1] > TICK):
                if due_at > until_s or due_at == INFINITY:
                    return None
                self.now = due_at
                return Tick(at=due_at)
            if at > until_s:
                return None
            if key[1] == JOB_ARRIVES:
                self._submit()
            else:
                at, kind, sequence, subject = heappop(heap)
                self.now = at
                self._happen[kind](subject, sequence, at)
        return outbox.popleft()

    def perform(self, entry: TurnEntry, now: float) -> None:
        """Perform the scheduler's command at this moment, or record its fact."""
        self.performers[type(entry)](entry, now)

    def plan(self, event: AnyEvent) -> None:
        """Deliver this at its time: what users and operators do besides submitting jobs."""
        self._delivery.plan(event, max(event.at, self.now))

    @property
    def arrivals_left(self) -> bool:
        """True if jobs of the workload are still to be submitted."""
        return self._arrival is not None

    @property
    def busy(self) -> bool:
        """True if something is under way that can change what the scheduler sees, besides time and other users."""
        return (
            self.components.alive > 0
            or bool(self.transfers.active)
            or self._delivery.under_way > 0
            or (self._arrival is not None and not self._held)
            or self._nodes_will_change
            or any(not site.is_reachable for site in self.sites.values())
        )

    @property
    def is_over(self) -> bool:
        """True if nothing will ever happen any more, unless the scheduler commands it."""
        return not self._event_heap.heap and not self._delivery.outbox and (self._arrival is None or self._held)

    def voids(self, from_s: float, to_s: float) -> list[VoidPeriod]:
        """Return the periods in which the sites' own users alone exceeded the background bands for too long."""
        return self.components.backgrounds.load.voids(from_s, to_s)

    # ------------------------------------------------------------------------------------- arrivals

    def _expect_arrival(self) -> None:
        self._arrival = arrival = next(self._arrivals, None)
        if arrival is None:
            self._arrival_key = _NO_ARRIVAL
        else:
            self._arrival_key = (max(self.now, arrival.at_s + self._held_s), kinds.JOB_ARRIVES, 0)

    def _submit(self) -> None:
        arrival = self._arrival
        assert arrival is not None, "a time of arrival is that of an arrival"
        self.now = at = self._arrival_key[0]
        if self._hold_when_waiting is not None and len(self._waiting) >= self._hold_when_waiting:
            self._held = True
            self._arrival_key = _NO_ARRIVAL
            self._held_since = at
            return
        self.submitted = job = self.submitted + 1
        if job == 1:
            for site in self.sites.values():
                site.start_record(at)
        array = arrival.request.array
        self.jobs[job] = SimulatedJob(job, arrival)
        self._ends.append(0)
        if array is not None:
            numbers = range(job + 1, job + 1 + array.size)
            self.jobs |= {number: SimulatedJob(number, arrival) for number in numbers}
            self._ends.extend(bytes(array.size))
            self.submitted += array.size
        if self._hold_when_waiting is not None and array is None:
            self._waiting.add(job)
        self._delivery.outbox.append(
            JobSubmitted(
                at=at,
                job=job,
                request=arrival.request,
                guest=arrival.guest,
                owner=arrival.owner,
                ended=self._ended(arrival.request) if arrival.request.after else (),
            )
        )
        self._expect_arrival()

    def _ended(self, request: Request) -> tuple[EndedJob, ...]:
        """Return the jobs that it waits for that are over."""
        found = []
        for job in dict.fromkeys(each.job for each in request.after):
            code = self._ends[job] if job < len(self._ends) else 0
            if code:
                outcome, started = _END_CODES[code - 1]
                found.append(EndedJob(job=job, outcome=outcome, started=started))
        return tuple(found)

    def _leave_queue(self, job: JobId, now: float) -> None:
        """Remove a job from the queue; a held submission may continue, and all later ones shift with it."""
        if self._hold_when_waiting is None:
            return
        self._waiting.discard(job)
        if self._held and len(self._waiting) < self._hold_when_waiting:
            self._held = False
            self._held_s += now - self._held_since
            self._arrival_key = (now, kinds.JOB_ARRIVES, 0)

    def _job_placed(self, fact: JobPlaced, now: float) -> None:
        self._leave_queue(fact.job, now)

    def _job_requeued(self, fact: JobRequeued, now: float) -> None:
        if self._hold_when_waiting is not None:
            self._waiting.add(fact.job)

    def _element_made(self, fact: ElementMade, now: float) -> None:
        if self._hold_when_waiting is not None:
            self._waiting.add(fact.job)

    def _release(self, command: ReleaseBarrier, now: float) -> None:
        """Start the components; a job's first start fixes the times of its spawns."""
        self.components.release(command, now)
        job = self.jobs.get(command.job)
        if job is not None and job.spawns:
            for after_s, tasks in job.spawns:
                self.plan(SpawnAsked(at=now + after_s, job=command.job, tasks=tasks))
            self._spawns["asked"] += len(job.spawns)
            job.spawns = ()

    def _tasks_spawned(self, fact: TasksSpawned, now: float) -> None:
        key = (fact.job, fact.tasks)
        if not fact.reason:
            self._spawned.add(key)
        else:
            self._spawns["withdrawn" if key in self._spawned else "refused"] += 1
            self._spawned.discard(key)

    def spawns(self) -> dict[str, int]:
        """Return how many spawns were planned, and their results: missed ones came when their job was no longer
        alive. Empty if none were planned."""
        asked, withdrawn, refused = (self._spawns[each] for each in ("asked", "withdrawn", "refused"))
        placed = len(self._spawned)
        missed = asked - placed - withdrawn - refused
        found = {"asked": asked, "placed": placed, "refused": refused, "withdrawn": withdrawn, "missed": missed}
        return found if asked else {}

    def _for_the_record(self, fact: JobHeld | JobUnheld | SiteDistrusted, now: float) -> None:
        """Ignore a fact that has no effect in the world."""

    def _keep_output(self, fact: OutputRegistered, now: float) -> None:
        """Plan the expiry of an output; a run does not last longer because of it."""
        if fact.kept_until is not None:
            heappush(self._kept, (fact.kept_until, fact.file, fact.output.size_bytes))

    def _time_is_over(self) -> FileChanged:
        at, file, size_bytes = heappop(self._kept)
        self.now = max(self.now, at)
        return FileChanged(at=self.now, file=file, size_bytes=size_bytes, replicas=(), time_is_over=True)

    def _job_ended(self, fact: JobEnded, now: float) -> None:
        self._ends[fact.job] = _CODE_OF_END[fact.outcome, fact.runs > 0]
        self._leave_queue(fact.job, now)
        if self._forgets:
            job = self.jobs.pop(fact.job, None)
            if job is not None:
                self.components.forget(job)

    def _never(self, subject: object, sequence: int, at: float) -> None:
        raise AssertionError("neither arrivals nor ticks are in the event heap")

    # ------------------------------------------------------------------------------------- outages

    def _plan_outages(self, grid: Grid, seed: int) -> None:
        for site in grid.sites:
            listed, drawn = outages(self.sites[site.name], site.simulation.faults, seed)
            for outage in listed:
                self._event_heap.add(outage.from_s, kinds.OUTAGE_BEGINS, outage)
            self._drawn_outages[site.name] = drawn
            self._plan_drawn_outage(site.name)

    def _plan_drawn_outage(self, site: SiteName) -> None:
        outage = next(self._drawn_outages[site], None)
        if outage is not None:
            self._event_heap.add(outage.from_s, kinds.OUTAGE_BEGINS, outage)

    def _outage_begins(self, outage: Outage, sequence: int, at: float) -> None:
        if outage.drawn and self._healed:
            return
        site = outage.site
        outage.begun = True
        self._current_outages.append(outage)
        self._event_heap.add(outage.to_s, kinds.OUTAGE_ENDS, outage)
        if outage.runs_on:
            self._is_cut_off(site, at)
        else:
            self._goes_down(site, at)

    def _goes_down(self, site: SimulatedSite, at: float) -> None:
        """Add a reason for the site to be down; the first takes all that it holds."""
        site.down += 1
        if site.down == 1:
            self._is_silent(site, at)
            self.components.go_down(site, at)
            self.components.backgrounds.load.goes_down(site.name, at)
            self.transfers.break_all_at(site.name, at)

    def _outage_ends(self, outage: Outage, sequence: int, at: float) -> None:
        if not outage.begun:
            return
        site = outage.site
        outage.begun = False
        self._current_outages.remove(outage)
        if outage.runs_on:
            site.cut_off -= 1
            if site.is_reachable:
                self._answers_again(site, at)
        else:
            self._comes_back(site, at)
        if outage.drawn and not self._healed:
            self._plan_drawn_outage(site.name)

    def _comes_back(self, site: SimulatedSite, at: float) -> None:
        """Remove a reason; after the last the site works again."""
        site.down -= 1
        if site.down == 0:
            self._answers_again(site, at)

    def _answers_again(self, site: SimulatedSite, at: float) -> None:
        """Let a site answer that works or can be reached again; one that still cannot be reached stays silent."""
        background = self.components.backgrounds.by_site.get(site.name)
        if background is not None:
            background.control(at)
        if site.is_reachable:
            report = site.report(at)
            if background is not None:
                background.told(report)
            self._delivery.tell(report)
        self.components.come_back(site, at)

    def _is_cut_off(self, site: SimulatedSite, at: float) -> None:
        """Add a reason for the site to be unreachable: its components continue, without reports."""
        site.cut_off += 1
        if site.cut_off == 1:
            self._is_silent(site, at)
            self.transfers.break_all_at(site.name, at, "was cut off")

    def _is_silent(self, site: SimulatedSite, at: float) -> None:
        why = "is down" if site.down else "cannot be reached"
        self._delivery.tell(SiteSilent(at=at, site=site.name, reason=f"{site.name} {why}"))
        if site.name in self._may_be_lost:
            self._asked[site.name] = self._event_heap.add(at + ASKED_AGAIN_S, kinds.SITE_IS_ASKED, site)

    def _site_is_asked(self, site: SimulatedSite, sequence: int, at: float) -> None:
        if not site.is_reachable and sequence == self._asked.get(site.name):
            self._is_silent(site, at)

    def _heal(self, subject: None, sequence: int, at: float) -> None:
        """From now on deliver every message as sent, and break only what the grid file lists."""
        self._healed = True
        self._delivery.channel = None
        for outage in [each for each in self._current_outages if each.drawn]:
            self._outage_ends(outage, sequence, at)

    # ------------------------------------------------------------------------------- nodes that fail

    def _plan_node_change(self) -> None:
        change = next(self._node_changes, None)
        self._nodes_will_change = change is not None
        if change is not None:
            self._event_heap.add(change.at_s, kinds.NODES_CHANGE, change)

    def _nodes_change(self, change: NodeChange, sequence: int, at: float) -> None:
        """Let nodes of one site return and fail; a site without working nodes is down as a whole."""
        self.nodes_changed_s = at
        site = self.sites[change.site]
        nodes = site.nodes
        assert nodes is not None
        was_dark = nodes.is_dark
        site.recover_nodes(change.recover)
        if not was_dark and nodes.would_be_dark_without(change.fail):
            self._goes_down(site, at)  # it loses everything before its last nodes go
        lost = site.fail_nodes(change.fail, at)
        if was_dark and not nodes.is_dark:
            self._comes_back(site, at)
        elif not site.down:
            self.components.nodes_changed(site, lost, at)
        self._plan_node_change()


def _simulated_site(site: Site, failures: SiteFailures | None, seed: int, *, tells_ends: bool) -> SimulatedSite:
    nodes = _nodes_of(site, failures)
    if nodes is None and site.node_classes:
        return SimulatedSite(site, SiteNodes.of_classes(site.node_classes), tells_ends=tells_ends)
    faults = site.simulation.faults
    if nodes is not None or not faults.bad_nodes:
        return SimulatedSite(site, nodes, tells_ends=tells_ends)
    whole = site.processors // faults.node_processors
    sizes = [faults.node_processors] * whole
    bad = bad_nodes(site.name, faults, whole, seed)
    return SimulatedSite(site, SiteNodes(sizes, site.processors), bad, tells_ends=tells_ends)


def _nodes_of(site: Site, failures: SiteFailures | None) -> SiteNodes[LocalJob | str] | None:
    mapped = () if failures is None else failures.by_site[site.name]
    return SiteNodes([each.processors for each in mapped], site.processors) if mapped else None
