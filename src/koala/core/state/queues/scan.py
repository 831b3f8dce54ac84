"""A scan of a placement queue: one pass over the groups of its jobs, in the order of the queue.

Jobs of a group have the same demand, so that one answer is good for all of them while nothing changes. The pass takes
the first job of each group by rank, and tries one after the other:

1. While plans are to be made, a job that cannot start gets one. After that, a job starts only if it puts off no
   plan, and only groups count for which some site has room.
2. A job that fits is placed. Idle processors only fall during a scan and links only fill, so a group that cannot fit
   by its plain numbers is out for good, and so is a steady one that the policy refused.
3. Any other group is tried again after the next placement, from the next job on.
4. A job that would put a plan off stands for all jobs of its group that end no earlier than it may.

In an order from a user-supplied function each job is a group of its own, as the function may put it anywhere.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, Protocol, TypeAlias

from koala.core.encoded import INFINITY
from koala.core.life.job import Job
from koala.core.state.queues.groups import DemandGroup, EndsBy
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.sites import Sites
from koala.model.request import JobId
from koala.policies import PolicyError
from koala.policies.interface import Spots, try_place

# The rank of the group's next job, the number of its demand, and the group.
Candidate: TypeAlias = tuple[Any, int, DemandGroup]


class PassPlans(EndsBy, Protocol):
    """The interface between a scan and the planner: ``koala.core.plans``."""

    @property
    def enough(self) -> bool:
        """True if all the plans of this queue are made."""

    def reaches(self, job: Job) -> None:
        """Note that the scan has reached this job: plans that rank before it count."""

    def places_now(self, job: Job) -> tuple[Spots | None, float | None]:
        """Return places that put no plan off.

        If plans leave none, also return the time by which a job of the same demand must end to find some; None if the
        end makes no difference.
        """

    def plan(self, job: Job) -> bool:
        """Plan a job that cannot start; return False if no possible time is known."""


class Found(NamedTuple):
    """The receivers of a scan's results.

    ``place`` takes the jobs that fit and changes the sites, ``broke`` takes jobs whose policy gave an impossible
    answer; ``raised`` takes the jobs whose demand raised an error of our own, before the error goes on to the caller.
    """

    place: Callable[[Job, Spots], None]
    broke: Callable[[Job, PolicyError], None]
    raised: Callable[[Sequence[Job]], None]


def scan(queue: PlacementQueue, sites: Sites, plans: PassPlans | None, found: Found) -> None:
    """Try every job of the queue from head to tail."""
    queue.scan_begins(sites)
    queue.settle()
    if queue.size:
        _Scan(queue, sites, plans, found).run()


class _Scan:
    def __init__(self, queue: PlacementQueue, sites: Sites, plans: PassPlans | None, found: Found) -> None:
        self._queue = queue
        self._standing = queue.standing
        self._sites = sites
        self._idle = sites.view.idle
        self._plans = plans
        self._planning = plans  # until enough is planned
        self._found = found
        self._rank = queue.standing.bottom  # rank of the last candidate examined
        self._latest_end: dict[int, float] = {}  # by the number of a demand: jobs that end later find no places
        self._again: list[tuple[int, DemandGroup]] = []  # to be tried again after the next placement
        # What one site, and all sites together, have for a job; a job that gets a plan may need more than is idle.
        self._most: float = max(self._idle) if plans is None else INFINITY
        self._total: float = sum(self._idle) if plans is None else INFINITY
        # With an order function: the jobs that were tried, and how many had joined when it was called.
        self._tried: set[JobId] = set()
        self._joined = queue.joined
        self._candidates = self._line_up()

    def run(self) -> None:
        """Try one candidate after the other."""
        queue, plans, view = self._queue, self._plans, self._sites.view
        while (candidate := self._next()) is not None:
            rank, number, group = candidate
            end, goes_on = None, False
            if plans is not None and self._planning is not None:
                plans.reaches(group.job(rank))  # which makes plans of other jobs, too
            try:
                if plans is None:
                    spots = try_place(group.demand, view)
                elif self._planning is None:
                    spots, end = plans.places_now(group.job(rank))
                else:
                    spots, goes_on = _start_or_plan(group.job(rank), plans)
            except PolicyError as error:
                job, spots, goes_on = group.job(rank), None, True
                queue.take(job, placed=False)
                self._found.broke(job, error)
            except Exception:
                self._found.raised(list(group))
                raise
            if spots is not None:
                self._again.append((number, group))
                self._place(group.job(rank), spots)
                if not queue.size or self._most < queue.smallest_need:
                    return
                for its_number, other in self._again:
                    self._add(other.after(rank), its_number, other)
                self._again.clear()
            elif goes_on:
                self._add(group.after(rank), number, group)
            elif self._planning is not None:
                pass  # no time is known for any of the group
            elif end is not None:
                assert plans is not None
                self._latest_end[number] = end
                self._add(group.ends_by(rank, plans, end, behind=True), number, group)
            elif group.demand.steady:
                if self._standing.asked:  # others are candidates of their own
                    self._latest_end[number] = -INFINITY
            else:
                self._again.append((number, group))

    def _line_up(self) -> list[Candidate]:
        """Return for each group with possible room its first job behind those examined."""
        queue, total, rank = self._queue, self._total, self._rank
        groups = queue.by_least[: bisect_left(queue.by_least, (self._most + 1,))]
        if self._standing.asked:
            left = [(number, job) for _, number, group in groups for job in group if job.id not in self._tried]
            candidates = [(self._standing.key_of(job), number, self._alone(job)) for number, job in left]
        elif rank == self._standing.bottom and not self._standing.by_user:
            candidates = [
                (group.keys[0], number, group) for _, number, group in groups if group.demand.total <= total
            ]
        else:
            candidates = [
                (first, number, group)
                for _, number, group in groups
                if group.demand.total <= total and (first := group.after(rank)) is not None
            ]
        heapify(candidates)
        return candidates

    def _alone(self, job: Job) -> DemandGroup:
        """Return a group of one job, which stays where it is while others move."""
        group = DemandGroup(job.demand.key, job.demand, timed=self._queue.by_arrival)
        group.insert(job, self._standing.key_of(job))
        return group

    def _add(self, rank: Any | None, number: int, group: DemandGroup) -> None:
        if rank is not None:
            heappush(self._candidates, (rank, number, group))

    def _next(self) -> Candidate | None:
        """Return the first candidate that is not out."""
        by_user, latest_end = self._standing.by_user, self._latest_end
        while True:
            if self._planning is not None and (not self._candidates or self._planning.enough):
                self._enough_is_planned()
            if not self._candidates:
                return None
            candidate = heappop(self._candidates)
            rank, number, group = candidate
            self._rank = rank
            demand = group.demand
            if demand.least > self._most or demand.total > self._total:
                continue
            now_at = group.now_at(rank) if by_user else rank
            if latest_end and now_at is not None and (end := latest_end.get(number)) is not None:
                now_at = None if self._plans is None else group.ends_by(now_at, self._plans, end)
            if now_at == rank:
                if self._standing.asked:
                    self._tried.add(group.job(rank).id)
                return candidate
            self._add(now_at, number, group)  # a job made since stands before it, or it ends too late

    def _enough_is_planned(self) -> None:
        """End planning: from here on a job starts only if it puts no plan off, and the scan goes on
        behind examined jobs."""
        self._planning = None
        self._most, self._total = max(self._idle), sum(self._idle)
        if not self._standing.asked:
            self._candidates = self._line_up()

    def _place(self, job: Job, spots: Spots) -> None:
        """Place the job; the jobs behind it see what is left."""
        queue, position = self._queue, job.position
        queue.take(job, placed=True)
        self._found.place(job, spots)
        if self._standing.moves:
            queue.seen.clear()
        queue.seen.append((position, self._sites.seen_now()))
        if self._planning is None:
            self._most, self._total = max(self._idle), sum(self._idle)
        if self._standing.asked and queue.joined != self._joined:
            self._joined = queue.joined
            queue.ask_again()
            self._candidates = self._line_up()


def _start_or_plan(job: Job, plans: PassPlans) -> tuple[Spots | None, bool]:
    """Places that put off no plan of a job before this one; without any, whether it has a plan now."""
    spots, _ = plans.places_now(job)
    return spots, spots is None and plans.plan(job)
