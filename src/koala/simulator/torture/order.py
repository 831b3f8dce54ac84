"""Jobs after one another in a storm: what they wait for is drawn here, and the promises about it are checked.

The checks keep their own record of which jobs have started and ended, and how, and ask nothing of what the scheduler
remembers of dependencies.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from koala.core import Scheduler
from koala.core.lifecycle import JobState
from koala.model.dependency import Condition, Dependency
from koala.model.messages import (
    AnyCommand,
    AnyEvent,
    ChangeAsked,
    HoldAsked,
    JobEnded,
    JobOutcome,
    JobSubmitted,
    ReleaseBarrier,
    RestartAsked,
    UnholdAsked,
)
from koala.model.request import JobId, Priority, Request
from koala.simulator.workloads.workload import Arrival

# A job that waits for others waits for so many at most.
WAITED_FOR_MAX = 3
# What users ask for a job that exists.
OF_USERS = (HoldAsked, UnholdAsked, RestartAsked, ChangeAsked)

_ENDS = {
    Condition.DONE: frozenset({JobOutcome.DONE}),
    Condition.ENDED: frozenset(JobOutcome),
    Condition.FAILED: frozenset({JobOutcome.FAILED}),
}


def with_order(rng: random.Random, arrivals: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """In half of the storms some jobs wait for earlier ones or for their time, or are held from the beginning."""
    if rng.random() < 0.5:
        return arrivals
    found = []
    for number, arrival in enumerate(arrivals, start=1):
        changes: dict[str, object] = {}
        if number > 1 and rng.random() < 0.4:
            others = rng.sample(range(1, number), min(number - 1, rng.randint(1, WAITED_FOR_MAX)))
            kinds = (Condition.DONE, Condition.ENDED, Condition.ENDED, Condition.STARTED, Condition.FAILED)
            changes["after"] = tuple(Dependency(job=other, condition=rng.choice(kinds)) for other in others)
        if rng.random() < 0.1:
            changes["begin_in_s"] = rng.uniform(1.0, 600.0)
        if rng.random() < 0.1:
            changes["hold"] = True
        found.append(arrival._replace(request=msgspec.structs.replace(arrival.request, **changes)))
    return tuple(found)


def holds(rng: random.Random, arrivals: tuple[Arrival, ...], heal_at_s: float) -> tuple[AnyEvent, ...]:
    """Some jobs are held by their users for a while, wherever they are; all are let go before the storm is over."""
    events: list[AnyEvent] = []
    if rng.random() < 0.5 and not any(arrival.request.hold for arrival in arrivals):
        return ()
    for job, arrival in enumerate(arrivals, start=1):
        if rng.random() < 0.15:
            held_at = rng.uniform(arrival.at_s, max(arrival.at_s, heal_at_s))
            events.append(HoldAsked(at=held_at, job=job))
        elif not arrival.request.hold:
            continue
        else:
            held_at = arrival.at_s
        events.append(UnholdAsked(at=max(held_at, heal_at_s), job=job))
    return tuple(events)


def changes(rng: random.Random, arrivals: tuple[Arrival, ...], heal_at_s: float) -> tuple[AnyEvent, ...]:
    """In some storms users put jobs back into their queue, and change what waiting ones ask for."""
    if rng.random() < 0.7:
        return ()
    events: list[AnyEvent] = []
    for job, arrival in enumerate(arrivals, start=1):
        at = rng.uniform(arrival.at_s, max(arrival.at_s, heal_at_s))
        if rng.random() < 0.15:
            events.append(RestartAsked(at=at, job=job))
        if rng.random() < 0.2:
            walltime_s = rng.uniform(400.0, 2_000.0) if arrival.request.walltime_s is not None else None
            events.append(ChangeAsked(at=at, job=job, walltime_s=walltime_s, priority=rng.choice(list(Priority))))
    return tuple(events)


def without_arrivals(request: Request, place: dict[int, int]) -> Request:
    """The request where other jobs have the numbers that ``place`` gives by their indices, or are gone."""
    if not request.after:
        return request
    after = tuple(
        Dependency(job=place[each.job - 1] + 1, condition=each.condition)
        for each in request.after
        if each.job - 1 in place
    )
    return msgspec.structs.replace(request, after=after)


class OrderPromises:
    """Follows one run; ``fail`` is called with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._requests: dict[JobId, tuple[Request, float]] = {}
        self._started: set[JobId] = set()
        self._ended: dict[JobId, JobOutcome] = {}

    def after(self, event: AnyEvent, commands: list[AnyCommand]) -> None:
        """Check what the event led to."""
        if isinstance(event, JobSubmitted):
            self._requests[event.job] = event.request, event.at
        for command in commands:
            if isinstance(command, ReleaseBarrier):
                self._has_waited(command.job, event.at)
                self._started.add(command.job)
            elif isinstance(command, JobEnded):
                self._ended[command.job] = command.outcome
        for job in self._ledger.jobs.values():
            if job.request.after:
                self._can_still_come(job.id)
            if (job.state is JobState.HELD) != job.is_kept_back and job.state is not JobState.QUARANTINED:
                why = "waits for nothing" if job.state is JobState.HELD else f"is {job.state} and should be held"
                self._fail("a job is held while there is a reason, and no longer", f"job {job.id} {why}")

    def _has_waited(self, job: JobId, at: float) -> None:
        request, submitted_at = self._requests[job]
        early = [each for each in request.after if not self._is_met(each)]
        if early:
            self._fail("no job starts before what it waits for", f"job {job} starts before {early[0]}")
        if at < submitted_at + (request.begin_in_s or 0.0):
            self._fail("no job starts before what it waits for", f"job {job} starts before its time")

    def _can_still_come(self, job: JobId) -> None:
        for each in self._requests[job][0].after:
            if each.job in self._ended and not self._is_met(each):
                became = self._ended[each.job]
                self._fail("a broken dependency ends the job", f"job {job} waits for {each}, which is {became}")

    def _is_met(self, each: Dependency) -> bool:
        if each.condition is Condition.STARTED:
            return each.job in self._started
        return self._ended.get(each.job) in _ENDS[each.condition]
