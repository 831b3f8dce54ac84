"""Driver one: turns the scheduler in virtual time, from the first submission until every job has ended.

The scheduler is the very one that runs live; everything around it is ``koala.simulator.world``.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from koala.core import Scheduler
from koala.grid import Grid, SchedulerParameters
from koala.messages import AnyCommand, JobEnded, JobSubmitted, WakeAt
from koala.model import JobId, Request
from koala.policies import Catalogue
from koala.simulator.log import RunLog
from koala.simulator.result import Result, SiteUse, Unfinished
from koala.simulator.workload import Workload
from koala.simulator.world import World

# A run is given up when nothing of ours is under way and this many events in a row (ticks of the scheduler,
# reports of the sites' other users) made it do nothing, over a time in which any of its patience must end.
QUIET_EVENTS_MAX = 2_000
PROGRESS_EVENTS = 4_096


def simulate(
    grid: Grid,
    workload: Workload,
    *,
    policy: str | None = None,
    seed: int = 1,
    log: Callable[[bytes], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    catalogue: Catalogue | None = None,
) -> Result:
    """Run the workload on the grid and return what came of it. The same arguments give the same log, bit by bit.

    ``policy`` replaces the grid's; ``log`` gets the lines of the log in pieces; ``progress`` is told from time
    to time how many jobs have ended, of how many. Jobs that can never start are in the result as unfinished.
    """
    files = workload.files(grid, seed)
    if files:
        grid = msgspec.structs.replace(grid, files=(*grid.files, *files))
    if policy is not None:
        grid = msgspec.structs.replace(grid, scheduler=msgspec.structs.replace(grid.scheduler, policy=policy))
    with _no_search_for_cycles():
        return _Run(grid, workload, seed, log, catalogue).turn(progress)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """What a run lets go of is freed at once; Python's search for forgotten cycles would find next to nothing and
    take a tenth of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _Run:
    """One run: the scheduler, its world, and the record of both."""

    def __init__(
        self,
        grid: Grid,
        workload: Workload,
        seed: int,
        log: Callable[[bytes], None] | None,
        catalogue: Catalogue | None,
    ) -> None:
        self._grid = grid
        self._seed = seed
        self._jobs = workload.jobs
        self._world = World(grid, workload, seed)
        self._scheduler = Scheduler(grid, catalogue)
        self._log = RunLog(log)
        self._requests: dict[JobId, tuple[Request, float]] = {}
        self._ended: list[tuple[JobEnded, Request]] = []
        self._first_submission_s = 0.0
        self._events = 0
        self._quiet_s = _patience_s(grid.scheduler)

    def turn(self, progress: Callable[[int, int], None] | None) -> Result:
        """Events to the scheduler, commands to the world, until nothing is left to do."""
        world, handle, write = self._world, self._scheduler.handle, self._log.write
        quiet_events = 0
        quiet_since_s = 0.0
        while (event := world.next()) is not None:
            self._events += 1
            if type(event) is JobSubmitted:
                if not self._requests and not self._ended:
                    self._first_submission_s = event.at
                self._requests[event.job] = event.request, event.at
            commands = handle(event)
            write(event, commands)
            if self._perform(commands, event.at):
                quiet_events = 0
                quiet_since_s = event.at
            else:
                quiet_events += 1
                if quiet_events > QUIET_EVENTS_MAX and self._is_stuck(event.at - quiet_since_s):
                    break
            if progress is not None and self._events % PROGRESS_EVENTS == 0:
                progress(len(self._ended), self._jobs)
            if not self._requests and not world.arrivals_left:
                break
        if progress is not None:
            progress(len(self._ended), self._jobs)
        return self._result()

    def _perform(self, commands: list[AnyCommand], now: float) -> bool:
        """Do all the scheduler commands; says whether anything but a later wake-up was among it."""
        perform = self._world.perform
        acted = False
        for command in commands:
            perform(command, now)
            if type(command) is not WakeAt:
                acted = True
                if type(command) is JobEnded:
                    request, _ = self._requests.pop(command.job)
                    self._ended.append((command, request))
        return acted

    def _is_stuck(self, quiet_s: float) -> bool:
        return quiet_s > self._quiet_s and not self._world.busy

    def _result(self) -> Result:
        world = self._world
        end_s = world.now
        period_s = end_s - self._first_submission_s
        uses = [
            SiteUse(
                site=site.name,
                processors=site.processors,
                ours=site.used_processor_s("ours", end_s) / (period_s * site.processors) if period_s > 0 else 0.0,
                others=site.used_processor_s("others", end_s) / (period_s * site.processors) if period_s > 0 else 0.0,
            )
            for site in world.sites.values()
        ]
        return Result(
            ended=self._ended,
            unfinished=[
                Unfinished(job, request, submitted_s, self._why_unfinished(job))
                for job, (request, submitted_s) in self._requests.items()
            ],
            uses=uses,
            voids=world.voids(),
            policy=self._grid.scheduler.policy,
            seed=self._seed,
            first_submission_s=self._first_submission_s,
            end_s=end_s,
            events=self._events,
            component_failures=world.components.failures,
            log_sha256=self._log.close(),
        )

    def _why_unfinished(self, job: JobId) -> str:
        """The scheduler's own words about a job that it could never run."""
        explanation = self._scheduler.explain(job)
        assert explanation is not None, "the scheduler forgets a job only when it has ended"
        if explanation.refusal is None:
            return f"{explanation.meaning}; nothing more could happen"
        return f"{explanation.refusal.reason}; {explanation.refusal.cure}"


def _patience_s(parameters: SchedulerParameters) -> float:
    """Longer than any single wait of the scheduler: after it, nothing that it waits for can still come due."""
    checks_s = 0.0 if parameters.check_interval_s is None else parameters.check_interval_s
    waits_s = parameters.cooldown_s + parameters.barrier_timeout_s + 16 * parameters.answer_timeout_s + checks_s
    return 2.0 * (waits_s + parameters.scan_interval_s)
