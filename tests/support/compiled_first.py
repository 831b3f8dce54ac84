"""Compiles a small function at import. What numba prepares for a process's first compilation takes three times as
long as the function, and all processes forked from this one have it."""

from __future__ import annotations

import numba
import numpy


def _total(values: numpy.ndarray) -> int:
    found = 0
    for value in values:
        found += value
    return found


numba.njit(_total)(numpy.arange(2))
