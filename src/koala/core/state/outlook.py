"""When planned jobs are likely to start: as their plans, with run times believed as users' last ones were.

Users ask for far more time than their jobs take. A plan goes by what they ask for, since nobody may run longer; what
is told of a time goes by the mean of the last two runs of the same user (Tsafrir, Etsion and Feitelson 2007), never
above the walltime, and doubled as long as the job goes on beyond it. Nothing here decides.
"""

from __future__ import annotations

from typing import NamedTuple

from koala.core.state.availability import Availability
from koala.core.state.encoded import INFINITY
from koala.core.state.job import Job
from koala.core.state.ledger import Ledger
from koala.core.state.reservations import PlanFinder, Reservation
from koala.model.request import JobId
from koala.policies.front_door import Spots

# How many of the jobs for which another waits are told.
ENDS_TOLD_MAX = 5


class Prospect(NamedTuple):
    """When and where a planned job is likely to start, and the last jobs that end there before, by their ends."""

    at: float
    spots: Spots
    ends_before: tuple[JobId, ...]


class Outlook:
    """The prospects of all planned jobs, worked out when somebody asks and kept until something changes."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._as_of: tuple[object, ...] = ()
        self._prospects: dict[JobId, Prospect] = {}

    def of(self, job: Job, planned: list[Job]) -> Prospect | None:
        """That of one job; ``planned`` are all that have plans, by rank."""
        if job.plan_at is None or job.plan_spots is None or self._ledger.sites.availability is None:
            return None
        plans = tuple((each.id, each.plan_at) for each in planned)
        as_of = (self._ledger.sites.availability.changes, self._ledger.now, plans)
        if as_of != self._as_of:
            self._as_of = as_of
            self._prospects = self._work_out(planned)
        return self._prospects.get(job.id)

    def _work_out(self, planned: list[Job]) -> dict[JobId, Prospect]:
        ledger = self._ledger
        usual_s = {user: sum(last) / len(last) for user, last in ledger.last_runs.items()}
        likely = self._likely(usual_s)
        found: dict[JobId, Prospect] = {}
        reserved: list[Reservation] = []
        for job in planned:
            assert job.plan_at is not None
            assert job.plan_spots is not None
            assert job.demand is not None
            takes_s = min(ledger.walltime_s(job), usual_s.get(job.submitter, INFINITY))
            finder = PlanFinder(likely, ledger.sites.view, ledger.now, reserved)
            at, spots = finder.earliest(job.demand, takes_s, job.plan_at) or (job.plan_at, job.plan_spots)
            at = max(at, ledger.now)
            found[job.id] = Prospect(at, spots, self._ends_before(likely, at, spots))
            reserved.append(Reservation(job, at, at + takes_s, spots))
        return found

    def _likely(self, usual_s: dict[str, float]) -> Availability:
        """The availability profiles, if all take as long as they usually do."""
        ledger = self._ledger
        known = ledger.sites.availability
        assert known is not None
        likely = Availability(len(known.profiles))
        likely.now = ledger.now
        for site, profile in enumerate(known.profiles):
            likely.set_base(site, profile.base)
            for at, _, processors, key, due_at in profile.in_order():
                claim = ledger.claims.get(key) if isinstance(key, str) else None
                end = at
                if claim is not None and claim.job.started_at is not None and due_at > ledger.now:
                    begun, takes_s = claim.job.started_at, usual_s.get(claim.job.submitter, INFINITY)
                    while begun + takes_s <= ledger.now:  # it goes on beyond what is usual
                        takes_s = max(2 * takes_s, 1.0)
                    end = min(at, begun + takes_s)
                likely.hold(site, key, processors, end)
        return likely

    def _ends_before(self, likely: Availability, at: float, spots: Spots) -> tuple[JobId, ...]:
        """The jobs at its sites that end until then, the last of them: without those it could start before."""
        ends: dict[JobId, float] = {}
        for site in set(spots.sites):
            for hold in likely.profiles[site].in_order():
                claim = self._ledger.claims.get(hold[3]) if isinstance(hold[3], str) else None
                if claim is not None and hold[0] <= at:
                    ends[claim.job.id] = max(hold[0], ends.get(claim.job.id, 0.0))
        return tuple(sorted(ends, key=lambda job: (ends[job], job))[-ENDS_TOLD_MAX:])
