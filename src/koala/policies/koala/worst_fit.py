"""WF, worst fit: each component goes to the site with the most processors left.

A plain function over integers that runs as Python and compiles with numba unchanged. ``koala.policies.interface``
handles requests, names and refusals.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence


def worst_fit(
    idle: Sequence[int], sizes: Sequence[int], left: MutableSequence[int], chosen: MutableSequence[int]
) -> int:
    """Spread the components: the largest first, each onto the site with the most left, ties to the lowest index.

    ``sizes`` come in decreasing order and ``left`` as a copy of ``idle``, from which placed components are deducted.
    ``chosen`` gets the site of each component. Returns -1 when all are placed, otherwise the index of the first
    component without a place; then ``left`` and ``chosen`` hold no placement.
    """
    for component in range(len(sizes)):
        size = sizes[component]
        best = -1
        most = size - 1
        for site in range(len(idle)):
            if left[site] > most:
                best = site
                most = left[site]
        if best < 0:
            return component
        chosen[component] = best
        left[best] = most - size
    return -1
