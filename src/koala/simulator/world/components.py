"""The components at simulated sites: how a site performs the scheduler's commands, and what it remembers.

The contract is that of ``koala.model.messages``: a token is started at most once, an abort may come at any time, and
a site repeats the newest event of a token on request. ``koala.simulator.world.world`` decides when events happen.
"""

from __future__ import annotations

from typing import NamedTuple

from koala.model.errors import Fault
from koala.model.grid import Grid
from koala.model.messages import (
    AbortComponent,
    AnyEvent,
    AskCheckpoint,
    AskSite,
    CheckpointBrought,
    ComponentAccepted,
    ComponentEnded,
    ComponentReady,
    ComponentRunning,
    ComponentStarting,
    Outcome,
    ReleaseBarrier,
    StartComponent,
    Token,
    TrafficMeasured,
)
from koala.model.request import JobId, SiteName
from koala.simulator.workloads.draws import stream
from koala.simulator.workloads.workload import REFUSED
from koala.simulator.world.background import BackgroundControl
from koala.simulator.world.contention import Contention
from koala.simulator.world.delivery import Delivery
from koala.simulator.world.event_heap import COMPONENT_ENDS, COMPONENT_READY, TRAFFIC_IS_MEASURED, EventHeap
from koala.simulator.world.faults import application_fails_at, component_fails_at
from koala.simulator.world.local_queue import LocalJob
from koala.simulator.world.saved_work import RunProgress
from koala.simulator.world.site import SimulatedComponent, SimulatedJob, SimulatedSite, SimulatedState, UserJob
from koala.simulator.world.wide_area import WideArea

# A bad program fails at this fraction of its execution, wherever it runs.
BREAKS_AT = 0.25
# A shell's exit code for a missing program, as on a misconfigured node.
NOT_FOUND = 127

_QUEUED = SimulatedState.QUEUED
_STARTING = SimulatedState.STARTING
_READY = SimulatedState.READY
_RUNNING = SimulatedState.RUNNING
_ENDED = SimulatedState.ENDED
_DONE = Outcome.DONE
_SITE_FAILED = Outcome.SITE_FAILED


class TrafficLook(NamedTuple):
    """The measurement of a component a given time after its start."""

    component: SimulatedComponent
    started_at: float
    after_s: float


