"""The core's own alarms in order of time. Time itself comes with the events; nothing here reads a clock.

An alarm is a field of its owner and part of its record: after a restart the heap is rebuilt from the owners.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, TypeAlias

from koala.core.encoded import INFINITY, Time, encoded
from koala.model.messages import Token, TransferId
from koala.model.request import JobId

# The subject of an alarm: a job, the token of a claim, a transfer, or the index of a site.
Whom: TypeAlias = JobId | Token | TransferId


class Alarm(enum.StrEnum):
    """The purposes of alarms, and their subjects."""

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
        """Set the action for a kind of alarm; each module of the core does this once."""
        self._actions[what] = action

    def set(self, at: float, what: Alarm, whom: Whom) -> Timer:
        """Set a new alarm."""
        self.set_so_far += 1
        timer = Timer(at, what, self.set_so_far)
        self.put(timer, whom)
        return timer

    def put(self, timer: Timer, whom: Whom) -> None:
        """Enter an alarm that its owner holds."""
        timer.whom, timer.cancelled = whom, False
        heappush(self.heap, (timer.at, timer.number, timer))

    def next_at(self) -> float:
        """When the next alarm fires; infinity if there is none."""
        heap = self.heap
        while heap and heap[0][2].cancelled:
            heappop(heap)
        return heap[0][0] if heap else INFINITY

    def fire_next(self, now: float) -> bool:
        """Fire the first due alarm; return False if none is due."""
        if self.next_at() > now:
            return False
        timer = heappop(self.heap)[2]
        self._concerns(timer.what, timer.whom)
        self._actions[timer.what](timer.whom)
        return True
