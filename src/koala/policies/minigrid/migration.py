"""MIG, migration: a job that does not fit at home runs whole on another site.

A plain function over integers that runs as Python and compiles with numba unchanged. It is the second step of
``koala.policies.minigrid.meta_scheduling``.
"""

from __future__ import annotations

from collections.abc import Sequence


def migration(idle: Sequence[int], total: int) -> int:
    """The site that holds the whole job most tightly, ties to the lowest index; -1 where none does.

    The tightest one leaves the large gaps for large jobs.
    """
    tightest = -1
    for site in range(len(idle)):
        if idle[site] >= total and (tightest < 0 or idle[site] < idle[tightest]):
            tightest = site
    return tightest