class SimulatedComponents:
    """Every component that was ever started, asked about or aborted, and may still be asked about."""

    __slots__ = (
        "_backgrounds",
        "_delivery",
        "_event_heap",
        "_has_failures",
        "_has_startup",
        "_heal_at_s",
        "_jobs",
        "_lost",
        "_seed",
        "_sites",
        "_startups",
        "_traffic",
        "_unsaid",
        "_wide_area",
        "alive",
        "components",
        "contention",
        "failures",
    )

    def __init__(
        self,
        grid: Grid,
        sites: dict[SiteName, SimulatedSite],
        jobs: dict[JobId, SimulatedJob],
        seed: int,
        event_heap: EventHeap,
        delivery: Delivery,
    ) -> None:
        self._sites = sites
        self._jobs = jobs
        self._seed = seed
        self._event_heap = event_heap
        self._delivery = delivery
        self._backgrounds = BackgroundControl(grid, sites, seed, event_heap, delivery, self.serve)
        self._wide_area = WideArea(grid.links)
        self.contention = Contention(grid, seed, event_heap, self._plan_end)
        self._traffic = grid.simulation.traffic
        self._startups = {site.name: site.simulation.startup or grid.simulation.startup for site in grid.sites}
        self._has_startup = any(each.base_s > 0.0 or each.per_component_s > 0.0 for each in self._startups.values())
        self._has_failures = any(
            max(site.simulation.faults.component_failure, site.simulation.faults.application_failure) > 0.0
            for site in grid.sites
        )
        heal_at_s = grid.simulation.heal_at_s
        self._heal_at_s = float("inf") if heal_at_s is None else heal_at_s
        self._lost: dict[SiteName, list[SimulatedComponent]] = {}
        self._unsaid: dict[SiteName, dict[Token, SimulatedComponent]] = {}  # with news, while a site is cut off
        self.components: dict[Token, SimulatedComponent] = {}
        self.alive = 0
        self.failures = 0

    @property
    def backgrounds(self) -> BackgroundControl:
        """The sites' own users."""
        return self._backgrounds

    # ------------------------------------------------------------------------------------- commands

    def start(self, command: StartComponent, now: float) -> None:
        """Give a component to the site's scheduler, once."""
        site = self._sites[command.site]
        if self._unheard(site):
            return
        token = command.token
        known = self.components.get(token)
        if known is not None:
            self._start_again(known, now)
            return
        job = self._jobs.get(command.job)
        component = SimulatedComponent(token, site, job, command.processors, command.parts)
        component.run = command.run
        if command.walltime_s is not None:
            component.limit_s = component.walltime_s = command.walltime_s
        if command.exclude_nodes:
            component.excluded = site.kept_off(command.exclude_nodes, command.processors)
        self.components[token] = component
        if job is None or component.processors > site.installed:
            why = "no such job" if job is None else f"{site.name} has {site.installed} processors"
            self._remember_end(component, Outcome.REFUSED, why, now, Fault.SITE)
            return
        if job.breaks == REFUSED:
            self._remember_end(component, Outcome.REFUSED, "its own path cannot be made", now, Fault.JOB)
            return
        component.shape = job.request.components[command.component].shape
        if component.shape is not None and site.never_has_places(component.shape, component.processors):
            self._remember_end(
                component, Outcome.UNSUITABLE, f"{site.name} has no nodes for its tasks", now, Fault.JOB
            )
            return
        job.tokens.append(token)
        self.alive += 1
        if self._has_failures and now < self._heal_at_s:
            component.fails_at = component_fails_at(self._seed, token, site.faults.component_failure)
            component.application_fails_at = application_fails_at(self._seed, token, site.faults.application_failure)
        if site.submit(component, now):
            self._begin(component, now)
            return
        self.serve(site, now)
        if component.state is _QUEUED:
            self._delivery.answer(ComponentAccepted(at=now, token=token))

    def _start_again(self, known: SimulatedComponent, now: float) -> None:
        """Handle a repeated start, which starts nothing; a start after an abort is refused."""
        if known.job is None:
            self._remember_end(known, Outcome.REFUSED, "its abort or a question about it came first", now, Fault.OURS)
        else:
            self._delivery.repeat(self._newest(known, now), now)

    def abort(self, command: AbortComponent, now: float) -> None:
        """End a component in any state; an unknown one is remembered, so that it never starts."""
        site = self._sites[command.site]
        if self._unheard(site):
            return
        known = self.components.get(command.token)
        if known is None:
            self._bury(command.token, site, Outcome.ABORTED, "aborted before it came", now)
        elif known.state is _ENDED:
            self._delivery.repeat(self._newest(known, now), now)
        else:
            self._end(known, Outcome.ABORTED, "aborted", None, now)

    def ask_checkpoint(self, command: AskCheckpoint, now: float) -> None:
        """Save the state of a running component at once. With one of two programs it then ends, within its time of
        grace; with the other it continues until it is aborted."""
        site = self._sites[command.site]
        known = self.components.get(command.token)
        if self._unheard(site) or known is None or known.progress is None or known.job is None:
            return
        checkpoint = known.job.request.checkpoint
        if checkpoint is None or known.state is not _RUNNING:
            return
        known.progress.save(now)
        rng = stream(self._seed, "grace", command.token)
        leaves_after_s = rng.random() * checkpoint.grace_s
        if rng.random() < 0.5 and leaves_after_s < known.progress.left_s(now):
            known.outcome = Outcome.ABORTED
            known.timer = self._event_heap.add(now + leaves_after_s, COMPONENT_ENDS, known)

    def ask(self, command: AskSite, now: float) -> None:
        """Repeat the newest event of each token; an unknown one will never start."""
        site = self._sites[command.site]
        if self._unheard(site):
            return
        for token in command.tokens:
            known = self.components.get(token)
            if known is None:
                self._bury(token, site, Outcome.ABSENT, "never heard of", now)
            else:
                self._delivery.repeat(self._newest(known, now), now)

    def release(self, command: ReleaseBarrier, now: float) -> None:
        """Let every named component that waits at the barrier start its application now."""
        named = [self.components[token] for token in command.tokens if token in self.components]
        clusters = 1 if len(named) == 1 else len({component.site.name for component in named})
        job = named[0].job if clusters > 1 else None
        slowness = 1.0 if job is None else self._slowness(job, named)
        flow = None if job is None or named[0].clusters else self.contention.flow(job, named)
        reached: dict[SiteName, bool] = {}
        begun = self._begun(command, now) if command.checkpoints else 0.0
        late_s = _late_s(named[0], now) if named else 0.0
        for component in named:
            if not component.clusters:
                component.begun = begun
                component.late_s = late_s
                component.clusters = clusters
                component.slowness = slowness
                component.flow = flow
            site = component.site
            heard = reached.get(site.name)
            if heard is None:
                heard = reached[site.name] = not self._unheard(site)
            if heard and component.state is _READY:
                self._run(component, now)

    def _begun(self, command: ReleaseBarrier, now: float) -> float:
        """Return how much of its work a job has done that continues from these checkpoints, as far as their sites can
        be reached: the minimum over its components."""
        found = []
        for token, sources in zip(command.tokens, command.checkpoints, strict=True):
            known = (self.components.get(source.token) for source in sources)
            usable = (each for each in known if each is not None and each.progress is not None)
            component = next((each for each in usable if each.site.is_reachable), None)
            found.append(0.0 if component is None or component.progress is None else component.progress.kept)
            if sources:
                source, saved_by = (None, "") if component is None else (component.site.name, component.token)
                self._delivery.answer(CheckpointBrought(at=now, token=token, source=source, saved_by=saved_by))
        return min(found)

    def _slowness(self, job: SimulatedJob, named: list[SimulatedComponent]) -> float:
        """Return how slow the worst link between the sites of a job is for its application."""
        if not job.minds_links:
            return 1.0
        sites = dict.fromkeys(component.site.name for component in named)
        return self._wide_area.slowness(sites, job.bandwidth_share, job.latency_share)

    def _unheard(self, site: SimulatedSite) -> bool:
        """Return True if a command does not reach the site: it is down or cut off, or the message is lost."""
        channel = self._delivery.channel
        return not site.is_reachable or (channel is not None and channel.loses_command())

    # ------------------------------------------------------------------------------ a component's life

    def _begin(self, component: SimulatedComponent, now: float) -> None:
        component.state = _STARTING
        if component.site.tells_nodes:
            self._tell_nodes(component.site, now)
        startup_s = self._startup_s(component) if self._has_startup else 0.0
        if startup_s > 0.0:
            component.timer = self._event_heap.add(now + startup_s, COMPONENT_READY, component)
        else:
            self._reach_barrier(component, now)

    def _startup_s(self, component: SimulatedComponent) -> float:
        site = component.site
        startup = self._startups[site.name]
        used_before = site.processors - site.idle - component.processors
        startup_s = startup.base_s + startup.per_component_s * (component.parts - 1)
        startup_s *= 1.0 + startup.load_factor * used_before / site.processors
        if startup.jitter > 0.0:
            rng = stream(self._seed, "startup", component.token)
            startup_s *= rng.uniform(1.0 - startup.jitter, 1.0 + startup.jitter)
        return startup_s

    def is_ready(self, component: SimulatedComponent, sequence: int, at: float) -> None:
        """End its start-up, unless it was ended meanwhile."""
        if component.timer == sequence:
            self._reach_barrier(component, at)

    def _reach_barrier(self, component: SimulatedComponent, now: float) -> None:
        if component.fails_at is not None and component.fails_at < 0.0 and now < self._heal_at_s:
            self._end(component, _SITE_FAILED, "broke on its way to the barrier", None, now, Fault.SITE)
            return
        component.state = _READY
        component.newest = ready = ComponentReady(at=now, token=component.token)
        self._say(component, ready)

    def _run(self, component: SimulatedComponent, now: float) -> None:
        job = component.job
        assert job is not None, "only started components reach the barrier"
        execution_s = job.execution_on_s(component.clusters, component.slowness)
        if job.request.checkpoint is not None:
            component.progress = RunProgress(job.request.checkpoint, component.begun, execution_s, now)
            execution_s *= 1.0 - component.begun
        if component.late_s:
            execution_s = max(0.0, execution_s - component.late_s)
        component.state = _RUNNING
        component.runs_since = now
        if job.breaks:
            component.application_fails_at, component.exit_code = BREAKS_AT, job.breaks
        if component.site.bad_nodes and now < self._heal_at_s and component.site.is_on_bad_node(component):
            component.application_fails_at, component.exit_code = 0.0, NOT_FOUND
        flow = component.flow
        if flow is not None and not flow.is_over:
            self.contention.join(flow, component, execution_s, now)
            if self._traffic is not None:
                after_s = self._traffic.report_after_s
                self._event_heap.add(now + after_s, TRAFFIC_IS_MEASURED, TrafficLook(component, now, after_s))
        else:
            self._plan_end(component, now, execution_s, execution_s, 1.0, now)

    def measure_traffic(self, look: TrafficLook, sequence: int, at: float) -> None:
        """Report what the component sends now, if it still runs; and once more after twice the time."""
        component, flow = look.component, look.component.flow
        if component.state is not _RUNNING or flow is None or flow.is_over:
            return
        bit_s = flow.sent_bit_s[component] * flow.ratio
        told = TrafficMeasured(
            at=at, token=component.token, elapsed_s=at - look.started_at, sent_bit_s=bit_s, received_bit_s=bit_s
        )
        if not component.site.cut_off:
            self._delivery.answer(told)
        again = TrafficLook(component, look.started_at, 2 * look.after_s)
        self._event_heap.add(look.started_at + again.after_s, TRAFFIC_IS_MEASURED, again)

    def _plan_end(
        self,
        component: SimulatedComponent,
        started_at: float,
        execution_s: float,
        work_s: float,
        stretched: float,
        now: float,
    ) -> None:
        """Plan when and how its execution ends at this speed; an earlier plan is cancelled."""
        assert component.job is not None
        if component.progress is not None:
            component.progress.goes_on(work_s, stretched, now)
        ends_at = now + work_s * stretched
        component.outcome = _DONE
        walltime_s = component.limit_s
        if walltime_s is not None and ends_at > started_at + walltime_s:
            ends_at = started_at + walltime_s
            component.outcome = Outcome.TIMED_OUT
        if component.fails_at is not None or component.application_fails_at is not None:
            done_s = execution_s - work_s
            for fails_at, outcome in (
                (component.fails_at, _SITE_FAILED),
                (component.application_fails_at, Outcome.FAILED),
            ):
                if fails_at is not None and fails_at >= 0.0:
                    breaks_at = now + max(0.0, fails_at * execution_s - done_s) * stretched
                    if breaks_at < ends_at and (breaks_at < self._heal_at_s or component.job.breaks):
                        ends_at = breaks_at
                        component.outcome = outcome
        component.timer = self._event_heap.add(ends_at, COMPONENT_ENDS, component)

    def execution_ends(self, component: SimulatedComponent, sequence: int, at: float) -> None:
        """End its application, unless the component was ended meanwhile."""
        if component.timer != sequence:
            return
        outcome = component.outcome
        if outcome is _DONE:
            self._end(component, outcome, "", 0, at)
        elif outcome is Outcome.FAILED:
            self._end(component, outcome, "the application returned failure", component.exit_code, at)
        elif outcome is Outcome.ABORTED:
            self._end(component, outcome, "it has saved its state", None, at)
        elif outcome is Outcome.TIMED_OUT:
            self._end(component, outcome, "it ran into its walltime", None, at, Fault.JOB)
        else:
            self._end(component, outcome, "a node broke", None, at)

    def _end(
        self,
        component: SimulatedComponent,
        outcome: Outcome,
        reason: str,
        exit_code: int | None,
        now: float,
        fault: Fault | None = None,
    ) -> None:
        site = component.site
        nodes: tuple[str, ...] = ()
        if component.state is _QUEUED:
            site.queue.remove(component)
        else:
            if site.bad_nodes and component.state is _RUNNING:
                nodes = site.nodes_of(component)
            site.release(component, now)
        if outcome is _SITE_FAILED:
            self.failures += 1
        self._mark_ended(component, outcome, reason, exit_code, now, fault=fault, nodes=nodes)
        self.alive -= 1
        assert component.newest is not None
        self._say(component, component.newest)
        if site.tells_nodes or (nodes and outcome is Outcome.FAILED):
            self._tell_nodes(site, now)
        self.serve(site, now)

    def _tell_nodes(self, site: SimulatedSite, now: float) -> None:
        """Report the nodes after each start and end, since only the site knows which are free; bad nodes only after
        failures."""
        if site.is_reachable:
            self._delivery.tell(site.report(now))

    def _say(self, component: SimulatedComponent, event: AnyEvent) -> None:
        """Report news of a component; a site that is cut off reports the newest when it is back."""
        if component.site.cut_off:
            self._unsaid.setdefault(component.site.name, {})[component.token] = component
        else:
            self._delivery.answer(event)

    def _mark_ended(
        self,
        component: SimulatedComponent,
        outcome: Outcome,
        reason: str,
        exit_code: int | None,
        now: float,
        *,
        fault: Fault | None = None,
        nodes: tuple[str, ...] = (),
    ) -> None:
        if component.progress is not None and component.state is _RUNNING:
            component.progress.end(now)
        # Its processors are busy while it runs; no model predicts its memory.
        processor_s = component.processors * (now - component.runs_since) if component.state is _RUNNING else None
        component.state = _ENDED
        component.timer = 0
        if component.flow is not None:
            self.contention.leave(component.flow, component, done=outcome is _DONE, now=now)
        component.newest = ComponentEnded(
            at=now,
            token=component.token,
            outcome=outcome,
            reason=reason,
            exit_code=exit_code,
            fault=fault,
            nodes=nodes,
            processor_s=processor_s,
        )

    def _remember_end(
        self,
        component: SimulatedComponent,
        outcome: Outcome,
        reason: str,
        now: float,
        fault: Fault | None = None,
    ) -> None:
        """Record the end of a component that never held processors here."""
        self._mark_ended(component, outcome, reason, None, now, fault=fault)
        assert component.newest is not None
        self._delivery.answer(component.newest)

    def _bury(self, token: Token, site: SimulatedSite, outcome: Outcome, reason: str, now: float) -> None:
        """Remember a token that never came, so that it never starts."""
        tombstone = self.components[token] = SimulatedComponent(token, site, None, 0, 0)
        self._remember_end(tombstone, outcome, reason, now)

    def _newest(self, component: SimulatedComponent, now: float) -> AnyEvent:
        if component.state is _RUNNING:
            return ComponentRunning(at=now, token=component.token)
        if component.newest is None:  # queued, or on its way to the barrier
            return ComponentAccepted(at=now, token=component.token)
        return component.newest

    def forget(self, job: SimulatedJob) -> None:
        """Forget a job that is over, except components that its abort has not reached yet."""
        for token in job.tokens:
            if self.components[token].state is _ENDED:
                del self.components[token]

    # ------------------------------------------------------------------------------------- the sites

    def serve(self, site: SimulatedSite, now: float) -> None:
        """Let the site's scheduler start what it can now, and its users' load return to its band."""
        background = self._backgrounds.by_site.get(site.name) if self._backgrounds.by_site else None
        if background is not None:
            background.control(now)
        if site.queue:
            for job in site.serve(now):
                if isinstance(job, UserJob):
                    self._backgrounds.began(job, now)
                elif isinstance(job, SimulatedComponent):
                    self._begin(job, now)
                    if job.state is _STARTING:
                        self._say(job, ComponentStarting(at=now, token=job.token))
        if background is not None:
            background.control(now)
            self._backgrounds.report_changes(background, now)

    def go_down(self, site: SimulatedSite, now: float) -> None:
        """Lose everything that the site held and queued; the site reports that when it is back."""
        lost = self._lost.setdefault(site.name, [])
        lost += self._break(site.lose_everything(now), "lost in an outage", now)
        background = self._backgrounds.by_site.get(site.name)
        if background is not None:
            background.queued = 0

    def nodes_changed(self, site: SimulatedSite, lost: list[LocalJob], now: float) -> None:
        """Report at once that nodes of the site have failed or recovered: first how many processors work, then what
        broke.

        This order keeps the scheduler from taking a broken component's processors for idle.
        """
        broken = self._break(lost, "a node failed", now)
        background = self._backgrounds.by_site.get(site.name)
        if background is not None:
            background.control(now)
        report = site.report(now)
        if background is not None:
            background.told(report)
        if site.is_reachable:
            self._delivery.tell(report)
        for component in broken:
            assert component.newest is not None
            self._say(component, component.newest)
        self.serve(site, now)

    def _break(self, jobs: list[LocalJob], reason: str, now: float) -> list[SimulatedComponent]:
        """Mark jobs that the site has already released as ended; return our components among them."""
        ours = []
        for job in jobs:
            if isinstance(job, SimulatedComponent):
                self._mark_ended(job, _SITE_FAILED, reason, None, now, fault=Fault.SITE)
                self.alive -= 1
                self.failures += 1
                ours.append(job)
            elif isinstance(job, UserJob):
                job.timer = 0
        return ours

    def come_back(self, site: SimulatedSite, now: float) -> None:
        """Report what happened meanwhile, now that the site works or can be reached again; a site that still cannot
        be reached does so later."""
        lost, unsaid = self._lost.pop(site.name, []), self._unsaid.pop(site.name, {})
        news = unsaid | {component.token: component for component in lost}
        if site.is_reachable:
            for component in news.values():
                self._delivery.repeat(self._newest(component, now), now)
        elif news:
            self._unsaid[site.name] = news
        self.serve(site, now)


def _late_s(component: SimulatedComponent, now: float) -> float:
    """Return how long ago its run began; 0 if it begins now."""
    job = component.job
    if job is None or job.run_began[0] != component.run:
        if job is not None:
            job.run_began = component.run, now
        return 0.0
    return now - job.run_began[1]
