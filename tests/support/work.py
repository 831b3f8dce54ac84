"""Measures of work: lines of Python that it runs, and processor time.

Tests compare the work of different sizes with each other, never with a clock: the ratio is nearly the same on a busy
machine.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

# The number of runs whose least time counts: a disturbance only makes a run longer.
RUNS = 3


def steps(work: Callable[[], object]) -> int:
    """Return how many lines of Python the work runs."""
    count = 0

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return on_line

    before = sys.gettrace()
    sys.settrace(on_line)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def processor_s(work: Callable[[], object], runs: int = RUNS) -> float:
    """Return the processor time of this thread for the work, the least of some runs."""
    times_s = []
    for _ in range(runs):
        begun_s = time.thread_time()
        work()
        times_s.append(time.thread_time() - begun_s)
    return min(times_s)


def growth(work: Callable[[int], Callable[[], object]], size: int, times: int, least_s: float = 0.0) -> float:
    """Return how much more processor time the work on ``size * times`` takes than that on ``size``, as a multiple of
    ``times``: about 1 if the time grows with the size, about ``times`` if it grows with its square.

    Less than ``least_s`` for the large one is too little to compare, and counts as 0.
    """
    small, large = work(size), work(size * times)
    # One measurement is enough if it is not suspicious.
    for runs in (1, RUNS):
        large_s = processor_s(large, runs)
        if large_s < least_s:
            return 0.0
        found = large_s / max(processor_s(small, runs), 1e-7) / times
        if found < 1.5:
            break
    return found
