"""CM, cluster minimization: components go together on as few sites as a fixed order of sites gives.

A plain function over integers that runs as Python and compiles with numba unchanged. Requests, names and
refusals are the business of ``koala.policies.front_door``.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence


def cluster_minimization(
    idle: Sequence[int], sizes: Sequence[int], left: MutableSequence[int], chosen: MutableSequence[int]
) -> int:
    """Pack the components: the largest first, each onto the first site, by idle processors, that still fits.

    The order of the sites is decided once, by ``idle`` (decreasing, ties to the lowest index); "fits" counts what
    this job has already taken. The first site of that order that fits is the one with the greatest ``idle``
    among those that fit, so no site list is sorted here. Arguments and answer are as for worst fit.
    """
    for component in range(len(sizes)):
        size = sizes[component]
        best = -1
        for site in range(len(idle)):
            if left[site] >= size and (best < 0 or idle[site] > idle[best]):
                best = site
        if best < 0:
            return component
        chosen[component] = best
        left[best] -= size
    return -1
