"""The core's own alarms in order of time. Time itself comes in with the events; nothing here reads a clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Timer:
    """One alarm; its owner may cancel it at any time, and cancelling twice does no harm."""

    __slots__ = ("action", "argument", "at", "cancelled")

    def __init__(self, at: float, action: Callable[[Any], None], argument: Any) -> None:
        self.at = at
        self.action = action
        self.argument = argument
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Timers:
    """A heap of alarms; equal times fire in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = 0

    def set(self, at: float, action: Callable[[Any], None], argument: Any) -> Timer:
        timer = Timer(at, action, argument)
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, timer))
        return timer

    def next_at(self) -> float:
        """When the next living alarm fires; infinity when there is none."""
        heap = self._heap
        while heap and heap[0][2].cancelled:
            heapq.heappop(heap)
        return heap[0][0] if heap else float("inf")

    def pop_due(self, now: float) -> Timer | None:
        """Take out the first living alarm that is due, if one is."""
        if self.next_at() > now:
            return None
        return heapq.heappop(self._heap)[2]
