"""The two placement queues and the claiming queue.

A placement queue is scanned head to tail and every job in it is tried, but jobs that ask for exactly the same
thing get exactly the same answer while nothing changes. So the queue keeps its jobs in groups by demand, and a
scan tries each group once for every state of the grid: the same placements as trying every job, at a cost that
does not grow with the length of the queue.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from itertools import islice
from typing import Any, Protocol

from koala.core.state.encoded import INFINITY, Time, encoded
from koala.core.state.job import Job, Seen
from koala.core.state.sites import Sites
from koala.model.request import JobId
from koala.policies import PolicyError
from koala.policies.interface import Demand, Spots, try_place

# Entries of jobs that have left are thrown out when they outnumber the others by this many.
LIMITS_SLACK = 64


class PassPlans(Protocol):
    """What a scan asks of those who plan: ``koala.core.plans``."""

    @property
    def enough(self) -> bool:
        """Whether all the plans of this queue are made."""

    def reaches(self, job: Job) -> None:
        """The scan has come to this job: plans that rank before it count."""

    def places_now(self, job: Job) -> tuple[Spots | None, float | None]:
        """Places that put no plan off. Where it finds none because of plans, also until when a job that asks for the
        same must end to find some; None where the end makes no difference."""

    def plan(self, job: Job) -> bool:
        """Plan a job that cannot start; False where no time is known at which it could."""

    def first_to_end_by(self, group: DemandGroup, start: int, end: float) -> int:
        """The first of the jobs, from this one on, that would end by then if it started now; -1 for none."""


class DemandGroup:
    """The waiting jobs of one demand, by position. Where plans are made their walltimes stand beside: many are looked
    at for the first that ends early enough."""

    __slots__ = ("demand", "jobs", "positions", "walltimes_s")

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.positions: list[int] = []
        self.jobs: list[Job] = []
        self.walltimes_s: list[float | None] = []


class _QueueLinks:
    __slots__ = (
        "_by_least",
        "_fickle",
        "_group_sequence",
        "_groups",
        "_limits",
        "by_arrival",
        "every_event",
        "limited",
        "patient",
        "resting",
        "shaped",
        "size",
    )
    by_arrival: bool  # whether a job that comes back stands where it stood at first
    every_event: bool  # whether the queue is scanned at every event
    size: int
    shaped: int  # jobs in line whose tasks are more than one processor
    patient: int
    # Jobs that take a rest before they stand at the tail again: they wait, but are not tried.
    resting: dict[JobId, Job]
    _fickle: int
    _groups: dict[Any, DemandGroup]
    # (least, a number of its own, group): the groups in order of what one site must have for them at least.
    _by_least: list[tuple[Any, ...]]
    _group_sequence: int
    # (scan number at which its tries are used up, position, job): entries of jobs that have left are skipped.
    _limits: list[tuple[int, int, Job]]
    limited: int  # jobs that may run out of tries, so that even a needless scan matters


@encoded
class PlacementQueue(_QueueLinks):
    """Jobs of one priority that have no places yet, in the order of their last return to the queue.

    A job whose policy could place it even because less is free than before is *fickle*: any change is a reason to
    try it. Under the modules of the meta-scheduler, with scans at every event, it is *patient*: each event brings one
    pass over the queue and no more, so what others took in that pass is a reason only when the next job comes.
    """

    high: bool
    # When the next scan is due, and the sites' counts of changes when the last one began. A pass is a scan, or
    # the try of a job that has just come: what it took is no reason to try patient jobs again.
    scan_due_at: Time = INFINITY
    scanned_helped: int = 0
    scanned_changed: int = 0
    passed_changed: int = 0  # the same when the last pass was over
    next_position: int = 0
    untried: bool = False
    scans: int = 0
    # What the last scan saw: at its start, and after each placement, with the position of the placed job.
    seen: list[tuple[int, Seen]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.every_event = self.by_arrival = False
        self.size = self.shaped = self.patient = self._fickle = 0
        self.resting = {}
        self._groups = {}
        self._by_least = []
        self._group_sequence = 0
        self._limits = []
        self.limited = 0

    def __len__(self) -> int:
        return self.size + len(self.resting)

    def __iter__(self) -> Iterator[Job]:
        """Head to tail; those that rest come last."""
        return iter([*self.in_line(), *self.resting.values()])

    @property
    def kinds(self) -> int:
        """How many different demands there are among those that are tried."""
        return len(self._groups)

    def in_line(self) -> list[Job]:
        """Those that are tried, head to tail."""
        return sorted((job for group in self._groups.values() for job in group.jobs), key=lambda job: job.position)

    def first(self, most: int) -> list[Job]:
        """The head of the queue, at most so many jobs; those that rest come last. No job of it is in another group
        than those whose heads stand first."""
        groups = heapq.nsmallest(most, self._groups.values(), key=lambda group: group.positions[0])
        in_line = heapq.merge(*[group.jobs for group in groups], key=lambda job: job.position)
        found = list(islice(in_line, most))
        return [*found, *islice(self.resting.values(), most - len(found))]

    def is_worth_a_scan(self, sites: Sites) -> bool:
        """Whether something has changed since the last scan that could help a job here.

        Steady jobs are only helped by more idle processors or less on the links, others by any change.
        """
        if self.untried or self.scanned_helped != sites.helped:
            return True
        if self._fickle > 0 and self.scanned_changed != sites.changed:
            return True
        return self.patient > 0 and self.passed_changed != sites.changed

    @property
    def smallest_need(self) -> int:
        """No job here can be placed unless some site has this many idle."""
        least: int = self._by_least[0][0]
        return least

    def scan_begins(self, sites: Sites) -> None:
        """A scan sees everything up to now."""
        self.scan_due_at = INFINITY
        self.scanned_helped = sites.helped
        self.scanned_changed = sites.changed

    def note_arrival(self, job: Job) -> None:
        """Where plans are made, the job has a place in line from now on, whether it waits or not."""
        if self.by_arrival:
            job.arrival = self.next_position
            self.next_position += 1

    def reserve(self, positions: int) -> int:
        """Places in line for so many jobs, one behind the other; the first of them."""
        first = self.next_position
        self.next_position += positions
        return first

    def push(self, job: Job, *, exhausted_at_scan: int | None, untried: bool) -> None:
        """Put the job at the tail. ``untried`` says that it has not been tried on what is idle now."""
        assert job.position < 0
        job.joined_after_scan = self.scans
        if job.arrival >= 0 and (self.by_arrival or job.placed_at is None):
            job.position = job.arrival
        else:
            job.position = self.next_position
            self.next_position += 1
        self.untried |= untried
        job.exhausted_at_scan = exhausted_at_scan
        self.stand(job)

    def stand(self, job: Job) -> None:
        """Enter the job at the position that it has been given."""
        assert job.demand is not None
        demand = job.demand
        group = self._groups.get(demand.key)
        if group is None:
            group = self._groups[demand.key] = DemandGroup(demand)
            self._group_sequence += 1
            insort(self._by_least, (demand.least, self._group_sequence, group))
        place = bisect_left(group.positions, job.position)
        group.positions.insert(place, job.position)
        group.jobs.insert(place, job)
        if self.by_arrival:
            group.walltimes_s.insert(place, job.walltime_s)
        self.size += 1
        if demand.groups:
            self.shaped += 1
        if not demand.steady:
            self._count_unsteady(demand, 1)
        if job.exhausted_at_scan is not None:
            self.limited += 1
            heapq.heappush(self._limits, (job.exhausted_at_scan, job.position, job))
            if len(self._limits) > 2 * self.limited + LIMITS_SLACK:
                self._limits = [entry for entry in self._limits if _is_limit(entry)]
                heapq.heapify(self._limits)

    def pop_exhausted(self, scan: int) -> list[Job]:
        """Take out the jobs whose tries are used up after this many scans."""
        exhausted = []
        while self._limits and self._limits[0][0] <= scan:
            entry = heapq.heappop(self._limits)
            job = entry[2]
            if _is_limit(entry):
                self.remove(job)
                exhausted.append(job)
        return exhausted

    def remove(self, job: Job) -> None:
        assert job.demand is not None
        if self.resting.pop(job.id, None) is not None:
            return
        group = self._groups[job.demand.key]
        self._take(group, bisect_left(group.positions, job.position))

    def change_demand(self, job: Job, demand: Demand) -> None:
        """The job asks for something else from now on; it keeps its place in line."""
        if job.position < 0:  # it rests, or is about to join
            job.demand = demand
            return
        position, exhausted_at_scan = job.position, job.exhausted_at_scan
        self.remove(job)
        job.demand, job.position, job.exhausted_at_scan = demand, position, exhausted_at_scan
        self.stand(job)
        self.untried = True

    def _take(self, group: DemandGroup, place: int) -> Job:
        del group.positions[place]
        job = group.jobs.pop(place)
        if self.by_arrival:
            del group.walltimes_s[place]
        job.position = -1
        if job.exhausted_at_scan is not None:
            job.exhausted_at_scan = None
            self.limited -= 1
        self.size -= 1
        if group.demand.groups:
            self.shaped -= 1
        if not group.demand.steady:
            self._count_unsteady(group.demand, -1)
        if not self.size:
            self.scan_due_at = INFINITY
        if not group.jobs:
            del self._groups[group.demand.key]
            start = bisect_left(self._by_least, (group.demand.least,))
            while self._by_least[start][2] is not group:
                start += 1
            del self._by_least[start]
        return job

    def _count_unsteady(self, demand: Demand, jobs: int) -> None:
        if self.every_event and demand.policy.module is not None:
            self.patient += jobs
        else:
            self._fickle += jobs

    def place_in_line(self, job: Job) -> int:
        """How many jobs stand before it, plus one."""
        if job.id in self.resting:
            return self.size + 1
        return 1 + sum(bisect_left(group.positions, job.position) for group in self._groups.values())

    def last_refused(self, job: Job) -> Seen | None:
        """What the job's last try saw; None if it was never tried."""
        if job.id in self.resting or self.scans == job.joined_after_scan:
            return job.refused
        return self.seen[bisect_left(self.seen, job.position, key=_position) - 1][1]

    def scan_in_vain(self, sites: Sites) -> None:
        """A scan in which nobody can be placed, because no site has enough for any job here."""
        self.scan_begins(sites)
        self.passed_changed = sites.changed
        self.scans += 1
        self.seen = [(-1, sites.seen_now())]

    def scan(
        self,
        sites: Sites,
        place: Callable[[Job, Spots], None],
        broke: Callable[[Job, PolicyError], None],
        raised: Callable[[Sequence[Job]], None] = lambda _: None,
    ) -> None:
        """Try every job from head to tail; ``place`` takes those that fit and changes the sites, ``broke`` those
        whose policy gave an answer that cannot be right. ``raised`` hears of those that ask for what something of our
        own raised on, before that goes on to the caller.

        Idle processors only fall during a scan and links only fill, so a group that cannot fit by its plain numbers
        is out for good, and so is a steady one that the policy refused; any other is tried again, from the next
        position on, after each placement.
        """
        self.scans += 1
        self.untried = False
        view = sites.view
        idle = view.idle
        self.seen = [(-1, sites.seen_now())]
        most, total = max(idle), sum(idle)
        hopeful = bisect_left(self._by_least, (most + 1,))
        candidates = [
            (group.positions[0], sequence, group)
            for _, sequence, group in self._by_least[:hopeful]
            if group.demand.total <= total
        ]
        heapq.heapify(candidates)
        again: list[tuple[int, DemandGroup]] = []  # those to be tried after the next placement
        while candidates:
            position, sequence, group = heapq.heappop(candidates)
            if group.demand.least > most or group.demand.total > total:
                continue
            try:
                spots = try_place(group.demand, view)
            except PolicyError as error:
                broke(self._take(group, bisect_left(group.positions, position)), error)
                self._next_of(group, sequence, position, candidates)
                continue
            except Exception:
                raised(group.jobs)
                raise
            if spots is None:
                if not group.demand.steady:
                    again.append((sequence, group))
                continue
            again.append((sequence, group))
            place(self._take(group, bisect_left(group.positions, position)), spots)
            self.seen.append((position, sites.seen_now()))
            most, total = max(idle), sum(idle)
            if not self._by_least or most < self.smallest_need:
                break
            for next_sequence, following in again:
                self._next_of(following, next_sequence, position, candidates)
            again.clear()

    def scan_with_plans(
        self,
        sites: Sites,
        plans: PassPlans,
        place: Callable[[Job, Spots], None],
        broke: Callable[[Job, PolicyError], None],
        raised: Callable[[Sequence[Job]], None],
    ) -> None:
        """As ``scan``, where the first jobs that cannot start get plans, and no later job starts that would put one
        off. Whether it would depends on its demand and on when it is due to end: of a group the first job is tried,
        and after it the first that ends early enough."""
        self.scans += 1
        self.untried = False
        self.seen = [(-1, sites.seen_now())]
        behind = self._plan_the_first(sites, plans, place, broke, raised)
        if not self.size:
            return
        idle = sites.view.idle
        most, total = max(idle), sum(idle)
        hopeful = bisect_left(self._by_least, (most + 1,))
        candidates: list[tuple[int, int, DemandGroup]] = []
        for _, sequence, group in self._by_least[:hopeful]:
            if group.demand.total <= total:
                self._next_of(group, sequence, behind, candidates)
        latest_end: dict[int, float] = {}  # by group: jobs that end later would put a plan off
        again: list[tuple[int, DemandGroup]] = []
        while candidates:
            position, sequence, group = heapq.heappop(candidates)
            if group.demand.least > most or group.demand.total > total:
                continue
            at = bisect_left(group.positions, position)
            limit = latest_end.get(sequence)
            if limit is not None:
                found = plans.first_to_end_by(group, at, limit)
                if found != at:
                    if found >= 0:
                        heapq.heappush(candidates, (group.positions[found], sequence, group))
                    continue
            job = group.jobs[at]
            try:
                spots, limit = plans.places_now(job)
            except PolicyError as error:
                broke(self._take(group, at), error)
                self._next_of(group, sequence, position, candidates)
                continue
            except Exception:
                raised(group.jobs)
                raise
            if spots is None:
                if limit is not None:
                    latest_end[sequence] = limit
                    self._next_of(group, sequence, position, candidates)
                elif not group.demand.steady:
                    again.append((sequence, group))
                continue
            again.append((sequence, group))
            place(self._take(group, at), spots)
            self.seen.append((position, sites.seen_now()))
            most, total = max(idle), sum(idle)
            if not self._by_least or most < self.smallest_need:
                break
            for next_sequence, following in again:
                self._next_of(following, next_sequence, position, candidates)
            again.clear()

    def _plan_the_first(
        self,
        sites: Sites,
        plans: PassPlans,
        place: Callable[[Job, Spots], None],
        broke: Callable[[Job, PolicyError], None],
        raised: Callable[[Sequence[Job]], None],
    ) -> int:
        """From the head on start what can start, and plan what cannot, until enough is planned; the position of the
        last that was looked at."""
        groups = list(self._groups.values())
        order = [(group.positions[0], number) for number, group in enumerate(groups)]
        heapq.heapify(order)
        position = -1
        while order and not plans.enough:
            position, number = heapq.heappop(order)
            group = groups[number]
            at = bisect_left(group.positions, position)
            job = group.jobs[at]
            plans.reaches(job)
            goes_on = True
            try:
                spots, _ = plans.places_now(job)
                if spots is None:
                    goes_on = plans.plan(job)
            except PolicyError as error:
                broke(self._take(group, at), error)
                spots = None
            except Exception:
                raised(group.jobs)
                raise
            if spots is not None:
                place(self._take(group, at), spots)
                self.seen.append((position, sites.seen_now()))
            following = bisect_right(group.positions, position)
            if goes_on and following < len(group.positions):
                heapq.heappush(order, (group.positions[following], number))
        return position

    @staticmethod
    def _next_of(
        group: DemandGroup, sequence: int, position: int, candidates: list[tuple[int, int, DemandGroup]]
    ) -> None:
        """The group's first job behind this position is to be tried too."""
        following = bisect_right(group.positions, position)
        if following < len(group.positions):
            heapq.heappush(candidates, (group.positions[following], sequence, group))


