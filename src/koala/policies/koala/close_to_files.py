"""CF, close to files: each component goes where its input files arrive soonest.

Plain functions over numbers that run as Python and compile with numba unchanged. The estimates come from
``koala.policies.transfer_estimates``; ``koala.policies.interface`` handles requests, names and refusals.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from math import inf


def closest_site(left: Sequence[int], size: int, transfer_s_row: Sequence[float], transfer_s_max: float) -> int:
    """Return the site for one component: least transfer time, then most processors left, then lowest index;
    -1 for none.

    A site counts when it has ``size`` left and its transfer time is finite and at most ``transfer_s_max``. An
    infinite time means that no replica can be reached from there.
    """
    best = -1
    for site in range(len(left)):
        time_s = transfer_s_row[site]
        if left[site] < size or time_s > transfer_s_max or time_s == inf:
            continue
        if best < 0 or time_s < transfer_s_row[best] or (time_s == transfer_s_row[best] and left[site] > left[best]):
            best = site
    return best


def close_to_files(
    idle: Sequence[int],  # noqa: ARG001 - every policy of this form is called with it
    sizes: Sequence[int],
    transfer_s: Sequence[Sequence[float]],
    left: MutableSequence[int],
    chosen: MutableSequence[int],
) -> int:
    """Place the components near their files: the largest first, each onto its ``closest_site``.

    ``transfer_s[component][site]`` is the estimated time to bring the component's files to the site. The other
    arguments and the answer are as for worst fit. To compile this with numba, make the helper
    known first: ``numba.extending.register_jitable(closest_site)``.
    """
    for component in range(len(sizes)):
        best = closest_site(left, sizes[component], transfer_s[component], inf)
        if best < 0:
            return component
        chosen[component] = best
        left[best] -= sizes[component]
    return -1
