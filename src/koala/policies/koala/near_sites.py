"""Helpers of the network-aware policies: sets of sites that are near each other, and the cost of combining sites.

Plain functions over numbers that run as Python and compile with numba unchanged. ``slowness[one][other]`` is as in
``koala.policies.koala.slowness``, the same in both directions. The policies decide how to use a set.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

# A set of sites grows from one of its sites: the most idle ones are tried, at most this many.
ANCHORS_MAX = 16
# From each, ever nearer sets are tried as long as the job fits, at most this many times.
NEARER_SETS_MAX = 16
# The total cost of the search, in visits to one site: a search on hundreds of sites ends early, with the best set
# found so far. NFCM on fewer than thirty sites never reaches this limit.
NEARER_LOOKS_MAX = 250_000


def near_sites(
    idle: Sequence[int],
    least: int,
    slowness: Sequence[Sequence[float]],
    combined: Sequence[int],
    anchor: int,
    limit: float,
    sites_max: int,
    near: MutableSequence[int],
) -> int:
    """Find a set of sites in which every two are joined by a link with a slowness below ``limit``.

    It starts with ``anchor`` and takes the most idle site that is near all others, ties to the lowest index, until it
    has ``sites_max`` or no site is left. The sites that ``combined`` marks are part of the job already: every other
    site of the set must be near them too. ``near[site]`` gets what is idle there, 0 outside the set. Returns how many
    sites the set has, 0 if not even ``anchor`` can be in it.
    """
    for site in range(len(idle)):
        near[site] = idle[site] if idle[site] >= least else 0
    for held in range(len(idle)):
        if combined[held]:
            for site in range(len(idle)):
                if site != held and slowness[held][site] >= limit:
                    near[site] = 0
    if near[anchor] <= 0:
        return 0
    kept = [0] * len(idle)
    count = 0
    newest = anchor
    while newest >= 0:
        kept[newest] = 1
        count += 1
        best = -1
        for site in range(len(idle)):
            if near[site] <= 0 or kept[site]:
                continue
            if count >= sites_max or slowness[newest][site] >= limit:
                near[site] = 0
            elif best < 0 or near[site] > near[best]:
                best = site
        newest = best
    return count


def combination_cost(
    combined: Sequence[int], slowness: Sequence[Sequence[float]], members: MutableSequence[int]
) -> tuple[int, float]:
    """Return how many sites ``combined`` marks, and the slowness of the worst link between two of them (0
    for one site).

    ``(sites - 1) * slowness`` orders combinations by expected execution time, whatever the job. ``members`` is
    scratch space as long as ``combined``.
    """
    count = 0
    worst = 0.0
    for site in range(len(combined)):
        if combined[site]:
            for position in range(count):
                worst = max(worst, slowness[members[position]][site])
            members[count] = site
            count += 1
    return count, worst
