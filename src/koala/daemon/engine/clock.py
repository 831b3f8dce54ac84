"""The engine's clock: seconds since the epoch that never go back, whatever the machine's clock does."""

from __future__ import annotations

import time
from collections.abc import Callable


def through_sleep_s() -> float:
    """Seconds that never go back and go on while the machine sleeps, where it can tell: after a night as a suspended
    laptop, times on record are those of the wall clock, as another daemon on them will count."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class SteadyClock:
    """Begins at the wall clock, or at the last time on record if that is later, and then counts steadily."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = through_sleep_s) -> None:
        self._steady = steady
        self._offset_s = wall() - steady()

    def __call__(self) -> float:
        """Now."""
        return self._offset_s + self._steady()

    def not_before(self, at: float) -> None:
        """From now on it is at least so late: events on record must stay in the past."""
        self._offset_s = max(self._offset_s, at - self._steady())
