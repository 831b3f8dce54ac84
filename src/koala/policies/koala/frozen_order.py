"""The order of sites that the cluster minimizing policies share: by idle processors, decreasing, ties by index.

A plain function over integers that runs as Python and compiles with numba unchanged: the next site of the order is
found by one pass, so that nothing is allocated or sorted.
"""

from __future__ import annotations

from collections.abc import Sequence


def next_most_idle(idle: Sequence[int], least: int, previous: int) -> int:
    """Return the site after ``previous`` (-1: the first) among those with at least ``least`` idle, and 1;
    -1 for none."""
    best = -1
    for site in range(len(idle)):
        if idle[site] <= 0 or idle[site] < least:
            continue
        if previous >= 0 and (idle[site] > idle[previous] or (idle[site] == idle[previous] and site <= previous)):
            continue
        if best < 0 or idle[site] > idle[best]:
            best = site
    return best
