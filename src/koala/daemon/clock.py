"""The engine's clock: seconds since the epoch that never go back, whatever the machine's clock does."""

from __future__ import annotations

import time
from collections.abc import Callable


class SteadyClock:
    """Begins at the wall clock, or at the last time on record if that is later, and then counts steadily."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._steady = steady
        self._offset_s = wall() - steady()

    def __call__(self) -> float:
        """Now."""
        return self._offset_s + self._steady()

    def not_before(self, at: float) -> None:
        """From now on it is at least so late: events on record must stay in the past."""
        self._offset_s = max(self._offset_s, at - self._steady())
