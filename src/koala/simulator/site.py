"""One simulated site: its processors, who holds them, its queue, and the exact record of its use over time.

What a component or a user's job does while it holds processors is decided in ``koala.simulator.world`` and
``koala.simulator.background``.
"""

from __future__ import annotations

import enum
from typing import Literal

from koala.grid import LocalScheduler, Site
from koala.messages import AnyEvent, Outcome, Token
from koala.model import JobId, Request
from koala.simulator.local_queue import DISCIPLINES, WALLTIME_DEFAULT_S, LocalJob


class State(enum.IntEnum):
    """Where a component is at its site."""

    QUEUED = 0
    STARTING = 1  # holds its processors, on its way to the barrier
    READY = 2
    RUNNING = 3
    ENDED = 4


class SimulatedJob:
    """A submitted job as the world knows it: how long its application takes, and what was started for it."""

    __slots__ = ("execution_s", "id", "per_extra_cluster", "request", "tokens")

    def __init__(self, job: JobId, request: Request, execution_s: float, per_extra_cluster: float) -> None:
        self.id = job
        self.request = request
        self.execution_s = execution_s
        self.per_extra_cluster = per_extra_cluster
        self.tokens: list[Token] = []

    def execution_on_s(self, clusters: int) -> float:
        """How long the application runs over this many clusters: the same for whoever placed it there."""
        return self.execution_s * (1.0 + self.per_extra_cluster * (clusters - 1))


class SimulatedComponent(LocalJob):
    """One start of one component at a site, known by its token for ever.

    ``newest`` is the event that the site repeats when it is asked; ``fails_at`` the fraction of the execution
    at which the site will break it (below zero: on its way to the barrier; None: it will not),
    ``application_fails_at`` the fraction at which its application will return failure; ``clusters``
    how many sites the job was released on (0 before its release); ``outcome`` how its execution will end.
    """

    __slots__ = (
        "application_fails_at",
        "clusters",
        "fails_at",
        "job",
        "newest",
        "outcome",
        "parts",
        "site",
        "state",
        "timer",
        "token",
    )

    def __init__(
        self, token: Token, site: SimulatedSite, job: SimulatedJob | None, processors: int, parts: int
    ) -> None:
        # Spelled out instead of super().__init__: this is made once for every component of every job.
        self.processors = processors
        self.walltime_s = WALLTIME_DEFAULT_S if job is None else job.request.walltime_s or WALLTIME_DEFAULT_S
        self.expected_end_at = 0.0
        self.token = token
        self.site = site
        self.job = job
        self.parts = parts
        self.state = State.QUEUED
        self.newest: AnyEvent | None = None
        self.fails_at: float | None = None
        self.application_fails_at: float | None = None
        self.clusters = 0
        self.outcome = Outcome.DONE
        self.timer = 0


class UserJob(LocalJob):
    """A job of the site's own users; its scheduler knows how long it will run."""

    __slots__ = ("site", "timer")

    def __init__(self, site: SimulatedSite, processors: int, execution_s: float) -> None:
        super().__init__(processors, execution_s)
        self.site = site
        self.timer = 0


class SimulatedSite:
    """The processors of one cluster, space-shared between our components, its own users and dummies."""

    __slots__ = (
        "_accounted_at",
        "_discipline",
        "_first_fit",
        "_others_processor_s",
        "_ours_processor_s",
        "_remembers_running",
        "down",
        "dummies",
        "faults",
        "idle",
        "name",
        "ours",
        "processors",
        "queue",
        "running",
        "users",
    )

    def __init__(self, site: Site) -> None:
        self.name = site.name
        self.processors = site.processors
        self.faults = site.simulation.faults
        self.idle = site.processors
        self.ours = 0
        self.users = 0
        self.dummies = 0
        self.down = 0  # how many outages hold it down now
        self.queue: list[LocalJob] = []
        self.running: dict[LocalJob, None] = {}
        scheduler = site.simulation.local_scheduler
        self._discipline = DISCIPLINES[scheduler]
        self._first_fit = scheduler is LocalScheduler.FIRST_FIT
        # Only backfilling looks at what runs, and only a site that can break must know what to lose.
        faults = self.faults
        self._remembers_running = (
            scheduler is LocalScheduler.EASY
            or bool(faults.outages)
            or faults.mean_time_between_outages_s is not None
            or site.simulation.background is not None
        )
        self._accounted_at = 0.0
        self._ours_processor_s = 0.0
        self._others_processor_s = 0.0

    @property
    def others(self) -> int:
        """Processors that are held, and not by us."""
        return self.users + self.dummies

    def submit(self, job: LocalJob, now: float) -> bool:
        """Take a job. True: it begins at once. False: it waits until a ``serve`` begins it."""
        if job.processors <= self.idle and (self._first_fit or not self.queue):
            self._begin(job, now)
            return True
        self.queue.append(job)
        return False

    def serve(self, now: float) -> list[LocalJob]:
        """Begin what can begin after something was freed or was queued, and return it."""
        if not self.queue or self.down:
            return []
        begin = self._discipline(self.queue, self.idle, self.running, now)
        for job in begin:
            self.queue.remove(job)
            self._begin(job, now)
        return begin

    def _begin(self, job: LocalJob, now: float) -> None:
        self.account(now)
        self.idle -= job.processors
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

    def lose_everything(self, now: float) -> list[LocalJob]:
        """An outage begins: nothing is held or queued any more. Returns what was, in order."""
        self.account(now)
        lost = [*self.running, *self.queue]
        self.running.clear()
        self.queue.clear()
        self.idle = self.processors
        self.ours = self.users = self.dummies = 0
        return lost

    def account(self, now: float) -> None:
        """Bring the record of use up to now; called before every change of what is held."""
        passed_s = now - self._accounted_at
        if passed_s > 0.0:
            self._ours_processor_s += self.ours * passed_s
            self._others_processor_s += (self.users + self.dummies) * passed_s
            self._accounted_at = now

    def start_record(self, now: float) -> None:
        """Forget the use so far: the period that is measured begins now."""
        self._accounted_at = now
        self._ours_processor_s = self._others_processor_s = 0.0

    def used_processor_s(self, by: Literal["ours", "others"], now: float) -> float:
        """Processor-seconds held since the record began."""
        self.account(now)
        return self._ours_processor_s if by == "ours" else self._others_processor_s
