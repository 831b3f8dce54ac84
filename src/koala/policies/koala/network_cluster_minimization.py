"""NCM, network-aware cluster minimization: CM, unless nearer sites promise a shorter execution.

A plain function over numbers that runs as Python and compiles with numba unchanged. ``koala.policies.interface``
handles requests, names and refusals.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.policies.koala.cluster_minimization import cluster_minimization_beside
from koala.policies.koala.frozen_order import next_most_idle
from koala.policies.koala.near_sites import (
    ANCHORS_MAX,
    NEARER_LOOKS_MAX,
    NEARER_SETS_MAX,
    combination_cost,
    near_sites,
)


def network_cluster_minimization(
    idle: Sequence[int],
    sizes: Sequence[int],
    slowness: Sequence[Sequence[float]],
    combined: Sequence[int],
    left: MutableSequence[int],
    chosen: MutableSequence[int],
) -> int:
    """Place what CM places, where ``(clusters - 1) * slowness of the worst link`` is least.

    CM's own answer is the first; it gives way to CM's answer on a set of nearer sites only if every link combined is
    faster than the slowest of the first answer and the product is less. So with equal links this is CM, and it
    refuses exactly what CM refuses. ``combined`` marks the sites where fixed components of the job are already: they
    count as clusters combined, as they do for CM. The other arguments and the answer are as for worst fit. To compile
    this with numba, make the imported functions known first with ``numba.extending.register_jitable``.
    """
    failed = cluster_minimization_beside(idle, sizes, combined, left, chosen)
    if failed >= 0:
        return failed
    sites, components = len(idle), len(sizes)
    marks, members, near, spare = [0] * sites, [0] * sites, [0] * sites, [0] * sites
    trial = [-1] * components
    for site in range(sites):
        marks[site] = combined[site]
    for component in range(components):
        marks[chosen[component]] = 1
    count, first_worst = combination_cost(marks, slowness, members)
    least_cost = (count - 1) * first_worst
    anchor = -1
    looks = 0
    for _ in range(ANCHORS_MAX):
        anchor = next_most_idle(idle, sizes[components - 1], anchor)
        if anchor < 0 or least_cost <= 0.0 or looks > NEARER_LOOKS_MAX:
            break
        limit = first_worst
        for _ in range(NEARER_SETS_MAX):
            count = near_sites(idle, sizes[components - 1], slowness, combined, anchor, limit, components, near)
            looks += sites * (count + components)
            if count == 0 or looks > NEARER_LOOKS_MAX:
                break
            for site in range(sites):
                marks[site] = combined[site]
                spare[site] = near[site]
            if cluster_minimization_beside(near, sizes, combined, spare, trial) >= 0:
                break
            for component in range(components):
                marks[trial[component]] = 1
            count, worst = combination_cost(marks, slowness, members)
            if worst >= limit:
                break
            if (count - 1) * worst < least_cost:
                least_cost = (count - 1) * worst
                for component in range(components):
                    chosen[component] = trial[component]
            limit = worst
    for site in range(sites):
        left[site] = idle[site]
    for component in range(components):
        left[chosen[component]] -= sizes[component]
    return -1
