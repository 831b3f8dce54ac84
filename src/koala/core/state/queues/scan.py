"""A scan of a placement queue: trying every job in the queue's order, each group once for every state of the grid.

Idle processors only fall during a scan and links only fill, so a group that cannot fit by its plain numbers is out
for good, and so is a steady one that the policy refused; any other is tried again, from the next job on, after each
placement. Where plans are made the first jobs that cannot start get them, and no later job starts that would put one
off. Whether it would depends on its demand and on when it is due to end: of a group the first job is tried, and
after it the first that ends early enough.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Protocol

from koala.core.encoded import INFINITY
from koala.core.life.job import Job
from koala.core.state.queues.groups import DemandGroup, EndsBy
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.sites import Sites
from koala.model.request import JobId
from koala.policies import PolicyError
from koala.policies.interface import Spots, try_place


class PassPlans(EndsBy, Protocol):
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

    def ends_by(self, job: Job, end: float) -> bool:
        """Whether the job would end by then if it started now."""


class Found(NamedTuple):
    """Who hears of what a scan finds. ``place`` takes the jobs that fit and changes the sites, ``broke`` those whose
    policy gave an answer that cannot be right; ``raised`` hears of those that ask for what something of our own
    raised on, before that goes on to the caller."""

    place: Callable[[Job, Spots], None]
    broke: Callable[[Job, PolicyError], None]
    raised: Callable[[Sequence[Job]], None]


def scan(queue: PlacementQueue, sites: Sites, plans: PassPlans | None, found: Found) -> None:
    """Try every job of the queue from head to tail."""
    queue.scans += 1
    queue.untried = False
    queue.seen = [(-1, sites.seen_now())]
    queue.settle()
    one = _Scan(queue, sites, plans, found)
    if queue.standing.asked:
        one.each_job()
    elif plans is None:
        one.behind(None)
    else:
        one.behind(one.plan_the_first(plans))


class _Scan:
    def __init__(self, queue: PlacementQueue, sites: Sites, plans: PassPlans | None, found: Found) -> None:
        self._queue = queue
        self._sites = sites
        self._plans = plans
        self._found = found

    def _place(self, job: Job, spots: Spots) -> None:
        """The job has places; what is left is what the jobs behind it see."""
        queue, position = self._queue, job.position
        queue.take(job, placed=True)
        self._found.place(job, spots)
        if queue.standing.moves:
            queue.seen.clear()
        queue.seen.append((position, self._sites.seen_now()))

    def _broke(self, job: Job, error: PolicyError) -> None:
        self._queue.take(job, placed=False)
        self._found.broke(job, error)

    def plan_the_first(self, plans: PassPlans) -> Any:
        """From the head on start what can start, and plan what cannot, until enough is planned; the rank of the last
        that was looked at."""
        queue = self._queue
        groups = list(queue.groups.values())
        order = [(group.first(), number) for number, group in enumerate(groups)]
        heapq.heapify(order)
        rank = queue.standing.bottom
        while order and not plans.enough:
            rank, number = heapq.heappop(order)
            group = groups[number]
            if queue.standing.by_user and (now_at := group.now_at(rank)) != rank:
                if now_at is not None:
                    heapq.heappush(order, (now_at, number))
                continue
            job = group.job(rank)
            plans.reaches(job)
            goes_on = True
            try:
                spots, _ = plans.places_now(job)
                if spots is None:
                    goes_on = plans.plan(job)
            except PolicyError as error:
                self._broke(job, error)
                spots = None
            except Exception:
                self._found.raised(list(group))
                raise
            if spots is not None:
                self._place(job, spots)
            if goes_on and (following := group.after(rank)) is not None:
                heapq.heappush(order, (following, number))
        return rank

    def behind(self, start: Any) -> None:
        """Try the jobs behind this rank, or all; where there are plans, without putting one off."""
        queue, plans = self._queue, self._plans
        if not queue.size:
            return
        view, by_user = self._sites.view, queue.standing.by_user
        idle = view.idle
        most, total = max(idle), sum(idle)
        candidates: list[tuple[Any, int, DemandGroup]] = []
        from_the_head = start is None and not by_user
        for _, sequence, group in queue.by_least[: bisect_left(queue.by_least, (most + 1,))]:
            if group.demand.total > total:
                continue
            if from_the_head:
                candidates.append((group.keys[0], sequence, group))
            elif (rank := group.first() if start is None else group.after(start)) is not None:
                candidates.append((rank, sequence, group))
        heapq.heapify(candidates)
        latest_end: dict[int, float] = {}  # by group: jobs that end later would put a plan off
        again: list[tuple[int, DemandGroup]] = []  # those to be tried after the next placement
        while candidates:
            rank, sequence, group = heapq.heappop(candidates)
            demand = group.demand
            if demand.least > most or demand.total > total:
                continue
            now_at = group.now_at(rank) if by_user else rank
            if plans is not None and now_at is not None and (limit := latest_end.get(sequence)) is not None:
                now_at = group.ends_by(now_at, plans, limit)
            if now_at != rank:  # a job that was made since stands before it, or it ends too late
                if now_at is not None:
                    heapq.heappush(candidates, (now_at, sequence, group))
                continue
            limit = None
            try:
                if plans is None:
                    spots = try_place(demand, view)
                else:
                    spots, limit = plans.places_now(group.job(rank))
            except PolicyError as error:
                self._broke(group.job(rank), error)
                _next_of(group, sequence, rank, candidates)
                continue
            except Exception:
                self._found.raised(list(group))
                raise
            if spots is None:
                if limit is not None:
                    assert plans is not None
                    latest_end[sequence] = limit
                    if (following := group.ends_by(rank, plans, limit, behind=True)) is not None:
                        heapq.heappush(candidates, (following, sequence, group))
                elif not demand.steady:
                    again.append((sequence, group))
                continue
            again.append((sequence, group))
            self._place(group.job(rank), spots)
            most, total = max(idle), sum(idle)
            if not queue.by_least or most < queue.smallest_need:
                break
            for next_sequence, other in again:
                _next_of(other, next_sequence, rank, candidates)
            again.clear()

    def each_job(self) -> None:
        """The same by an order that somebody's function gives, which is asked again when elements of arrays join. It
        looks at every job, as the function does."""
        queue, plans, view = self._queue, self._plans, self._sites.view
        ends: dict[Hashable, float] = {}  # by demand: jobs that end later find no places any more
        reached: set[JobId] = set()
        planning = plans is not None
        going = True
        while going:
            going, came = False, queue.joined
            for job in queue.in_line():
                demand = job.demand
                planning = plans is not None and planning and not plans.enough
                if job.id in reached or (not planning and _is_out(job, ends, plans)):
                    continue
                reached.add(job.id)
                limit: float | None = None
                try:
                    if plans is None:
                        spots = try_place(demand, view)
                    else:
                        if planning:
                            plans.reaches(job)
                        spots, limit = plans.places_now(job)
                        if spots is None and planning:
                            plans.plan(job)
                except PolicyError as error:
                    self._broke(job, error)
                    continue
                except Exception:
                    self._found.raised((job,))
                    raise
                if spots is None:
                    if not planning and (limit is not None or demand.steady):
                        ends[demand.key] = -INFINITY if limit is None else limit
                    continue
                self._place(job, spots)
                if queue.joined != came:
                    queue.ask_again()
                    going = True
                    break


def _next_of(group: DemandGroup, sequence: int, rank: Any, candidates: list[tuple[Any, int, DemandGroup]]) -> None:
    """The group's first job behind this rank is to be tried too."""
    following = group.after(rank)
    if following is not None:
        heapq.heappush(candidates, (following, sequence, group))


def _is_out(job: Job, ends: dict[Hashable, float], plans: PassPlans | None) -> bool:
    """Whether a job that asks for the same found no places, and this one ends no earlier than would help."""
    end = ends.get(job.demand.key)
    return end is not None and (plans is None or end == -INFINITY or not plans.ends_by(job, end))
