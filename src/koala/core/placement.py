"""From submission to placement: jobs are tried at once, then in scans of the placement queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from koala.core.claiming import JobClaiming
from koala.core.ending import JobEnding
from koala.core.holding import JobHolding
from koala.core.life.job import Job
from koala.core.life.placed import Placed
from koala.core.life.places import JobPlaces
from koala.core.life.quarantined import Quarantined
from koala.core.life.states import JobState
from koala.core.life.waiting import Waiting
from koala.core.planning.early_claims import EarlyClaims
from koala.core.planning.ordering import QueueOrdering
from koala.core.plans import JobPlans
from koala.core.preemption.places import PlacesByPreemption
from koala.core.preemption.victims import Victims
from koala.core.running import JobRunning
from koala.core.staging import JobStaging
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import UNTOLD, Ledger, tries_in_words
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.queues.scan import Found, scan
from koala.core.timers import Alarm
from koala.model.facts import (
    ClaimsEarly,
    ElementMade,
    JobPlaced,
    JobRefused,
    JobRequeued,
    KeptForPlans,
    LinkBelief,
    Preempts,
    SitesClosed,
    TransfersExpected,
)
from koala.model.messages import JobOutcome, JobSubmitted, RequeueAsked
from koala.model.request import JobId, Request
from koala.policies import Catalogue, Form, Policy, PolicyError, UnknownPolicyError, UnknownSiteError
from koala.policies.demand import application_of
from koala.policies.interface import Demand, DemandKey, Spots, can_ever_fit, compile_demand, demand_key, try_place
from koala.policies.places import Room

# Equal requests share one compiled demand; at most this many different demands are remembered at a time.
DEMANDS_REMEMBERED = 10_000
# At most this many of the requests met last are recognised by identity.
LAST_MET_MAX = 256
# At most this many elements of an array are made and wait. With two, a scan that places one finds the next in its
# place.
MADE_AHEAD_MAX = 2
# At most this many components of elements are made at once while one element after the other finds its place or ends;
# then other work has its turn. This many sites count as one more component.
MADE_AT_ONCE_MAX = 500
SITES_PER_COMPONENT = 4
# At most this many failed elements are named when an array ends.
ELEMENTS_NAMED_MAX = 5
# A class attribute would be looked up as slowly as a method.
_PLACED = JobState.PLACED


class JobPlacing:
    """Finds places for jobs that have none."""

    def __init__(
        self,
        ledger: Ledger,
        catalogue: Catalogue,
        ending: JobEnding,
        holding: JobHolding,
        running: JobRunning,
        staging: JobStaging,
        claiming: JobClaiming,
    ) -> None:
        self.ledger = ledger
        self.catalogue = catalogue
        self.ending = ending
        self.exclusions = ending.avoidance.exclusions
        self.holding = holding
        self.running = running
        self.staging = staging
        self.claiming = claiming
        self._demands: dict[DemandKey, Demand] = {}
        # What a request asks for, by the identity of the request and whether it is a guest's. The request is kept
        # beside it.
        self._last_met: dict[tuple[int, bool], tuple[Request, Demand]] = {}
        self.last_job: JobId = -1
        self.plans = JobPlans(ledger)
        self.preemption = PlacesByPreemption(ledger, self.plans)
        self.early = EarlyClaims(ledger, self.plans)
        # An unknown order or policy is an error here, not later.
        self.order = QueueOrdering(ledger, catalogue.find_order(ledger.parameters.order))
        ledger.timers.on(Alarm.UNFOLDS, self._unfold_on)
        ledger.follow_ups.on(Work.UNFOLD, self._follow_up)
        self._found = Found(self._place_from_queue, self._policy_broke, self._raised)
        self._grids_policy = catalogue.find(ledger.parameters.policy)

    def on_submitted(self, event: JobSubmitted) -> None:
        """Try the new job at once; a failed try puts it at the tail of its queue.

        If other jobs of the queue might fit now, they are tried before it, in a scan at the end of the instant.
        """
        ledger = self.ledger
        if event.job <= self.last_job:
            return
        request, array = event.request, event.request.array
        self.last_job = event.job + (0 if array is None else array.size)
        job = Job(event.job, event.at, claim_fraction=ledger.parameters.claim_fraction, waiting_since=event.at)
        job.bind(request, ledger.states, ledger.changes)
        job.guest = event.guest
        job.submitter = event.owner
        ledger.add(job)
        if not self.holding.note(job, event):
            return
        if event.defect:
            job.become(Quarantined(event.defect))
            return
        kept_back = job.is_kept_back
        if ledger.plans_made and not kept_back and array is None:
            ledger.queue_of(job).note_arrival(job)
        try:
            job.asks = demand = self.demand_for(job)
        except (UnknownPolicyError, UnknownSiteError, PolicyError) as error:
            self.ending.end(job, JobState.FAILED, error.for_user())
            return
        if demand.barred and self._no_site_left(job):
            return
        if demand.has_files and self.ending.ends_without_input(job):
            return
        if kept_back:
            self.ending.keep_back(job)
        elif array is not None:
            self.holding.unfold_later(job)
            self._unfold(job, self._try_new)
        else:
            self._try_new(job)

    def _try_new(self, job: Job) -> None:
        """Try a new job; a failed try puts it into its queue."""
        ledger = self.ledger
        sites, queue = ledger.sites, ledger.high if job.high else ledger.low
        if ledger.estimates_runs:
            ledger.estimate(job)
        kept = None
        if self.exclusions.some:
            self.ending.avoidance.choose(job)
        try:
            if queue.patient and queue.scanned_generation != sites.generation:
                self._enqueue(job, tried=False)
                return
            if not ledger.plans_made:
                spots = try_place(job.demand, sites.view)
            elif (queue.size or ledger.high.size) and self._others_come_first(queue):
                self._enqueue(job, tried=False)
                return
            elif not ledger.planned:
                spots = try_place(job.demand, sites.view)
            else:
                self.plans.prepare_for(job)
                spots, kept = self.plans.places_now(job)
        except PolicyError as error:
            self.ending.end(job, JobState.FAILED, error.for_user())
            return
        job.placement_tries = 1
        if spots is not None:
            queue.passes(job)
            self._place(job, spots)
            queue.passed_generation = sites.generation
            return
        queue.passed_generation = sites.generation
        job.waiting.refused = sites.seen_now()
        if kept is None:
            if ledger.story is not UNTOLD:
                ledger.story.append(self._refusal(job))
        else:
            ledger.story.append(KeptForPlans(job=job.id))
        if ledger.placement_tries_max(job) == 1:
            self._out_of_tries(job)
        else:
            self._enqueue(job, tried=True)
            if ledger.plans_made:
                self.plans.plan_new(job)
            if job.high and self.preemption.on:
                self._preempt_for(job)

    def _refusal(self, job: Job) -> JobRefused:
        """Return the refusal: what is idle, and how many tasks have room at each site if these are
        more than processors."""
        view = self.ledger.sites.view
        idle = tuple(zip(view.names, view.idle, strict=True))
        shape = next((part.shape for part in job.request.components if part.shape is not None), None)
        if shape is None:
            return JobRefused(job=job.id, idle=idle)
        room = tuple(zip(view.names, Room(view.idle, view).places(shape), strict=True))
        return JobRefused(job=job.id, idle=idle, shape=str(shape), room=room)

    def _others_come_first(self, queue: PlacementQueue) -> bool:
        """Return True if plans are made and a waiting job might use something that came free since its last try."""
        ledger = self.ledger
        queues = (ledger.high,) if queue.high else (ledger.low, ledger.high)
        return any(each.size and ledger.scans.may_help(each) for each in queues)

    def demand_for(self, job: Job) -> Demand:
        """Return the job's demand, without the sites that are closed to it."""
        request = job.request
        met = self._last_met.get((id(request), job.guest))
        if met is not None:  # many jobs of a workload share the very same request
            return met[1]
        demand = self.demand_of(request)
        closed = self.ledger.sites.closed_to(request, guest=job.guest)
        if closed:
            demand = demand.barring(site for each in closed for site in each.sites)
        if len(self._last_met) >= LAST_MET_MAX:
            self._last_met.clear()
        self._last_met[id(request), job.guest] = request, demand
        return demand

    def _no_site_left(self, job: Job) -> bool:
        """Tell the job which sites are closed to it. End it at once, with the reason, if it would fit only there."""
        ledger = self.ledger
        sites, most = ledger.sites, ledger.sites.most()
        closed = sites.closed_to(job.request, guest=job.guest)
        for each in closed:
            named = tuple([ledger.names[index] for index in each.sites])
            ledger.story.append(SitesClosed(job=job.id, sites=named, reason=each.reason))
        if can_ever_fit(job.demand, most, sites.view):
            return False
        if not can_ever_fit(self.demand_of(job.request), most, sites.view):
            return False  # too large for any site, as its refusal reports
        reasons = (f"{', '.join(ledger.names[index] for index in each.sites)} {each.reason}" for each in closed)
        self.ending.end(job, JobState.FAILED, f"no place is left for it: {'; '.join(reasons)}")
        return True

    def demand_of(self, request: Request) -> Demand:
        """Return the request in numbers; jobs with equal requests share the result."""
        policy = self._policy_of(request)
        key = demand_key(request, policy.name, application_of(request, policy))
        demand = self._demands.get(key)
        if demand is None:
            if len(self._demands) >= DEMANDS_REMEMBERED:
                self._demands.clear()
            demand = self._demands[key] = self._compiled(request, policy)
        return demand

    def demand_of_one(self, request: Request) -> Demand:
        """Return the same for a request that no other job has, without remembering it."""
        return self._compiled(request, self._policy_of(request))

    def _policy_of(self, request: Request) -> Policy:
        if request.policy is None and request.flexible is None:
            return self._grids_policy  # the policy that would be chosen: most jobs are like this
        return self.catalogue.choose(request, self.ledger.parameters.policy)

    def _compiled(self, request: Request, policy: Policy) -> Demand:
        shared_links = not self.ledger.sites.view.wiring.is_star
        return compile_demand(request, policy, self.ledger.index, shared_links=shared_links)

    # ---------------------------------------------------------------------------------------- arrays

    def _follow_up(self, array_id: JobId, _: None) -> None:
        """Make the elements of the array that are due by now, or end the array if it is over."""
        array = self.ledger.arrays.get(array_id)
        if array is not None:
            self._unfold(array, self._join_line)
            self._end_if_over(array)

    def _unfold(self, array: Job, begin: Callable[[Job], None]) -> None:
        """Make elements until enough are ahead of the placed ones, or the limit of live elements is reached.

        The elements ahead keep the array in its queue at the cost of a job or two, however many elements it has.
        """
        ledger, elements = self.ledger, array.elements
        # The cost of trying to place one element: its components, and its sites at a much lower rate.
        effort = len(array.request.components) + len(ledger.names) // SITES_PER_COMPONENT
        while True:
            ledger.follow_ups.drop(Work.UNFOLD, array.id)
            if array.state is not JobState.UNFOLDING or elements.all_made or elements.ahead >= MADE_AHEAD_MAX:
                if array.state is JobState.UNFOLDING and elements.all_made and not elements.live:
                    ledger.follow_ups.add(Work.UNFOLD, array.id)  # its last element ended as it was made: it is over
                return
            if elements.at_limit:
                return
            if ledger.made_now >= MADE_AT_ONCE_MAX:
                if array.timer is None:
                    array.timer = ledger.timers.set(ledger.now, Alarm.UNFOLDS, array.id)
                return
            position = elements.next()
            if position is not None:
                ledger.made_now += effort
                element = self._element(array, position, elements.spec.index_at(position))
                if not self.ending.ends_without_input(element):
                    begin(element)

    def _unfold_on(self, array_id: JobId) -> None:
        array = self.ledger.arrays[array_id]
        array.timer = None
        if array.arrival < 0:
            self.holding.stand_in_line(array)
        self.ledger.follow_ups.add(Work.UNFOLD, array_id)

    def _element(self, array: Job, position: int, index: int) -> Job:
        ledger = self.ledger
        fraction = ledger.parameters.claim_fraction
        job = Job(array.id + 1 + position, array.submitted_at, claim_fraction=fraction, waiting_since=ledger.now)
        job.changed_walltime_s, job.changed_priority = array.changed_walltime_s, array.changed_priority
        job.array, job.index, job.guest, job.submitter = array.id, index, array.guest, array.submitter
        job.bind(array.request, ledger.states, ledger.changes)
        job.arrival = array.arrival + position
        job.asks, job.ahead = array.asks, True
        array.changed()
        job.join_array(array)
        ledger.add(job)
        ledger.current_jobs = (job,)
        ledger.facts.append(ElementMade(job=job.id, array=array.id, index=index))
        return job

    def _enqueue(self, job: Job, *, tried: bool) -> None:
        """Queue a new job."""
        self.ledger.enqueue(job, tried=tried)
        self.ending.avoidance.watch(job)

    def _join_line(self, job: Job) -> None:
        if self.exclusions.some:
            self.ending.avoidance.choose(job)
        self._enqueue(job, tried=False)

    def _join_scan(self, job: Job) -> None:
        """Add the job to the current scan: it stands behind the job that was just placed."""
        if self.exclusions.some:
            self.ending.avoidance.choose(job)
        self._enqueue(job, tried=True)

    def _end_if_over(self, array: Job) -> None:
        elements = array.elements
        if array.state is not JobState.UNFOLDING or not elements.all_made or elements.live:
            return
        self.ledger.current_jobs = (array,)  # not the element that was made last
        counts = elements.not_done_as
        failed, cancelled = counts[str(JobOutcome.FAILED)], counts[str(JobOutcome.CANCELLED)]
        told = [f"{failed} failed ({elements.failed(ELEMENTS_NAMED_MAX)})"] if failed else []
        told += [f"{cancelled} were cancelled"] if cancelled else []
        state = JobState.FAILED if failed else JobState.CANCELLED if cancelled else JobState.DONE
        self.ending.end(array, state, f"of {elements.spec.size} elements {' and '.join(told)}" if told else "")

    # ---------------------------------------------------------------------------------- out of quarantine

    def on_requeue_asked(self, event: RequeueAsked) -> None:
        """Queue the job again, like one that has just come back to its queue."""
        ledger = self.ledger
        job = ledger.jobs.get(event.job)
        if job is None or job.state is not JobState.QUARANTINED:
            return
        if any(not claim.fenced for claim in ledger.claims_of.get(job.id, {}).values()):
            return
        try:
            job.asks = self.demand_for(job)
        except (UnknownPolicyError, UnknownSiteError, PolicyError) as error:
            job.become(Waiting())
            self.ending.end(job, JobState.FAILED, error.for_user())
            return
        if job.barred:
            job.asks = job.demand.barring(ledger.index[site] for site in job.barred)
        asked_by = job.asked_by(event)
        if event.hold:
            job.hold(asked_by)
        reason = f"put back from quarantine{asked_by}"
        job.become(Waiting())
        ledger.facts.append(JobRequeued(job=job.id, reason=reason))
        if job.is_kept_back:
            self.ending.keep_back(job)
        elif job.spec is not None:
            self.holding.unfold_later(job)
        else:
            self.ending.avoidance.enqueue(job)

    # --------------------------------------------------------------------------------------- scans

    def scan(self, queue: PlacementQueue) -> None:
        """Try every job of the queue, from head to tail."""
        ledger = self.ledger
        self.order.begin(queue)
        if ledger.plans_made:
            self.plans.begin(queue)
            scan(queue, ledger.sites, self.plans, self._found)
            self.plans.finish()
        else:
            scan(queue, ledger.sites, None, self._found)
        if queue.high and self.preemption.on:
            for job in self.preemption.in_turn():
                self._preempt_for(job)
        queue.passed_generation = ledger.sites.generation
        if queue.limited:
            for job in queue.pop_exhausted(ledger.scans.so_far(queue, ledger.now)):
                ledger.current_jobs = (job,)
                job.placement_tries += ledger.tries_in_queue(job)
                self._out_of_tries(job)
        ledger.current_jobs = ()

    def _place_from_queue(self, job: Job, spots: Spots) -> None:
        self.ledger.current_jobs = (job,)
        job.placement_tries += self.ledger.tries_in_queue(job)
        self._place(job, spots)
        array = self.ledger.arrays.get(job.array) if job.array else None
        if array is not None:
            self._unfold(array, self._join_scan)
        self.ledger.current_jobs = ()

    def _believed_links(self, job: Job) -> tuple[LinkBelief, ...]:
        """Return what is believed of the deciding links.

        These carry the job's files; under a policy that considers the network, the links between its sites
        belong to them.
        """
        if not self.ledger.forecasts.series:
            return ()
        placed = job.placed
        links = {(transfer.source, transfer.key[2]): None for transfer in placed.transfers.values()}
        deciding = job.demand.policy if job.demand.bounds is not None else job.demand.rule
        if deciding.form in (Form.NETWORK, Form.FLEXIBLE_NETWORK):
            links |= dict.fromkeys(combinations(sorted(set(placed.spots.sites)), 2))
        return self.ledger.forecasts.believed(links)

    def _policy_broke(self, job: Job, error: PolicyError) -> None:
        self.ledger.current_jobs = (job,)
        job.placement_tries += self.ledger.tries_in_queue(job)
        self.ending.end(job, JobState.FAILED, error.for_user())
        self.ledger.current_jobs = ()

    def _raised(self, jobs: Sequence[Job]) -> None:
        """Attribute an error to each of these jobs: they ask for the same."""
        self.ledger.current_jobs = tuple(jobs)

    def _out_of_tries(self, job: Job) -> None:
        tries = tries_in_words(self.ledger.placement_tries_max(job))
        self.ending.end(job, JobState.FAILED, f"no place was found in {tries}")

    # --------------------------------------------------------------------------------- the placement

    def _preempt_for(self, job: Job) -> None:
        """Have a waiting high-priority job take the places of low-priority jobs, where that is allowed and useful."""
        ledger = self.ledger
        ledger.current_jobs = (job,)
        victims = self.preemption.look(job)
        if isinstance(victims, Victims):
            self.ending.leave_placement_queue(job, placed=True)
            self.preemption.note(job, victims)
            numbers = tuple(victim.id for victim in victims.jobs)
            ledger.story.append(Preempts(job=job.id, victims=numbers, lost_s=victims.lost_s))
            self._place(job, victims.spots, victims.jobs)
            self._unfold_later(job)
        ledger.current_jobs = ()

    def claim_early(self) -> None:
        """Have jobs with near plans claim their places, as far as the budget allows."""
        ledger = self.ledger
        self.early.settle()
        while (job := self.early.due()) is not None:
            ledger.current_jobs = (job,)
            plan, until = job.planned, self.early.until(job)
            self.ending.leave_placement_queue(job, placed=True)
            self.early.note(job, until)
            ledger.story.append(ClaimsEarly(job=job.id, within_s=until - ledger.now))
            self._place(job, plan.spots, start_at=plan.at, early_until=until)
            self._unfold_later(job)

    def _unfold_later(self, job: Job) -> None:
        """Let the array make its next element, as this one has places."""
        if job.array in self.ledger.arrays:
            self.ledger.follow_ups.add(Work.UNFOLD, job.array)

    def _place(
        self,
        job: Job,
        spots: Spots,
        victims: Sequence[Job] = (),
        *,
        start_at: float | None = None,
        early_until: float | None = None,
    ) -> None:
        """Place the job where the policy found places: transfer its files, and claim after L of the longest transfer.

        With victims it claims at once, as they let go. With an early claim it claims before its planned start.
        """
        ledger, demand = self.ledger, job.demand
        now = ledger.now
        if job.timer is not None:
            job.stop_timer()
        job.placed_at = now
        placed = JobPlaces(spots, ledger.places(spots), now)
        if demand.licenses:
            placed.number = job.starts
        job.become(Placed(placed, early_until))
        ledger.changes.places[job.id] = None
        if ledger.links.concerns(job, placed):
            ledger.links.add(job)
        transfer_s = self.staging.transfer_files(job) if demand.has_files else 0.0
        placed.start_at = job.start_estimate = now + transfer_s if start_at is None else max(now, start_at)
        if job.first_start_estimate is None:
            job.first_start_estimate = job.start_estimate
        if ledger.plans_made:
            placed.hold_until = placed.start_at + ledger.planned_s(job)
            ledger.planned.pop(job.id, None)
        if job.ahead:
            self.ending.is_not_ahead(job)
        ledger.facts.append(JobPlaced(job=job.id, places=placed.places))
        links = self._believed_links(job)
        if transfer_s > 0 or links:
            ledger.story.append(TransfersExpected(job=job.id, transfer_s=transfer_s, links=links))
        if transfer_s > 0 and start_at is None:
            for site, size in zip(spots.sites, spots.sizes, strict=True):
                ledger.sites.promise(site, size, job)
            ledger.claiming.push(job, now + job.claim_fraction * transfer_s)
            return
        if victims or start_at is not None:
            for site, size in zip(spots.sites, spots.sizes, strict=True):
                ledger.sites.promise(site, size, job)
            self.claiming.claim_as_let_go(job, victims)
            return
        # No time passes between placement and claim, so what the policy saw idle is idle.
        job.count_claiming_try()
        for component in demand.claiming_order or range(len(spots.sites)):
            self.running.start_component(job, component)
        self.running.all_claimed(job)
