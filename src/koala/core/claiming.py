"""The incremental claiming policy (ICP): one claiming try of a placed job.

``plan_claim`` only looks and proposes; ``JobClaiming`` carries the plan out. A component that can start now is
started. A component that cannot start is placed again, close to its files, where the transfer still ends before the
job start time. If even that fails, a high-priority job preempts low-priority jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from koala.core.ending import JobEnding
from koala.core.life.claiming import Claiming
from koala.core.life.component import ComponentClaim, ComponentPhase
from koala.core.life.job import Job
from koala.core.life.placed import Placed
from koala.core.life.states import JobState
from koala.core.running import JobRunning
from koala.core.staging import JobStaging
from koala.core.state.ledger import Ledger
from koala.core.state.network.transfers import Transfers
from koala.core.state.nodes.pools import take_off
from koala.core.state.site_belief import Trust
from koala.core.state.sites import Sites
from koala.core.timers import Alarm
from koala.model.facts import ClaimPutOff, ComponentMoved, Preempts, TransfersExpected
from koala.model.messages import Token
from koala.model.nodes import NodePool
from koala.policies.interface import places_at, replace_one


@dataclass(slots=True)
class ClaimPlan:
    """The actions of one claiming try; empty when too few components could start (F < T)."""

    enough: bool = True
    start: list[int] = field(default_factory=list)
    replace: list[tuple[int, int]] = field(default_factory=list)  # (component, new site)
    preempt: list[tuple[int, list[Job]]] = field(default_factory=list)  # (component, victims in order)


class _Room:
    """The processors that the job may take at each site in this try, counted down as the plan takes them."""

    def __init__(self, job: Job, sites: Sites) -> None:
        self._job = job
        self._sites = sites
        self._left: dict[int, int] = {}
        self._coming: dict[int, int] = {}
        self._pools: dict[int, NodePool | None] = {}  # the nodes that are left, where tasks have shapes

    def at(self, index: int) -> int:
        """Return the number of processors that can be claimed now."""
        left = self._left.get(index)
        if left is None:
            left = self._left[index] = self._sites.claimable(index, self._job)
        return left

    def close(self, index: int) -> None:
        """Exclude the site from this try."""
        self._left[index] = 0

    def at_for(self, index: int, component: int) -> int:
        """Return the processors that the tasks of the component can have, given the nodes that are left."""
        left, shape = self.at(index), self._job.request.shape_of(component)
        return left if shape is None else places_at(shape, left, self._pool(index)) * shape.processors

    def take(self, index: int, processors: int, component: int) -> None:
        self._left[index] = self.at(index) - processors
        if self._job.asks is not None and self._job.demand.groups:
            pool = self._pool(index)
            if pool is not None:
                take_off(pool, self._job.request.shape_of(component), processors)

    def _pool(self, index: int) -> NodePool | None:
        if index not in self._pools:
            self._pools[index] = self._sites.pools.for_job(index, self._job)
        return self._pools[index]

    def with_coming(self, index: int) -> int:
        """Return the processors that will be there once all preempted jobs, earlier ones included, have let go."""
        return self.at(index) + self._coming_at(index)

    def _coming_at(self, index: int) -> int:
        coming = self._coming.get(index)
        if coming is None:
            coming = self._coming[index] = self._sites.coming(index, self._job)
        return coming

    def expect(self, index: int, processors: int) -> None:
        """Note that a preempted job will free processors, which are not there yet."""
        self._coming[index] = self._coming_at(index) + processors

    def set_aside(self, index: int, processors: int, component: int) -> None:
        """Keep processors for a component that waits: first those that are there, then those that will come."""
        there = max(0, min(processors, self.at(index)))
        self.take(index, there, component)
        self._coming[index] = self._coming_at(index) - (processors - there)

    def all(self, component: int) -> Sequence[int]:
        """Return what is idle for the component at each site where the job has its licences or may get them."""
        behind = [site.others if self._job.claims_early else 0 for site in self._sites.sites]
        idle = [max(0, self.at_for(index, component) - others) for index, others in enumerate(behind)]
        return self._sites.view.licenses.open_to(self._job.request.licenses, idle, self._job.holder)


def plan_claim(
    job: Job, sites: Sites, transfers: Transfers, *, threshold: float, now: float, closed: Collection[int] = ()
) -> ClaimPlan:
    """Plan one claiming try of ICP for the job's unclaimed components; none starts at the ``closed`` sites."""
    room = _Room(job, sites)
    plan = ClaimPlan()
    stuck: list[int] = []
    for component in _claiming_order(job):
        index, size = job.placed.at(component)
        if index not in closed and room.at_for(index, component) >= size:
            plan.start.append(component)
            room.take(index, size, component)
        elif component in job.earmarks:
            room.set_aside(index, size, component)  # what is being freed for it is not for the job's other components
        else:
            stuck.append(component)
    claimed = sum(claim is not None for claim in job.placed.claims)
    if (claimed + len(plan.start)) / len(job.placed.claims) < threshold:
        return ClaimPlan(enough=False)
    for component in stuck:
        if not _replace(job, component, room, plan, sites, transfers, now) and job.high and _may_preempt(job):
            _preempt(job, component, room, plan, sites)
    return plan


