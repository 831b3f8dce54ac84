"""How a job gives up what it holds: on its way back to the placement queue, or at its end."""

from __future__ import annotations

import functools
from collections.abc import Callable

from koala.core.failures.avoidance import SiteAvoidance, after_restarts
from koala.core.life.component import ComponentClaim
from koala.core.life.ended import Cancelled, Done, Ended, Failed, ended
from koala.core.life.held import Held
from koala.core.life.job import Job
from koala.core.life.places import JobPlaces
from koala.core.life.quarantined import Quarantined
from koala.core.life.running import Running
from koala.core.life.states import GIVEN_BACK, IN_CLAIMING_QUEUE, JobState
from koala.core.life.unwinding import Unwinding
from koala.core.life.waiting import Waiting
from koala.core.state.checkpoints import grace_s, is_saving, still_runs
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import ENDED_KEPT, Ledger, first_given, tries_in_words
from koala.core.timers import Alarm
from koala.model.dependency import DEPENDENCIES_TOLD_MAX, Dependency
from koala.model.facts import AskedToSave, ElementCancelled, FailsAlone, JobEnded, JobHeld, JobRequeued, NotGivenBack
from koala.model.messages import AbortComponent, AskCheckpoint, EndedJob, JobOutcome, Token
from koala.model.request import JobId

# Intervals between repeats of an unanswered abort grow to at most this multiple of the answer timeout.
ABORT_WAIT_FACTOR_MAX = 16

_OUTCOMES = {
    JobState.DONE: JobOutcome.DONE,
    JobState.FAILED: JobOutcome.FAILED,
    JobState.CANCELLED: JobOutcome.CANCELLED,
}
_ENDS: dict[JobState, type[Ended]] = {end.state: end for end in (Done, Failed, Cancelled)}

_WAITING = JobState.WAITING
_UNWINDING = JobState.UNWINDING
_DONE = JobState.DONE


