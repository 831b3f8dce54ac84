"""Where the time of one process went: computing, or waiting for messages inside its cluster and from others."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Doing(StrEnum):
    """What a process may do with its time other than compute."""

    INSIDE = "inside"
    ACROSS = "across"


@dataclass(frozen=True)
class Seconds:
    """The time between two moments, divided; the three parts add up to the whole."""

    elapsed_s: float
    computing_s: float
    inside_s: float
    across_s: float


class Stopwatch:
    """Counts what is spent in communication; all the rest is computing.

    On a machine with fewer processors than processes computing includes the wait for a processor. A neighbour that is
    late because it waits for another cluster costs time inside the cluster: each process knows only its own wait.
    """

    def __init__(self) -> None:
        self._started_at = 0.0
        self._spent_s: dict[Doing, float] = {}
        self.restart()

    def restart(self) -> None:
        """Forget everything and start from now."""
        self._spent_s = dict.fromkeys(Doing, 0.0)
        self._started_at = time.monotonic()

    @contextlib.contextmanager
    def counting(self, doing: Doing) -> Iterator[None]:
        """Count what happens inside as communication of this kind."""
        began_at = time.monotonic()
        try:
            yield
        finally:
            self._spent_s[doing] += time.monotonic() - began_at

    def read(self) -> Seconds:
        """The seconds since the start."""
        elapsed_s = time.monotonic() - self._started_at
        inside_s, across_s = self._spent_s[Doing.INSIDE], self._spent_s[Doing.ACROSS]
        return Seconds(elapsed_s, elapsed_s - inside_s - across_s, inside_s, across_s)
