"""One simulated site: its processors, who holds them, its queue, and the exact record of its use over time.

``koala.simulator.world.world`` and ``koala.simulator.world.background`` decide what a component or a user's job does
while it holds processors.
"""

from __future__ import annotations

import enum
from collections.abc import Collection
from typing import Final, Literal

import msgspec

from koala.model.grid import LocalScheduler, Site
from koala.model.messages import ENDED_NODES_MAX, AnyEvent, Outcome, SiteReported, Token
from koala.model.nodes import NodePool, TaskShape, releases_within
from koala.model.request import JobId
from koala.policies.places import needs_nodes
from koala.simulator.workloads.workload import Arrival
from koala.simulator.world.flows import Flow
from koala.simulator.world.local_queue import DISCIPLINES, WALLTIME_DEFAULT_S, LocalJob
from koala.simulator.world.nodes import SiteNodes
from koala.simulator.world.saved_work import RunProgress

# The holder of a node's processors for the dummy jobs: they come and go as a number and not as jobs.
_DUMMIES: Final = "dummies"
# The name of a node is this and its place.
_NODE: Final = "node"


class SimulatedState(enum.IntEnum):
    """The state of a component at its site."""

    QUEUED = 0
    STARTING = 1  # holds its processors, on its way to the barrier
    READY = 2
    RUNNING = 3
    ENDED = 4


_QUEUED = SimulatedState.QUEUED
_DONE = Outcome.DONE


class SimulatedJob:
    """A submitted job in the world: the duration of its application, and what was started for it."""

    __slots__ = (
        "bandwidth_share",
        "breaks",
        "execution_s",
        "id",
        "latency_share",
        "per_extra_cluster",
        "request",
        "run_began",
        "spawns",
        "tokens",
    )

    def __init__(self, job: JobId, arrival: Arrival) -> None:
        self.id = job
        self.request = arrival.request
        self.execution_s = arrival.execution_s
        self.breaks = arrival.breaks
        # For a job that declares its communication, the cost of further clusters follows from the shared links.
        communicates = arrival.request.communication is not None
        self.per_extra_cluster = 0.0 if communicates else arrival.per_extra_cluster
        self.bandwidth_share = arrival.bandwidth_share
        self.latency_share = arrival.latency_share
        self.tokens: list[Token] = []
        self.run_began = (0, 0.0)  # its last run, and when the first of its components began
        self.spawns = arrival.spawns  # those still to be requested

    @property
    def minds_links(self) -> bool:
        """True if its time depends on the links between its clusters."""
        return self.per_extra_cluster > 0.0 and (self.bandwidth_share > 0.0 or self.latency_share > 0.0)

    def execution_on_s(self, clusters: int, slowness: float) -> float:
        """Return how long the application runs over this many clusters with this slowness of the worst link between
        them, independent of the policy."""
        return self.execution_s * (1.0 + self.per_extra_cluster * slowness * (clusters - 1))


class SimulatedComponent(LocalJob):
    """One start of one component at a site, identified by its token for ever.

    ``newest`` is the event that the site repeats on request; ``fails_at`` the fraction of the execution at which the
    site will break it (below zero: on its way to the barrier; None: it will not), ``application_fails_at`` the
    fraction at which its application will return failure; ``clusters`` is the number of sites on which the job was
    released (0 before its release), ``slowness`` that of the worst link between them for its application, ``flow``
    its traffic on shared links, if any; ``outcome`` how its execution will end; ``shape`` is that of its tasks, None
    for plain ones; ``excluded`` the nodes, by their place, that it must not run on. For a job with checkpoints
    ``begun`` is the fraction that was done before, and ``progress`` its progress since ``runs_since``. ``run`` is its
    run, and ``late_s`` the delay of its release after the run began: spawned tasks take part in the work that is
    left.
    """

    __slots__ = (
        "application_fails_at",
        "begun",
        "clusters",
        "excluded",
        "exit_code",
        "fails_at",
        "flow",
        "job",
        "late_s",
        "limit_s",
        "newest",
        "outcome",
        "parts",
        "progress",
        "run",
        "runs_since",
        "shape",
        "site",
        "slowness",
        "state",
        "timer",
        "token",
    )

    def __init__(
        self, token: Token, site: SimulatedSite, job: SimulatedJob | None, processors: int, parts: int
    ) -> None:
        # Written out instead of super().__init__: this runs once for every component of every job.
        self.processors = processors
        self.limit_s = None if job is None else job.request.walltime_s  # the limit of its application's run time
        self.walltime_s = self.limit_s or WALLTIME_DEFAULT_S
        self.expected_end_at = 0.0
        self.token = token
        self.site = site
        self.job = job
        self.parts = parts
        self.state = _QUEUED
        self.newest: AnyEvent | None = None
        self.fails_at: float | None = None
        self.application_fails_at: float | None = None
        self.clusters = 0
        self.run = 0
        self.runs_since = 0.0
        self.late_s = 0.0
        self.slowness = 1.0
        self.flow: Flow[SimulatedComponent] | None = None
        self.outcome = _DONE
        self.exit_code = 1  # of its application, should it fail
        self.excluded: frozenset[int] = frozenset()
        self.begun = 0.0
        self.progress: RunProgress | None = None
        self.shape: TaskShape | None = None
        self.timer = 0


