"""Sites that are of no use any more: unusable ones, silent ones, and those that are declared lost.

Silence is unknown: what a silent site holds is neither finished nor failed. That changes only when somebody entitled
to it declares the site lost, an operator or the grid file with ``lost_after_s``. Then nobody waits for the site, its
jobs start again elsewhere, and what it still has is fenced: it counts for nothing, and the site is used again only
when it has answered and has ended all of that.
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

# Where nobody has looked at a silent site for so long, as while no daemon ran, its silence counts from the next look
# on. It is longer than a driver ever waits between two looks.
SILENCE_GAP_S = 600.0

_BEFORE_BARRIER = (JobState.CLAIMING, JobState.STARTING)


class SiteLoss:
    """What becomes of components at such sites."""

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

    # ------------------------------------------------------------------------------- what sites and people say

    def on_reported(self, event: SiteReported) -> None:
        """The site answers. One that was silent and is lost is told first of all to end what is fenced there."""
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
        """An error of the site; one that has been silent for too long is lost."""
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
        """Somebody entitled says so."""
        index = self.ledger.index.get(event.site)
        if index is not None and not self.ledger.sites.sites[index].lost:
            why = f": {event.reason}" if event.reason else ""
            self._declare_lost(index, f"{event.by or 'an operator'} declared it lost{why}")

    # ------------------------------------------------------------------------------------------ lost sites

    def _declare_lost(self, index: int, reason: str) -> None:
        """Nobody waits for the site any more, and whoever is there starts again elsewhere."""
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
                )  # spawned tasks that have not begun: the run of the others goes on
                continue
            if not self._moved(job, here):
                self.ending.back_to_queue(job, why, lower=False)
        self.running.collecting.site_lost(index, reason)
        for job_id in list(site.waiters):
            self._wait_no_more(ledger.jobs[job_id], index)
        ledger.current_jobs = ()
        ledger.sites.end_loss(index)  # it is there, and has nothing

    def _moved(self, job: Job, claims: Sequence[ComponentClaim]) -> bool:
        """Whether all these components of a job before its barrier are claimed elsewhere now."""
        return job.state in _BEFORE_BARRIER and all(self._claim_elsewhere(claim) for claim in claims)

    def _claim_elsewhere(self, claim: ComponentClaim) -> bool:
        moved = self.claiming.claim_elsewhere(claim)
        if moved is None:
            return False
        moved.moved = claim.moved
        moved.changed()
        return True

    def _wait_no_more(self, job: Job, index: int) -> None:
        """What was being freed there for the job will not come: it looks for another place now."""
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
        """The site answers. If it was silent, aborts of what is fenced there have not reached it."""
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
        """Before the barrier opens, claim components elsewhere. Those at a silent site that has not said that it has
        them; at one that has become unusable all that are not at the barrier yet and, if it is silent, also those
        that are. A component stays if there is no room elsewhere."""
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