def _is_limit(entry: tuple[int, int, Job]) -> bool:
    """Whether the job still stands where it did when the limit was set."""
    exhausted_at_scan, position, job = entry
    return job.position == position and job.exhausted_at_scan == exhausted_at_scan


def _position(entry: tuple[int, Seen]) -> int:
    return entry[0]


class ClaimingQueue:
    """Placed jobs with components still to be claimed, ordered by their job claiming time (JCT)."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Job]] = []
        self.sequence = 0
        self.next_at = INFINITY  # the earliest claiming time

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Job]:
        return (job for _, _, job in self._entries)

    def push(self, job: Job, claim_at: float) -> None:
        self.sequence += 1
        self.stand(job, claim_at, self.sequence)

    def stand(self, job: Job, claim_at: float, sequence: int) -> None:
        """Enter the job at this claiming time; equal times are served in the order of the sequence."""
        placed = job.placed
        placed.claim_at = claim_at
        placed.claim_sequence = sequence
        insort(self._entries, (claim_at, sequence, job), key=_claim_order)
        self.next_at = self._entries[0][0]

    def remove(self, job: Job) -> None:
        """Take the job out; without effect when it is not in the queue."""
        place = bisect_left(self._entries, (job.placed.claim_at, job.placed.claim_sequence), key=_claim_order)
        if place < len(self._entries) and self._entries[place][2] is job:
            del self._entries[place]
            self.next_at = self._entries[0][0] if self._entries else INFINITY

    def move(self, job: Job, claim_at: float) -> None:
        """Give a job that is in the queue another claiming time."""
        self.remove(job)
        self.push(job, claim_at)

    def head(self) -> Job:
        return self._entries[0][2]


def _claim_order(entry: tuple[float, int, Job]) -> tuple[float, int]:
    return entry[0], entry[1]
