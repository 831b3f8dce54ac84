"""The other users of a lab's sites: jobs submitted directly to each batch system, which hold its load inside a band.

The live twin of ``koala.simulator.world.background``: users come with exponential gaps and run exponential times, and
dummy jobs are added and ended so that users and dummies together stay in the band. Under one seed the users are the
same. Koala counts all of them as others'.
"""

from __future__ import annotations

import asyncio
import math
import random
import shlex
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from koala.lab import Lab, LabError, LabSystem
from koala.model.grid import Background, Grid
from koala.simulator import exponential, quota_processors, users_stream

# How often each site is examined; a dummy that nobody ends ends by itself, so that none outlives a crash for long.
LOOK_S = 1.0
DUMMY_S = 3_600
JOB_NAME = "local-user"


class LoadError(RuntimeError):
    """A batch system did not accept, end or list a local job correctly."""

    def for_user(self) -> str:
        """Return which site, and its output."""
        return str(self)


def submission(kind: LabSystem, queue: str, seconds: float) -> tuple[list[str], str]:
    """Return the command that submits a local job of one processor which sleeps this long, and its standard input."""
    script = f"#!/bin/sh\nexec sleep {seconds:.3f}\n"
    if kind is LabSystem.SLURM:
        words = ["sbatch", "--parsable", f"--job-name={JOB_NAME}", f"--partition={queue}", "--ntasks=1"]
        return [*words, "--output=/dev/null", "--chdir=/", "--no-requeue"], script
    words = ["qsub", "-terse", "-N", JOB_NAME, "-q", queue, "-S", "/bin/sh", "-r", "n"]
    return [*words, "-o", "/dev/null", "-e", "/dev/null", "-wd", "/"], script


def submitted_id(site: str, printed: str) -> str:
    """Return the number that a batch system printed for a job; raise LoadError if it printed anything else."""
    found = printed.strip().partition(";")[0]
    if not found.isdigit():
        raise LoadError(f"{site}: a local job was submitted and {printed.strip()!r} came back, which is no number")
    return found


def cancellation(kind: LabSystem, job: str) -> list[str]:
    """Return the command that ends a local job."""
    return ["scancel" if kind is LabSystem.SLURM else "qdel", job]


@dataclass
class Band:
    """The permitted load of a site, in processors: the simulator's for the same parameters."""

    low: int
    high: int

    @classmethod
    def of(cls, background: Background, processors: int) -> Band:
        """Return the band of a site of this size."""
        low = math.ceil(round(background.band_low * processors, 9))
        return cls(low, max(low, quota_processors(processors, background.band_high)))

    def wanted_dummies(self, users: int, dummies: int) -> int:
        """Return how many dummies should complement this many processors of users."""
        load = users + dummies
        if load > self.high:
            return max(0, dummies - (load - self.high))
        return dummies + max(0, self.low - load)


@dataclass
class SiteLoad:
    """The local jobs of one site: users' by their end times, and dummies; a job has one processor."""

    name: str
    kind: LabSystem
    queue: str
    processors: int
    background: Background
    rng: random.Random
    users: dict[str, float] = field(default_factory=dict)
    dummies: list[str] = field(default_factory=list)
    next_user_at: float = math.inf
    samples: list[int] = field(default_factory=list)

    def open(self, now: float) -> None:
        """Let users come from now on."""
        offered = self.background.user_load * self.processors
        self._gap_s = self.background.user_execution_mean_s / offered if offered > 0 else math.inf
        self.next_user_at = now + self._draw_gap_s()

    def _draw_gap_s(self) -> float:
        return exponential(self.rng, self._gap_s) if math.isfinite(self._gap_s) else math.inf

    def due_users(self, now: float) -> list[float]:
        """Return the run times of the users that have come by now."""
        found = []
        while self.next_user_at <= now:
            found.append(exponential(self.rng, self.background.user_execution_mean_s))
            self.next_user_at += self._draw_gap_s()
        return found


class LoadController:
    """Holds the load of all sites of a lab, as a context; ``shares`` returns the result afterwards."""

    def __init__(
        self, lab: Lab, grid: Grid, background: Background, seed: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._lab = lab
        self._clock = clock
        self._sites = [
            SiteLoad(
                name=site.name,
                kind=LabSystem(site.kind),
                queue=site.batch.queue or "",
                processors=site.processors,
                background=background,
                rng=users_stream(seed, site.name),
            )
            for site in grid.sites
            if site.batch is not None
        ]

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Hold the load while the block lasts; the block begins when every site is in its band for the first time."""
        for site in self._sites:
            site.open(self._clock())
        await self._look()
        task = asyncio.create_task(self._forever())
        try:
            yield
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await asyncio.gather(*(asyncio.to_thread(self._end_all, site) for site in self._sites))

    def shares(self) -> Mapping[str, float]:
        """Return the mean share of each site that its local users held."""
        return {
            site.name: sum(site.samples) / len(site.samples) / site.processors for site in self._sites if site.samples
        }

    async def _forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            await self._look()

    async def _look(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(self._control, site) for site in self._sites))

    def _control(self, site: SiteLoad) -> None:
        """Let users come and go, and compensate with dummies."""
        now = self._clock()
        site.users = {job: ends_at for job, ends_at in site.users.items() if ends_at > now}
        for run_s in site.due_users(now):
            # Dummies make room first, as in the simulator.
            self._set_dummies(site, Band.of(site.background, site.processors), len(site.users) + 1)
            site.users[self._submit(site, run_s)] = now + run_s
        self._set_dummies(site, Band.of(site.background, site.processors), len(site.users))
        site.samples.append(len(site.users) + len(site.dummies))

    def _set_dummies(self, site: SiteLoad, band: Band, users: int) -> None:
        wanted = band.wanted_dummies(users, len(site.dummies))
        while len(site.dummies) > wanted:
            self._run(site, cancellation(site.kind, site.dummies.pop()))
        while len(site.dummies) < wanted:
            site.dummies.append(self._submit(site, DUMMY_S))

    def _submit(self, site: SiteLoad, seconds: float) -> str:
        words, script = submission(site.kind, site.queue, seconds)
        return submitted_id(site.name, self._run(site, words, script))

    def _run(self, site: SiteLoad, words: list[str], text: str | None = None) -> str:
        try:
            answer = self._lab.run(site.name, *words, text=text)
        except LabError as error:
            raise LoadError(f"{site.name}: {error.for_user()}") from None
        if answer.code != 0:
            raise LoadError(f"{site.name}: {shlex.join(words)}: {answer.stderr.strip() or answer.stdout.strip()}")
        return answer.stdout

    def _end_all(self, site: SiteLoad) -> None:
        for job in (*site.dummies, *site.users):
            # A user's job may have ended by itself in this moment.
            with suppress(LoadError):
                self._run(site, cancellation(site.kind, job))
