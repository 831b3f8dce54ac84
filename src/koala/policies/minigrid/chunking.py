"""B3, chunking: largest free first, but only if one site takes a large chunk of the job.

Plain functions over numbers that run as Python and compile with numba unchanged. The traffic of the job over the
links shrinks as its largest part grows.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.open_sites import open_idle

# A chunk that is at most this short of a whole number of processors counts as that number: 0.55 of 100 is 55, not 56.
CHUNK_ROUNDING = 1e-9


def chunk_processors(chunk: float, total: int) -> int:
    """Return the least number of processors that is this share of the total or more."""
    exact = chunk * total - CHUNK_ROUNDING
    processors = int(exact)
    return processors + 1 if processors < exact else processors


def chunking(case: PlacementCase, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Place as largest free first if some site below the threshold has the chunk of the job idle; nothing otherwise.

    ``parts[site]`` gets the processors. Returns those left without a place: 0 when all are placed.
    """
    open_idle(case, idle)
    most = 0
    for site in range(len(idle)):
        parts[site] = 0
        most = max(most, case.spare[site])
    if most < chunk_processors(case.chunk, case.total):
        return case.total
    return flexible_cluster_minimization(case.spare, case.total, case.component_min, case.components_max, parts)


def chunkable_most(most: int, chunk: float, limit: int) -> int:
    """Return the largest total, up to a limit, whose chunk a site with ``most`` idle processors takes.

    The limit is no less than ``most``. Without it a tiny chunk would allow totals beyond all numbers.
    """
    if chunk_processors(chunk, limit) <= most:
        return limit
    total = int(most / chunk)
    while chunk_processors(chunk, total + 1) <= most:
        total += 1
    while total > 0 and chunk_processors(chunk, total) > most:
        total -= 1
    return total
