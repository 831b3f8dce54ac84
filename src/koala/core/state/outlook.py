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
from koala.core.state.nodes.ahead import NodesAhead
from koala.core.state.reservations import PlanFinder, Reservation
from koala.model.request import JobId
from koala.policies.front_door import Spots

# How many of the jobs for which another waits are told.
ENDS_TOLD_MAX = 5
# So many elements of arrays count that come before a planned job and are no jobs yet.
ELEMENTS_FORESEEN_MAX = 32


class Prospect(NamedTuple):
    """When and where a planned job is likely to start, when it starts if every job uses its whole walltime, and the
    last jobs that end there before it, by their ends."""

    at: float
    spots: Spots
    latest_at: float
    ends_before: tuple[JobId, ...]


class _Forecast:
    """When planned jobs start, one after the other by rank, if all that runs ends by these profiles."""

    def __init__(self, availability: Availability, ahead: NodesAhead | None = None) -> None:
        self.availability = availability
        self._ahead = ahead
        self._reserved: list[Reservation] = []

    def start_of(self, ledger: Ledger, job: Job, takes_s: float, before: float) -> tuple[float, Spots]:
        """The start of the next job, where it has not started by ``before``, and then by its plan."""
        assert job.demand is not None
        assert job.plan_at is not None
        assert job.plan_spots is not None
        finder = PlanFinder(self.availability, ledger.sites.view, ledger.now, self._reserved, self._ahead)
        at, spots = finder.earliest(job.demand, takes_s, before) or (job.plan_at, job.plan_spots)
        at = max(at, ledger.now)
        self._reserved.append(Reservation(job, at, at + takes_s, spots))
        return at, spots

    def foresee(self, ledger: Ledger, array: Job, takes_s: float) -> None:
        """An element of the array that is no job yet comes next."""
        assert array.demand is not None
        finder = PlanFinder(self.availability, ledger.sites.view, ledger.now, self._reserved, self._ahead)
        found = finder.earliest(array.demand, takes_s)
        if found is not None:
            self._reserved.append(Reservation(None, found[0], found[0] + takes_s, found[1], array.demand))


class Outlook:
    """The prospects of planned jobs, worked out by rank as somebody asks, and kept until something changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._as_of: tuple[object, ...] = ()
        self._prospects: dict[JobId, Prospect] = {}
        self._to_come: list[Job] = []  # those not worked out yet, the next one last
        self._foreseen = 0  # elements that are no jobs yet and come before those
        self._bounds = False  # whether plans may be no bounds, so that the latest times are worked out, too
        self._likely = self._at_most = _Forecast(Availability(0))

    def of(self, job: Job, line: list[Job]) -> Prospect | None:
        """That of one job; ``line`` are all that have plans, and arrays with elements that are no jobs yet, by
        rank."""
        availability = self._ledger.sites.availability
        if job.plan_at is None or job.plan_spots is None or availability is None:
            return None
        plans = tuple([(each.id, each.plan_at, each.plan_spots, id(each.demand), each.made) for each in line])
        # A job may have been kept off a site, or planned elsewhere, without any change of what is held.
        as_of = (availability.changes, self._ledger.sites.changed, self._ledger.now, plans)
        if as_of != self._as_of:
            self._as_of = as_of
            self._prospects = {}
            self._to_come = line[::-1]
            self._foreseen = 0
            self._likely = self._forecast(availability, self._usual_end)
            self._bounds = self._ledger.estimates_runs or any(each.spec is not None for each in line)
            if self._bounds:
                self._at_most = self._forecast(availability, self._latest_end)
        while job.id not in self._prospects and self._to_come:
            following = self._to_come.pop()
            if following.spec is None:
                self._prospects[following.id] = self._work_out(following)
            else:
                self._foresee(following)
        return self._prospects.get(job.id)

    def _foresee(self, array: Job) -> None:
        """Elements of the array come before whoever stands behind it, as many as may live at once."""
        assert array.spec is not None
        to_come = array.spec.size - array.made - array.not_made
        if array.spec.limit is not None:
            to_come = min(to_come, array.spec.limit - array.elements_live)
        ledger = self._ledger
        for _ in range(min(to_come, ELEMENTS_FORESEEN_MAX - self._foreseen)):
            self._foreseen += 1
            self._likely.foresee(ledger, array, self._takes_s(array))
            self._at_most.foresee(ledger, array, ledger.walltime_s(array))

    def _takes_s(self, job: Job) -> float:
        """How long it is likely to take."""
        walltime_s, usual_s = self._ledger.walltime_s(job), self._ledger.usual_s(job.submitter)
        return walltime_s if usual_s is None else min(walltime_s, usual_s)

    def _work_out(self, job: Job) -> Prospect:
        ledger = self._ledger
        assert job.plan_at is not None
        # Elements of arrays that come before it will put its plan off once they are jobs.
        before = INFINITY if self._foreseen else job.plan_at
        at, spots = self._likely.start_of(ledger, job, self._takes_s(job), before)
        latest_at = job.plan_at
        if self._bounds:
            at_most, _ = self._at_most.start_of(ledger, job, ledger.walltime_s(job), INFINITY)
            if ledger.estimates_runs or self._foreseen:  # then the plan itself is no bound
                latest_at = max(latest_at, at_most)
        return Prospect(at, spots, latest_at, self._ends_before(self._likely.availability, at, spots))

    # --------------------------------------------------------------------------------------- profiles

    def _forecast(self, known: Availability, end_of: Callable[[Hold], float]) -> _Forecast:
        profiles = self._profiles(known, end_of)
        return _Forecast(profiles, self._ledger.sites.nodes_by(profiles))

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
