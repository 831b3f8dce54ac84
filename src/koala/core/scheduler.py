"""The scheduler: events in, commands out. It has no clock, no I/O and no threads; a driver brings it all three.

``Scheduler.handle`` is the only way in. What it decides follows the life of a job in ``lifecycle``: find places
(``queues``), bring files (``transfers``), claim on every site or none (``claiming``), open the barrier, and start
the whole job again when a part of it fails.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from koala.core.claiming import plan_claim
from koala.core.job import Claim, Job, Phase
from koala.core.lifecycle import ENDED, IN_CLAIMING_QUEUE, State
from koala.core.queues import ClaimingQueue, PlacementQueue
from koala.core.scans import ScanClock
from koala.core.sites import SiteBook, Trust
from koala.core.story import Explanation, explain
from koala.core.timers import Timers
from koala.core.transfers import Transfer, TransferBook
from koala.grid import Grid
from koala.messages import (
    AbortComponent,
    AnyCommand,
    AnyEvent,
    AskSite,
    CancelAsked,
    CancelTransfer,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    FileChanged,
    JobEnded,
    JobOutcome,
    JobPlaced,
    JobRequeued,
    JobSubmitted,
    Outcome,
    ReleaseBarrier,
    SiteDrained,
    SiteReported,
    SiteResumed,
    SiteSilent,
    StartComponent,
    Tick,
    TransferEnded,
    WakeAt,
)
from koala.model import JobId, Request
from koala.policies import Catalogue, PolicyError, UnknownPolicyError, UnknownSiteError
from koala.policies.placing import Demand, FileAt, Spots, compile_demand, demand_key, inputs, try_place

INFINITY = float("inf")
# The sequence JCT(n) comes ever closer to the job start time; closer than this counts as reached.
START_REACHED_S = 1.0
# An unanswered abort is repeated ever more rarely, at most this many times the answer timeout apart.
ABORT_WAIT_FACTOR_MAX = 16
# The stories of this many jobs are kept after their end, for those who ask late.
ENDED_KEPT = 1_000

_OUTCOMES = {State.DONE: JobOutcome.DONE, State.FAILED: JobOutcome.FAILED, State.CANCELLED: JobOutcome.CANCELLED}


class Scheduler:
    """The co-allocating scheduler of one grid."""

    def __init__(self, grid: Grid, catalogue: Catalogue | None = None) -> None:
        self.parameters = grid.scheduler
        self.catalogue = catalogue if catalogue is not None else Catalogue.builtin()
        self.catalogue.find(self.parameters.policy)  # an unknown default is an error now, not at the first job
        self.now = 0.0
        self._last_job: JobId = -1
        self.jobs: dict[JobId, Job] = {}
        self.ended: OrderedDict[JobId, Job] = OrderedDict()
        self.high = PlacementQueue(high=True)
        self.low = PlacementQueue(high=False)
        self.claiming = ClaimingQueue()
        self.sites = SiteBook(grid)
        self.transfers = TransferBook(self.sites.view)
        self.claims: dict[str, Claim] = {}
        self._index = self.sites.view.index
        self._names = self.sites.view.names
        self._demands: dict[Any, Demand] = {}
        self._timers = Timers()
        self._clock = ScanClock(self.parameters.scan_interval_s, self.parameters.high_scans_per_low_scan)
        self._every_event = self.parameters.scan_interval_s == 0
        self._wake_at = INFINITY
        self._commands: list[AnyCommand] = []
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            JobSubmitted: self._on_job_submitted,
            CancelAsked: self._on_cancel_asked,
            ComponentAccepted: self._on_component_accepted,
            ComponentReady: self._on_component_ready,
            ComponentRunning: self._on_component_running,
            ComponentEnded: self._on_component_ended,
            TransferEnded: self._on_transfer_ended,
            FileChanged: self._on_file_changed,
            SiteReported: self._on_site_reported,
            SiteSilent: self._on_site_silent,
            SiteDrained: self._on_site_drained,
            SiteResumed: self._on_site_resumed,
            Tick: self._on_tick,
        }

    def handle(self, event: AnyEvent) -> list[AnyCommand]:
        """Take note of the event, and of the time that has passed; say what must be done now.

        Events come in order of time. One that speaks of a job, token or transfer that is no longer known
        changes nothing: answers may come late and more than once.
        """
        now = event.at
        if now > self.now:
            self.now = now
        commands = self._commands = []
        kind = type(event)
        if self._next_due() <= self.now:
            self._run_due(instant_is_over=kind is Tick)
        self._handlers[kind](event)
        self._plan_scan(self.high)
        self._plan_scan(self.low)
        due = self._next_due()
        if self._wake_at <= now and (kind is Tick or self._wake_at < now):
            self._wake_at = INFINITY
        if due < self._wake_at:
            self._wake_at = due
            commands.append(WakeAt(at=due))
        return commands

    # ------------------------------------------------------------------------------ what one may ask

    def explain(self, job_id: JobId) -> Explanation | None:
        """Where the job stands and why, with its story; None for one that is unknown or long gone."""
        job = self.jobs.get(job_id) or self.ended.get(job_id)
        if job is None:
            return None
        tries = job.placement_tries
        if job.state is State.WAITING:
            tries += self._tries_due(self.queue(job.high)) - job.entered_scan
        return explain(job, self.queue(job.high), self.sites.view, tries)

    def queue(self, high: bool) -> PlacementQueue:
        """The placement queue of one priority."""
        return self.high if high else self.low

    # ------------------------------------------------------------------------------------- time

    def _next_due(self) -> float:
        return min(self._timers.next_at(), self.claiming.next_at(), self.high.scan_due_at, self.low.scan_due_at)

    def _run_due(self, *, instant_is_over: bool) -> None:
        """Everything that time has brought: claiming tries, then timers, then scans.

        With an interval of 0 a scan waits for the end of its instant, which a tick announces, so that it
        sees everything that happened in it.
        """
        now = self.now
        while self.claiming.next_at() <= now:
            self._claim(self.claiming.head())
        while (timer := self._timers.pop_due(now)) is not None:
            timer.action(timer.argument)
        for queue in (self.high, self.low):
            if queue.scan_due_at < now or (queue.scan_due_at == now and (instant_is_over or not self._every_event)):
                self._scan(queue)

    def _on_tick(self, event: Tick) -> None:
        """Nothing more: what is due was run before any event is looked at."""

    # ------------------------------------------------------------------------- placement and scans

    def _plan_scan(self, queue: PlacementQueue) -> None:
        """A scan is due only when something could have changed for a job in the queue."""
        helped = self.sites.helped
        if not queue.size:
            queue.scanned_helped = helped
            queue.scan_due_at = INFINITY
        elif self._every_event:
            if queue.untried or queue.scanned_helped != helped:
                queue.scan_due_at = self.now
        elif not (queue.untried or queue.scanned_helped != helped or queue.has_limits):
            queue.scan_due_at = INFINITY
        elif queue.scan_due_at == INFINITY:
            queue.scan_due_at = self._clock.next_at(queue.high, self.now)

    def _scan(self, queue: PlacementQueue) -> None:
        queue.scan_due_at = INFINITY
        queue.scanned_helped = self.sites.helped
        queue.scan(self.sites.view, self.now, self._place_from_queue, self._policy_broke)
        for job in queue.pop_exhausted(self._tries_due(queue)):
            self._settle_tries(job, queue)
            self._end(job, State.FAILED, f"no place was found in {job.placement_tries} tries")

    def _tries_due(self, queue: PlacementQueue) -> int:
        """How many scans of the queue there have been so far, needless ones that were left out included."""
        return queue.scans if self._every_event else self._clock.count(queue.high, self.now)

    def _settle_tries(self, job: Job, queue: PlacementQueue) -> None:
        job.placement_tries += self._tries_due(queue) - job.entered_scan

    def _enqueue(self, job: Job, *, untried: bool) -> None:
        queue = self.queue(job.high)
        job.waiting_since = self.now
        job.entered_scan = self._tries_due(queue)
        limit = _first(job.request.placement_tries_max, self.parameters.placement_tries_max)
        exhausted = None if limit is None else job.entered_scan + max(0, limit - job.placement_tries)
        queue.push(job, exhausted_at_scan=exhausted, untried=untried)

    def _on_job_submitted(self, event: JobSubmitted) -> None:
        if event.job <= self._last_job:
            return
        self._last_job = event.job
        job = Job(event.job, event.request, event.at, self.parameters.claim_fraction)
        self.jobs[job.id] = job
        try:
            job.demand = self._demand(event.request)
            spots = try_place(job.demand, self.sites.view)
        except (UnknownPolicyError, UnknownSiteError, PolicyError) as error:
            self._end(job, State.FAILED, str(error))
            return
        job.placement_tries = 1
        if spots is not None:
            self._place(job, spots)
            return
        job.refused_idle = tuple(self.sites.view.idle)
        job.tell(self.now, "refused", job.refused_idle)
        limit = _first(job.request.placement_tries_max, self.parameters.placement_tries_max)
        if limit is not None and limit <= 1:
            self._end(job, State.FAILED, "no place was found in 1 try")
        else:
            self._enqueue(job, untried=False)

    def _demand(self, request: Request) -> Demand:
        """The request in numbers; equal ones are shared by all jobs."""
        policy = self.catalogue.find(request.policy if request.policy is not None else self.parameters.policy)
        key = demand_key(request, policy.name)
        demand = self._demands.get(key)
        if demand is None:
            demand = self._demands[key] = compile_demand(request, policy, self._index)
        return demand

    def _place_from_queue(self, job: Job, spots: Spots) -> None:
        self._settle_tries(job, self.queue(job.high))
        self._place(job, spots)

    def _policy_broke(self, job: Job, error: PolicyError) -> None:
        self._settle_tries(job, self.queue(job.high))
        self._end(job, State.FAILED, str(error))

    def _place(self, job: Job, spots: Spots) -> None:
        """The policy found places: bring the files, and claim when L of the longest transfer has passed."""
        now = self.now
        names = self._names
        job.spots = spots
        job.placed_at = now
        job.claims = [None] * len(spots.sites)
        transfer_s = self._bring_files(job) if job.demand is not None and job.demand.has_files else 0.0
        job.start_estimate = now + transfer_s
        if job.first_start_estimate is None:
            job.first_start_estimate = job.start_estimate
        job.move(State.PLACED)
        job.tell(now, "placed", spots, transfer_s)
        places = tuple([(names[site], size) for site, size in zip(spots.sites, spots.sizes, strict=True)])
        self._commands.append(JobPlaced(job=job.id, places=places))
        if transfer_s == 0:
            # No time passes between placement and claim, so what the policy saw idle is idle.
            job.claiming_tries += 1
            for part in range(len(spots.sites)):
                self._start(job, part)
            self._all_claimed(job)
            return
        for site, size in zip(spots.sites, spots.sizes, strict=True):
            self.sites.promise(site, size, job)
        self.claiming.push(job, now + job.claim_fraction * transfer_s)

    # --------------------------------------------------------------------------------------- files

    def _bring_files(self, job: Job) -> float:
        """Start what must be brought; the longest estimated transfer time of its components (FTT)."""
        assert job.spots is not None
        job.needs = [()] * len(job.spots.sites)
        return max(self._bring_files_of(job, part) for part in range(len(job.spots.sites)))

    def _bring_files_of(self, job: Job, part: int) -> float:
        assert job.spots is not None
        assert job.demand is not None
        site = job.spots.sites[part]
        keys = []
        transfer_s = 0.0
        for needed in inputs(job.demand, job.spots, part, self.sites.view):
            if needed.source == site:
                continue
            transfer = self.transfers.want(job, needed, site, self.now, self._commands)
            if transfer.timer is None:
                self._watch(transfer)
            keys.append(transfer.key)
            transfer_s += transfer.remaining_s(self.now)
        job.needs[part] = tuple(keys)
        return transfer_s

    def _watch(self, transfer: Transfer) -> None:
        patience_s = max(self.parameters.answer_timeout_s, self.parameters.transfer_patience * transfer.estimate_s)
        if transfer.timer is not None:
            transfer.timer.cancel()
        transfer.timer = self._timers.set(self.now + patience_s, self._transfer_overdue, transfer)

    def _transfer_overdue(self, transfer: Transfer) -> None:
        self._commands.append(CancelTransfer(transfer=transfer.id))
        self._transfer_broke(transfer, "it took far longer than estimated")

    def _on_transfer_ended(self, event: TransferEnded) -> None:
        transfer = self.transfers.by_id.get(event.transfer)
        if transfer is None or transfer.done:
            return
        if not event.ok:
            self._transfer_broke(transfer, event.reason or "the transfer broke")
            return
        if transfer.timer is not None:
            transfer.timer.cancel()
        for job in self.transfers.arrived(transfer, self.now):
            job.tell(self.now, "file_arrived", transfer.key[0], transfer.key[2])
            if job.state is State.STARTING:
                self._open_barrier_if_complete(job)

    def _transfer_broke(self, transfer: Transfer, reason: str) -> None:
        if transfer.timer is not None:
            transfer.timer.cancel()
        file, _, target = transfer.key
        for job in transfer.jobs.values():
            job.tell(self.now, "transfer_broke", file, transfer.source, target, reason)
        more = transfer.tries < self.parameters.transfer_tries_max
        if more and self.transfers.again(transfer, self.now, self._commands):
            self._watch(transfer)
            return
        for job in list(transfer.jobs.values()):
            self._return(job, f"file {file} could not be brought to {self._names[target]}: {reason}")

    def _on_file_changed(self, event: FileChanged) -> None:
        holders = tuple(sorted(self._index[site] for site in event.replicas if site in self._index))
        files = self.sites.view.files
        if holders:
            files[event.file] = FileAt(event.size_bytes, holders)
        else:
            files.pop(event.file, None)
        self.sites.helped += 1

    # ------------------------------------------------------------------------------------ claiming

    def _claim(self, job: Job) -> None:
        """One claiming try at the job's claiming time; carries out what the incremental claiming policy plans."""
        now = self.now
        self.claiming.remove(job)
        limit = _first(job.request.claiming_tries_max, self.parameters.claiming_tries_max)
        if limit is not None and job.claiming_tries >= limit:
            self._end(job, State.FAILED, f"not all components could be claimed in {job.claiming_tries} tries")
            return
        job.claiming_tries += 1
        plan = plan_claim(job, self.sites, threshold=self.parameters.claim_threshold, now=now)
        if not plan.enough:
            job.tell(now, "too_few_startable")
        for part, site in plan.replace:
            self._move_component(job, part, site)
        for part, victims in plan.preempt:
            self._preempt_for(job, part, victims)
        for part in (*plan.start, *(part for part, _ in plan.replace)):
            self._claim_component(job, part)
        unclaimed = [part for part, claim in enumerate(job.claims) if claim is None]
        if not unclaimed:
            self._all_claimed(job)
            return
        if job.state is State.PLACED and len(unclaimed) < len(job.claims):
            job.move(State.CLAIMING)
        self._claim_later(job, unclaimed)

    def _claim_later(self, job: Job, unclaimed: list[int]) -> None:
        """Set the next claiming time, or give up when the job start time has come."""
        assert job.start_estimate is not None
        start, now = job.start_estimate, self.now
        if now < start:
            following = now + job.claim_fraction * (start - now)
            self.claiming.push(job, start if start - following < START_REACHED_S else following)
            return
        last = start + self.parameters.barrier_timeout_s
        if now < last and all(part in job.earmarks for part in unclaimed):
            self.claiming.push(job, last)  # tried earlier, as soon as preempted processors are free
            return
        self._return(job, f"{len(unclaimed)} of {len(job.claims)} components unclaimed at the job start time")

    def _move_component(self, job: Job, part: int, site: int) -> None:
        """The component goes to another site; its files go there at once, and stop going where it was."""
        assert job.spots is not None
        before, size = job.spots.sites[part], job.spots.sizes[part]
        sites = (*job.spots.sites[:part], site, *job.spots.sites[part + 1 :])
        job.spots = Spots(sites=sites, sizes=job.spots.sizes)
        self.sites.withdraw(before, size)
        self.sites.promise(site, size, job)
        if before not in sites:
            self.sites.leave(before, job)
        job.tell(self.now, "moved", part, before, site)
        assert job.demand is not None
        if job.demand.has_files:
            self._bring_files_of(job, part)
            self.transfers.keep_only_needed(job, self._commands)

    def _preempt_for(self, job: Job, part: int, victims: list[Job]) -> None:
        assert job.spots is not None
        site, size = job.spots.sites[part], job.spots.sizes[part]
        for victim in victims:
            victim.preemptions += 1
            victim.tell(self.now, "preempted", job.id, site)
            self._return(victim, f"preempted by high-priority job {job.id} on {self._names[site]}", lower=False)
        self.sites.earmark(site, part, size, job)
        job.tell(self.now, "preempts", part, site, tuple(victim.id for victim in victims))

    def _claim_component(self, job: Job, part: int) -> None:
        assert job.spots is not None
        size = job.spots.sizes[part]
        if part in job.earmarks:
            self.sites.unmark(part, size, job)
        self.sites.withdraw(job.spots.sites[part], size)
        self._start(job, part)
        if job.timer is None:
            self._set_job_timer(job, self.parameters.answer_timeout_s)

    def _start(self, job: Job, part: int) -> None:
        assert job.spots is not None
        site, size = job.spots.sites[part], job.spots.sizes[part]
        claim = Claim(job.next_token(), job, part, site, size)
        job.claims[part] = claim
        self.claims[claim.token] = claim
        self.sites.claim(claim)
        self._commands.append(
            StartComponent(
                job=job.id,
                token=claim.token,
                site=self._names[site],
                processors=size,
                component=0 if job.request.flexible is not None else part,
                part=part,
                parts=len(job.claims),
            )
        )

    def _all_claimed(self, job: Job) -> None:
        assert job.start_estimate is not None
        job.move(State.STARTING)
        job.tell(self.now, "claimed")
        job.deadline = max(job.start_estimate, self.now) + self.parameters.barrier_timeout_s
        job.stop_timer()
        self._set_job_timer(job, self.parameters.answer_timeout_s)
        self._open_barrier_if_complete(job)

    def _unclaim(self, job: Job, claim: Claim, reason: str) -> None:
        """A site did not take a component: claim it again while there is time, else give the claim up."""
        assert job.start_estimate is not None
        job.claims[claim.part] = None
        job.tell(self.now, "not_taken", claim.part, claim.site, reason)
        if self.now >= job.start_estimate:
            self._return(job, f"{self._names[claim.site]} did not take a component: {reason}")
            return
        self.sites.promise(claim.site, claim.processors, job)
        if job.state is State.STARTING:
            job.move(State.CLAIMING)
        self.claiming.remove(job)
        unclaimed = [part for part, each in enumerate(job.claims) if each is None]
        self._claim_later(job, unclaimed)

    # ----------------------------------------------------------------------------- barrier and run

    def _on_component_accepted(self, event: ComponentAccepted) -> None:
        claim = self.claims.get(event.token)
        if claim is not None and claim.phase is Phase.SENT:
            claim.phase = Phase.ACCEPTED

    def _on_component_ready(self, event: ComponentReady) -> None:
        claim = self.claims.get(event.token)
        if claim is None or claim.aborting:
            return
        if claim.phase < Phase.READY:
            claim.phase = Phase.READY
            claim.job.ready += 1
            if claim.job.state is State.STARTING:
                self._open_barrier_if_complete(claim.job)
        elif claim.phase is Phase.RUNNING:
            # It still waits at the barrier: it has not heard that the others are there.
            self._commands.append(ReleaseBarrier(job=claim.job.id, tokens=(claim.token,)))

    def _on_component_running(self, event: ComponentRunning) -> None:
        """Good to hear, and nothing to do: a component is believed to run once the barrier is open."""

    def _open_barrier_if_complete(self, job: Job) -> None:
        if job.ready < len(job.claims) or job.transfers_open > 0:
            return
        job.stop_timer()
        job.move(State.RUNNING)
        job.started_at = self.now
        job.outstanding = len(job.claims)
        tokens = []
        for claim in job.claims:
            assert claim is not None
            claim.phase = Phase.RUNNING
            tokens.append(claim.token)
        job.tell(self.now, "started")
        self._commands.append(ReleaseBarrier(job=job.id, tokens=tuple(tokens)))
        if self.parameters.check_interval_s is not None:
            self._set_job_timer(job, self.parameters.check_interval_s)

    def _set_job_timer(self, job: Job, in_s: float) -> None:
        at = self.now + in_s
        if job.state is State.STARTING:
            at = min(at, job.deadline)
        job.timer = self._timers.set(at, self._look_after, job)

    def _look_after(self, job: Job) -> None:
        """A job has been quiet for a while: ask its sites, or give the claim up when its deadline has passed."""
        job.timer = None
        if job.state is State.RUNNING:
            self._ask(claim for claim in job.claims if claim is not None)
            assert self.parameters.check_interval_s is not None
            self._set_job_timer(job, self.parameters.check_interval_s)
            return
        quiet = [claim for claim in job.claims if claim is not None and claim.phase < Phase.READY]
        if job.state is State.STARTING and self.now >= job.deadline and quiet:
            for claim in quiet:
                if claim.phase is Phase.SENT:
                    self._site_error(claim.site)  # it has not even said that it has the component
            names = ", ".join(sorted({self._names[claim.site] for claim in quiet}))
            self._return(
                job, f"{len(quiet)} of {len(job.claims)} components did not reach the barrier in time ({names})"
            )
            return
        if quiet:
            self._ask(quiet)
            self._set_job_timer(job, self.parameters.answer_timeout_s)

    def _ask(self, claims: Any) -> None:
        by_site: dict[int, list[str]] = {}
        for claim in claims:
            by_site.setdefault(claim.site, []).append(claim.token)
        for site, tokens in by_site.items():
            self._commands.append(AskSite(site=self._names[site], tokens=tuple(tokens)))

    def _on_component_ended(self, event: ComponentEnded) -> None:
        claim = self.claims.pop(event.token, None)
        if claim is None:
            return
        if claim.timer is not None:
            claim.timer.cancel()
        self.sites.release(claim)
        if event.outcome is Outcome.DONE and self.sites.success(claim.site):
            claim.job.tell(self.now, "site_back", claim.site)
        if claim.aborting:
            self._let_go(claim)
        else:
            self._component_ended(claim.job, claim, event)
        for job in list(self.sites.sites[claim.site].waiters.values()):
            if self.sites.earmark_is_free(claim.site, job):
                self._claim(job)

    def _let_go(self, claim: Claim) -> None:
        job = claim.job
        if job.state is State.RELEASING and claim in job.claims:
            job.outstanding -= 1
            if job.outstanding == 0:
                self._requeue(job)

    def _component_ended(self, job: Job, claim: Claim, event: ComponentEnded) -> None:
        """A component that we wanted to go on has ended."""
        site = self._names[claim.site]
        running = job.state is State.RUNNING
        if claim.phase is Phase.READY:
            job.ready -= 1
        if event.outcome is Outcome.DONE and running:
            job.claims[claim.part] = None
            job.outstanding -= 1
            if job.outstanding == 0:
                self._end(job, State.DONE, "")
            return
        if event.outcome is Outcome.TIMED_OUT:
            job.claims[claim.part] = None
            self._end(job, State.FAILED, f"it ran longer than its walltime on {site}")
            return
        if event.outcome is Outcome.FAILED:
            job.claims[claim.part] = None
            self._application_failed(job, claim, event)
            return
        self._site_error(claim.site)
        if event.outcome in (Outcome.REFUSED, Outcome.ABSENT) and not running:
            self._unclaim(job, claim, event.reason or "it does not have it")
            return
        job.claims[claim.part] = None
        job.failures += 1
        job.tell(self.now, "component_failed", claim.part, claim.site, event.reason or str(event.outcome))
        self._return(job, f"component {claim.part} failed on {site}: {event.reason or event.outcome}")

    def _application_failed(self, job: Job, claim: Claim, event: ComponentEnded) -> None:
        """The user's program failed: started again as a whole, but not for ever."""
        job.failures += 1
        job.application_failures += 1
        code = "" if event.exit_code is None else f" with exit code {event.exit_code}"
        reason = f"component {claim.part} failed on {self._names[claim.site]}{code}"
        job.tell(self.now, "component_failed", claim.part, claim.site, f"the application ended{code}")
        limit = _first(job.request.restarts_max, self.parameters.restarts_max)
        if limit is not None and job.application_failures > limit:
            self._end(job, State.FAILED, f"{reason}, after {limit} restarts")
        else:
            self._return(job, reason)

    # ------------------------------------------------------------------------- ways back and the end

    def _return(self, job: Job, reason: str, *, lower: bool = True) -> None:
        """The job loses its places and goes back to its placement queue, as a whole.

        Before the barrier opened this happens at once: what is still held is aborted, and cannot start the
        application any more. After it, the job first waits until every site has let go of it, so that it
        never runs twice at the same time.
        """
        ran = job.state is State.RUNNING
        self._drop_places(job)
        if lower:
            step, least = self.parameters.claim_fraction_step, self.parameters.claim_fraction_min
            job.claim_fraction = max(least, job.claim_fraction - step)
        job.tell(self.now, "returned", reason)
        self._commands.append(JobRequeued(job=job.id, reason=reason))
        if ran:
            job.move(State.RELEASING)
            job.outstanding = sum(claim is not None for claim in job.claims)
            if job.outstanding > 0:
                return
        self._requeue(job)

    def _requeue(self, job: Job) -> None:
        job.move(State.WAITING)
        job.claims = []
        job.spots = None
        job.started_at = None
        job.ready = 0
        self._enqueue(job, untried=True)

    def _drop_places(self, job: Job) -> None:
        """Give back everything that the job holds, is promised or waits for. Safe in every state."""
        job.stop_timer()
        if job.spots is None:
            return
        if job.state in IN_CLAIMING_QUEUE or job.state is State.STARTING:
            self.claiming.remove(job)
            for part in list(job.earmarks):
                self.sites.unmark(part, job.spots.sizes[part], job)
            for part, claim in enumerate(job.claims):
                if claim is None:
                    self.sites.withdraw(job.spots.sites[part], job.spots.sizes[part])
        for claim in job.claims:
            if claim is not None and not claim.aborting:
                claim.aborting = True
                self._abort(claim)
        self.transfers.leave(job, self._commands)
        for site in set(job.spots.sites):
            self.sites.leave(site, job)

    def _abort(self, claim: Claim) -> None:
        """Tell the site, and tell it again, ever more rarely, until it says that the component is gone."""
        self._commands.append(AbortComponent(site=self._names[claim.site], token=claim.token))
        wait_s = self.parameters.answer_timeout_s * min(2**claim.abort_tries, ABORT_WAIT_FACTOR_MAX)
        claim.abort_tries += 1
        claim.timer = self._timers.set(self.now + wait_s, self._abort, claim)

    def _on_cancel_asked(self, event: CancelAsked) -> None:
        job = self.jobs.get(event.job)
        if job is None:
            return
        if job.state is State.WAITING:
            queue = self.queue(job.high)
            queue.remove(job)
            self._settle_tries(job, queue)
        self._end(job, State.CANCELLED, "cancelled")

    def _end(self, job: Job, state: State, reason: str) -> None:
        assert state in ENDED
        if job.state is not State.RELEASING:
            self._drop_places(job)
        job.move(state)
        job.ended_at = self.now
        job.tell(self.now, "ended", state, reason)
        del self.jobs[job.id]
        self.ended[job.id] = job
        if len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)
        names, spots = self._names, job.spots
        places = (
            ()
            if spots is None
            else tuple([(names[site], size) for site, size in zip(spots.sites, spots.sizes, strict=True)])
        )
        self._commands.append(
            JobEnded(
                job=job.id,
                outcome=_OUTCOMES[state],
                reason=reason,
                submitted_at=job.submitted_at,
                placed_at=job.placed_at,
                started_at=job.started_at,
                ended_at=self.now,
                first_start_estimate=job.first_start_estimate,
                last_start_estimate=job.start_estimate,
                places=places,
                placement_tries=job.placement_tries,
                claiming_tries=job.claiming_tries,
                failures=job.failures,
                preemptions=job.preemptions,
            )
        )

    # --------------------------------------------------------------------------------------- sites

    def _on_site_reported(self, event: SiteReported) -> None:
        index = self._index.get(event.site)
        if index is not None:
            self.sites.report(index, event.processors, event.others)

    def _on_site_silent(self, event: SiteSilent) -> None:
        index = self._index.get(event.site)
        if index is not None:
            self._site_error(index)

    def _on_site_drained(self, event: SiteDrained) -> None:
        index = self._index.get(event.site)
        if index is not None:
            self.sites.drain(index)

    def _on_site_resumed(self, event: SiteResumed) -> None:
        index = self._index.get(event.site)
        if index is not None:
            self.sites.resume(index)

    def _site_error(self, index: int) -> None:
        if self.sites.error(index):
            self._timers.set(self.now + self.parameters.cooldown_s, self._cooled_down, index)

    def _cooled_down(self, index: int) -> None:
        if self.sites.sites[index].trust is Trust.UNUSABLE:
            self.sites.probe(index)


def _first(own: int | None, default: int | None) -> int | None:
    return default if own is None else own
