"""To be imported: compiles a small function. What numba prepares for the first one that a process compiles takes
three times as long as the function, and is there in all processes that are forked from this one."""

from __future__ import annotations

import numba
import numpy


def _total(values: numpy.ndarray) -> int:
    found = 0
    for value in values:
        found += value
    return found


numba.njit(_total)(numpy.arange(2))
