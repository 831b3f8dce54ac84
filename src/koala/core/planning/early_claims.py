"""Early claims: shortly before the time of its plan a job claims its places, and keeps what it gets at the barrier.

Sites are autonomous: their own users can take what a plan counts on. A component that is claimed early runs into its
barrier where its processors are idle; where others hold them it stands in the site's own queue, before whoever comes
later. What is kept that way does no work, so that it is bounded: ``hold_budget`` is the share of the grid's processor
time that may be kept within ``hold_window_s``, by all and by one job. A job is charged beforehand with all its
processors until it gives up, and pays in the end for as long as it kept them. Its files are brought meanwhile.
"""

from __future__ import annotations

from koala.core.encoded import INFINITY
from koala.core.life.job import Job
from koala.core.plans import JobPlans
from koala.core.state.ledger import Ledger
from koala.model.request import JobId
from koala.policies.interface import transfer_s


class EarlyClaims:
    """Which planned jobs claim early, and what they have kept. Only ``settle`` and ``note`` change anything."""

    def __init__(self, ledger: Ledger, plans: JobPlans) -> None:
        parameters = ledger.parameters
        self._ledger = ledger
        self._plans = plans
        processor_s = sum(site.processors for site in ledger.sites) * parameters.hold_window_s
        self._budget_s = parameters.hold_budget * processor_s
        self._job_budget_s = parameters.hold_budget_per_job * processor_s
        self.on = ledger.plans_made and self._budget_s > 0

    # ----------------------------------------------------------------------------------- what was kept

    def settle(self) -> None:
        """Who keeps nothing early any more has paid; what is long ago counts no more."""
        ledger = self._ledger
        now, window_s = ledger.now, ledger.parameters.hold_window_s
        kept = []
        for job_id, processors, since, until in ledger.kept_early:
            job = ledger.jobs.get(job_id)
            if until > now and (job is None or not job.claims_early):
                until = now
            if until > now - window_s and until > since:
                kept.append((job_id, processors, since, until))
        ledger.kept_early = kept

    def note(self, job: Job, until: float) -> None:
        """The job claims early, and keeps nothing after that time unless it has started."""
        self._ledger.kept_early.append((job.id, job.demand.total, self._ledger.now, until))

    def _kept(self) -> tuple[float, dict[JobId, float]]:
        """The processor time that all have kept, and each job."""
        spent, own = 0.0, dict[JobId, float]()
        for job_id, processors, since, until in self._ledger.kept_early:
            kept_s = processors * (until - since)
            spent += kept_s
            own[job_id] = own.get(job_id, 0.0) + kept_s
        return spent, own

    # ------------------------------------------------------------------------------------------- who

    def due(self) -> Job | None:
        """The first planned job that is to claim its places now."""
        ledger, kept = self._ledger, self._kept()
        near = [job for job in ledger.planned.values() if self._from(job, kept) <= ledger.now]
        if not near:
            return None
        high_first = ledger.high.size > 0 and ledger.scans.may_help(ledger.high)
        for job in sorted(near, key=self._plans.rank):
            if (job.high or not high_first) and self._files_come(job, ledger.now) and self._is_of_use(job):
                return job
        return None

    @property
    def next_at(self) -> float:
        """When one of the planned jobs may claim early that may not yet."""
        now, kept, first = self._ledger.now, self._kept(), INFINITY
        for job in self._ledger.planned.values():
            if now < (at := self._from(job, kept)) < first and self._files_come(job, at):
                first = at
        return first

    def until(self, job: Job) -> float:
        """When it gives up what it keeps, if it has not started."""
        return job.planned.at + self._ledger.parameters.barrier_timeout_s

    def _from(self, job: Job, kept: tuple[float, dict[JobId, float]]) -> float:
        """From when on the job may claim early, its files apart: when its plan is near, and the rest of the time can
        be paid for. A plan whose time is long over, as all its sites were shut, is nothing to claim by."""
        demand, parameters = job.asks, self._ledger.parameters
        if job.plan is None or demand is None or demand.groups or demand.licenses:
            return INFINITY
        until = self.until(job)
        if until <= self._ledger.now:
            return INFINITY
        spent, own = kept
        left_s = min(self._budget_s - spent, self._job_budget_s - own.get(job.id, 0.0))
        at = max(job.plan.at - parameters.hold_ahead_s, until - left_s / demand.total)
        return at if at < until else INFINITY

    def _files_come(self, job: Job, at: float) -> bool:
        """Whether its files, brought from then on, can be there before the time of its plan."""
        return not job.demand.has_files or at + self._files_s(job) <= job.planned.at

    def _files_s(self, job: Job) -> float:
        """How long it takes to bring its files to the places of its plan, if what goes to one site comes one after
        the other; infinite where a file is nowhere any more."""
        demand, spots = job.demand, job.planned.spots
        by_site = dict.fromkeys(spots.sites, 0.0)
        for component, site in enumerate(spots.sites):
            by_site[site] += transfer_s(demand, spots, component, site, self._ledger.sites.view)
        return max(by_site.values())

    def _is_of_use(self, job: Job) -> bool:
        """Whether a component can be claimed now, all its sites are open, and no earlier plan needs them. A job that
        has failed at one of them since it was planned waits for its next plan."""
        ledger, plan = self._ledger, job.planned
        spots = plan.spots
        sites = set(spots.sites)
        if job.plan_is_barred() or any(ledger.sites.sites[site].is_shut for site in sites):
            return False
        for other in ledger.planned.values():
            if other.planned.at < plan.at and not sites.isdisjoint(other.planned.spots.sites):
                return False
        beliefs = [ledger.sites.sites[site] for site in spots.sites]
        room = [site.limit - site.ours - site.earmarked for site in beliefs]
        return any(size <= here for size, here in zip(spots.sizes, room, strict=True))
