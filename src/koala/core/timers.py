"""The core's own alarms in order of time. Time itself comes in with the events; nothing here reads a clock.

An alarm is a field of its owner and part of its record: the heap is made anew from the owners after a restart.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

from koala.core.encoded import INFINITY, Time, encoded
from koala.model.messages import Token, TransferId
from koala.model.request import JobId

# Whom an alarm concerns: a job, the token of a claim, a transfer, or the index of a site.
Whom: TypeAlias = JobId | Token | TransferId


class Alarm(enum.StrEnum):
    """What an alarm is for, and whom it concerns."""

    BEGINS = "begins"  # a job
    UNFOLDS = "unfolds"  # an array
    RESTED = "rested"  # a job
    AVOIDED = "avoided"  # a job
    LOOK_AFTER = "look_after"  # a job
    COLLECT_AGAIN = "collect_again"  # a job
    QUEUED_LONG = "queued_long"  # a claim
    ABORT_AGAIN = "abort_again"  # a claim
    TRANSFER_OVERDUE = "transfer_overdue"  # a transfer
    COOLED_DOWN = "cooled_down"  # a site


# Alarms that concern one job, and those that concern one claim.
OF_JOBS = frozenset({Alarm.BEGINS, Alarm.UNFOLDS, Alarm.RESTED, Alarm.AVOIDED, Alarm.LOOK_AFTER, Alarm.COLLECT_AGAIN})
OF_CLAIMS = frozenset({Alarm.QUEUED_LONG, Alarm.ABORT_AGAIN})


class _TimerLinks:
    __slots__ = ("cancelled", "whom")
    whom: Whom
    cancelled: bool


@encoded
class Timer(_TimerLinks):
    """One alarm; its owner may cancel it at any time, and cancelling twice does no harm."""

    at: Time
    what: Alarm
    number: int  # equal times fire in the order of these

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """A heap of alarms; equal times fire in the order in which they were set."""

    def __init__(self, concerns: Callable[[Alarm, Any], None]) -> None:
        self.heap: list[tuple[float, int, Timer]] = []
        self.set_so_far = 0
        self._actions: dict[Alarm, Callable[[Any], None]] = {}
        self._concerns = concerns  # receives the alarm that goes off now

    def on(self, what: Alarm, action: Callable[[Any], None]) -> None:
        """Each module of the core says once what it does when an alarm of its own goes off."""
        self._actions[what] = action

    def set(self, at: float, what: Alarm, whom: Whom) -> Timer:
        """A new alarm."""
        self.set_so_far += 1
        timer = Timer(at, what, self.set_so_far)
        self.put(timer, whom)
        return timer

    def put(self, timer: Timer, whom: Whom) -> None:
        """Enter an alarm that its owner has."""
        timer.whom, timer.cancelled = whom, False
        heappush(self.heap, (timer.at, timer.number, timer))

    def next_at(self) -> float:
        """When the next alarm fires; infinity when there is none."""
        heap = self.heap
        while heap and heap[0][2].cancelled:
            heappop(heap)
        return heap[0][0] if heap else INFINITY

    def fire_next(self, now: float) -> bool:
        """Let the first alarm that is due go off; False when none is."""
        if self.next_at() > now:
            return False
        timer = heappop(self.heap)[2]
        self._concerns(timer.what, timer.whom)
        self._actions[timer.what](timer.whom)
        return True
