"""The core's own alarms in order of time. Time itself comes in with the events; nothing here reads a clock."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable
from typing import Any, TypeAlias

from koala.core.state.encoded import INFINITY
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


# Alarms that concern one claim.
OF_CLAIMS = frozenset({Alarm.QUEUED_LONG, Alarm.ABORT_AGAIN})


class Timer:
    """One alarm; its owner may cancel it at any time, and cancelling twice does no harm."""

    __slots__ = ("at", "cancelled", "what", "whom")

    def __init__(self, at: float, what: Alarm, whom: Whom) -> None:
        self.at = at
        self.what = what
        self.whom = whom
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """A heap of alarms; equal times fire in the order in which they were set."""

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0
        self._actions: dict[Alarm, Callable[[Any], None]] = {}

    def on(self, what: Alarm, action: Callable[[Any], None]) -> None:
        """Each module of the core says once what it does when an alarm of its own goes off."""
        self._actions[what] = action

    def set(self, at: float, what: Alarm, whom: Whom) -> Timer:
        timer = Timer(at, what, whom)
        self._sequence += 1
        heapq.heappush(self.heap, (at, self._sequence, timer))
        return timer

    def next_at(self) -> float:
        """When the next alarm fires; infinity when there is none."""
        heap = self.heap
        while heap and heap[0][2].cancelled:
            heapq.heappop(heap)
        return heap[0][0] if heap else INFINITY

    def fire_next(self, now: float) -> bool:
        """Let the first alarm that is due go off; False when none is."""
        if self.next_at() > now:
            return False
        timer = heapq.heappop(self.heap)[2]
        self._actions[timer.what](timer.whom)
        return True

    def all(self) -> list[Timer]:
        """The alarms that have not been cancelled, in the order in which they will fire."""
        return [timer for _, _, timer in sorted(self.heap, key=_order) if not timer.cancelled]


def _order(entry: tuple[float, int, Timer]) -> tuple[float, int]:
    return entry[0], entry[1]
