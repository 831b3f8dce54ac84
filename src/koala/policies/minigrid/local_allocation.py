"""LA, local allocation: a job that fits runs whole on the site where it was handed in.

A plain function over integers that runs as Python and compiles with numba unchanged. It is the first step of
``koala.policies.minigrid.meta_scheduling``.
"""

from __future__ import annotations

from collections.abc import Sequence


def local_allocation(idle: Sequence[int], total: int, home: int) -> int:
    """The home site where it holds the whole job, else -1; so too for a job without a home, which is below 0."""
    if home >= 0 and idle[home] >= total:
        return home
    return -1
