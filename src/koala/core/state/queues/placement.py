"""The placement queues: jobs that have no places yet.

A placement queue is scanned head to tail, in its order, and every job in it is tried, but jobs with exactly the same
demand get exactly the same answer while nothing changes. So the queue keeps its jobs in groups by demand, and a scan
(``koala.core.state.queues.scan``) tries each group once for every state of the grid: the same placements as trying
every job, at a cost that does not grow with the length of the queue.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import field
from itertools import islice
from typing import Any

from koala.core.encoded import INFINITY, Time, encoded
from koala.core.life.job import Job
from koala.core.life.waiting import Seen, Waiting
from koala.core.state.queues.groups import DemandGroup
from koala.core.state.queues.standing import FirstCome, Turns
from koala.core.state.sites import Sites
from koala.model.request import JobId
from koala.policies.interface import Demand

# Entries of jobs that have left are dropped when they outnumber the others by this many.
LIMITS_SLACK = 64


class _QueueLinks:
    __slots__ = (
        "_group_sequence",
        "_limits",
        "ask_again",
        "by_arrival",
        "by_least",
        "every_event",
        "fickle",
        "groups",
        "joined",
        "limited",
        "patient",
        "resting",
        "shaped",
        "size",
        "standing",
    )
    standing: FirstCome  # the order of its jobs
    ask_again: Callable[[], None]  # has the user-supplied order function called, if there is one
    joined: int  # jobs that ever stood in line
    by_arrival: bool  # True if a job that comes back stands where it first stood
    every_event: bool  # True if the queue is scanned at every event
    size: int
    # How many demands of jobs in line have tasks of more than one processor, and how many are not steady: see
    # ``koala.core.state.queues.due``.
    shaped: int
    fickle: int
    patient: int
    # Jobs that rest before they stand at the tail again: they wait, but are not tried.
    resting: dict[JobId, Job]
    groups: dict[Any, DemandGroup]
    # (least, a unique number, group): the groups in order of the least that one site must have for them.
    by_least: list[tuple[Any, ...]]
    _group_sequence: int
    # (scan number at which its tries are used up, position, job): entries of jobs that have left are skipped.
    _limits: list[tuple[int, int, Job]]
    limited: int  # jobs that may run out of tries, so that even a needless scan matters


@encoded
class PlacementQueue(_QueueLinks):
    """Jobs of one priority that have no places yet.

    A position is the order of their last return to the queue; ``standing`` turns positions into an order.
    """

    high: bool
    # When the next scan is due; the generation of the sites when the last one began, and at the end of the last pass.
    scan_due_at: Time = INFINITY
    scanned_generation: int = 0
    passed_generation: int = 0
    next_position: int = 0
    untried: bool = False  # True if a job in line has not been tried on what is idle now
    scans: int = 0
    # What the last scan saw: at its start, and after each placement, with the position of the placed job. In an order
    # in which jobs move, only the last state: refused jobs have no place there, either.
    seen: list[tuple[int, Seen]] = field(default_factory=list)
    turns: dict[str, Turns] = field(default_factory=dict)  # by user, where users take turns
    overdue: dict[JobId, None] = field(default_factory=dict)  # jobs that have waited too long, in other orders
    answered: list[JobId] = field(default_factory=list)  # the last answer of a user-supplied order function

    def __post_init__(self) -> None:
        self.standing = FirstCome()
        self.every_event = self.by_arrival = False
        self.size = self.shaped = self.patient = self.fickle = 0
        self.resting = {}
        self.groups = {}
        self.by_least = []
        self._group_sequence = 0
        self._limits = []
        self.limited = self.joined = 0
        self.ask_again = _nobody_is_asked

    def __len__(self) -> int:
        return self.size + len(self.resting)

    def __iter__(self) -> Iterator[Job]:
        """Iterate from head to tail; resting jobs come last."""
        return iter([*self.in_line(), *self.resting.values()])

    @property
    def kinds(self) -> int:
        """The number of different demands among the jobs in line."""
        return len(self.groups)

    def in_line(self) -> list[Job]:
        """Return the jobs in line, head to tail."""
        return sorted((job for group in self.groups.values() for job in group), key=self.standing.rank_of)

    def first(self, most: int) -> list[Job]:
        """Return the first ``most`` jobs of the queue; resting jobs come last.

        They can only be in the groups with the first ``most`` heads.
        """
        self.settle()
        groups = heapq.nsmallest(most, self.groups.values(), key=lambda group: group.first())
        in_line = heapq.merge(*groups, key=self.standing.rank_of)
        found = list(islice(in_line, most))
        return [*found, *islice(self.resting.values(), most - len(found))]

    @property
    def smallest_need(self) -> int:
        """The number of idle processors without which no site can take any job here."""
        least: int = self.by_least[0][0]
        return least

    def scan_begins(self, sites: Sites) -> None:
        """Begin a scan, which sees everything up to now."""
        self.scan_due_at = INFINITY
        self.scanned_generation = sites.generation
        self.scans += 1
        self.untried = False
        self.seen = [(-1, sites.seen_now())]

    def note_arrival(self, job: Job) -> None:
        """Give the job a place in line where plans are made, even if it does not wait."""
        if self.by_arrival:
            job.arrival = self.next_position
            self.next_position += 1

    def reserve(self, positions: int) -> int:
        """Reserve places in line for this many jobs, one behind the other; return the first."""
        first = self.next_position
        self.next_position += positions
        return first

    def push(self, job: Job, *, exhausted_at_scan: int | None, untried: bool) -> None:
        """Put the job at the tail. ``untried`` is True if it has not been tried on what is idle now."""
        assert job.position < 0
        waiting = job.waiting
        waiting.joined_after_scan = self.scans
        if job.arrival >= 0 and (self.by_arrival or job.placed_at is None):
            waiting.position = job.arrival
        else:
            waiting.position = self.next_position
            self.next_position += 1
        self.untried |= untried
        waiting.exhausted_at_scan = exhausted_at_scan
        self.stand(job)

    def stand(self, job: Job) -> None:
        """Enter the job at its given position."""
        demand = job.demand
        self._enter(job, demand, self.standing.joins(job))
        self.size += 1
        self.joined += 1
        waiting = job.waiting
        if waiting.exhausted_at_scan is not None:
            self.limited += 1
            heapq.heappush(self._limits, (waiting.exhausted_at_scan, waiting.position, job))
            if len(self._limits) > 2 * self.limited + LIMITS_SLACK:
                self._limits = [entry for entry in self._limits if _is_limit(entry)]
                heapq.heapify(self._limits)

    def _enter(self, job: Job, demand: Demand, key: Any) -> None:
        group = self.groups.get(demand.key)
        if group is None:
            group = self.standing.group(demand, timed=self.by_arrival)
            self.groups[demand.key] = group
            self._group_sequence += 1
            insort(self.by_least, (demand.least, self._group_sequence, group))
            self._count(demand, 1)
        group.insert(job, key)

    def _leave(self, job: Job) -> None:
        group = self.groups[job.demand.key]
        group.remove(self.standing.key_of(job))
        if not len(group):
            del self.groups[group.key]
            start = bisect_left(self.by_least, (group.demand.least,))
            while self.by_least[start][2] is not group:
                start += 1
            del self.by_least[start]
            self._count(group.demand, -1)

    # --------------------------------------------------------------------------------------- moves in line

    def move(self, job: Job) -> None:
        """Move a job that got or lost a plan, or has waited too long: in some orders that changes its place."""
        if self.standing.moves and job.position >= 0:
            self._leave(job)
            self._enter(job, job.demand, self.standing.moved(job))

    def rearrange(self) -> None:
        """Sort all jobs by a new order."""
        for group in self.groups.values():
            group.rearrange(self.standing.moved)

    def settle(self) -> None:
        """Update the groups of jobs that moved up when one before them left."""
        for user in self.standing.moved_up():
            for group in self.groups.values():
                group.look_at(user)

    def pop_exhausted(self, scan: int) -> list[Job]:
        """Remove the jobs whose tries are used up after this many scans."""
        exhausted = []
        while self._limits and self._limits[0][0] <= scan:
            entry = heapq.heappop(self._limits)
            job = entry[2]
            if _is_limit(entry):
                self.remove(job)
                exhausted.append(job)
        return exhausted

    def remove(self, job: Job, *, placed: bool = False) -> None:
        """Remove the job from the queue; ``placed`` is True if it has places."""
        if self.resting.pop(job.id, None) is not None:
            return
        self.take(job, placed=placed)

    def passes(self, job: Job) -> None:
        """Note that a job got places without standing in line."""
        if self.standing.by_user:
            if job.arrival < 0:
                self.next_position += 1
            self.standing.passes(job, job.arrival if job.arrival >= 0 else self.next_position - 1)

    def change_demand(self, job: Job, demand: Demand) -> None:
        """Change the job's demand; it keeps its place in line."""
        if job.position < 0:  # it rests, or is about to join
            job.asks = demand
            return
        self._leave(job)
        job.asks = demand
        self._enter(job, demand, self.standing.moved(job))
        self.untried = True

    def take(self, job: Job, *, placed: bool) -> None:
        """Take the job out of the line."""
        self._leave(job)
        self.standing.leaves(job, placed=placed)
        waiting = job.waiting
        waiting.position = -1
        if waiting.exhausted_at_scan is not None:
            waiting.exhausted_at_scan = None
            self.limited -= 1
        self.size -= 1
        if not self.size:
            self.scan_due_at = INFINITY

    def _count(self, demand: Demand, change: int) -> None:
        if demand.groups:
            self.shaped += change
        if demand.steady:
            return
        if self.every_event and demand.policy.module is not None:
            self.patient += change
        else:
            self.fickle += change

    def place_in_line(self, job: Job) -> int:
        """Return the place of the job in line, counted from 1."""
        if job.id in self.resting:
            return self.size + 1
        return 1 + self.standing.before(job, self.groups.values())

    def place_of_new(self, job: Job) -> int:
        """Return the same for a job that would come now."""
        if self.standing.moves:
            return 1 + self.standing.before(job, self.groups.values())
        return len(self) + 1

    def last_refused(self, job: Job) -> Seen | None:
        """Return what the job's last try saw; None if it was never tried."""
        waiting = job.waiting
        if job.id in self.resting or self.scans == waiting.joined_after_scan:
            return waiting.refused
        if self.standing.moves:
            return self.seen[-1][1]
        return self.seen[bisect_left(self.seen, waiting.position, key=_position) - 1][1]


def _nobody_is_asked() -> None:
    pass


def _is_limit(entry: tuple[int, int, Job]) -> bool:
    """Return True if the job still stands where it did when the limit was set."""
    exhausted_at_scan, position, job = entry
    phase = job.phase
    return isinstance(phase, Waiting) and (phase.position, phase.exhausted_at_scan) == (position, exhausted_at_scan)


def _position(entry: tuple[int, Seen]) -> int:
    return entry[0]
