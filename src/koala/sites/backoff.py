"""How long to wait before something is tried or polled again."""

from __future__ import annotations


class Backoff:
    """Ever longer waits, from the first to the longest, until it is told to begin again.

    The next ``steady`` waits after the first are as long as that one, before they grow.
    """

    def __init__(self, first_s: float, most_s: float, growth: float = 1.5, *, steady: int = 0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._growth = growth
        self._steady = steady
        self._steady_left = steady
        self.wait_s = first_s  # how long to wait now

    def reset(self) -> None:
        """Begin again."""
        self.wait_s = self._first_s
        self._steady_left = self._steady

    def grow(self) -> None:
        """Nothing has changed: the next wait is longer, once those that are alike are over."""
        if self._steady_left > 0:
            self._steady_left -= 1
        else:
            self.wait_s = min(self._most_s, self._growth * self.wait_s)
