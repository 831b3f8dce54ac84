"""Plans: when and where the first jobs that cannot start will start, and what may start before them.

A plan is the earliest time at which the job's policy, asked about the processors idle then, finds places. A job that
ranks behind it starts only where every plan still finds places at its time. That is EASY backfilling over many
clusters where one job of a queue is planned, and comes near conservative backfilling where many are. The plans of a
pass are made anew from the availability profiles, and only move earlier unless the world took processors away.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from koala.core.lifecycle import JobState
from koala.core.state.availability import Availability
from koala.core.state.encoded import INFINITY
from koala.core.state.job import Job
from koala.core.state.ledger import Ledger
from koala.core.state.queues import PlacementQueue
from koala.model.request import JobId, Priority, Request
from koala.policies import PolicyError
from koala.policies.front_door import Demand, Spots, View, place_on, try_place

# A plan that moves by no more than this is not worth a word: starts and ends take a while.
SLACK_S = 60.0
# So many times are tried one by one for a plan where halving the steps does not do.
PLAN_STEPS_MAX = 256


class Reservation:
    """What is kept for one plan: these places, from its time until its job is due to end."""

    __slots__ = ("at", "job", "spots", "until")

    def __init__(self, job: Job | None, at: float, until: float, spots: Spots) -> None:
        self.job = job
        self.at = at
        self.until = until
        self.spots = spots


class PlanFinder:
    """Finds times and places beside what is reserved already. Pure: it reads profiles and changes nothing."""

    def __init__(self, availability: Availability, view: View, now: float) -> None:
        self.availability = availability
        self.view = view
        self.now = now

    def idle_during(self, start: float, until: float, reserved: Sequence[Reservation]) -> list[int]:
        """What is idle at each site throughout that time, beside the reservations.

        Processors only come free as time passes, so that the least is there at the start, or where a reservation
        begins.
        """
        raw_at = self.availability.raw_at
        least = raw_at(start)
        if reserved:
            _take_off(least, start, reserved)
            for at in {each.at for each in reserved if start < each.at < until}:
                here = raw_at(at)
                _take_off(here, at, reserved)
                least = [min(pair) for pair in zip(least, here, strict=True)]
        return [idle if idle > 0 else 0 for idle in least]

    def place(self, demand: Demand, idle: Sequence[int], view: View | None = None) -> Spots | None:
        """The policy's places on what is idle; None where it finds none, or answers nonsense."""
        allowed = demand.allowed(idle)
        most = max(allowed)
        if most < demand.least or sum(allowed) < demand.total:
            return None
        if demand.lone and most >= demand.total:
            return Spots((allowed.index(most),), demand.whole)
        try:
            return place_on(demand, allowed, self.view if view is None else view)
        except PolicyError:
            return None

    def _later(self, demand: Demand) -> View:
        """What a demand sees of a time to come. Which nodes will be free then nobody knows, so that tasks with shapes
        count on all of them, beside the processors that are idle then: their plans are never too late."""
        return self.view.with_whole_nodes() if demand.groups else self.view

    def earliest(
        self, demand: Demand, walltime_s: float, reserved: Sequence[Reservation]
    ) -> tuple[float, Spots] | None:
        """The earliest time known at which the demand finds places for so long, and these; None where there is none.

        Under a policy that is monotone in what is idle the time is found by halving the steps; otherwise, and
        between reservations, times are tried one by one from the first that is not hopeless.
        """
        now = self.now
        steps = self.availability.steps()
        times = [now, *steps[bisect_right(steps, now) :]]
        free_again = max((each.until for each in reserved), default=now)
        if reserved:
            times = sorted({*times, *(each.until for each in reserved if now < each.until < INFINITY)})

        def at(index: int, beside: Sequence[Reservation]) -> Spots | None:
            time = times[index]
            if time == INFINITY:
                return None
            view = self._later(demand) if time > now else None
            return self.place(demand, self.idle_during(time, time + walltime_s, beside), view)

        alone = bisect_left(times, free_again)  # from here on nothing is reserved any more
        first = self._first(len(times), self._may_fit(demand, times, at))
        for index in range(first, min(alone, first + PLAN_STEPS_MAX)):
            spots = at(index, reserved)
            if spots is not None:
                return times[index], spots
        if not demand.steady:
            for index in range(max(first, alone), min(len(times), max(first, alone) + PLAN_STEPS_MAX)):
                spots = at(index, ())
                if spots is not None:
                    return times[index], spots
        else:
            index = max(first, alone)
            spots = at(index, ()) if index < len(times) else None
            if spots is not None:
                return times[index], spots
        return self._when_all_is_over(demand, times)

    def _may_fit(
        self, demand: Demand, times: Sequence[float], at: Callable[[int, Sequence[Reservation]], Spots | None]
    ) -> Callable[[int], bool]:
        """Whether the demand could fit at a step, a test that holds from some step on for good."""
        if demand.steady:
            return lambda index: at(index, ()) is not None

        def by_numbers(index: int) -> bool:
            idle = demand.allowed([each if each > 0 else 0 for each in self.availability.raw_at(times[index])])
            return max(idle) >= demand.least and sum(idle) >= demand.total

        return by_numbers

    @staticmethod
    def _first(steps: int, holds: Callable[[int], bool]) -> int:
        low, high = 0, steps
        while low < high:
            middle = (low + high) // 2
            if holds(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def _when_all_is_over(self, demand: Demand, times: Sequence[float]) -> tuple[float, Spots] | None:
        """At the last step whatever is known to end has ended, and nothing is on the links."""
        last = max((time for time in times if time < INFINITY), default=self.now)
        view = self.view.unloaded()
        if demand.groups:
            view = view.with_whole_nodes()
        spots = self.place(demand, self.idle_during(last, INFINITY, ()), view)
        return None if spots is None else (last, spots)

    def still_placed(self, started: Spots, end: float, reserved: Sequence[Reservation]) -> list[Spots] | None:
        """Places for every reservation at its time, if these were taken until that end; None where one has none."""
        beside = [Reservation(None, -INFINITY, end, started)]
        found = []
        for each in reserved:
            idle = self.idle_during(each.at, each.until, beside)
            spots: Spots | None = each.spots
            if not _fits(each.spots, idle):
                assert each.job is not None
                assert each.job.demand is not None
                spots = self.place(each.job.demand, idle, self._later(each.job.demand))
            if spots is None:
                return None
            found.append(spots)
            beside.append(Reservation(None, each.at, each.until, spots))
        return found


def _take_off(idle: list[int], at: float, reserved: Sequence[Reservation]) -> None:
    for each in reserved:
        if each.at <= at < each.until:
            for site, size in zip(each.spots.sites, each.spots.sizes, strict=True):
                idle[site] -= size


def _fits(spots: Spots, idle: Sequence[int]) -> bool:
    if len(spots.sites) == 1:
        return spots.sizes[0] <= idle[spots.sites[0]]
    left = list(idle)
    for site, size in zip(spots.sites, spots.sizes, strict=True):
        left[site] -= size
        if left[site] < 0:
            return False
    return True


class JobPlans:
    """The plans of both queues. Between passes they are in the jobs; in a pass in ``_reserved``, by rank."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.depth = ledger.parameters.plan_depth
        self._ageing_s = ledger.parameters.ageing_half_s
        self._finder = PlanFinder(self._availability, ledger.sites.view, ledger.now) if self.depth else None
        self._queue = ledger.high
        self._reserved: list[Reservation] = []
        self._starts: list[float] = []  # their times, in order
        self._spare: dict[int, list[int]] = {}  # by how many of these times: what they leave
        self._spare_as_of = -1
        self._others: list[Job] = []  # planned jobs of the other queue that the pass has not come to
        self._before: set[int] = set()  # planned jobs of this queue that it has not come to
        self._made = 0

    @property
    def _availability(self) -> Availability:
        availability = self.ledger.sites.availability
        assert availability is not None
        return availability

    # ------------------------------------------------------------------------------------------ rank

    def rank(self, job: Job) -> tuple[float, int, int]:
        """Who comes first: by priority, then arrival; with ageing a low job counts as a high one that came later."""
        if self._ageing_s is None:
            return (0.0 if job.high else 1.0), 0, job.position
        return job.submitted_at + (0.0 if job.high else self._ageing_s), 0 if job.high else 1, job.position

    def before(self, job: Job) -> list[Job]:
        """The jobs with plans that rank before a waiting job."""
        if not self.ledger.planned or job.state is not JobState.WAITING:
            return []
        planned = sorted(self.ledger.planned.values(), key=self.rank)
        return [other for other in planned if self.rank(other) < self.rank(job)]

    def preview(self, demand: Demand, request: Request) -> tuple[Spots | None, list[JobId]]:
        """Where a job that came now would start, and the jobs whose plans keep it from that. Changes nothing."""
        ledger = self.ledger
        now, view = ledger.now, ledger.sites.view
        spots = try_place(demand, view)
        high = request.priority is Priority.HIGH
        came = (
            (0.0 if high else 1.0, 0)
            if self._ageing_s is None
            else (now + (0.0 if high else self._ageing_s), 1 - high)
        )
        before = sorted((job for job in ledger.planned.values() if self.rank(job)[:2] <= came), key=self.rank)
        reserved = []
        for job in before:
            assert job.plan_at is not None
            assert job.plan_spots is not None
            at = max(job.plan_at, now)
            reserved.append(Reservation(job, at, at + ledger.walltime_s(job), job.plan_spots))
        if spots is None or not reserved:
            return spots, []
        default_s = ledger.parameters.default_walltime_s
        walltime_s = default_s if request.walltime_s is None else request.walltime_s
        end = INFINITY if demand.has_files else now + walltime_s
        self._availability.catch_up(now)
        finder = PlanFinder(self._availability, view, now)
        if end <= min(each.at for each in reserved) or finder.still_placed(spots, end, reserved) is not None:
            return spots, []
        return finder.place(demand, finder.idle_during(now, end, reserved)), [job.id for job in before]

    # ---------------------------------------------------------------------------- what does not come

    @property
    def look_at(self) -> float:
        """When something that plans wait for is late by more than the grace, if nothing happens before."""
        return self._availability.late_at

    def look_for_late(self) -> None:
        """What is late is expected later, and what plans kept for so long may be of use to others."""
        if self._availability.catch_up(self.ledger.now):
            self.ledger.try_everybody()

    # ---------------------------------------------------------------------------------------- a pass

    def begin(self, queue: PlacementQueue) -> None:
        """A scan of the queue begins: its plans are made anew as it comes to their jobs."""
        ledger = self.ledger
        self._availability.catch_up(ledger.now)
        self._finder = PlanFinder(self._availability, ledger.sites.view, ledger.now)
        self._queue = queue
        self._set_reserved([])
        self._made = 0
        self._before = {job.id for job in ledger.planned.values() if job.high is queue.high}
        self._others = sorted(
            (job for job in ledger.planned.values() if job.high is not queue.high), key=self.rank, reverse=True
        )

    @property
    def enough(self) -> bool:
        """Whether as many jobs have plans as shall have, and all that had one have been looked at."""
        if self._made < self.depth or self._before:
            return False
        self._reach_for_all()
        return True

    def reaches(self, job: Job) -> None:
        """Plans of the other queue that rank before the job are made before it."""
        self._before.discard(job.id)
        while self._others and self.rank(self._others[-1]) < self.rank(job):
            self._make(self._others.pop())

    def _reach_for_all(self) -> None:
        """What stands behind is many jobs: all plans count that rank before the next to come would."""
        if self._ageing_s is None:
            if not self._queue.high:
                self.reach_everybody()
            return
        coming = self.ledger.now + (0.0 if self._queue.high else self._ageing_s)
        while self._others and self.rank(self._others[-1])[0] <= coming:
            self._make(self._others.pop())

    def reach_everybody(self) -> None:
        while self._others:
            self._make(self._others.pop())

    def finish(self) -> None:
        """The scan is over. Those plans of the other queue that rank behind all of this are made again beside it."""
        self._reach_for_all()
        self.reach_everybody()

    def refresh(self) -> None:
        """Make all plans anew by what is known now, without a scan."""
        ledger = self.ledger
        self.begin(ledger.low)
        self._before = set()
        self._others = sorted(ledger.planned.values(), key=self.rank, reverse=True)
        self.reach_everybody()

    # -------------------------------------------------------------------------------------- one job

    def places_now(self, job: Job) -> tuple[Spots | None, float | None]:
        """See ``koala.core.state.queues.PassPlans``."""
        demand, finder = job.demand, self._finder
        assert demand is not None
        assert finder is not None
        spots = try_place(demand, finder.view)
        if spots is None:
            if job.plan_spots is not None and job.plan_at is not None and job.plan_at <= finder.now:
                spots = self._as_planned(job)  # with more idle than it was asked about a policy may find less
            if spots is None:
                return None, None
        # Files take a while that nobody knows yet.
        end = INFINITY if demand.has_files else finder.now + self.ledger.walltime_s(job)
        touched = bisect_left(self._starts, end)
        if not touched:
            return spots, None
        spare = self._spare_beside(touched)
        if _fits(spots, spare):
            return spots, None
        moved = finder.still_placed(spots, end, self._reserved)
        if moved is not None:
            for each, places in zip(self._reserved, moved, strict=True):
                each.spots = places
                if each.job is not None:
                    each.job.plan_spots = places
            return spots, None
        return finder.place(demand, spare), self._starts[touched - 1]

    def _as_planned(self, job: Job) -> Spots | None:
        assert job.plan_spots is not None
        if job.demand is None or job.demand.has_files or job.demand.groups:
            return None  # a file may be gone since, and nodes are not what was counted on
        idle = job.demand.allowed(self.ledger.sites.view.idle)
        return job.plan_spots if _fits(job.plan_spots, idle) else None

    def _spare_beside(self, touched: int) -> list[int]:
        """What is idle now and not needed at the first so many times of plans."""
        availability = self._availability
        if self._spare_as_of != availability.changes:
            self._spare.clear()
            self._spare_as_of = availability.changes
        spare = self._spare.get(touched)
        if spare is None:
            spare = list(self.ledger.sites.view.idle)
            for at in self._starts[:touched]:
                here = availability.raw_at(at)
                _take_off(here, at, self._reserved)
                spare = [max(0, min(pair)) for pair in zip(spare, here, strict=True)]
            self._spare[touched] = spare
        return spare

    def first_to_end_by(self, jobs: Sequence[Job], start: int, end: float) -> int:
        """See ``koala.core.state.queues.PassPlans``."""
        now, default_s = self.ledger.now, self.ledger.parameters.default_walltime_s
        longest_s = end - now
        for index in range(start, len(jobs)):
            walltime_s = jobs[index].walltime_s
            if (default_s if walltime_s is None else walltime_s) <= longest_s:
                return index
        return -1

    # --------------------------------------------------------------------------------------- planning

    def plan(self, job: Job) -> bool:
        """Plan a job of this queue that cannot start now. One that was planned stays so beyond the depth."""
        if self._made >= self.depth and job.plan_at is None:
            return True
        if not self._make(job):
            return False
        self._made += 1
        return True

    def plan_new(self, job: Job) -> None:
        """A job has come that cannot start: it is planned where its queue has fewer plans than it may have."""
        if not self.ledger.planned:
            self.begin(self.ledger.queue_of(job))
        if sum(other.high is job.high for other in self.ledger.planned.values()) < self.depth:
            self._make(job)

    def prepare_for(self, job: Job) -> None:
        """A job has come: the plans that rank before it count."""
        self.begin(self.ledger.queue_of(job))
        self._before = set()
        before = [other for other in self.ledger.planned.values() if self.rank(other) < self._rank_of_new(job)]
        self._others = sorted(before, key=self.rank, reverse=True)
        self.reach_everybody()

    def _rank_of_new(self, job: Job) -> tuple[float, int, float]:
        return *self.rank(job)[:2], INFINITY

    def _make(self, job: Job) -> bool:
        """The earliest time for the job beside what is reserved already."""
        ledger, finder = self.ledger, self._finder
        assert job.demand is not None
        assert finder is not None
        walltime_s = ledger.walltime_s(job)
        found = finder.earliest(job.demand, walltime_s, self._reserved)
        if found is None or found[0] > finder.now:
            kept = self._kept(job, walltime_s)
            if kept is not None and (found is None or kept[0] < found[0]):
                found = kept
        if found is None:
            if job.plan_at is not None:
                job.tell(ledger.now, "plan_lost", self._why_late(job.plan_at))
                ledger.drop_plan(job)
            return False
        at, spots = found
        self._tell(job, at, spots)
        job.plan_at, job.plan_spots = at, spots
        ledger.planned[job.id] = job
        self._set_reserved([*self._reserved, Reservation(job, at, at + walltime_s, spots)])
        return True

    def _kept(self, job: Job, walltime_s: float) -> tuple[float, Spots] | None:
        """The plan that the job has, if it still stands: another way of filling sites is no reason to put it off."""
        assert self._finder is not None
        if job.plan_at is None or job.plan_spots is None or job.plan_at < self._finder.now:
            return None
        assert job.demand is not None
        during = self._finder.idle_during(job.plan_at, job.plan_at + walltime_s, self._reserved)
        idle = job.demand.allowed(during)
        return (job.plan_at, job.plan_spots) if _fits(job.plan_spots, idle) else None

    def _set_reserved(self, reserved: list[Reservation]) -> None:
        self._reserved = reserved
        self._starts = sorted(each.at for each in reserved)
        self._spare.clear()

    def _tell(self, job: Job, at: float, spots: Spots) -> None:
        now = self.ledger.now
        if job.first_plan_at is None:
            job.first_plan_at = at
        if job.plan_told_at is None:
            job.tell(now, "planned", at, spots.sites, spots.sizes)
            job.plan_told_at = at
        elif at > job.plan_told_at + SLACK_S:
            job.tell(now, "put_off", job.plan_told_at, at, self._why_late(job.plan_told_at))
            job.plan_told_at = at
        elif at < job.plan_told_at:
            job.plan_told_at = at

    def _why_late(self, planned_at: float) -> str:
        """What the world took away since, as far as it is to be seen."""
        ledger = self.ledger
        names, now = ledger.names, ledger.now
        reasons = []
        for index, site in enumerate(ledger.sites):
            if site.is_shut:
                reasons.append(f"{names[index]} is drained or not trusted")
            elif self._availability.profiles[index].late_keys(now):
                reasons.append(f"jobs at {names[index]} run longer than expected")
        if not reasons and planned_at <= now:
            reasons.append("what it waited for did not come free in time")
        return "; ".join(reasons) or "others hold what it was to have, or rank before it"
