"""Jobs that wait for other jobs in a storm: this module draws the dependencies and checks the promises about them.

The checks keep their own record of which jobs have started and ended, and how, and do not use the scheduler's record
of dependencies. This module also draws and checks the order in the queues: the checks keep their own count of the
turns of each user.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import msgspec

from koala.core import Scheduler
from koala.core.life.job import Job
from koala.core.life.states import JobState
from koala.core.placement import MADE_AHEAD_MAX
from koala.core.state.queues.placement import PlacementQueue
from koala.model.dependency import Condition, Dependency
from koala.model.facts import ElementMade, JobEnded, JobHeld, JobPlaced, Turn
from koala.model.grid import Grid
from koala.model.job_array import ArraySpec
from koala.model.messages import (
    AnyEvent,
    CancelAsked,
    ChangeAsked,
    HoldAsked,
    JobOutcome,
    JobSubmitted,
    ReleaseBarrier,
    RestartAsked,
    UnholdAsked,
)
from koala.model.request import JobId, Priority, Request
from koala.policies import Catalogue, UserJobs, WaitingJob, order
from koala.simulator.workloads.workload import Arrival

# A job waits for at most this many others.
WAITED_FOR_MAX = 3
# An array has at most this many elements, less one.
ARRAY_STEPS_MAX = 5
# The least time between a hold and the release of the job.
LET_GO_AFTER_S = 1.0
# The requests of users about an existing job.
OF_USERS = (HoldAsked, UnholdAsked, RestartAsked, ChangeAsked)
# From these states a job with a reason to be held becomes held later.
_HELD_LATER = (JobState.QUARANTINED, JobState.UNWINDING)

_ENDS = {
    Condition.DONE: frozenset({JobOutcome.DONE}),
    Condition.ENDED: frozenset(JobOutcome),
    Condition.FAILED: frozenset({JobOutcome.FAILED}),
}


def numbers_of(arrivals: Sequence[Arrival]) -> list[range]:
    """Return by arrival the number of its job, followed by the numbers of an array's elements."""
    found, first = [], 1
    for arrival in arrivals:
        array = arrival.request.array
        found.append(range(first, first + 1 + (0 if array is None else array.size)))
        first = found[-1].stop
    return found