def _may_preempt(job: Job) -> bool:
    """Return True if preemption is certain to help the job.

    It is not if the tasks have shapes: they need room on one node, and the nodes that preempted jobs
    free are unknown.
    """
    return job.asks is None or not job.demand.groups


def _claiming_order(job: Job) -> list[int]:
    """Return the unclaimed components: first those that wait for preempted processors, then by decreasing size.

    Where tasks have several shapes, keep the order in which the shapes were placed: sites serve claims
    as they arrive.
    """
    placed = job.placed
    sizes = placed.spots.sizes
    unclaimed = [component for component, claim in enumerate(placed.claims) if claim is None]
    order = job.demand.claiming_order
    if order:
        return sorted(unclaimed, key=lambda component: (component not in job.earmarks, order.index(component)))
    return sorted(unclaimed, key=lambda component: (component not in job.earmarks, -sizes[component], component))


def _replace(
    job: Job, component: int, room: _Room, plan: ClaimPlan, sites: Sites, transfers: Transfers, now: float
) -> bool:
    """Find another site for the component where its transfer ends before the job start time.

    A transfer that has arrived at a site or is under way there, for this job or another, need not be repeated.
    """
    until_start_s = max(0.0, job.placed.start_at - now)

    def under_way_s(file: str, chunk: tuple[int, int] | None, site: int) -> float:
        return transfers.remaining_s((file, chunk, site), now)

    index = replace_one(
        job.demand, job.placed.spots, component, room.all(component), until_start_s, sites.view, under_way_s
    )
    if index < 0:
        return False
    room.take(index, job.placed.spots.sizes[component], component)
    plan.replace.append((component, index))
    return True


def _preempt(job: Job, component: int, room: _Room, plan: ClaimPlan, sites: Sites) -> None:
    """Choose low-priority jobs at the component's site, latest job start time first, until the component fits."""
    index, size = job.placed.at(component)
    site = sites.sites[index]
    if site.trust is Trust.UNUSABLE or site.is_closed:
        return
    chosen = {victim.id for _, victims in plan.preempt for victim in victims}
    held: dict[int, int] = {}
    jobs: dict[int, Job] = {}
    for claim in site.claims.values():
        victim = claim.job
        if not claim.aborting and not victim.high and victim.id not in chosen:
            held[victim.id] = held.get(victim.id, 0) + claim.processors
            jobs[victim.id] = victim
    if size > room.with_coming(index) + sum(held.values()):
        return
    victims: list[Job] = []
    for victim in sorted(jobs.values(), key=lambda low: (low.placed.start_at, low.id), reverse=True):
        if room.with_coming(index) >= size:
            break
        for freed in victim.claims:
            if not freed.aborting:
                room.expect(freed.site, freed.processors)  # all its processors come free, on other sites too
        victims.append(victim)
    room.set_aside(index, size, component)
    plan.preempt.append((component, victims))


