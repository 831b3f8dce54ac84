"""Tasks that are added to a running job of tasks: they are placed near the tasks that they exchange data with, in new
components, which begin together and belong to the run from then on.

Placed tasks stay where they are. Until the new components have all come to the barrier they may fail without harm to
the run: then the tasks are withdrawn. From then on they are like all others: the failure of one ends the run, and a
later run has them from its beginning.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from koala.core.ending import JobEnding
from koala.core.life.component import ComponentPhase
from koala.core.life.job import Job
from koala.core.life.running import Running
from koala.core.life.states import JobState
from koala.core.placement import JobPlacing
from koala.core.running import JobRunning
from koala.core.state.availability import expected_at
from koala.core.state.follow_ups import Work
from koala.core.state.ledger import Ledger
from koala.mapping.result import NoPlace
from koala.model.facts import SpawnBegan, TasksSpawned
from koala.model.messages import SpawnAsked
from koala.model.request import (
    COMPONENTS_MAX,
    JOB_EDGES_MAX,
    JOB_TASKS_MAX,
    InvalidRequestError,
    JobId,
    JobType,
    Request,
    SiteName,
)
from koala.model.task_graph import SpawnedTasks
from koala.policies.interface import Demand, Spots, place_spawned, with_spawned

# At most this many times a job gets spawned tasks.
SPAWNS_MAX = 1_000
# One spawn has at most this many edges: the whole core waits while it is examined.
SPAWN_EDGES_MAX = 5_000


class SpawnRefusal(NamedTuple):
    """Why a job gets no such tasks, and what to do; ``lacks_places`` is True if another time may help."""

    reason: str
    lacks_places: bool = False


class JobSpawning:
    """Brings tasks to running jobs."""

    def __init__(self, ledger: Ledger, ending: JobEnding, running: JobRunning, placing: JobPlacing) -> None:
        self.ledger = ledger
        self.ending = ending
        self.running = running
        self.placing = placing
        ledger.follow_ups.on(Work.JOIN_RUN, self._settle)

    def on_spawn_asked(self, event: SpawnAsked) -> None:
        """Claim places for the tasks now, or refuse them: nothing waits for places that a running job lacks."""
        ledger = self.ledger
        job = ledger.jobs.get(event.job)
        if job is None:
            return
        names = event.tasks.names
        if event.tasks in job.spawned:  # requested twice
            ledger.facts.append(TasksSpawned(job=job.id, tasks=names, places=_places_of(job, names)))
            return
        found = self.places_for(job, event.tasks)
        if isinstance(found, SpawnRefusal):
            self._refuse(job, names, found.reason)
            return
        request, demand, spots = found
        placed = job.placed
        first = len(placed.claims)
        self._hold(job, [*job.spawned, event.tasks], request, demand, _joined(placed.spots, spots))
        run = job.running
        run.joining = len(spots.sites)
        run.outstanding += run.joining
        ledger.facts.append(TasksSpawned(job=job.id, tasks=names, places=job.places[first:]))
        for component in range(first, len(placed.claims)):
            self.running.start_component(job, component)
        run.deadline = ledger.now + ledger.parameters.barrier_timeout_s
        job.stop_timer()
        self.running.look_after_later(job)

    def places_for(self, job: Job, tasks: SpawnedTasks) -> tuple[Request, Demand, Spots] | SpawnRefusal:
        """Return the request with the tasks, its demand, and where they would go now; or why they are refused.
        Changes nothing."""
        problem = _problem(job) or _too_many(job, tasks)
        if problem:
            return SpawnRefusal(problem)
        try:
            request = with_spawned(job.described, [*job.spawned, tasks])
        except InvalidRequestError as error:
            return SpawnRefusal(f"{error.field}: {error.message}")
        demand = self._demand(job, request)
        idle = demand.allowed(self._idle(job, demand))
        found = place_spawned(demand, job.placed.spots, idle, self.ledger.sites.view)
        if isinstance(found, NoPlace):
            reason = _lack(found, len(tasks.names), idle, self.ledger.names) + self._without_licenses(job, demand)
            return SpawnRefusal(reason, lacks_places=True)
        if len(job.placed.spots.sites) + len(found.sites) > COMPONENTS_MAX:
            return SpawnRefusal(f"the job would have more than {COMPONENTS_MAX} components (COMPONENTS_MAX)")
        return request, demand, found

    def _demand(self, job: Job, request: Request) -> Demand:
        """Return the job's demand for this request; the sites that are closed to it stay so."""
        demand = self.placing.demand_of_one(request)
        return demand.barring(job.demand.barred) if job.demand.barred else demand

    def _without_licenses(self, job: Job, demand: Demand) -> str:
        """Name the sites where too few of its licences are left; empty where there are enough."""
        if not demand.licenses:
            return ""
        lacking = self.ledger.sites.view.licenses.lacking(demand.licenses, job.holder)
        sites = [self.ledger.names[index] for index in sorted(lacking)]
        return f"; too few of its licences are left at {', '.join(sites)}" if sites else ""

    def _idle(self, job: Job, demand: Demand) -> Sequence[int]:
        """Return by site what is idle and in no plan's way until the job is due to end."""
        ledger = self.ledger
        if not ledger.planned:
            view = ledger.sites.view
            return view.licenses.open_to(demand.licenses, view.idle, job.holder)
        finder, end = self.placing.plans.beside_all(), expected_at(job.placed.hold_until, ledger.now)
        nodes, idle = (
            finder.nodes_for(None),
            finder.open_during(demand, finder.spare(end), None, end, job.holder),
        )
        return idle if nodes is None else nodes.spared(idle, None, end)

    def _hold(self, job: Job, spawned: list[SpawnedTasks], request: Request, demand: Demand, spots: Spots) -> None:
        """Give the job these spawned tasks, the request with them, and these places; it keeps its claims there."""
        ledger = self.ledger
        job.spawned, job.request, job.asks = spawned, request, demand
        job.changes.places[job.id] = None
        placed = job.placed
        placed.spots, before = spots, placed.spots
        placed.places = ledger.places(spots)
        placed.claims = [*placed.claims, *[None] * len(spots.sites)][: len(spots.sites)]
        if ledger.links.concerns(job, placed):
            if placed.link_demands:
                ledger.links.remove(job)
            ledger.links.add(job)
        for site in set(before.sites) - set(spots.sites):
            ledger.sites.leave(site, job)

    def _settle(self, job_id: JobId, reason: str | None) -> None:
        """Let tasks begin that have all come to the barrier, or withdraw those that cannot begin any more."""
        ledger = self.ledger
        job = ledger.jobs.get(job_id)
        if job is None or job.state is not JobState.RUNNING or not job.joining:
            return
        claims = job.placed.claims[-job.joining :]
        if reason:
            self._withdraw(job, reason)
        elif all(claim is not None and claim.phase is ComponentPhase.READY for claim in claims):
            ledger.story.append(SpawnBegan(job=job.id, tasks=job.spawned[-1].names))
            self.running.open_for_spawned(job)

    def _withdraw(self, job: Job, reason: str) -> None:
        """Withdraw the last spawned tasks, which never begin; what was claimed for them is given back."""
        ledger, names = self.ledger, job.spawned[-1].names
        placed, run = job.placed, job.running
        kept = len(placed.claims) - job.joining
        for claim in placed.claims[kept:]:
            if claim is not None:
                if claim.phase < ComponentPhase.READY and ledger.now >= run.deadline:
                    self.running.exclusions.allow_all(job, claim)
                placed.ready -= claim.phase is ComponentPhase.READY
                claim.given_up = True
                claim.changed()
                self.ending.abort(claim)
        run.outstanding = sum(claim is not None for claim in placed.claims[:kept])
        left = job.spawned[:-1]
        request = with_spawned(job.described, left) if left else job.described
        self._hold(job, left, request, self._demand(job, request), _first(placed.spots, kept))
        self._refuse(job, names, reason)
        self.running.joining_is_over(job)
        if run.outstanding == 0:
            self.running.all_done(job, run)

    def _refuse(self, job: Job, names: tuple[str, ...], reason: str) -> None:
        """Refuse these tasks to the job, with the reason."""
        self.ledger.facts.append(TasksSpawned(job=job.id, tasks=names, reason=reason))
        if isinstance(job.phase, Running):
            job.phase.spawn_refused = names, reason