def with_arrays(rng: random.Random, arrivals: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """In some storms turn some jobs into arrays of a few elements."""
    if rng.random() < 0.7:
        return arrivals
    found = []
    for arrival in arrivals:
        if rng.random() < 0.25:
            first, step = rng.randint(0, 5), rng.randint(1, 3)
            last = first + step * rng.randint(0, ARRAY_STEPS_MAX)
            spec = ArraySpec(ranges=((first, last, step),), limit=rng.choice((None, None, 1, 2)))
            arrival = arrival._replace(request=msgspec.structs.replace(arrival.request, array=spec))
        found.append(arrival)
    return tuple(found)


def with_order(rng: random.Random, arrivals: tuple[Arrival, ...]) -> tuple[Arrival, ...]:
    """In half of the storms let some jobs wait for earlier ones or for their time, or be held from the beginning."""
    if rng.random() < 0.5:
        return arrivals
    found = []
    for numbers, arrival in zip(numbers_of(arrivals), arrivals, strict=True):
        number = numbers[0]
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
    """Return holds of some jobs by their users, in any state; all are released before the storm is over."""
    events: list[AnyEvent] = []
    if rng.random() < 0.5 and not any(arrival.request.hold for arrival in arrivals):
        return ()
    for job, arrival in _first_numbers(arrivals):
        if rng.random() < 0.15:
            held_at = rng.uniform(arrival.at_s, max(arrival.at_s, heal_at_s))
            events.append(HoldAsked(at=held_at, job=job))
        elif not arrival.request.hold:
            continue
        else:
            held_at = arrival.at_s
        # A job that comes after the storm must not be released in the same moment, which would be before it exists.
        events.append(UnholdAsked(at=max(held_at + LET_GO_AFTER_S, heal_at_s), job=job))
    return tuple(events)


def changes(rng: random.Random, arrivals: tuple[Arrival, ...], heal_at_s: float) -> tuple[AnyEvent, ...]:
    """Return requests of users to requeue jobs and to change waiting ones, in some storms."""
    if rng.random() < 0.7:
        return ()
    events: list[AnyEvent] = []
    for job, arrival in _first_numbers(arrivals):
        at = rng.uniform(arrival.at_s, max(arrival.at_s, heal_at_s))
        if rng.random() < 0.15:
            events.append(RestartAsked(at=at, job=job))
        if rng.random() < 0.2:
            walltime_s = rng.uniform(400.0, 2_000.0) if arrival.request.walltime_s is not None else None
            events.append(ChangeAsked(at=at, job=job, walltime_s=walltime_s, priority=rng.choice(list(Priority))))
    return tuple(events)


def _first_numbers(arrivals: Sequence[Arrival]) -> list[tuple[JobId, Arrival]]:
    return [(numbers[0], arrival) for numbers, arrival in zip(numbers_of(arrivals), arrivals, strict=True)]


def renumbered(arrivals: Sequence[Arrival], kept: Sequence[int]) -> dict[JobId, JobId]:
    """Return by the number of each kept job its number if only these arrivals are left."""
    old, new = numbers_of(arrivals), numbers_of([arrivals[index] for index in kept])
    return {
        before: after
        for index, numbers in zip(kept, new, strict=True)
        for before, after in zip(old[index], numbers, strict=True)
    }


def without_arrivals(request: Request, number: dict[JobId, JobId]) -> Request:
    """Return the request if other jobs have the numbers that ``number`` gives, or are gone."""
    if not request.after:
        return request
    after = tuple(
        Dependency(job=number[each.job], condition=each.condition) for each in request.after if each.job in number
    )
    return msgspec.structs.replace(request, after=after)


class OrderPromises:
    """Follows one run; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._requests: dict[JobId, tuple[Request, float]] = {}
        self._started: set[JobId] = set()
        self._ended: dict[JobId, JobOutcome] = {}
        self._put_off: dict[JobId, int] = {}  # by array, how often an element of it was held

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event."""
        if isinstance(event, JobSubmitted):
            self._requests[event.job] = event.request, event.at
        elif isinstance(event, CancelAsked):
            array = self._ledger.array_of(event.job)
            if array is not None and event.job not in self._requests:
                self._ended.setdefault(event.job, JobOutcome.CANCELLED)
        for entry in turn.entries:
            if isinstance(entry, JobHeld):
                job = self._ledger.jobs.get(entry.job)
                array_id = 0 if job is None else job.array
                self._put_off[array_id] = self._put_off.get(array_id, 0) + 1
            if isinstance(entry, ElementMade):
                self._element_is_new(entry)
            elif isinstance(entry, ReleaseBarrier):
                self._has_waited(entry.job, event.at)
                self._started.add(entry.job)
            elif isinstance(entry, JobEnded):
                self._ended[entry.job] = entry.outcome
                self._array_is_over(entry)
        self._arrays_keep_to_their_limits()
        for job in self._ledger.jobs.values():
            if job.request.after:
                self._can_still_come(job.id)
            if (job.state is JobState.HELD) != job.is_kept_back and job.state not in _HELD_LATER:
                why = "waits for nothing" if job.state is JobState.HELD else f"is {job.state} and should be held"
                self._fail("a job is held while there is a reason, and no longer", f"job {job.id} {why}")

    def _element_is_new(self, fact: ElementMade) -> None:
        if fact.job in self._requests or fact.job in self._ended:
            self._fail("an array keeps to its limit", f"job {fact.job} is made twice, or was not to be made")
        self._requests[fact.job] = self._requests[fact.array]

    def _elements(self, array: JobId) -> range:
        spec = self._requests[array][0].array if array in self._requests else None
        return range(array + 1, array + 1 + (0 if spec is None else spec.size))

    def _array_is_over(self, fact: JobEnded) -> None:
        job = self._ledger.jobs.get(fact.job) or self._ledger.ended.get(fact.job)
        if job is None or job.spec is None:
            return
        for number in self._elements(fact.job):
            if number not in self._requests:
                self._ended.setdefault(number, JobOutcome.CANCELLED)
            elif fact.outcome is JobOutcome.DONE and self._ended.get(number) is not JobOutcome.DONE:
                self._fail("an array is done when its elements are", f"job {number} of {fact.job} is not done")

    def _arrays_keep_to_their_limits(self) -> None:
        for array in self._ledger.arrays.values():
            assert array.spec is not None
            live = [job for job in self._ledger.jobs.values() if job.array == array.id]
            limit = array.spec.limit
            ahead = sum(job.state is JobState.WAITING and job.placed_at is None for job in live)
            if len(live) != array.elements.live or (limit is not None and len(live) > limit):
                self._fail("an array keeps to its limit", f"{len(live)} elements of {array.id} live")
            if ahead > MADE_AHEAD_MAX + self._put_off.get(array.id, 0):
                self._fail("an array costs the queue little", f"{ahead} elements of {array.id} wait")

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
            elements = self._elements(each.job)
            return each.job in self._started or (bool(elements) and self._started.issuperset(elements))
        return self._ended.get(each.job) in _ENDS[each.condition]


# --------------------------------------------------------------------------------- the order in a queue

# The job number is multiplied by this: the resulting order is arbitrary.
SCATTER = 2_654_435_761


@order("storm-scattered")
def scattered(waiting: Sequence[WaitingJob], users: Mapping[str, UserJobs], now: float) -> Sequence[WaitingJob]:
    """Returns the jobs in an order that is independent of their arrival, and changes every 200 s."""
    return sorted(waiting, key=lambda job: (job.number + len(users) + int(now // 200.0)) * SCATTER % (1 << 32))


@order("storm-forgetful")
def forgetful(waiting: Sequence[WaitingJob], _users: Mapping[str, UserJobs], _now: float) -> Sequence[WaitingJob]:
    """Omits one job now and then."""
    return waiting[:-1] if len(waiting) % 3 == 2 else waiting[::-1]


ORDERS = ("round-robin", "round-robin", "sjf", "easy", "storm-scattered", "storm-forgetful")


def catalogue_with_orders() -> Catalogue:
    """Return Koala's own policies and orders, and those of storms."""
    catalogue = Catalogue.builtin()
    for function in (scattered, forgetful):
        catalogue.add_function(function)
    return catalogue


def with_queue_order(rng: random.Random, grid: Grid) -> Grid:
    """In half of the storms replace the order of arrival in the queues."""
    if rng.random() < 0.5:
        return grid
    drawn = rng.choice(ORDERS)
    scheduler = msgspec.structs.replace(
        grid.scheduler.with_order(drawn),
        ageing_half_s=grid.scheduler.ageing_half_s if drawn == "easy" else None,
        order_patience_s=rng.choice((300.0, 86_400.0)),
    )
    return msgspec.structs.replace(grid, scheduler=scheduler)


class QueueOrderPromises:
    """Follows one run; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._is_other = self._ledger.high.standing.moves
        self._turns: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}

    def after(self, turn: Turn) -> None:
        """Check the consequences of the event."""
        if not self._is_other:
            return
        for entry in turn.entries:
            if isinstance(entry, JobPlaced):
                job = self._ledger.jobs.get(entry.job) or self._ledger.ended.get(entry.job)
                if job is not None:
                    self._turns[job.high][job.submitter] += 1
        for queue in (self._ledger.high, self._ledger.low):
            line = queue.in_line()
            if [queue.place_in_line(job) for job in line] != list(range(1, len(line) + 1)):
                self._fail("a told place is the place in the order", f"of {[job.id for job in line]}")
            planned = [job.plan_at is not None for job in line]
            if planned != sorted(planned, reverse=True):
                self._fail("a plan comes before all that have none", f"of {[job.id for job in line]}")
            if queue.standing.by_user:
                self._users_take_turns(queue, line)
            if not line:
                self._turns[queue.high].clear()

    def _users_take_turns(self, queue: PlacementQueue, line: Sequence[Job]) -> None:
        """Check that at most one more job of another user than the user has had turns precedes the user's first job.
        Jobs with plans count as placed."""
        stand: Counter[str] = Counter()
        seen: set[str] = set()
        planned = Counter(job.submitter for job in line if job.plan_at is not None)
        for job in line:
            if job.plan_at is not None:
                continue
            if job.submitter not in seen:
                seen.add(job.submitter)
                for other, count in stand.items():
                    if count > 1 + self._turns[queue.high][job.submitter] + planned[job.submitter]:
                        self._fail(
                            "no user waits behind another's many",
                            f"{count} jobs of {other or 'one user'} stand before job {job.id}, the first of another",
                        )
            stand[job.submitter] += 1
