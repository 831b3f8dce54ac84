"""Places by preemption: a high-priority job without places takes those of low-priority jobs, within bounds.

The bounds limit the jobs that one job preempts, all preemptions within an hour, and how often a job is preempted.
Preemption at claiming, for a job that has places, belongs to ``koala.core.claiming`` and has no bounds.
"""

from __future__ import annotations

from koala.core.life.job import Job
from koala.core.plans import JobPlans
from koala.core.preemption.victims import NodesWithout, SpareRoom, Victims, candidates, choose, idle_without
from koala.core.state.availability import CLOSED
from koala.core.state.ledger import Ledger
from koala.core.state.reservations import places_on
from koala.model.grid import Preemption
from koala.model.messages import Token
from koala.model.request import Request
from koala.policies.interface import Demand, Spots, inputs

# The bound on all preemptions counts those within this time.
PREEMPTED_WITHIN_S = 3_600.0
# At most this many jobs from the head of the queue may look for victims in one scan.
PREEMPTING_JOBS_MAX = 4
# A job that is planned to start within this time preempts nobody.
SOON_S = 60.0

CLAIMING_ONLY = "it preempts jobs of low priority only once it has places and cannot claim them"


class PlacesByPreemption:
    """Chooses the jobs that make room for a waiting job, or explains why none do. Only ``note`` changes anything."""

    def __init__(self, ledger: Ledger, plans: JobPlans) -> None:
        self._ledger = ledger
        self._plans = plans
        self.on = ledger.parameters.preemption is Preemption.PLACES

    # ------------------------------------------------------------------------------------- the hour

    @property
    def next_at(self) -> float | None:
        """The time of the next allowed preemption if one now would exceed the hourly bound."""
        recent = self._ledger.preempted_at
        if not self.on or len(recent) < self._ledger.parameters.preempts_per_hour_max or not recent:
            return None
        return recent[0] + PREEMPTED_WITHIN_S

    def pass_time(self) -> None:
        """Drop preemptions older than an hour; jobs that wait for that are tried again."""
        ledger = self._ledger
        recent = ledger.preempted_at
        if recent and recent[0] + PREEMPTED_WITHIN_S <= ledger.now:
            ledger.preempted_at = [at for at in recent if at + PREEMPTED_WITHIN_S > ledger.now]
            ledger.high.untried |= ledger.high.size > 0

    def note(self, job: Job, victims: Victims) -> None:
        """Note that the job takes the places of these victims."""
        job.victims += len(victims.jobs)
        self._ledger.preempted_at += [self._ledger.now] * len(victims.jobs)

    # --------------------------------------------------------------------------------------- who goes

    def in_turn(self) -> list[Job]:
        """Return the jobs that may look for victims now, head first."""
        high = self._ledger.high
        if not self.on or not high.size or not self._any_low():
            return []
        return [job for job in high.first(PREEMPTING_JOBS_MAX) if job.position >= 0]

    def _any_low(self) -> bool:
        return any(not claim.job.high and not claim.aborting for claim in self._ledger.claims.values())

    def look(self, job: Job) -> Victims | str:
        """Return the victims with which the waiting job has places now, or why there are none."""
        ledger, demand = self._ledger, job.demand
        parameters = ledger.parameters
        if not self.on:
            return f"{CLAIMING_ONLY} (preemption: {Preemption.CLAIMING_ONLY})"
        own, hour = parameters.preempts_per_job_max - job.victims, parameters.preempts_per_hour_max
        if own <= 0:
            return f"it has preempted {job.victims} jobs, and may preempt no more (preempts_per_job_max)"
        left = hour - len(ledger.preempted_at)
        if left <= 0:
            return f"{hour} jobs were preempted within the hour, which is as many as may be (preempts_per_hour_max)"
        if job.plan is not None and job.plan.at - ledger.now <= SOON_S:
            return "it preempts nobody for its places, as it is planned to start soon"
        room = self._room(job)
        view = NodesWithout(ledger, room).view(()) if demand.groups else ledger.sites.view
        if places_on(demand, idle_without(room, ()), view) is not None:
            return "it preempts nobody for its places, as enough is being let go already"
        among = candidates(ledger, demand, preempted_max=parameters.preempted_per_job_max)
        victims = choose(ledger, demand, room, among, min(own, left))
        if victims is None:
            return (
                f"it finds no places by preempting up to {min(own, left)} jobs of low priority "
                "(preempts_per_job_max, preempts_per_hour_max, preempted_per_job_max)"
            )
        if not victims.jobs:  # its policy needs more idle room to find places than these take, and no job has to go
            return "it preempts nobody for its places, as enough is being let go already"
        if ledger.plans_made and not self._plans.spares_nodes(job, victims.spots):
            return "it preempts nobody for its places, as nodes there are kept for the plans of jobs before it"
        if demand.has_files and self._files_are_missing(demand, victims.spots):
            return "it preempts nobody for its places, as its files would have to be brought there first"
        return victims

    def preview(self, demand: Demand, request: Request) -> Victims | str:
        """Return the victims with which a job that came now would have places, or why there are none."""
        return self.look(self._plans.coming(demand, request))

    def _room(self, job: Job) -> SpareRoom:
        ledger = self._ledger
        idle = []
        let_go: list[Token] = []
        for site in ledger.sites:
            if site.is_shut:
                idle.append(0)
                continue
            here = site.free - site.earmarked - (site.promised if ledger.sites.hold_placed else 0)
            # A component that is late to let go may take for ever: nobody counts on it.
            ends = [
                claim
                for claim in site.claims.values()
                if claim.aborting and not claim.fenced and claim.abort_tries <= 1
            ]
            here += sum(claim.processors for claim in ends)
            let_go += [claim.token for claim in ends]
            idle.append(here)
        idle = [*ledger.sites.view.licenses.open_to(job.demand.licenses, idle, nothing=CLOSED)]
        return SpareRoom(idle, self._plans.left_for(job) if ledger.plans_made else (), tuple(let_go))

    def _files_are_missing(self, demand: Demand, spots: Spots) -> bool:
        view = self._ledger.sites.view
        return any(
            needed.source != site
            for component, site in enumerate(spots.sites)
            for needed in inputs(demand, spots, component, view)
        )
