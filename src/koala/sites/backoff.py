"""Waits between attempts and between polls."""

from __future__ import annotations


class Backoff:
    """Waits that grow from the first to the longest, until ``reset``.

    The ``steady`` waits after the first have the same length, before they grow.
    """

    def __init__(self, first_s: float, most_s: float, growth: float = 1.5, *, steady: int = 0) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._growth = growth
        self._steady = steady
        self._steady_left = steady
        self.wait_s = first_s  # the current wait

    def reset(self) -> None:
        """Return to the first wait."""
        self.wait_s = self._first_s
        self._steady_left = self._steady

    def grow(self) -> None:
        """Lengthen the next wait, once the steady ones are over."""
        if self._steady_left > 0:
            self._steady_left -= 1
        else:
            self.wait_s = min(self._most_s, self._growth * self.wait_s)