class JobClaiming:
    """Carries out claiming tries."""

    def __init__(self, ledger: Ledger, ending: JobEnding, running: JobRunning, staging: JobStaging) -> None:
        self.ledger = ledger
        self.ending = ending
        self.running = running
        self.staging = staging
        ledger.timers.on(Alarm.QUEUED_LONG, self._queued_long)

    def claim_due(self) -> None:
        """Run the claiming tries that are due."""
        claiming = self.ledger.claiming
        while claiming.next_at <= self.ledger.now:
            self.claim(claiming.head())

    def claim(self, job: Job) -> None:
        """Carry out one claiming try, at the job's claiming time."""
        ledger = self.ledger
        ledger.current_jobs = (job,)
        ledger.claiming.remove(job)
        phase = job.awaiting_claims
        early = phase.early_until is not None
        if phase.early_until is not None and ledger.now >= phase.early_until:
            self.ending.claim_failed(job, "it may keep them no longer without a start")
            return
        resumed, phase.claim_resumed = phase.claim_resumed or early, False
        if not resumed:
            if self.ending.claiming_tries_are_used_up(job):
                return
            job.count_claiming_try()
        threshold = 0.0 if early else ledger.parameters.claim_threshold
        closed = self.ending.avoidance.closed_since(job)
        plan = plan_claim(job, ledger.sites, ledger.transfers, threshold=threshold, now=ledger.now, closed=closed)
        if not plan.enough:
            ledger.story.append(ClaimPutOff(job=job.id))
        for component, site in plan.replace:
            self._move(job, component, site)
        for component, victims in plan.preempt:
            self._preempt(job, component, victims)
        for component in (*plan.start, *(component for component, _ in plan.replace)):
            self._claim_component(job, component)
        self._go_on(job)

    def claim_as_let_go(self, job: Job, victims: Sequence[Job]) -> None:
        """Claim for a job that was placed where these jobs are.

        They return to their queue. Idle processors are claimed now; the rest is kept for the job and claimed as they
        let go.
        """
        ledger = self.ledger
        for victim in victims:
            self._send_back(victim, job, f"preempted by high-priority job {job.id}, which found no places")
        job.count_claiming_try()
        room = _Room(job, ledger.sites)
        start, wait = [], []
        for component in _claiming_order(job):
            index, size = job.placed.at(component)
            if room.at_for(index, component) >= size:
                start.append(component)
                room.take(index, size, component)
            else:
                wait.append(component)
        for component in wait:
            index, size = job.placed.at(component)
            ledger.sites.earmark(index, component, size, job)
        for component in start:
            self._claim_component(job, component)
        self._go_on(job)

    def _go_on(self, job: Job) -> None:
        """Start the job if everything is claimed; otherwise have it come back for the rest."""
        unclaimed = sum(claim is None for claim in job.placed.claims)
        if unclaimed == 0:
            self.running.all_claimed(job)
            return
        if isinstance(job.phase, Placed) and unclaimed < len(job.placed.claims):
            job.become(Claiming.some(job.phase))
        self.running.claim_later(job)

    def _queued_long(self, token: Token) -> None:
        """Claim a component elsewhere after it has waited ``queue_patience_s`` in its site's own queue.

        It waits there when another user took its processors while it was on its way, or when it must not run on the
        nodes that are free. The other site must have room and all its files.

        The component keeps waiting in three cases: its site has room for all our components and it may run on any
        node; less than ``queue_patience_s`` is left before the job's deadline, which does not change; or this check
        comes so late that the state of the sites is out of date.
        """
        ledger = self.ledger
        claim = ledger.claims[token]
        job = claim.job
        timer, claim.timer = claim.timer, None
        claim.changed()
        assert timer is not None
        patience_s = ledger.parameters.queue_patience_s
        if patience_s is None:
            return  # as another grid file has it
        worth_it = (
            job.state is JobState.STARTING
            and ledger.now + patience_s < job.deadline
            and ledger.now <= timer.at + patience_s  # otherwise nobody looked for long, and the state is just as old
            and (claim.kept_off or ledger.sites.is_short(claim.site))
        )
        moved = self.claim_elsewhere(claim) if worth_it else None
        if moved is None:
            self.running.be_patient(claim)
        else:
            moved.moved = True
            moved.changed()

    def claim_elsewhere(self, claim: ComponentClaim) -> ComponentClaim | None:
        """Claim a component at another site that has room for it now and lacks none of its files, and
        abort this claim.

        Return None, with nothing done, if there is no such site. The job has not passed its barrier, and the other
        components keep their places there.
        """
        ledger = self.ledger
        job, component = claim.job, claim.component
        if claim.licensed and any(other is not claim and other.site == claim.site for other in job.claims):
            return None  # what stays there would hold no licences
        plan, room = ClaimPlan(), _Room(job, ledger.sites)
        room.close(claim.site)
        if not _replace(job, component, room, plan, ledger.sites, ledger.transfers, ledger.now):
            return None
        job.placed.claims[component] = None
        if claim.phase is ComponentPhase.READY:
            job.placed.ready -= 1
        claim.given_up = True
        claim.changed()
        job.changed()
        self.ending.abort(claim)
        self._move(job, *plan.replace[0], promised=False)
        moved = self._claim_component(job, component)
        moved.placed_at = ledger.now
        moved.changed()
        if job.state is JobState.STARTING and job.request.communication is not None:
            ledger.links.observe(job)
        return moved

    def _move(self, job: Job, component: int, site: int, *, promised: bool = True) -> None:
        """Move the component and its files to another site; ``promised`` is True if it was not claimed yet."""
        ledger = self.ledger
        placed = job.placed
        before, size = placed.at(component)
        sites = (*placed.spots.sites[:component], site, *placed.spots.sites[component + 1 :])
        placed.spots = placed.spots._replace(sites=sites)
        placed.places = ledger.places(placed.spots)
        job.changes.places[job.id] = None
        if ledger.links.concerns(job, placed):
            if placed.link_demands:
                ledger.links.remove(job)
            ledger.links.add(job)
        if promised:
            ledger.sites.withdraw(before, size, job)
        ledger.sites.promise(site, size, job)
        if before not in sites:
            ledger.sites.leave(before, job)
        source, target = ledger.names[before], ledger.names[site]
        ledger.story.append(ComponentMoved(job=job.id, component=component, source=source, target=target))
        if job.demand.has_files:
            self.staging.redirect(job, component)
            needed = {(placed.transfers[key].source, key[2]): None for key in placed.needs[component]}
            believed = ledger.forecasts.believed(needed)
            if believed:
                ledger.story.append(TransfersExpected(job=job.id, links=believed))

    def _preempt(self, job: Job, component: int, victims: list[Job]) -> None:
        """Return the victims to their queue, and keep what they free for the component."""
        ledger = self.ledger
        site, size = job.placed.at(component)
        ledger.sites.earmark(site, component, size, job)
        name, numbers = ledger.names[site], tuple([victim.id for victim in victims])
        ledger.story.append(Preempts(job=job.id, victims=numbers, component=component, site=name))
        for victim in victims:
            self._send_back(victim, job, f"preempted by high-priority job {job.id} on {name}")

    def _send_back(self, victim: Job, job: Job, reason: str) -> None:
        self.ledger.current_jobs = (victim,)
        victim.preemptions += 1
        self.ending.back_to_queue(victim, reason, lower=False, saving=True)
        self.ledger.current_jobs = (job,)

    def _claim_component(self, job: Job, component: int) -> ComponentClaim:
        site, size = job.placed.at(component)
        self.ledger.sites.redeem(component, site, size, job)
        claim = self.running.start_component(job, component)
        if job.timer is None:
            self.running.look_after_later(job)
        return claim
