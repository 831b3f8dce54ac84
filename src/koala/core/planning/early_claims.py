"""Early claims: shortly before its planned start a job claims its places, and keeps what it gets at the barrier.

Sites are autonomous: their own users can take what a plan counts on. A component that is claimed early runs into its
barrier if its processors are idle; if others hold them it stands in the site's own queue, ahead of later jobs.
Processors kept that way do no work, so they are limited: ``hold_budget`` is the share of the grid's processor time
that all jobs together, and each job alone, may keep within ``hold_window_s``. A job is charged in advance for all its
processors until it gives up, and pays in the end for the time that it kept them. Its files are transferred meanwhile.
"""

from __future__ import annotations

from koala.core.encoded import INFINITY
from koala.core.life.job import Job
from koala.core.plans import JobPlans
from koala.core.state.ledger import Ledger
from koala.model.request import JobId
from koala.policies.interface import transfer_s


class EarlyClaims:
    """The planned jobs that claim early, and what they have kept. Only ``settle`` and ``note`` change anything."""

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
        """Charge the jobs that keep nothing early any more, and drop charges from outside the window."""
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
        """Note that the job claims early, and keeps nothing after that time unless it has started."""
        self._ledger.kept_early.append((job.id, job.demand.total, self._ledger.now, until))

    def _kept(self) -> tuple[float, dict[JobId, float]]:
        """Return the processor time that all jobs have kept, and that of each job."""
        spent, own = 0.0, dict[JobId, float]()
        for job_id, processors, since, until in self._ledger.kept_early:
            kept_s = processors * (until - since)
            spent += kept_s
            own[job_id] = own.get(job_id, 0.0) + kept_s
        return spent, own

    # ------------------------------------------------------------------------------------------- who

    def due(self) -> Job | None:
        """Return the first planned job that must claim its places now."""
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
        """The time at which the next planned job may claim early."""
        now, kept, first = self._ledger.now, self._kept(), INFINITY
        for job in self._ledger.planned.values():
            if now < (at := self._from(job, kept)) < first and self._files_come(job, at):
                first = at
        return first

    def until(self, job: Job) -> float:
        """Return the time at which the job gives up what it keeps if it has not started."""
        return job.planned.at + self._ledger.parameters.barrier_timeout_s

    def _from(self, job: Job, kept: tuple[float, dict[JobId, float]]) -> float:
        """Return the time from which the job may claim early, apart from its files.

        Then its plan is near and the budget covers the remaining time. A plan whose time is long past, because all
        its sites were shut, is no basis for a claim.
        """
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
        """Return True if its files, transferred from that time on, can arrive before its planned start."""
        return not job.demand.has_files or at + self._files_s(job) <= job.planned.at

    def _files_s(self, job: Job) -> float:
        """Return how long it takes to transfer its files to its planned places, one file after the other
        for each site.

        Infinite if a file has no replica any more.
        """
        demand, spots = job.demand, job.planned.spots
        by_site = dict.fromkeys(spots.sites, 0.0)
        for component, site in enumerate(spots.sites):
            by_site[site] += transfer_s(demand, spots, component, site, self._ledger.sites.view)
        return max(by_site.values())

    def _is_of_use(self, job: Job) -> bool:
        """Return True if a component can be claimed now, all its sites are open, and no earlier plan needs them.

        A job that has failed at one of them since it was planned waits for its next plan.
        """
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
