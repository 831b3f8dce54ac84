"""From the claim to the end of the run: components start, meet at the barrier, run, and end.

All reports of a site about a component arrive here; so does the passing of time without a report.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from koala.core.collecting import OutputCollecting
from koala.core.encoded import INFINITY
from koala.core.ending import JobEnding
from koala.core.failures.avoidance import last_word, said_last
from koala.core.failures.blame import Blame
from koala.core.life.claiming import Claiming
from koala.core.life.component import ComponentClaim, ComponentPhase
from koala.core.life.job import Job
from koala.core.life.places import JobPlaces
from koala.core.life.running import Running
from koala.core.life.starting import Starting
from koala.core.life.states import JobState
from koala.core.state.checkpoints import JobCheckpoints, still_runs
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import Ledger
from koala.core.state.network.link_use import sent_between_sites_bit_s
from koala.core.state.site_belief import ERROR_CHARACTERS_MAX
from koala.core.timers import Alarm
from koala.model.checkpoint import CheckpointSource
from koala.model.errors import Fault
from koala.model.facts import Blamed, SiteTrusted, TrafficKnown
from koala.model.launch import BARRIER_TIMEOUT_S_MAX
from koala.model.messages import (
    NEVER_HELD,
    AskSite,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    InputSource,
    Outcome,
    ReleaseBarrier,
    StartComponent,
    Token,
    TrafficMeasured,
)
from koala.model.request import InputMode, JobId, Licenses
from koala.policies.demand import reads_of
from koala.policies.interface import can_ever_fit, tasks_of
from koala.policies.transfer_estimates import chunk_bytes

# The sequence JCT(n) converges to the job start time; closer than this counts as reached.
START_REACHED_S = 1.0
ROUNDING_S = 1e-6
# The reason why the traffic of a component was not measured is cut to this many characters.
UNMEASURED_CHARACTERS_MAX = 200

_NEVER_STARTED = frozenset({Outcome.REFUSED, Outcome.ABSENT})
_ERRORS_OF_SITES = frozenset({Outcome.REFUSED, Outcome.ABSENT, Outcome.SITE_FAILED})

# Failures with this fault count against the site: its own, and those of unknown origin.
_OF_SITES = (Fault.SITE, None)

_STARTING = JobState.STARTING
_RUNNING = JobState.RUNNING
_CLAIM_READY = ComponentPhase.READY
_CLAIM_RUNNING = ComponentPhase.RUNNING
_DONE = Outcome.DONE
_JOB_DONE = JobState.DONE
_LOOK_AFTER = Alarm.LOOK_AFTER


class JobRunning:
    """Drives claimed components, and the jobs that they make up."""

    def __init__(
        self,
        ledger: Ledger,
        ending: JobEnding,
        blame: Blame,
        checkpoints: JobCheckpoints,
        collecting: OutputCollecting,
    ) -> None:
        self.ledger = ledger
        self.checkpoints = checkpoints
        self.ending = ending
        self.collecting = collecting
        self.blame = blame
        self.exclusions = ending.avoidance.exclusions
        self._barrier_timeout_s = _whole_seconds(self._patience_s())
        ledger.timers.on(Alarm.LOOK_AFTER, self._look_after)

    # -------------------------------------------------------------------------------- to the barrier

    def start_component(self, job: Job, component: int) -> ComponentClaim:
        """Claim the component's processors: have it started at its site, where it waits at the barrier."""
        ledger = self.ledger
        placed = job.placed
        spots = placed.spots
        site, size = spots.sites[component], spots.sizes[component]
        claim = ComponentClaim(job.next_token(), job.id, component, site, size)
        claim.bind(job)
        runs = job.state is _RUNNING  # then it holds spawned tasks
        claim.held_at = now = ledger.now
        claim.placed_at = now if job.placed_at is None or runs else job.placed_at
        placed.claims[component] = claim
        claim.placement = placed.number
        licenses: Licenses = ()
        if job.request.licenses and not job.has_licenses_at(site):
            licenses = ledger.sites.view.licenses.asked_of(site, job.request.licenses)
            claim.licensed = bool(licenses)
        ledger.claim(claim)
        excluded: tuple[str, ...] = ()
        if job.failed_nodes or ledger.sites.node_accused:
            excluded = self.exclusions.of_claim(job, claim)
        if excluded:
            claim.kept_off = True
        ledger.commands.append(
            StartComponent(
                job=job.id,
                token=claim.token,
                site=ledger.names[site],
                processors=size,
                component=0 if job.request.flexible is not None else component,
                part=component,
                parts=len(placed.claims),
                tasks=tasks_of(job.demand, spots, component),
                begin_at=_finite(placed.start_at),
                barrier_timeout_s=self._barrier_patience_s(placed),
                run=job.runs if runs else job.runs + 1,
                exclude_nodes=excluded,
                walltime_s=self.walltime_left_s(job) if runs else job.changed_walltime_s,
                array=job.array or None,
                index=job.index,
                licenses=licenses,
            )
        )
        return claim

    def _barrier_patience_s(self, placed: JobPlaces) -> float:
        """Return how long a component claimed now waits at the barrier, so that it never gives up before the core.

        The core waits for the other claims until the job start time, or a barrier timeout longer if processors are
        being preempted; then another barrier timeout for all to report; and for files as long as it is
        patient with them.
        """
        if not placed.transfers and placed.start_at <= self.ledger.now:
            return self._barrier_timeout_s
        parameters = self.ledger.parameters
        patience_s = self._patience_s() + max(0.0, placed.start_at - self.ledger.now)
        for transfer in placed.transfers.values():
            one_try_s = max(parameters.answer_timeout_s, parameters.transfer_patience * transfer.estimate_s)
            patience_s += parameters.transfer_tries_max * one_try_s
        return _whole_seconds(patience_s)

    def _patience_s(self) -> float:
        return 2 * self.ledger.parameters.barrier_timeout_s + self.ledger.parameters.answer_timeout_s

    def walltime_left_s(self, job: Job) -> float | None:
        """Return a running job's remaining walltime, at least a second; None if it has no walltime."""
        if job.walltime_s is None or job.started_at is None:
            return None
        # The deduction ensures that rounding lets it end neither after the others nor after what plans count on.
        return max(1.0, job.walltime_s - (self.ledger.now - job.started_at) - ROUNDING_S)

    def all_claimed(self, job: Job) -> None:
        """Start the wait for the barrier: every component is claimed."""
        ledger, placed = self.ledger, job.placed
        deadline = max(placed.start_at, ledger.now) + ledger.parameters.barrier_timeout_s
        job.become(Starting.all_claimed(job.awaiting_claims, deadline))
        if job.request.communication is not None:
            ledger.links.observe(job)
        if ledger.plans_made:
            self._expect_end(job, placed, max(placed.start_at, ledger.now))
        if job.timer is not None:
            job.stop_timer()
        self.look_after_later(job)
        if placed.ready:
            self.open_barrier_if_complete(job, placed)

    def _expect_end(self, job: Job, placed: JobPlaces, begins_at: float) -> None:
        """Expect the job to begin at this time; usually that was known when it was placed."""
        known = begins_at == placed.start_at and placed.hold_until > begins_at and job.changed_walltime_s is None
        due_at = placed.hold_until if known else begins_at + self.ledger.planned_s(job)
        self.ledger.sites.expect_end(job, placed, due_at)

    def on_traffic(self, event: TrafficMeasured) -> None:
        """Record a component's traffic to other sites, or why it is unknown. Late or repeated reports do nothing."""
        claim = self.ledger.claims.get(event.token)
        if claim is None or claim.given_up or claim.aborting or claim.fenced:
            return
        job = claim.job
        run = job.phase
        if not isinstance(run, Running) or len(set(run.placement.spots.sites)) == 1:
            return
        job.changes.runs[job.id] = None
        if event.reason:
            if claim.component not in run.sent:
                run.unmeasured = run.unmeasured or {}
                run.unmeasured[claim.component] = event.reason[:UNMEASURED_CHARACTERS_MAX]
            return
        if claim.component in run.sent and event.elapsed_s <= run.sent[claim.component][1]:
            return
        run.sent = run.sent or {}
        run.sent[claim.component] = max(event.sent_bit_s, event.received_bit_s), event.elapsed_s
        run.unmeasured.pop(claim.component, None)
        if self.ledger.links.measure(job, self.ledger.now):
            sent_bit_s = sent_between_sites_bit_s(job, job.placed.measured_bit_s or 0.0)
            self.ledger.story.append(TrafficKnown(job=job.id, bit_s=sent_bit_s))

    def on_accepted(self, event: ComponentAccepted) -> None:
        claim = self.ledger.claims.get(event.token)
        if claim is not None and claim.phase is ComponentPhase.SENT:
            claim.phase = ComponentPhase.ACCEPTED
            claim.changed()
            claim.held_at = INFINITY  # no processors are kept for it there yet
            if not claim.aborting:
                self.be_patient(claim)

    def be_patient(self, claim: ComponentClaim) -> None:
        """Come back to a component if it waits long in its site's own queue. Before the job start time it may wait
        freely; a component that was moved for it once stays, and so does a component with spawned tasks."""
        job, patience_s = claim.job, self.ledger.parameters.queue_patience_s
        if patience_s is None or claim.moved or job.state is _RUNNING:
            return
        since = max(self.ledger.now, job.placed.start_at)
        claim.changed()
        claim.timer = self.ledger.timers.set(since + patience_s, Alarm.QUEUED_LONG, claim.token)

    def on_starting(self, event: ComponentStarting) -> None:
        """Note that the component waits no more: it has its processors, however long it needs to the barrier."""
        claim = self.ledger.claims.get(event.token)
        if claim is not None and not claim.aborting:
            claim.changed()
            claim.stop_timer()
            self._holds(claim)

    def _holds(self, claim: ComponentClaim) -> None:
        """Note that the component has its processors, and waits for the others."""
        if claim.phase < _CLAIM_RUNNING and claim.held_at == INFINITY:
            claim.held_at = self.ledger.now

    def on_ready(self, event: ComponentReady) -> None:
        claim = self.ledger.claims.get(event.token)
        if claim is None or claim.aborting:
            return
        job = claim.job
        if claim.phase < _CLAIM_READY:
            self._holds(claim)
            self.ledger.sites.sites[claim.site].note_start(job.submitter)
            claim.phase = _CLAIM_READY
            claim.changed()
            self.ledger.changes.sites[claim.site] = None
            if claim.timer is not None:
                claim.stop_timer()
            placed = job.placed
            placed.ready += 1
            if job.state is _STARTING:
                self.open_barrier_if_complete(job, placed)
            elif job.joining:
                self.ledger.follow_ups.add(Work.JOIN_RUN, job.id)
        elif claim.phase is _CLAIM_RUNNING:
            # It still waits at the barrier: it has not learned that the others are there.
            self._release(job, [claim])

    def on_running(self, event: ComponentRunning) -> None:
        """Do nothing: once the barrier is open a component is believed to run."""

    def open_barrier_if_complete(self, job: Job, placed: JobPlaces) -> None:
        """Start all components at the same moment, once all have reported and all files are there."""
        if placed.ready < len(placed.claims) or placed.transfers_open > 0:
            return
        ledger = self.ledger
        job.stop_timer()
        claims = job.claims
        for claim in claims:
            claim.phase = _CLAIM_RUNNING
            claim.changed()
            ledger.count_held(claim)
        job.become(Running.opened(job.starting, ledger.now))
        job.rests = 0
        job.runs += 1
        job.claiming_tries_in_row = 0
        if ledger.plans_made:
            self._expect_end(job, placed, ledger.now)
        if ledger.dependents:
            ledger.note_turn(job, None)
        if job.array and job.runs == 1:
            self._element_started(job)
        if job.request.checkpoint is not None:
            self.checkpoints.note_run(job)
        self._release(job, claims)
        if ledger.parameters.check_interval_s is not None:
            self.look_after_later(job)

    def open_for_spawned(self, job: Job) -> None:
        """Let the components of spawned tasks begin together in the current run, once all have reported."""
        claims = [claim for claim in job.placed.claims[-job.joining :] if claim is not None]
        for claim in claims:
            claim.phase = _CLAIM_RUNNING
            claim.changed()
            self.ledger.count_held(claim)
        self.joining_is_over(job)
        self._release(job, claims)

    def joining_is_over(self, job: Job) -> None:
        """Note that no component of a running job is on its way any more."""
        job.running.joining = 0
        job.stop_timer()
        if self.ledger.parameters.check_interval_s is not None:
            self.look_after_later(job)

    def _element_started(self, job: Job) -> None:
        """Note the start of an element; the array has started when all its elements have."""
        array = self.ledger.arrays.get(job.array)
        if array is not None:
            elements = array.elements
            elements.started += 1
            array.changed()
            if elements.started == elements.spec.size:
                array.runs = 1
                self.ledger.note_turn(array, None)

    def _release(self, job: Job, claims: Sequence[ComponentClaim]) -> None:
        """Let these components start the application, with the input files of each."""
        inputs = tuple(self._inputs(job, claim.component) for claim in claims) if job.demand.files else ()
        checkpoints: tuple[tuple[CheckpointSource, ...], ...] = ()
        if job.request.checkpoint is not None:
            checkpoints = tuple([self.checkpoints.sources(job, claim.component) for claim in claims])
        tokens = tuple([claim.token for claim in claims])
        self.ledger.commands.append(ReleaseBarrier(job=job.id, tokens=tokens, inputs=inputs, checkpoints=checkpoints))

    def _inputs(self, job: Job, component: int) -> tuple[InputSource, ...]:
        """Return the input files of a component: the copy of a transfer, the site's own replica, or a chunk of it."""
        view = self.ledger.sites.view
        placed = job.placed
        transfers = {key[0]: placed.transfers[key].id for key in placed.needs[component]}
        reads = {read.file: read for read in reads_of(job.demand, placed.spots.sizes, component)}
        description = job.request.components[0 if job.request.flexible is not None else component]
        return tuple(
            InputSource(
                file=file.name,
                transfer=transfers.get(file.name),
                chunk=chunk_bytes(reads[file.name], view)
                if file.mode is InputMode.CHUNK and file.name in view.files
                else None,
            )
            for file in description.input_files
        )

    # ------------------------------------------------------------------------------- when it is quiet

    def look_after_later(self, job: Job) -> None:
        """Come back to the job when it has been quiet for a while."""
        ledger = self.ledger
        if job.state is _RUNNING and not job.joining:
            assert ledger.parameters.check_interval_s is not None
            at = ledger.now + ledger.parameters.check_interval_s
        else:
            at = ledger.now + ledger.parameters.answer_timeout_s
            if job.state is _STARTING or job.joining:
                at = min(at, job.deadline)
        job.timer = ledger.timers.set(at, _LOOK_AFTER, job.id)

    def _look_after(self, job_id: JobId) -> None:
        """Query the job's sites, or give the claim up when its deadline has passed."""
        ledger = self.ledger
        job = ledger.jobs[job_id]
        job.timer = None
        if job.state is _RUNNING:
            self._ask(job.claims)
            if job.joining and ledger.now >= job.deadline:
                ledger.follow_ups.add(Work.JOIN_RUN, job_id, "they did not reach the barrier in time")
            else:
                self.look_after_later(job)
            return
        quiet = [claim for claim in job.claims if claim.phase < _CLAIM_READY]
        if not quiet and not job.claims_early:
            return  # it waits for files, which are looked after separately
        if job.state is _STARTING and ledger.now >= job.deadline:
            if not quiet:
                self.ending.claim_failed(job, "its files were not there in time")
                return
            patience_s = min(ledger.parameters.answer_timeout_s, ledger.parameters.barrier_timeout_s)
            for claim in quiet:
                had_time = ledger.now - claim.held_at >= patience_s
                if claim.phase is ComponentPhase.SENT and not claim.moved and had_time:
                    ledger.site_error(claim.site, job)  # it has not even confirmed the component
                self.exclusions.allow_all(job, claim)
            names = ", ".join(sorted({ledger.names[claim.site] for claim in quiet}))
            late = f"{len(quiet)} of {len(job.placed.claims)} components"
            self.ending.claim_failed(job, f"{late} did not reach the barrier in time ({names})")
            return
        self._ask(quiet)
        for claim in quiet:
            if ledger.sites.sites[claim.site].is_shut:
                ledger.follow_ups.add(Work.LEAVE_SITE, claim.site)
        self.look_after_later(job)

    def _ask(self, claims: Iterable[ComponentClaim]) -> None:
        by_site: dict[int, list[Token]] = {}
        for claim in claims:
            by_site.setdefault(claim.site, []).append(claim.token)
        names = self.ledger.names
        for site, each in by_site.items():
            self.ledger.commands.append(AskSite(site=names[site], tokens=tuple(each)))

    # ------------------------------------------------------------------------------- when it has ended

    def on_ended(self, event: ComponentEnded) -> None:
        ledger = self.ledger
        claim = ledger.let_go(event.token)
        if claim is None:
            return
        job, sites, outcome = claim.job, ledger.sites, event.outcome
        site = sites.sites[claim.site]
        if still_runs(claim):
            ledger.count_run(claim)
        if claim.timer is not None:
            claim.stop_timer()
        if claim.held_at != INFINITY and outcome not in NEVER_HELD:
            ledger.count_held(claim)
        sites.free(claim)
        if outcome in _ERRORS_OF_SITES and event.fault in _OF_SITES:
            error = event.reason or str(outcome)
            site.last_error = error[:ERROR_CHARACTERS_MAX]
            site.last_error_of = job.submitter
            ledger.changes.sites[claim.site] = None
        done = outcome is _DONE
        if done and claim.phase is _CLAIM_RUNNING and sites.success(claim.site, job.id):
            ledger.story.append(SiteTrusted(job=job.id, site=site.name))
        if claim.aborting:
            self.ending.let_go(claim)
        elif done and job.state is _RUNNING and claim.phase is _CLAIM_RUNNING:
            self._one_done(job, claim, event.nodes)
        else:
            self._broken(job, claim, event)
        if site.waiters:
            self.wake_waiters(claim.site)

    def wake_waiters(self, index: int) -> None:
        """Let jobs that wait for preempted processors there continue their claim, as something came free."""
        ledger = self.ledger
        for job_id in ledger.sites.sites[index].waiters:
            job = ledger.jobs[job_id]
            ledger.current_jobs = (job,)
            if ledger.sites.earmark_is_free(index, job):
                job.awaiting_claims.claim_resumed = True
                ledger.claiming.move(job, ledger.now)

    def _one_done(self, job: Job, claim: ComponentClaim, nodes: tuple[str, ...]) -> None:
        run = job.running
        run.placement.claims[claim.component] = None
        run.outstanding -= 1
        if job.request.outputs_of(claim.component):
            run.workspaces = run.workspaces or {}
            run.workspaces[claim.component] = claim.token
            job.changes.runs[job.id] = None
        if self.ledger.sites.node_accused:
            self.blame.component_done(job, claim, nodes)
        if run.outstanding == 0:
            self.all_done(job, run, nodes)

    def all_done(self, job: Job, run: Running, nodes: tuple[str, ...] = ()) -> None:
        """Collect the outputs or end the job: every component has returned success."""
        sites = self.ledger.sites
        if sites.accused or sites.node_accused:
            self.blame.job_done(job, nodes)
        if run.workspaces:
            self.collecting.begin(job)
        else:
            self.ending.end(job, _JOB_DONE)

    def _broken(self, job: Job, claim: ComponentClaim, event: ComponentEnded) -> None:
        """Deal with the end of a component that should have continued: the job as a whole cannot continue."""
        ledger = self.ledger
        site = ledger.names[claim.site]
        job.placed.claims[claim.component] = None
        if claim.phase is _CLAIM_READY:
            job.placed.ready -= 1
        if job.state is _RUNNING and claim.phase is not _CLAIM_RUNNING:
            # Spawned tasks that have not begun: the rest of the run continues.
            if event.outcome in _ERRORS_OF_SITES and event.fault in _OF_SITES:
                ledger.site_error(claim.site, job)
            elif event.outcome is Outcome.UNSUITABLE:
                self._bar_spawned(job, claim, event.reason or "it does not say why")
            why = f"{site} did not start them: {event.reason or event.outcome}"
            ledger.follow_ups.add(Work.JOIN_RUN, job.id, why)
        elif event.outcome is Outcome.TIMED_OUT:
            self._given_back(job, claim)
            self.ending.end(job, JobState.FAILED, f"it ran longer than its walltime on {site}{said_last(event)}")
        elif event.outcome is Outcome.UNSUITABLE and job.state is not _RUNNING:
            self._given_back(job, claim)
            self._bar(job, claim, event.reason or "it does not say why")
        elif event.fault is not None and event.fault.is_own:
            self._given_back(job, claim)
            self._job_failed(job, claim, event)
        elif event.outcome is Outcome.FAILED:
            self._given_back(job, claim)
            self._application_failed(job, claim, event)
        elif event.outcome in _NEVER_STARTED and job.state is not _RUNNING:
            reason = event.reason or "it does not have it"
            if event.fault in _OF_SITES and ledger.site_error(claim.site, job):
                self._given_back(job, claim)
                self.ending.fails_alone(job, claim, reason)
            else:
                self._not_taken(job, claim, reason)
        else:
            self._site_failed(job, claim, event)

    def _site_failed(self, job: Job, claim: ComponentClaim, event: ComponentEnded) -> None:
        """Count a failure of the site, unless the fault is known to be ours, or the job is known to break its
        components and the site does not accept the fault."""
        ledger, said, unknown = self.ledger, said_last(event), event.fault is None
        reason = event.reason or str(event.outcome)
        ran = claim.phase is _CLAIM_RUNNING
        blamed_before = bool(job.to_blame)
        blamed = ran and unknown and (blamed_before or self._blame(job, claim))
        alone = False
        if not blamed and event.fault in _OF_SITES:
            alone = ledger.site_error(claim.site, job, ran=ran and unknown)
        if ran and unknown:
            self.blame.component_broke(job, claim)
        self._given_back(job, claim)
        reason = f"component {claim.component} failed on {ledger.names[claim.site]}: {reason}"
        if blamed:
            if not blamed_before:
                ledger.story.append(Blamed(job=job.id, reason=job.to_blame))
            reason = f"{reason}; the job itself is to blame, as {job.to_blame}"
            over = self.ending.failed_by_itself(job, reason, said)
        else:
            over = self.ending.failed_at_site(job, reason, said)
        if not over:
            if alone or (ran and event.fault is not Fault.SITE):
                self.ending.avoidance.failed_at(job, ledger.names[claim.site])
            self.ending.back_to_queue(job, reason)

    def _blame(self, job: Job, claim: ComponentClaim) -> bool:
        """Return True if this end shows that the job breaks its components itself: it broke one at another site
        before, or at this one, where another job has succeeded since. Sites are relieved of the errors it caused.
        """
        sites, site = self.ledger.sites, self.ledger.names[claim.site]
        if job.broke_at is None:
            job.broke_at = site
            return False
        if job.broke_at != site:
            job.to_blame = f"it broke a component on {job.broke_at} and on {site}"
        elif job.id not in sites.sites[claim.site].broken_by:
            job.to_blame = f"it broke a component on {site} again, where others do well"
        else:
            return False
        for index in sites.pardon(job):
            self.ledger.story.append(SiteTrusted(job=job.id, site=self.ledger.names[index]))
        return True

    def _bar(self, job: Job, claim: ComponentClaim, reason: str) -> None:
        """Bar the site that will never run this component. That is no error of the site: the job goes elsewhere,
        never there again, and ends if nothing else is left."""
        ledger = self.ledger
        site = ledger.names[claim.site]
        if self.exclusions.allow_all(job, claim):
            why = f"{site} does not run component {claim.component} without nodes where it failed: {reason}"
            self.ending.back_to_queue(job, why, lower=False)
            return
        job.barred = {**job.barred, site: reason}
        job.asks = job.demand.barring((claim.site,))
        if not can_ever_fit(job.demand, ledger.sites.most(), ledger.sites.view):
            reasons = "; ".join(f"{name} will never run it: {why}" for name, why in job.barred.items())
            self.ending.end(job, JobState.FAILED, f"no place is left for it: {reasons}")
            return
        self.ending.back_to_queue(job, f"{site} will never run component {claim.component}: {reason}", lower=False)

    def _bar_spawned(self, job: Job, claim: ComponentClaim, reason: str) -> None:
        """Do the same for spawned tasks: the running job avoids the site as long as it has other places."""
        ledger, sites, other = self.ledger, self.ledger.sites, job.demand.barring((claim.site,))
        if not self.exclusions.allow_all(job, claim) and can_ever_fit(other, sites.most(), sites.view):
            job.barred = {**job.barred, ledger.names[claim.site]: reason}
            job.asks = other

    def _given_back(self, job: Job, claim: ComponentClaim) -> None:
        """Count a component without a claim as promised again while the job is in the claiming queue."""
        if job.state is JobState.CLAIMING:
            self.ledger.sites.promise(claim.site, claim.processors, job)

    def _application_failed(self, job: Job, claim: ComponentClaim, event: ComponentEnded) -> None:
        """Restart the whole job after its program failed, but not for ever, nor against its user's wish."""
        ledger = self.ledger
        code = "" if event.exit_code is None else f" with exit code {event.exit_code}"
        reason, said = f"component {claim.component} failed on {ledger.names[claim.site]}{code}", said_last(event)
        word = last_word(job.request, event.exit_code)
        if word is None and event.exit_code is not None and claim.phase is _CLAIM_RUNNING:
            self.blame.application_failed(job, claim, event.exit_code, event.nodes)
        if word is not None:
            job.failures += 1
            job.application_failures += 1
            self.ending.end(job, JobState.FAILED, f"{reason}, {word}{said}")
        elif not self.ending.failed_by_itself(job, reason, said, exited=True):
            self.ending.avoidance.failed_at(job, ledger.names[claim.site])
            self.ending.back_to_queue(job, reason)

    def _job_failed(self, job: Job, claim: ComponentClaim, event: ComponentEnded) -> None:
        """End the job: the component cannot run, by the job's fault or because somebody removed what it needs."""
        site, said = self.ledger.names[claim.site], said_last(event)
        reason = event.reason or str(event.outcome)
        if not self.ending.failed_by_itself(job, f"component {claim.component} failed on {site}: {reason}", said):
            self.ending.avoidance.failed_at(job, site)
            self.ending.back_to_queue(job, f"component {claim.component} failed on {site}: {reason}")

    def _not_taken(self, job: Job, claim: ComponentClaim, reason: str) -> None:
        """Claim a component that a site did not take again while there is time; otherwise give the claim up."""
        ledger = self.ledger
        if ledger.now >= job.placed.start_at:
            self._given_back(job, claim)
            self.ending.claim_failed(job, f"{ledger.names[claim.site]} did not take a component: {reason}")
            return
        ledger.sites.promise(claim.site, claim.processors, job)
        if isinstance(job.phase, Starting):
            job.become(Claiming.once_more(job.phase))
        else:
            ledger.claiming.remove(job)
        self.claim_later(job)

    def claim_later(self, job: Job) -> None:
        """Set the next claiming time of a job with unclaimed components, or give up at the job start time."""
        ledger, placed = self.ledger, job.placed
        start, now = placed.start_at, ledger.now
        if now < start:
            following = now + job.claim_fraction * (start - now)
            ledger.claiming.push(job, start if start - following < START_REACHED_S else following)
            return
        unclaimed = [component for component, claim in enumerate(placed.claims) if claim is None]
        last = start + ledger.parameters.barrier_timeout_s
        if job.early_until is not None:
            last = min(last, job.early_until)
        if now < last and all(component in job.earmarks for component in unclaimed):
            ledger.claiming.push(job, last)  # earlier, as soon as the preempted processors are free
            return
        short = f"{len(unclaimed)} of {len(placed.claims)} components"
        self.ending.claim_failed(job, f"{short} unclaimed at the job start time")


def _whole_seconds(patience_s: float) -> float:
    return float(math.ceil(min(patience_s, BARRIER_TIMEOUT_S_MAX)))


def _finite(at: float | None) -> float | None:
    return at if at is not None and math.isfinite(at) else None