class JobEnding:
    """Sends jobs back to the queue, or ends them. Giving back is safe in every state, and leaves nothing behind."""

    def __init__(self, ledger: Ledger, avoidance: SiteAvoidance) -> None:
        self.ledger = ledger
        self.avoidance = avoidance
        ledger.timers.on(Alarm.ABORT_AGAIN, self._abort_again)

    def back_to_queue(self, job: Job, reason: str, *, lower: bool = True, saving: bool = False) -> None:
        """Take the job's places, and return the whole job to its placement queue.

        Before the barrier opens this happens at once: components that are still held are aborted, and can no longer
        start the application. After it, the job first waits until every site has let go of it, so that it never runs
        twice at the same time. ``lower`` lowers its L, so that it is claimed earlier next time. With ``saving``,
        running components first get their time of grace to save their state.
        """
        ledger = self.ledger
        run = job.phase
        self.give_back(job, saving=saving)
        if lower:
            step, least = ledger.parameters.claim_fraction_step, ledger.parameters.claim_fraction_min
            job.claim_fraction = max(least, job.claim_fraction - step)
        job.claiming_tries_in_row = 0
        ledger.facts.append(JobRequeued(job=job.id, reason=reason))
        savers = [claim for claim in job.claims if is_saving(claim)]
        if savers:
            ledger.story.append(AskedToSave(job=job.id, components=len(savers), grace_s=grace_s(savers[0])))
        if isinstance(run, Running):
            unwinding = Unwinding.aborted(run)
            job.become(unwinding)
            if unwinding.outstanding > 0:
                return
        self._requeue(job)

    def let_go(self, claim: ComponentClaim) -> None:
        """Note that a site has let go of an aborted component, or is lost. Nobody waits for a fenced component."""
        job, phase = claim.job, claim.job.phase
        if isinstance(phase, Unwinding) and claim in phase.placement.claims and not claim.fenced:
            phase.outstanding -= 1
            if phase.outstanding == 0:
                self._requeue(job)

    def claim_failed(self, job: Job, reason: str) -> None:
        """Send a job that could not claim all components back to the queue, unless its tries are used up."""
        if job.claims_early:
            self.back_to_queue(job, f"what it claimed early is given back: {reason}", lower=False)
        elif not self.claiming_tries_are_used_up(job):
            tries = job.claiming_tries_in_row
            self.back_to_queue(job, reason)
            job.claiming_tries_in_row = tries

    def claiming_tries_are_used_up(self, job: Job) -> bool:
        """End the job if its claiming tries in a row are used up; return True if so."""
        limit = first_given(job.request.claiming_tries_max, self.ledger.parameters.claiming_tries_max)
        if limit is None or job.claiming_tries_in_row < limit:
            return False
        self.end(job, JobState.FAILED, f"not all components could be claimed in {tries_in_words(limit)}")
        return True

    def failed_by_itself(self, job: Job, reason: str, said: str = "", *, exited: bool = False) -> bool:
        """Count a failure against the job itself, and end the job if it may not start again.

        Without a limit, only failures with an exit status (``exited``) may go on for ever.
        """
        parameters = self.ledger.parameters
        job.failures += 1
        job.application_failures += 1
        job.breaks_in_row = 0 if exited else job.breaks_in_row + 1
        limit = first_given(job.request.restarts_max, parameters.restarts_max)
        too_often = job.breaks_in_row > parameters.site_restarts_max
        over = too_often if limit is None else job.application_failures > limit
        return over and self._not_again(job, reason, said)

    def failed_at_site(self, job: Job, reason: str, said: str = "") -> bool:
        """Count a failure that the job did not cause, and end the job after too many in a row."""
        job.failures += 1
        job.breaks_in_row += 1
        over = job.breaks_in_row > self.ledger.parameters.site_restarts_max
        return over and self._not_again(job, reason, said)

    def _not_again(self, job: Job, reason: str, said: str) -> bool:
        self.end(job, JobState.FAILED, f"{reason}{after_restarts(job.failures - 1)}{said}")
        return True

    def fails_alone(self, job: Job, claim: ComponentClaim, reason: str) -> None:
        """Send the job elsewhere, but not for ever, because a site refuses its component.

        The site refuses other components of this user as well, and those of other users start there.
        """
        ledger, site = self.ledger, self.ledger.names[claim.site]
        ledger.story.append(FailsAlone(job=job.id, site=site))
        reason = f"{site} did not take a component: {reason}"
        if not self.failed_at_site(job, reason):
            self.avoidance.failed_at(job, site)
            self.back_to_queue(job, reason)

    def end(self, job: Job, state: JobState, reason: str = "") -> None:
        """End the job: the core forgets it, and passes on to the driver all that the driver must keep."""
        ledger = self.ledger
        if job.state is _WAITING and self._is_in_line(job):
            self.leave_placement_queue(job)
        self.give_back(job)
        if job.state is _UNWINDING:
            self._abort_rest(job, job.placed)  # nothing continues from a state that is still being saved
        if ledger.planned:
            ledger.drop_plan(job)
        job.become(ended(job.phase, _ENDS[state], ledger.now, reason))
        job.changed_all()
        if state is _DONE and ledger.plans_made and job.started_at is not None:
            ledger.note_run(job.submitter, ledger.now - job.started_at, job.request.name)
        if job.broke_at is not None:
            ledger.sites.forget(job.id)
        ledger.remove(job)
        if job.waits_for:
            self._wait_for_nobody(job)
        if ledger.dependents:
            ledger.note_turn(job, _OUTCOMES[state])
        if job.array:
            self._element_ended(job, _OUTCOMES[state])
        elif job.request.array is not None:
            self._array_ended(job)
        ledger.avoiders.pop(job.id, None)
        ledger.ended[job.id] = job
        if len(ledger.ended) > ENDED_KEPT:
            ledger.ended.popitem(last=False)
        ledger.facts.append(
            JobEnded(
                job.id,
                _OUTCOMES[state],
                reason,
                job.submitted_at,
                job.placed_at,
                job.started_at,
                ledger.now,
                job.first_start_estimate,
                job.start_estimate,
                job.places,
                *job.counts(),
            )
        )

    def _element_ended(self, job: Job, outcome: JobOutcome) -> None:
        array = self.ledger.arrays.get(job.array)
        if array is None:
            return
        array.elements.live -= 1
        array.changed()
        self.is_not_ahead(job)
        if outcome is not JobOutcome.DONE:
            self._note_not_done(array, job.id - array.id - 1, outcome)
        self.ledger.follow_ups.add(Work.UNFOLD, array.id)

    @staticmethod
    def _note_not_done(array: Job, position: int, outcome: JobOutcome) -> None:
        array.elements.note_not_done(position, str(outcome))
        array.changes.elements[array.id, position] = None
        array.changed()

    def is_not_ahead(self, job: Job) -> None:
        """Stop counting the element as ahead: it has places, or waits for none now. Another may be made ahead."""
        array = self.ledger.arrays.get(job.array)
        if job.ahead and array is not None:
            job.ahead = False
            array.elements.ahead -= 1
            array.changed()
            self.ledger.follow_ups.add(Work.UNFOLD, array.id)

    def _array_ended(self, array: Job) -> None:
        """Drop the elements that have not been made."""
        ledger, elements = self.ledger, array.elements
        ledger.forget_array(array)
        ledger.follow_ups.drop(Work.UNFOLD, array.id)
        unmade = range(array.id + 1 + elements.made, array.id + 1 + elements.spec.size)
        for number in sorted(ledger.dependents):
            if number in unmade:
                ledger.note_dependency(EndedJob(job=number, outcome=JobOutcome.CANCELLED, started=False))

    def cancel_element(self, array: Job, job_id: JobId, asked_by: str) -> None:
        """Cancel an element that has not been made, on request."""
        position, elements = job_id - array.id - 1, array.elements
        if position >= elements.made and position not in elements.not_done:
            self._note_not_done(array, position, JobOutcome.CANCELLED)
            self.ledger.story.append(ElementCancelled(job=array.id, element=job_id, by=asked_by))
            if job_id in self.ledger.dependents:
                self.ledger.note_dependency(EndedJob(job=job_id, outcome=JobOutcome.CANCELLED, started=False))

    def keep_back(self, job: Job) -> None:
        """Keep a job back that is in its placement queue or has just come to it."""
        ledger = self.ledger
        if self._is_in_line(job):
            self.leave_placement_queue(job)
        job.stop_timer()
        self.is_not_ahead(job)
        job.become(Held())
        if job.begins_at is not None:
            job.timer = ledger.timers.set(job.begins_at, Alarm.BEGINS, job.id)
        self.tell_held(job)

    def tell_held(self, job: Job) -> None:
        """Record what keeps the job back by now."""
        told = job.waits_for[:DEPENDENCIES_TOLD_MAX]
        waits_for = tuple([Dependency(job=other, condition=condition) for condition, other in told])
        more = len(job.waits_for) - len(told)
        self.ledger.facts.append(
            JobHeld(
                job=job.id,
                held=job.held,
                held_by=job.held_by,
                waits_for=waits_for,
                more=more,
                begins_at=job.begins_at,
            )
        )

    def _wait_for_nobody(self, job: Job) -> None:
        dependents = self.ledger.dependents
        for _, other in job.waits_for:
            waiting = dependents.get(other, {})
            waiting.pop(job.id, None)
            if not waiting:
                dependents.pop(other, None)
        job.waits_for = []

    def set_aside(self, job: Job, reason: str, at: float) -> None:
        """Quarantine a job on which our own code raised an error: it keeps nothing.

        A step that raises again is skipped and reported, so that this always finishes; a restart recounts what sites
        hold and are promised.
        """
        placement = job.placement
        steps: list[Callable[[], None]] = [functools.partial(self.leave_placement_queue, job)]
        if placement is not None:
            leaves = (
                self._leave_links,
                self._leave_claiming_queue,
                self._abort_rest,
                self._leave_transfers,
                self._leave_sites,
            )
            steps += [functools.partial(leave, job, placement) for leave in leaves]
        for give_back in steps:
            try:
                give_back()
            except Exception as error:
                self.ledger.story.append(NotGivenBack(job=job.id, error=repr(error)))
        job.stop_timer()
        self._forget_claims(job)
        job.asks = None
        job.avoiding = ()
        job.rest_s = 0.0
        job.become(Quarantined(reason))
        job.changed_all()

    def _is_in_line(self, job: Job) -> bool:
        if job.state is not _WAITING or job.asks is None:
            return False
        return job.position >= 0 or job.id in self.ledger.queue_of(job).resting

    def leave_placement_queue(self, job: Job, *, placed: bool = False) -> None:
        """Take a waiting job out of its queue, perhaps because it has places; nothing is kept for it any more."""
        if job.state is _WAITING:
            job.placement_tries += self.ledger.tries_in_queue(job)
            self.ledger.queue_of(job).remove(job, placed=placed)
            self.ledger.drop_plan(job)

    def _requeue(self, job: Job) -> None:
        self._forget_claims(job)
        job.become(Waiting())
        job.changed_all()
        if self.ends_without_input(job):
            return
        if job.is_kept_back:
            self.keep_back(job)
        else:
            self.avoidance.enqueue(job)

    def ends_without_input(self, job: Job) -> bool:
        """End a job that has not started if one of its input files will never be there; return True if so."""
        file = self.ledger.lost_input(job)
        if file is not None:
            reason = f"its input file {file} was forgotten, or never made, and the job that makes it is over"
            self.end(job, JobState.CANCELLED, reason)
        return file is not None

    @staticmethod
    def _forget_claims(job: Job) -> None:
        for claim in job.claims:
            claim.given_up = True
            claim.changed()

    def give_back(self, job: Job, *, saving: bool = False) -> None:
        """Let go of everything that the job holds, is promised or waits for."""
        if job.timer is not None:
            job.stop_timer()
        placement = job.placement
        if placement is None:
            return
        if job.state in GIVEN_BACK:
            return
        self._leave_links(job, placement)
        self._leave_claiming_queue(job, placement)
        self._abort_rest(job, placement, saving=saving)
        self._leave_transfers(job, placement)
        self._leave_sites(job, placement)

    def _leave_links(self, job: Job, placed: JobPlaces) -> None:
        if placed.link_demands:
            self.ledger.links.remove(job)

    def _leave_claiming_queue(self, job: Job, placed: JobPlaces) -> None:
        if job.state in IN_CLAIMING_QUEUE:
            sites = self.ledger.sites
            self.ledger.claiming.remove(job)
            for component, (site, size) in enumerate(zip(placed.spots.sites, placed.spots.sizes, strict=True)):
                if component in job.earmarks:
                    sites.unmark(component, size, job)
                elif placed.claims[component] is None:
                    sites.withdraw(site, size, job)

    def _abort_rest(self, job: Job, placed: JobPlaces, *, saving: bool = False) -> None:
        for claim in placed.claims:
            if claim is not None and still_runs(claim):
                self.abort(claim, saving=saving)

    def _leave_transfers(self, job: Job, placed: JobPlaces) -> None:
        if placed.transfers:
            self.ledger.transfers.leave(job, self.ledger.commands)

    def _leave_sites(self, job: Job, placed: JobPlaces) -> None:
        if job.state not in GIVEN_BACK:
            for site in placed.spots.sites:
                self.ledger.sites.leave(site, job)

    def abort(self, claim: ComponentClaim, *, saving: bool = False) -> None:
        """Abort a component; it counts until its site reports that it is gone.

        With ``saving``, a component that can save its state first has its time of grace, in which it still runs.
        """
        ledger, wait_s = self.ledger, grace_s(claim) if saving else 0.0
        if wait_s == 0 and still_runs(claim):
            ledger.count_run(claim)
        claim.aborting = True
        claim.changed()
        claim.stop_timer()
        ledger.count_held(claim)
        ledger.sites.expect_end_of(claim, ledger.now + wait_s)
        if wait_s > 0:
            ledger.commands.append(AskCheckpoint(site=ledger.names[claim.site], token=claim.token))
            claim.timer = ledger.timers.set(ledger.now + wait_s, Alarm.ABORT_AGAIN, claim.token)
        else:
            self._abort(claim)

    def _abort_again(self, token: Token) -> None:
        claim = self.ledger.claims[token]
        if still_runs(claim):  # its time of grace is over
            self.ledger.count_run(claim)
        self._abort(claim)

    def _abort(self, claim: ComponentClaim) -> None:
        """Send the abort to the site, and repeat it at growing intervals until the site reports that the
        component is gone."""
        ledger = self.ledger
        # A lost site that is silent gets one abort, and the next when it answers: it may be gone for weeks.
        if not claim.fenced or not claim.abort_tries or ledger.sites.sites[claim.site].silent_since is None:
            ledger.commands.append(AbortComponent(site=ledger.names[claim.site], token=claim.token))
        wait_s = ledger.parameters.answer_timeout_s * min(2**claim.abort_tries, ABORT_WAIT_FACTOR_MAX)
        claim.abort_tries += 1
        claim.changed()
        claim.timer = ledger.timers.set(ledger.now + wait_s, Alarm.ABORT_AGAIN, claim.token)
