"""Sites that are of no use any more: unusable sites, silent sites, and sites that are declared lost.

Silence means unknown: what a silent site holds is neither finished nor failed. That changes only when an operator, or
the grid file with ``lost_after_s``, declares the site lost. Then nobody waits for the site, its jobs start again
elsewhere, and what it still has is fenced: it counts for nothing. The site is used again only when it has answered
and has ended all of that.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.core.claiming import JobClaiming
from koala.core.ending import JobEnding
from koala.core.life.component import ComponentClaim, ComponentPhase
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.running import JobRunning
from koala.core.state.checkpoints import still_runs
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import Ledger
from koala.core.state.site_belief import ERROR_CHARACTERS_MAX, SiteBelief, Trust
from koala.model.grid import Grid
from koala.model.messages import SiteLost, SiteReported, SiteSilent

# If nobody looked at a silent site for this long, as while no daemon ran, its silence counts from the next look. It
# is longer than a driver ever waits between two looks.
SILENCE_GAP_S = 600.0

_BEFORE_BARRIER = (JobState.CLAIMING, JobState.STARTING)


class SiteLoss:
    """What happens to components at such sites."""

    def __init__(
        self, ledger: Ledger, grid: Grid, ending: JobEnding, running: JobRunning, claiming: JobClaiming
    ) -> None:
        self.ledger = ledger
        self.ending = ending
        self.running = running
        self.claiming = claiming
        for_all = grid.scheduler.lost_after_s
        ledger.follow_ups.on(Work.LEAVE_SITE, self._leave_site)
        self._lost_after_s = [for_all if site.lost_after_s is None else site.lost_after_s for site in grid.sites]

    # ---------------------------------------------------------------------------- what sites and people report

    def on_reported(self, event: SiteReported) -> None:
        """Note that the site answers. A lost site that was silent is first ordered to end what is fenced there."""
        index = self.ledger.index.get(event.site)
        if index is not None:
            self.ledger.sites.report(index, event.processors, event.others, event.releases, event.at)
            self.ledger.sites.report_named(index, event.named)
            if event.nodes or self.ledger.sites.sites[index].nodes:
                awaited = self.ledger.high.shaped + self.ledger.low.shaped > 0
                self.ledger.sites.report_nodes(index, event, awaited=awaited)
            self._heard(index)
            self.running.wake_waiters(index)

    def on_silent(self, event: SiteSilent) -> None:
        """Note an error of the site; a site that is silent for too long is lost."""
        ledger = self.ledger
        index = ledger.index.get(event.site)
        if index is None:
            return
        ledger.site_error(index)
        ledger.changes.sites[index] = None
        ledger.sites.sites[index].last_error = event.reason[:ERROR_CHARACTERS_MAX]
        ledger.sites.sites[index].last_error_of = ""
        if event.answers:
            self._heard(index, ledger.sites.sites[index].last_error)
            return
        site = ledger.sites.sites[index]
        since = site.silent_since
        if since is None or ledger.now > site.silent_at + SILENCE_GAP_S:
            since = ledger.now
            ledger.sites.fall_silent(index, since)
            ledger.follow_ups.add(Work.LEAVE_SITE, index)
        site.silent_at = ledger.now
        after_s = self._lost_after_s[index]
        if after_s is not None and not site.lost and ledger.now >= since + after_s:
            self._declare_lost(index, f"it has been silent for {ledger.now - since:.0f} s (lost_after_s)")

    def on_lost(self, event: SiteLost) -> None:
        """Declare the site lost at an operator's request."""
        index = self.ledger.index.get(event.site)
        if index is not None and not self.ledger.sites.sites[index].lost:
            why = f": {event.reason}" if event.reason else ""
            self._declare_lost(index, f"{event.by or 'an operator'} declared it lost{why}")

    # ------------------------------------------------------------------------------------------ lost sites

    def _declare_lost(self, index: int, reason: str) -> None:
        """Stop waiting for the site; its jobs start again elsewhere."""
        ledger = self.ledger
        site = ledger.sites.sites[index]
        ledger.sites.lose(index, reason)
        held = list(site.claims.values())
        for claim in held:
            if claim.aborting:
                ledger.current_jobs = (claim.job,)
                if still_runs(claim):
                    ledger.count_run(claim)
                self.ending.let_go(claim)
            claim.fenced = True
            claim.changed()
        why = f"{site.name} is lost: {reason}"
        for job in {claim.job.id: claim.job for claim in held if not claim.aborting}.values():
            ledger.current_jobs = (job,)
            here = [claim for claim in held if claim.job is job and not claim.aborting]
            if job.joining and all(claim.phase is not ComponentPhase.RUNNING for claim in here):
                ledger.follow_ups.add(
                    Work.JOIN_RUN, job.id, why
                )  # spawned tasks that have not begun: the rest of the run goes on
                continue
            if not self._moved(job, here):
                self.ending.back_to_queue(job, why, lower=False)
        self.running.collecting.site_lost(index, reason)
        for job_id in list(site.waiters):
            self._wait_no_more(ledger.jobs[job_id], index)
        ledger.current_jobs = ()
        ledger.sites.end_loss(index)  # the site answers, and holds nothing

    def _moved(self, job: Job, claims: Sequence[ComponentClaim]) -> bool:
        """Return True if all these components of a job before its barrier are claimed elsewhere now."""
        return job.state in _BEFORE_BARRIER and all(self._claim_elsewhere(claim) for claim in claims)

    def _claim_elsewhere(self, claim: ComponentClaim) -> bool:
        moved = self.claiming.claim_elsewhere(claim)
        if moved is None:
            return False
        moved.moved = claim.moved
        moved.changed()
        return True

    def _wait_no_more(self, job: Job, index: int) -> None:
        """Stop waiting for what was being freed there for the job; it looks for another place now."""
        ledger = self.ledger
        ledger.current_jobs = (job,)
        placed, phase = job.placed, job.awaiting_claims
        for component in [component for component, site in phase.earmarks.items() if site == index]:
            size = placed.spots.sizes[component]
            ledger.sites.unmark(component, size, job)
            ledger.sites.promise(index, size, job)
        phase.claim_resumed = True
        ledger.claiming.move(job, ledger.now)

    def _heard(self, index: int, unfit: str = "") -> None:
        """Note that the site answers. If it was silent, aborts of its fenced components have not reached it."""
        site = self.ledger.sites.sites[index]
        was_silent = site.silent_since is not None
        self.ledger.sites.hear(index, unfit)
        if not site.lost:
            return
        if self.ledger.sites.end_loss(index):
            self.running.wake_waiters(index)
        elif was_silent:
            for claim in [claim for claim in site.claims.values() if claim.fenced]:
                self.ledger.current_jobs = (claim.job,)
                claim.abort_tries = 0
                claim.changed()
                self.ending.abort(claim)

    # --------------------------------------------------------------------------- unusable and silent sites

    def _leave_site(self, index: int, _: None) -> None:
        """Claim components elsewhere before the barrier opens.

        At a silent site these are the components that it has not confirmed. At a site that has become unusable they
        are all that are not at the barrier yet and, if the site is silent, also those that are. A component stays if
        there is no room elsewhere.
        """
        site = self.ledger.sites.sites[index]
        if site.trust is Trust.UNUSABLE or site.silent_since is not None:
            for claim in [claim for claim in site.claims.values() if _should_leave(claim, site)]:
                self.ledger.current_jobs = (claim.job,)
                self._claim_elsewhere(claim)


def _should_leave(claim: ComponentClaim, site: SiteBelief) -> bool:
    if claim.aborting or claim.job.state not in _BEFORE_BARRIER:
        return False
    if site.trust is not Trust.UNUSABLE:
        return claim.phase is ComponentPhase.SENT
    return claim.phase < ComponentPhase.READY or site.silent_since is not None