def refused_last(job: Job, tasks: SpawnedTasks) -> str:
    """Return why the job was refused these tasks, the last ones requested."""
    run = job.phase
    if not isinstance(run, Running) or run.spawn_refused is None or run.spawn_refused[0] != tasks.names:
        return f"it is {job.state} by now"
    return run.spawn_refused[1]


def _problem(job: Job) -> str:
    """Return why a job gets no more tasks at all; empty if it may."""
    request = job.described
    if request.tasks is None:
        return "it is no job of tasks; submit one with tasks and mcr, and spawn into that"
    if job.state is not JobState.RUNNING:
        return f"it is {job.state}, and tasks are spawned into a job that runs; spawn them when it does"
    if job.joining:
        names = job.spawned[-1].names
        if len(names) == 1:
            return f"{names[0]} is on its way; spawn more when it has begun"
        return f"{', '.join(names[:3])} are on their way; spawn more when they have begun"
    if request.job_type is not JobType.PLAIN:
        return f"its processes are one {request.job_type} world, which does not grow; only plain jobs spawn tasks"
    if request.components[0].input_files:
        return "it has input files, which are shared out when it is placed; only jobs without them spawn tasks"
    if len(job.spawned) >= SPAWNS_MAX:
        return f"tasks were spawned {SPAWNS_MAX} times already (SPAWNS_MAX)"
    return ""