class UserJob(LocalJob):
    """A job of the site's own users; its scheduler knows its duration."""

    __slots__ = ("site", "timer")

    def __init__(self, site: SimulatedSite, processors: int, execution_s: float) -> None:
        super().__init__(processors, execution_s)
        self.site = site
        self.timer = 0


class SimulatedSite:
    """The processors of one cluster, space-shared between our components, its own users and dummies.

    ``installed`` is their number and ``processors`` how many of them work; the two differ only if a failure trace
    gives the site ``nodes``. With ``tells_ends`` its reports include when its users' jobs end.
    """

    __slots__ = (
        "_accounted_at",
        "_discipline",
        "_first_fit",
        "_others_processor_s",
        "_ours_processor_s",
        "_remembers_running",
        "_whole",
        "bad_nodes",
        "cut_off",
        "down",
        "dummies",
        "faults",
        "idle",
        "installed",
        "name",
        "nodes",
        "ours",
        "processors",
        "queue",
        "running",
        "tells_ends",
        "tells_nodes",
        "users",
    )

    def __init__(
        self,
        site: Site,
        nodes: SiteNodes[LocalJob | str] | None = None,
        bad_nodes: frozenset[int] = frozenset(),
        *,
        tells_ends: bool = False,
    ) -> None:
        self.name = site.name
        self.tells_ends = tells_ends
        self.nodes = nodes
        self.tells_nodes = nodes is not None and nodes.tells
        self.bad_nodes = bad_nodes
        self.installed = self.processors = site.processors
        self.faults = site.simulation.faults
        self.idle = site.processors
        self.ours = 0
        self.users = 0
        self.dummies = 0
        self.down = 0  # the number of outages that hold it down now
        self.cut_off = 0  # the number of silences that keep it unreachable now
        self.queue: list[LocalJob] = []
        self.running: dict[LocalJob, None] = {}
        scheduler = site.simulation.local_scheduler
        self._discipline = DISCIPLINES[scheduler]
        self._first_fit = scheduler is LocalScheduler.FIRST_FIT
        # Only backfilling needs the running jobs, and only a site that can break must know what to lose.
        faults = self.faults
        self._remembers_running = (
            scheduler is LocalScheduler.EASY
            or bool(faults.outages)
            or faults.mean_time_between_outages_s is not None
            or site.simulation.background is not None
            or nodes is not None
        )
        self._whole = NodePool.whole(site.node_classes)
        self._accounted_at = 0.0
        self._ours_processor_s = 0.0
        self._others_processor_s = 0.0

    @property
    def is_reachable(self) -> bool:
        """True if commands and answers pass between the site and the scheduler."""
        return not self.down and not self.cut_off

    @property
    def others(self) -> int:
        """Processors that others hold."""
        return self.users + self.dummies

    def report(self, now: float) -> SiteReported:
        """Return the site's report about itself. Dummies have no known end."""
        releases: tuple[tuple[float, int], ...] = ()
        if self.tells_ends and self.users:
            ends = [(job.expected_end_at, job.processors) for job in self.running if isinstance(job, UserJob)]
            releases = tuple(releases_within(ends, self.others))
        report = SiteReported(
            at=now, site=self.name, processors=self.processors, others=self.others, releases=releases
        )
        if self.nodes is not None and self.bad_nodes:
            report = msgspec.structs.replace(report, named=self.nodes.named(_NODE))
        if not self.tells_nodes:
            return report
        assert self.nodes is not None
        shown = tuple(each.token for each in self.nodes.holders() if isinstance(each, SimulatedComponent))
        return msgspec.structs.replace(report, nodes=self.nodes.classes(_token_of), shown=shown)

    def is_on_bad_node(self, job: LocalJob) -> bool:
        """Return True if the job holds a part of a misconfigured node."""
        return self.nodes is not None and not self.bad_nodes.isdisjoint(self.nodes.held(job))

    def nodes_of(self, job: LocalJob) -> tuple[str, ...]:
        """Return the nodes that the job holds a part of, by name, if the site reports them."""
        if self.nodes is None or not self.bad_nodes:
            return ()
        return tuple([f"{_NODE}{place}" for place in sorted(self.nodes.held(job))[:ENDED_NODES_MAX]])

    def kept_off(self, names: Collection[str], processors: int) -> frozenset[int]:
        """Return the nodes with these names that a component of this many processors must avoid: empty if the site
        has too few others, as a batch system that refuses the condition then receives the job without it."""
        places = frozenset(int(name.removeprefix(_NODE)) for name in names)
        assert self.nodes is not None, "no other site names its nodes"
        return places if self.nodes.processors_beside(places) >= processors else frozenset()

    def submit(self, job: LocalJob, now: float) -> bool:
        """Take a job. True: it starts at once. False: it waits until a ``serve`` starts it."""
        if job.processors <= self.idle and (self._first_fit or not self.queue) and self._has_places(job):
            self._begin(job, now)
            return True
        self.queue.append(job)
        return False

    def serve(self, now: float) -> list[LocalJob]:
        """Start what can start after a change of free processors or of the queue, and return it."""
        if not self.queue or self.down:
            return []
        begin = self._discipline(self.queue, self.idle, self.running, now)
        begun = []
        for job in begin:
            if self._has_places(job):
                self.queue.remove(job)
                self._begin(job, now)
                begun.append(job)
        return begun

    def _has_places(self, job: LocalJob) -> bool:
        """Return True if there are nodes for it: permitted ones, with room for its tasks if these need more than a
        processor. Processors are available."""
        if self.nodes is None or not isinstance(job, SimulatedComponent):
            return True
        if job.excluded:
            return self.nodes.free_beside(job.excluded) >= job.processors
        if not self.tells_nodes or job.shape is None:
            return True
        return self.nodes.places(job.shape) >= job.processors // job.shape.processors

    def never_has_places(self, shape: TaskShape | None, processors: int) -> bool:
        """Return True if the site could not run this many processors in tasks of the shape even when empty."""
        if shape is None or not self.tells_nodes:
            return shape is not None and needs_nodes(shape)
        return self._whole.places(shape) < processors // shape.processors

    def _begin(self, job: LocalJob, now: float) -> None:
        self.account(now)
        self.idle -= job.processors
        if self.nodes is not None:
            shape = job.shape if self.tells_nodes and isinstance(job, SimulatedComponent) else None
            if shape is not None:
                self.nodes.take_tasks(job, shape, job.processors // shape.processors)
            else:
                self.nodes.take(job, job.processors, job.excluded if isinstance(job, SimulatedComponent) else ())
        if isinstance(job, SimulatedComponent):
            self.ours += job.processors
        else:
            self.users += job.processors
        if self._remembers_running:
            job.expected_end_at = now + job.walltime_s
            self.running[job] = None

    def release(self, job: LocalJob, now: float) -> None:
        """Free what a job held."""
        self.account(now)
        self.idle += job.processors
        if self.nodes is not None:
            self.nodes.give_back(job)
        if isinstance(job, SimulatedComponent):
            self.ours -= job.processors
        else:
            self.users -= job.processors
        if self._remembers_running:
            del self.running[job]

    def set_dummies(self, dummies: int, now: float) -> None:
        """Change how many processors dummy jobs hold."""
        self.account(now)
        self.idle -= dummies - self.dummies
        self.dummies = dummies
        if self.nodes is not None:
            self.nodes.resize(_DUMMIES, dummies)

    def lose_everything(self, now: float) -> list[LocalJob]:
        """Begin an outage: nothing is held or queued any more. Return what was, in order."""
        self.account(now)
        lost = [*self.running, *self.queue]
        self.running.clear()
        self.queue.clear()
        self.idle = self.processors
        self.ours = self.users = self.dummies = 0
        if self.nodes is not None:
            self.nodes.clear()
        return lost

    def fail_nodes(self, places: Collection[int], now: float) -> list[LocalJob]:
        """Stop these nodes: every job on them loses all that it holds. Return these jobs."""
        assert self.nodes is not None
        lost = [job for job in self.nodes.holders_of(places) if not isinstance(job, str)]
        for job in lost:
            self.release(job, now)
        held = self.nodes.held(_DUMMIES)
        dummies_left = self.dummies - sum(held.get(place, 0) for place in places)
        self.set_dummies(0, now)
        gone = self.nodes.fail(places)
        self.processors -= gone
        self.idle -= gone
        self.set_dummies(dummies_left, now)
        return lost

    def recover_nodes(self, places: Collection[int]) -> None:
        """Let these nodes work again, with nothing running on them yet."""
        assert self.nodes is not None
        back = self.nodes.recover(places)
        self.processors += back
        self.idle += back

    def account(self, now: float) -> None:
        """Update the record of use to now; called before every change of what is held."""
        passed_s = now - self._accounted_at
        if passed_s > 0.0:
            self._ours_processor_s += self.ours * passed_s
            self._others_processor_s += (self.users + self.dummies) * passed_s
            self._accounted_at = now

    def start_record(self, now: float) -> None:
        """Forget the use so far: the measured period begins now."""
        self._accounted_at = now
        self._ours_processor_s = self._others_processor_s = 0.0

    def used_processor_s(self, by: Literal["ours", "others"], now: float) -> float:
        """Return processor-seconds held since the record began."""
        self.account(now)
        return self._ours_processor_s if by == "ours" else self._others_processor_s


def _token_of(job: LocalJob | str) -> str | None:
    """Return the token of a component of ours; None for other jobs."""
    return job.token if isinstance(job, SimulatedComponent) else None
