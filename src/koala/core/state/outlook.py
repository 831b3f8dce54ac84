"""When planned jobs are likely to start, and when at the latest: what is told to whoever asks.

Users ask for far more time than their jobs take. What is told as likely goes by the mean of the last two runs of the
same user (Tsafrir, Etsion and Feitelson 2007), never above the walltime, and doubled as long as a job goes on beyond
it; what is told as the latest goes by walltimes, as plans do unless they are told to go by estimates too. Nothing
here decides.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

from koala.core.state.availability import Availability, Hold
from koala.core.state.encoded import INFINITY
from koala.core.state.job import Job
from koala.core.state.ledger import Ledger
from koala.core.state.reservations import PlanFinder, Reservation
from koala.model.request import JobId
from koala.policies.front_door import Spots

# How many of the jobs for which another waits are told.
ENDS_TOLD_MAX = 5


class Prospect(NamedTuple):
    """When and where a planned job is likely to start, when it starts if every job uses its whole walltime, and the
    last jobs that end there before it, by their ends."""

    at: float
    spots: Spots
    latest_at: float
    ends_before: tuple[JobId, ...]


class _Forecast:
    """When planned jobs start, one after the other by rank, if all that runs ends by these profiles."""

    def __init__(self, availability: Availability) -> None:
        self.availability = availability
        self._reserved: list[Reservation] = []

    def start_of(self, ledger: Ledger, job: Job, takes_s: float, before: float) -> tuple[float, Spots]:
        """The start of the next job, where it has not started by ``before``, and then by its plan."""
        assert job.demand is not None
        assert job.plan_at is not None
        assert job.plan_spots is not None
        finder = PlanFinder(self.availability, ledger.sites.view, ledger.now, self._reserved)
        at, spots = finder.earliest(job.demand, takes_s, before) or (job.plan_at, job.plan_spots)
        at = max(at, ledger.now)
        self._reserved.append(Reservation(job, at, at + takes_s, spots))
        return at, spots


class Outlook:
    """The prospects of planned jobs, worked out by rank as somebody asks, and kept until something changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._as_of: tuple[object, ...] = ()
        self._prospects: dict[JobId, Prospect] = {}
        self._to_come: list[Job] = []  # those not worked out yet, the next one last
        self._likely = self._at_most = _Forecast(Availability(0))

    def of(self, job: Job, planned: list[Job]) -> Prospect | None:
        """That of one job; ``planned`` are all that have plans, by rank."""
        availability = self._ledger.sites.availability
        if job.plan_at is None or job.plan_spots is None or availability is None:
            return None
        plans = tuple([(each.id, each.plan_at, each.plan_spots, id(each.demand)) for each in planned])
        # A job may have been kept off a site, or planned elsewhere, without any change of what is held.
        as_of = (availability.changes, self._ledger.sites.changed, self._ledger.now, plans)
        if as_of != self._as_of:
            self._as_of = as_of
            self._prospects = {}
            self._to_come = planned[::-1]
            self._likely = _Forecast(self._profiles(availability, self._usual_end))
            if self._ledger.estimates_runs:
                self._at_most = _Forecast(self._profiles(availability, self._latest_end))
        while job.id not in self._prospects and self._to_come:
            following = self._to_come.pop()
            self._prospects[following.id] = self._work_out(following)
        return self._prospects.get(job.id)

    def _work_out(self, job: Job) -> Prospect:
        ledger = self._ledger
        assert job.plan_at is not None
        walltime_s, usual_s = ledger.walltime_s(job), ledger.usual_s(job.submitter)
        takes_s = walltime_s if usual_s is None else min(walltime_s, usual_s)
        at, spots = self._likely.start_of(ledger, job, takes_s, job.plan_at)
        latest_at = job.plan_at
        if ledger.estimates_runs:  # then the plan itself is no bound
            latest_at = max(latest_at, self._at_most.start_of(ledger, job, walltime_s, INFINITY)[0])
        return Prospect(at, spots, latest_at, self._ends_before(self._likely.availability, at, spots))

    # --------------------------------------------------------------------------------------- profiles

    def _profiles(self, known: Availability, end_of: Callable[[Hold], float]) -> Availability:
        """The availability profiles, if all that is held ends then."""
        found = Availability(len(known.profiles))
        found.now = self._ledger.now
        for site, profile in enumerate(known.profiles):
            found.set_base(site, profile.base)
            for hold in profile.in_order():
                found.hold(site, hold[3], hold[2], end_of(hold))
        return found

    def _usual_end(self, hold: Hold) -> float:
        """When it ends, if the job takes as long as those of its user usually do."""
        at, _, _, key, due_at = hold
        job, now = self._job_of(key), self._ledger.now
        if job is None or job.started_at is None or due_at <= now:
            return at
        takes_s = self._ledger.usual_s(job.submitter)
        if takes_s is None:
            return at
        while job.started_at + takes_s <= now:  # it goes on beyond what is usual
            takes_s = max(2 * takes_s, 1.0)
        return min(at, job.started_at + takes_s)

    def _latest_end(self, hold: Hold) -> float:
        """When it ends, if the job takes as long as it may."""
        job, ledger = self._job_of(hold[3]), self._ledger
        if job is None:
            return hold[0]
        return max(hold[0], hold[4] + ledger.walltime_s(job) - ledger.planned_s(job))

    def _job_of(self, key: Hashable) -> Job | None:
        """The job of ours that holds something under this key: by a claim, or by a promise."""
        ledger = self._ledger
        if isinstance(key, str):
            claim = ledger.claims.get(key)
            return None if claim is None else claim.job
        return ledger.jobs.get(key) if isinstance(key, int) else None

    def _ends_before(self, likely: Availability, at: float, spots: Spots) -> tuple[JobId, ...]:
        """The jobs at its sites that end until then, the last of them: without those it could start before."""
        ends: dict[JobId, float] = {}
        for site in set(spots.sites):
            for hold in likely.profiles[site].in_order():
                claim = self._ledger.claims.get(hold[3]) if isinstance(hold[3], str) else None
                if claim is not None and hold[0] <= at:
                    ends[claim.job.id] = max(hold[0], ends.get(claim.job.id, 0.0))
        return tuple(sorted(ends, key=lambda job: (ends[job], job))[-ENDS_TOLD_MAX:])