def _too_many(job: Job, tasks: SpawnedTasks) -> str:
    """Return why these are too many tasks or edges, which is checked before anything else."""
    graph = job.request.tasks
    assert graph is not None
    if len(tasks.edges) > SPAWN_EDGES_MAX:
        return f"{len(tasks.edges)} edges are more than {SPAWN_EDGES_MAX} (SPAWN_EDGES_MAX); spawn in several steps"
    if len(graph.names) + len(tasks.names) > JOB_TASKS_MAX:
        return f"tasks: the job would have more than {JOB_TASKS_MAX} (JOB_TASKS_MAX)"
    if len(graph.edges) + len(tasks.edges) > JOB_EDGES_MAX:
        return f"edges: the job would have more than {JOB_EDGES_MAX} (JOB_EDGES_MAX)"
    return ""


def _places_of(job: Job, tasks: Collection[str]) -> tuple[tuple[SiteName, int], ...]:
    """Return the components that hold some of these tasks of the job; none while it has no places."""
    graph = job.request.tasks
    if job.placement is None or graph is None:
        return ()
    held = [any(graph.names[task] in tasks for task in here) for here in job.placed.spots.tasks]
    return tuple([place for place, holds in zip(job.places, held, strict=True) if holds])


def _lack(found: NoPlace, tasks: int, idle: Sequence[int], names: Sequence[str]) -> str:
    """Return how many processors are lacking and where, or the power of the idle ones."""
    free = sum(idle)
    if free >= tasks:
        lower = "" if found.where is None else ", or lower their rcr"
        return f"{found.who_lacks_what}; spawn them when more is idle{lower}"
    where = ", ".join(f"{name} {here}" for name, here in zip(names, idle, strict=True) if here)
    them = "it" if tasks == 1 else "them"
    take = "the task takes a processor" if tasks == 1 else f"the {tasks} tasks take a processor each"
    have = f"{free} {'is' if free == 1 else 'are'} idle for {them} ({where})" if free else f"none is idle for {them}"
    missing = f"{tasks - free} {'is' if tasks - free == 1 else 'are'} missing"
    fewer = ", or fewer of them" if free else ""
    return f"{take}, and {have}: {missing}; spawn {them} when more is idle{fewer}"


def _joined(spots: Spots, more: Spots) -> Spots:
    return Spots((*spots.sites, *more.sites), (*spots.sizes, *more.sizes), (*spots.tasks, *more.tasks))


def _first(spots: Spots, count: int) -> Spots:
    return Spots(spots.sites[:count], spots.sizes[:count], spots.tasks[:count])
