"""The incremental claiming policy (ICP): what one claiming try of a placed job does.

``plan_claim`` only looks and proposes; ``JobClaiming`` carries the plan out. A component that can start now is
started; one that cannot is placed again, close to its files, where the transfer still ends before the job start
time; and for a high-priority job low-priority ones are preempted when even that fails.
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
    """What to do in one claiming try; empty when too few components could start (F < T)."""

    enough: bool = True
    start: list[int] = field(default_factory=list)
    replace: list[tuple[int, int]] = field(default_factory=list)  # (component, new site)
    preempt: list[tuple[int, list[Job]]] = field(default_factory=list)  # (component, victims in order)


class _Room:
    """What the job may take of each site in this try, counted down as the plan takes it; in processors."""

    def __init__(self, job: Job, sites: Sites) -> None:
        self._job = job
        self._sites = sites
        self._left: dict[int, int] = {}
        self._coming: dict[int, int] = {}
        self._pools: dict[int, NodePool | None] = {}  # the nodes that are left, where tasks have shapes

    def at(self, index: int) -> int:
        """What can be claimed now."""
        left = self._left.get(index)
        if left is None:
            left = self._left[index] = self._sites.claimable(index, self._job)
        return left

    def close(self, index: int) -> None:
        """Nothing of the site is for this try."""
        self._left[index] = 0

    def at_for(self, index: int, component: int) -> int:
        """What of it the tasks of the component can have, by what is left of the nodes."""
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
        """What will be there once the jobs that are preempted, now or before, have let go."""
        return self.at(index) + self._coming_at(index)

    def _coming_at(self, index: int) -> int:
        coming = self._coming.get(index)
        if coming is None:
            coming = self._coming[index] = self._sites.coming(index, self._job)
        return coming

    def expect(self, index: int, processors: int) -> None:
        """A job is preempted: this will come, but it is not there yet."""
        self._coming[index] = self._coming_at(index) + processors

    def set_aside(self, index: int, processors: int, component: int) -> None:
        """Keep processors for a component that waits: first what is there, the rest of what will come."""
        there = max(0, min(processors, self.at(index)))
        self.take(index, there, component)
        self._coming[index] = self._coming_at(index) - (processors - there)

    def all(self, component: int) -> Sequence[int]:
        """What is idle for the component, at all sites where the job has its licences or may have them."""
        behind = [site.others if self._job.claims_early else 0 for site in self._sites.sites]
        idle = [max(0, self.at_for(index, component) - others) for index, others in enumerate(behind)]
        return self._sites.view.licenses.open_to(self._job.request.licenses, idle, self._job.holder)


def plan_claim(
    job: Job, sites: Sites, transfers: Transfers, *, threshold: float, now: float, closed: Collection[int] = ()
) -> ClaimPlan:
    """One claiming try of ICP for the job's unclaimed components, none of which starts at the ``closed`` sites."""
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
    """Whether preemption is certain to help the job. Not if its tasks have shapes: they need room on one node, and it
    is not known on which nodes preempted jobs leave room."""
    return job.asks is None or not job.demand.groups


def _claiming_order(job: Job) -> list[int]:
    """Unclaimed components: those that wait for preempted processors first, then by decreasing size. Where tasks have
    several shapes, in the order in which the shapes were placed: sites give nodes to whoever comes first."""
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
    """Find the component another site whose transfer ends before the job start time.

    A transfer that is under way to a site, or has arrived there, for this job or another, need not be made again.
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
    """Choose low-priority jobs at the component's site, the latest job start time first, until it fits."""
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
                room.expect(freed.site, freed.processors)  # all of it comes free, on other sites too
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
        """Let every job claim that is to by now."""
        claiming = self.ledger.claiming
        while claiming.next_at <= self.ledger.now:
            self.claim(claiming.head())

    def claim(self, job: Job) -> None:
        """One claiming try, at the job's claiming time."""
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
        """The job was placed where these jobs are. They return to their queue; what is free is claimed now, and the
        rest, which is kept for it, as they let go of it."""
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
        """What could be claimed is: the job is on its way, or comes back for the rest."""
        unclaimed = sum(claim is None for claim in job.placed.claims)
        if unclaimed == 0:
            self.running.all_claimed(job)
            return
        if isinstance(job.phase, Placed) and unclaimed < len(job.placed.claims):
            job.become(Claiming.some(job.phase))
        self.running.claim_later(job)

    def _queued_long(self, token: Token) -> None:
        """A component has waited ``queue_patience_s`` in its site's own queue, as when another user took its
        processors while it was on its way, or where it must not run on the nodes that are free. It is claimed at
        another site that has room and all its files, if there is one.

        It waits on if its site has room for all our components and it may run on any node, if less than
        ``queue_patience_s`` is left before the job's deadline, which does not change, and if this check comes so late
        that what is known of the sites is old.
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
            and ledger.now <= timer.at + patience_s  # else nobody looked for long, and what is known is as old
            and (claim.kept_off or ledger.sites.is_short(claim.site))
        )
        moved = self.claim_elsewhere(claim) if worth_it else None
        if moved is None:
            self.running.be_patient(claim)
        else:
            moved.moved = True
            moved.changed()

    def claim_elsewhere(self, claim: ComponentClaim) -> ComponentClaim | None:
        """Claim a component at another site that has room for it now and where no file is missing, in place of this
        claim, which is aborted; None, and nothing done, where there is none. The job has not passed its barrier, and
        the other components keep their places there."""
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
        """The component goes to another site, and its files with it; ``promised`` is one that was not claimed."""
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
        """The victims return to their queue; what they free is kept for the component."""
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
