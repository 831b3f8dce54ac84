"""Jobs that save their state in a storm: this module draws them and checks the promises about them."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from koala.core import Scheduler
from koala.core.state.checkpoints import CHECKPOINT_RUNS_MAX
from koala.model.checkpoint import Checkpoint, CheckpointSignal
from koala.model.facts import JobEnded, Turn
from koala.model.messages import AnyEvent, ComponentEnded, JobSubmitted, ReleaseBarrier, Token
from koala.model.request import JobId, Request
from koala.simulator.workloads.workload import Arrival
from koala.simulator.world.site import SimulatedState
from koala.simulator.world.world import World

LOSES = "a restart loses at most the work since its last checkpoint"
WHOLE = "a checkpoint is whole or absent"
# Fractions of an execution closer than this are equal.
_ROUNDING = 1e-9


def with_checkpoints(rng: random.Random, arrivals: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """In some storms let some jobs save their state, at intervals or on request."""
    if rng.random() < 0.5:
        return arrivals
    return tuple(
        arrival._replace(
            request=msgspec.structs.replace(arrival.request, checkpoint=_checkpoint(rng, arrival.request))
        )
        if rng.random() < 0.5
        else arrival
        for arrival in arrivals
    )


def _checkpoint(rng: random.Random, request: Request) -> Checkpoint:
    return Checkpoint(
        every_s=rng.choice((None, 5.0, 20.0, 60.0)),
        signal=rng.choice((None, CheckpointSignal.USR1)),
        grace_s=min(rng.choice((0.0, 2.0, 30.0, 600.0)), (request.walltime_s or 1_200.0) / 2),
        shared=rng.random() < 0.3,
    )


class CheckpointPromises:
    """Follows the runs of jobs that save their state; calls ``fail`` with the name of a broken promise."""

    def __init__(self, scheduler: Scheduler, world: World, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._world = world
        self._fail = fail
        self._requests: dict[JobId, Request] = {}
        self._runs: dict[JobId, list[tuple[Token, ...]]] = {}  # the last first
        self._ended: set[Token] = set()

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event."""
        if isinstance(event, ComponentEnded):
            self._ended.add(event.token)
        elif isinstance(event, JobSubmitted) and event.request.checkpoint is not None:
            array = event.request.array
            for job in range(event.job, event.job + 1 + (0 if array is None else array.size)):
                self._requests[job] = event.request
        for entry in turn.entries:
            if isinstance(entry, ReleaseBarrier) and entry.job in self._requests:
                self._released(entry)
            elif isinstance(entry, JobEnded):
                self._requests.pop(entry.job, None)
                self._runs.pop(entry.job, None)

    def _released(self, command: ReleaseBarrier) -> None:
        for sources in command.checkpoints:
            for source in sources:
                if source.token not in self._ended:
                    self._fail(WHOLE, f"job {command.job} goes on from {source.token}, which may still write")
        runs = self._runs.setdefault(command.job, [])
        if runs and set(command.tokens) <= set(runs[0]):
            return  # a component that had not received it
        request, components = self._requests[command.job], self._world.components.components
        if runs and components[command.tokens[0]].run == components[runs[0][0]].run:
            return  # tasks that were spawned into the run
        least = [self._least(request.checkpoint_part(part), request, runs) for part in range(len(command.tokens))]
        for token in command.tokens:
            begun = components[token].begun
            if begun < min(least) - _ROUNDING:
                self._fail(
                    LOSES,
                    f"job {command.job} begins with {begun:.6f} of its work done, and had saved {min(least):.6f}",
                )
        self._runs[command.job] = [command.tokens, *runs[: CHECKPOINT_RUNS_MAX - 1]]

    def _least(self, part: int, request: Request, runs: list[tuple[Token, ...]]) -> float:
        """Return how much a component must have done when it continues, by its last run's reachable checkpoints."""
        assert request.checkpoint is not None
        for run in runs:
            component = self._world.components.components.get(run[part]) if part < len(run) else None
            if component is None or component.progress is None or component.state is not SimulatedState.ENDED:
                continue
            if component.token in self._ledger.claims or not component.site.is_reachable:
                continue
            progress, every_s = component.progress, request.checkpoint.every_s
            if every_s is None:
                return progress.begun
            return max(progress.begun, progress.done - every_s / progress.full_s)
        return 0.0
