"""Plans: when and where the first jobs that cannot start will start, and what may start before them.

A plan is the earliest time at which the job's policy, given the processors idle then, finds places. Jobs rank by
priority, then in the order of their queue. A lower-ranking job starts only if every plan still finds places at its
time. With one planned job in a queue that is EASY backfilling over many clusters; with many it comes close to
conservative backfilling. While all plans stand, each only moves earlier, beside all others. When the world takes
processors away, or a job comes that ranks before others, plans are made anew in order of rank.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, TypeAlias

from koala.core.encoded import INFINITY
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.life.waiting import StartPlan
from koala.core.state.availability import CLOSED, Availability
from koala.core.state.ledger import Ledger
from koala.core.state.nodes.left_by_plans import has_places
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.reservations import PlanFinder, Reservation, fits
from koala.model.facts import JobPlanned, PlanLost, PlanPutOff
from koala.model.request import JobId, Priority, Request
from koala.policies.interface import Demand, Spots, try_place

# By priority, or time; then by a tie-breaker; then by position in the queue.
Rank: TypeAlias = tuple[float, int, Any]
# A plan that moves by no more than this is not reported: starts and ends take a while.
SLACK_S = 60.0
# Where nodes matter, at most this many jobs of one pass may try to move the plans in their way: a try examines the
# nodes of all sites.
NODE_MOVES_MAX = 2


class JobPlans:
    """The plans of both queues. Between passes they are in the jobs; during a pass in ``_reserved``, by rank."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.depth = ledger.parameters.plan_depth
        self._ageing_s = ledger.parameters.ageing_half_s
        self._queue = ledger.high
        self._reserved: list[Reservation] = []  # all plans that count in this pass, by rank
        self._finder: PlanFinder | None = None  # beside those that count for the current job
        self._all_stand = False  # True if all plans from before the pass stand, so that plans only move earlier
        self._others: list[Job] = []  # planned jobs of the other queue that are still to be replanned
        self._before: set[int] = set()  # planned jobs of this queue that the pass has not reached
        self._disturbed = False  # True if a job was placed or planned that may put off plans of lower rank
        self._made = 0
        self._node_moves = 0

    @property
    def _availability(self) -> Availability:
        availability = self.ledger.sites.availability
        assert availability is not None
        return availability

    # ------------------------------------------------------------------------------------------ rank

    def rank(self, job: Job) -> Rank:
        """Return the rank of a job: by priority, then by the order of the queue.

        With ageing, a low-priority job ranks as a high-priority one that came later.
        """
        standing = self.ledger.queue_of(job).standing.rank_of(job)
        if self._ageing_s is None:
            return (0.0 if job.high else 1.0), 0, standing
        return job.submitted_at + (0.0 if job.high else self._ageing_s), 0 if job.high else 1, standing

    def _rank_in_line(self, job: Job) -> Rank:
        """Return the same, except that an array stands where its next element will.

        Where jobs with plans come before all others, that is behind them.
        """
        first, second, standing = self.rank(job)
        if job.unfolds is None:
            return first, second, standing
        queue = self.ledger.queue_of(job).standing
        return first, second, queue.top if queue.moves else job.arrival + job.unfolds.made

    def line(self, coming: Sequence[Job] = ()) -> list[Job]:
        """Return jobs with plans, coming jobs, and arrays with elements that are no jobs yet, by rank."""
        arrays = self.ledger.arrays.values()
        to_unfold = [each for each in arrays if each.state is JobState.UNFOLDING and not each.elements.all_made]
        jobs = [*self.ledger.planned.values(), *coming, *(each for each in to_unfold if each.asks is not None)]
        return sorted(jobs, key=self._rank_in_line)

    def before(self, job: Job) -> list[Job]:
        """Return the jobs with plans that rank before a waiting job."""
        if not self.ledger.planned or job.state is not JobState.WAITING:
            return []
        planned = sorted(self.ledger.planned.values(), key=self.rank)
        return [other for other in planned if self.rank(other) < self.rank(job)]

    def left_for(self, job: Job) -> list[tuple[float, Sequence[int]]]:
        """Return what the plans that rank before a waiting job leave at each of their starts before it would end.

        A plan that leaves too few licences leaves nothing at all.
        """
        before = self.before(job)
        if not before:
            return []
        finder = self._finder_beside(before)
        end = finder.now + self.ledger.planned_s(job)
        wanted = job.demand.licenses
        left: list[tuple[float, Sequence[int]]] = [(at, finder.left_at(at)) for at in finder.starts if at < end]
        if not wanted:
            return left
        return [(at, finder.licenses_at(at).open_to(wanted, here, nothing=CLOSED)) for at, here in left]

    def spares_nodes(self, job: Job, spots: Spots) -> bool:
        """Return True if a waiting job with these places, on any nodes, leaves the nodes that
        earlier-ranking plans need."""
        before = self.before(job)
        nodes = self._finder_beside(before).nodes_for(None) if before else None
        return nodes is None or nodes.spare(job.demand, spots, self.ledger.now + self.ledger.planned_s(job))

    def _finder_beside(self, planned: Sequence[Job]) -> PlanFinder:
        ledger = self.ledger
        self._availability.catch_up(ledger.now)
        reserved = self._as_planned_before(planned)
        return PlanFinder(self._availability, ledger.sites.view, ledger.now, reserved, ledger.sites.ahead)

    def beside_all(self) -> PlanFinder:
        """Return a finder beside all plans as they are. Changes nothing."""
        return self._finder_beside(sorted(self.ledger.planned.values(), key=self.rank))

    def coming(self, demand: Demand, request: Request, owner: str = "") -> Job:
        """Return a job of that user as if it came now, with the plan that it would get, if any. Changes nothing."""
        ledger = self.ledger
        job = Job(0, ledger.now, claim_fraction=ledger.parameters.claim_fraction, waiting_since=ledger.now)
        job.bind(request, ledger.states, ledger.changes)
        job.asks, job.submitter = demand, owner
        job.waiting.position = ledger.queue_of(job).next_position
        if ledger.estimates_runs:
            ledger.estimate(job)
        planned = sum(other.high is job.high for other in ledger.planned.values())
        if ledger.plans_made and planned < self.depth:
            found = self._finder_beside(self.before(job)).earliest(demand, ledger.planned_s(job))
            job.waiting.plan = None if found is None else StartPlan(*found)
        return job

    def preview(self, demand: Demand, request: Request, owner: str) -> tuple[Spots | None, list[JobId]]:
        """Return where a new job of that user would start, and the jobs whose plans prevent that. Changes nothing."""
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
        if spots is None or not before:
            return spots, []
        default_s = ledger.parameters.default_walltime_s
        walltime_s = default_s if request.walltime_s is None else request.walltime_s
        usual_s = ledger.usual_s(owner, request.name) if ledger.estimates_runs else None
        takes_s = walltime_s if usual_s is None else min(walltime_s, usual_s)
        end = INFINITY if demand.has_files else now + takes_s
        finder = self._finder_beside(before)
        if end <= finder.starts[0] or finder.spares(demand, spots, end):
            return spots, []
        if finder.moved_for(spots, end, demand) is not None:
            return spots, []
        return finder.place_now(demand, end), [job.id for job in before]

    # ---------------------------------------------------------------------------- what does not come

    @property
    def look_at(self) -> float:
        """The next time at which plans must be checked if nothing happens before.

        Then a plan's time comes, or something that plans wait for is late beyond the grace.
        """
        now = self.ledger.now
        planned = [job.planned.at for job in self.ledger.planned.values()]
        return min([self._availability.late_at, *(at for at in planned if at > now)])

    def look_for_late(self) -> None:
        """Expect late processors later, let others use what plans kept for too long, and try plans whose
        time has come.

        A due plan is tried even if nothing has ended.
        """
        before, now = self._availability.now, self.ledger.now
        due = any(before < job.planned.at <= now for job in self.ledger.planned.values())
        if self._availability.catch_up(now) or due:
            self.ledger.try_everybody()

    # ---------------------------------------------------------------------------------------- a pass

    def begin(self, queue: PlacementQueue) -> None:
        """Begin a scan of the queue: plans are checked again as the scan reaches their jobs."""
        ledger = self.ledger
        self._queue = queue
        self._made = self._node_moves = 0
        self._disturbed = False
        self._before = {job.id for job in ledger.planned.values() if job.high is queue.high}
        self._load(sorted(ledger.planned.values(), key=self.rank))
        if self._all_stand:
            self._others = []
        else:
            self._others = sorted(
                (job for job in ledger.planned.values() if job.high is not queue.high), key=self.rank, reverse=True
            )

    def _load(self, planned: Sequence[Job]) -> None:
        """Load these plans, by rank, unchanged if all of them stand; otherwise load none."""
        self._finder = self._finder_beside(planned)
        self._reserved = list(self._finder.reserved)
        self._all_stand = not any(job.plan_is_barred() for job in planned) and self._finder.stands()
        if not self._all_stand:
            self._set_reserved([])

    def _as_planned_before(self, planned: Iterable[Job]) -> list[Reservation]:
        ledger = self.ledger
        reserved = []
        for job in planned:
            at = max(job.planned.at, ledger.now)
            reserved.append(Reservation(job, at, at + ledger.planned_s(job), job.planned.spots))
        return reserved

    @property
    def enough(self) -> bool:
        """True if enough jobs have plans, and all jobs that had plans have been checked."""
        if self._made < self.depth or self._before:
            return False
        self._reach_for_all()
        return True

    def reaches(self, job: Job) -> None:
        """Count the plans that rank before this job, which the scan has reached.

        If its own plan still holds, all other plans of its priority count too.
        """
        self._before.discard(job.id)
        while self._others and self.rank(self._others[-1]) < self.rank(job):
            self._make(self._others.pop())
        stands = self._all_stand and job.plan is not None
        others = [each for each in self._reserved if each.job is not job]
        self._count([each for each in others if self._counts_for(job, each, stands)])
        if stands and self._disturbed and self._kept(job, self.ledger.planned_s(job)) is None:
            # An earlier-ranking job took its processors: it does not fall behind lower-ranking jobs.
            self._count([each for each in others if self._counts_for(job, each, stands=False)])

    def _counts_for(self, job: Job, each: Reservation, stands: bool) -> bool:
        assert each.job is not None
        return (stands and each.job.high is job.high) or self.rank(each.job) < self.rank(job)

    def _reach_for_all(self) -> None:
        """Count every plan that would rank before a job submitted now: the jobs behind are scanned as a whole."""
        if self._ageing_s is None:
            if not self._queue.high:
                self.reach_everybody()
            counting = [each for each in self._reserved if not self._queue.high or (each.job and each.job.high)]
        else:
            coming = self.ledger.now + (0.0 if self._queue.high else self._ageing_s)
            while self._others and self.rank(self._others[-1])[0] <= coming:
                self._make(self._others.pop())
            counting = [each for each in self._reserved if each.job and self.rank(each.job)[0] <= coming]
        self._count(counting)

    def reach_everybody(self) -> None:
        while self._others:
            self._make(self._others.pop())

    def finish(self) -> None:
        """Finish the scan: remake plans that earlier-ranking jobs put off, and advance plans of the other queue."""
        self.reach_everybody()
        if self._disturbed:
            planned = sorted(self.ledger.planned.values(), key=self.rank)
            self._load(planned)
            if not self._all_stand:
                for job in planned:
                    self._make(job)
        elif self._all_stand:
            for each in list(self._reserved):
                if each.job is not None and each.job.high is not self._queue.high:
                    self.reaches(each.job)
                    self._make(each.job)

    def refresh(self) -> None:
        """Check all plans again on current information, without a scan."""
        planned = sorted(self.ledger.planned.values(), key=self.rank)
        self._others, self._before = [], set()
        self._load(planned)
        for job in planned:
            self.reaches(job)
            self._make(job)

    # -------------------------------------------------------------------------------------- one job

    def places_now(self, job: Job) -> tuple[Spots | None, float | None]:
        """See ``koala.core.state.queues.scan.PassPlans``."""
        demand, finder = job.demand, self._finder
        assert finder is not None
        spots = try_place(demand, finder.view)
        if spots is None:
            spots = self._as_planned(job)  # with more idle than at the last try a policy may find less
            if spots is None:
                return None, None
        # How long files take is still unknown. But a job that delays no earlier-ranking job goes by its walltime, as
        # its plan does: it starts when the plan can begin, or it would wait for ever.
        unknown = demand.has_files and not self._is_first(job, finder)
        end = INFINITY if unknown else finder.now + self.ledger.planned_s(job)
        touched = bisect_left(finder.starts, end)
        if touched and not finder.spares(demand, spots, end):
            moved = finder.moved_for(spots, end, demand) if self._may_move(finder, demand) else None
            if moved is None:
                spots = finder.place_now(demand, end)
                if spots is None and (planned := self._as_planned(job)) and finder.spares(demand, planned, end):
                    spots = planned
                if spots is None:
                    return None, finder.starts[touched - 1]
            else:
                self._move(finder, moved)
        self._starts_now(job)
        return spots, None

    def _may_move(self, finder: PlanFinder, demand: Demand) -> bool:
        """Return True if plans may be moved; where nodes matter, only a few jobs may ask for that."""
        if finder.nodes_for(demand) is None:
            return True
        self._node_moves += 1
        return self._node_moves <= NODE_MOVES_MAX

    def _is_first(self, job: Job, finder: PlanFinder) -> bool:
        """Return True if the job has a plan, and ranks before all others that count for it."""
        before = (each.job is not None and self.rank(each.job) < self.rank(job) for each in finder.reserved)
        return job.plan is not None and not any(before)

    def _move(self, finder: PlanFinder, moved: Sequence[Spots]) -> None:
        """Move these plans to other places at their times."""
        for each, places in zip(finder.reserved, moved, strict=True):
            each.spots = places
            if each.job is not None:
                each.job.planned.spots = places
                each.job.changed()

    def _starts_now(self, job: Job) -> None:
        """Release what was kept for the job; plans that did not count for it may be put off."""
        assert self._finder is not None
        left = [each for each in self._reserved if each.job is not job]
        self._disturbed |= len(self._finder.reserved) < len(left)
        self._reserved = left
        self._count([each for each in self._finder.reserved if each.job is not job])

    def _as_planned(self, job: Job) -> Spots | None:
        if job.plan is None or job.asks is None or job.demand.has_files:
            return None  # a file may be gone since
        spots = job.plan.spots
        view = self.ledger.sites.view
        if not fits(spots, view.licenses.open_to(job.demand.licenses, job.demand.allowed(view.idle))):
            return None
        return spots if not job.demand.groups or has_places(job.demand, spots, view) else None

    def first_to_end_by(
        self, jobs: Sequence[Job], walltimes_s: Sequence[float | None], start: int, end: float
    ) -> int:
        """See ``koala.core.state.queues.groups.EndsBy``."""
        ledger = self.ledger
        longest_s = end - ledger.now
        if ledger.estimates_runs:
            return next(
                (index for index in range(start, len(jobs)) if ledger.planned_s(jobs[index]) <= longest_s), -1
            )
        default_s = ledger.parameters.default_walltime_s
        for index, walltime_s in enumerate(islice(walltimes_s, start, None), start):
            if (default_s if walltime_s is None else walltime_s) <= longest_s:
                return index
        return -1

    def longest_s(self, end: float) -> float:
        """See ``koala.core.state.queues.groups.EndsBy``."""
        return INFINITY if self.ledger.estimates_runs else end - self.ledger.now

    # --------------------------------------------------------------------------------------- planning

    def plan(self, job: Job) -> bool:
        """Plan a job of this queue that cannot start now. A job that was planned keeps its plan even
        beyond the depth."""
        if self._made >= self.depth and job.plan is None:
            return True
        if not self._make(job):
            return False
        self._made += 1
        return True

    def plan_new(self, job: Job) -> None:
        """Plan a new job that cannot start, if its queue has fewer plans than allowed."""
        if not self.ledger.planned:
            self.begin(self.ledger.queue_of(job))
        planned = self.ledger.planned.values()
        has_one = sum(other.high is job.high for other in planned) < self.depth and self._make(job)
        if has_one and any(self.rank(job) < self.rank(other) for other in planned):
            self.refresh()  # report to the jobs behind it what that leaves

    def prepare_for(self, job: Job) -> None:
        """Count the plans that rank before a new job."""
        self._queue = self.ledger.queue_of(job)
        self._node_moves = 0
        self._others, self._before = [], set()
        came = self._rank_of_new(job)
        before = sorted((other for other in self.ledger.planned.values() if self.rank(other) < came), key=self.rank)
        self._load(before)
        if not self._all_stand:
            for other in before:
                self._make(other)

    def _rank_of_new(self, job: Job) -> Rank:
        first, second, _ = self.rank(job)
        return first, second, self.ledger.queue_of(job).standing.top

    def _make(self, job: Job) -> bool:
        """Plan the job at the earliest time beside the plans that count for it; a plan that stands
        only moves earlier."""
        ledger, finder = self.ledger, self._finder
        assert finder is not None
        walltime_s = ledger.planned_s(job)
        kept = self._kept(job, walltime_s)
        found = finder.earliest(job.demand, walltime_s, INFINITY if kept is None else kept[0]) or kept
        if found is None:
            if job.plan is not None:
                ledger.story.append(PlanLost(job=job.id, reason=self._why_late(job.plan.at)))
                ledger.drop_plan(job)
                self._set_reserved([each for each in self._reserved if each.job is not job])
            return False
        at, spots = found
        is_new, told_at = job.plan is None, self._tell(job, at, spots)
        if job.plan is None or (job.plan.at, job.plan.spots, job.plan.told_at) != (at, spots, told_at):
            job.changed()
        job.waiting.plan = StartPlan(at, spots, told_at)
        ledger.planned[job.id] = job
        if is_new:
            ledger.queue_of(job).move(job)
        reserved = [each for each in self._reserved if each.job is not job]
        self._disturbed |= len(finder.reserved) < len(reserved)
        insort(reserved, Reservation(job, at, at + walltime_s, spots), key=self._rank_of)
        self._set_reserved(reserved)
        return True

    def _rank_of(self, each: Reservation) -> Rank:
        assert each.job is not None
        return self.rank(each.job)

    def _kept(self, job: Job, walltime_s: float) -> tuple[float, Spots] | None:
        """Return the job's plan if it still stands: another way to fill sites is no reason to put it off."""
        assert self._finder is not None
        plan = job.plan
        if plan is None:
            return None
        at = max(plan.at, self._finder.now)
        kept = self._finder.keeps(job.demand, plan.spots, at, at + walltime_s)
        return (at, plan.spots) if kept else None

    def _set_reserved(self, reserved: list[Reservation]) -> None:
        """Count these plans in this pass; all of them count for the next job."""
        self._reserved = reserved
        self._count(reserved)

    def _count(self, reserved: list[Reservation]) -> None:
        """Count these plans for the current job."""
        assert self._finder is not None
        self._finder = self._finder.beside(reserved)

    def _tell(self, job: Job, at: float, spots: Spots) -> float:
        """Record the plan in the job's story if the change is worth a line; return the time that the
        story shows then."""
        ledger = self.ledger
        if job.first_plan_at is None:
            job.first_plan_at = at
            if ledger.first_planned is not None:
                ledger.first_planned.append(job.id)
        if job.plan is None:
            ledger.story.append(JobPlanned(job=job.id, within_s=at - ledger.now, places=ledger.places(spots)))
            return at
        told_at = job.plan.told_at
        if at > told_at + SLACK_S:
            ledger.story.append(PlanPutOff(job=job.id, by_s=at - told_at, reason=self._why_late(told_at)))
            return at
        return min(at, told_at)

    def _why_late(self, planned_at: float) -> str:
        """Return what the world took away since, as far as that is visible."""
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
