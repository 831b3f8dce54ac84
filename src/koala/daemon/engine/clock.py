"""The engine's clock: seconds since the epoch that never go back, whatever the machine's clock does."""

from __future__ import annotations

import time
from collections.abc import Callable


def through_sleep_s() -> float:
    """Return steady seconds that go on while the machine sleeps, if it can tell: after a suspended night, times on
    record follow the wall clock, as another daemon's will."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SteadyClock:
    """Begins at the wall clock, or at the last time on record if that is later, and then counts steadily."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = through_sleep_s) -> None:
        self._steady = steady
        self._offset_s = wall() - steady()

    def __call__(self) -> float:
        """Return the current time."""
        return self._offset_s + self._steady()

    def not_before(self, at: float) -> None:
        """Advance to at least this time: events on record must stay in the past."""
        self._offset_s = max(self._offset_s, at - self._steady())
