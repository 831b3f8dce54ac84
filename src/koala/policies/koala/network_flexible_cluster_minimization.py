"""NFCM, network-aware flexible cluster minimization: FCM, unless nearer sites promise a shorter execution.

A plain function over numbers that runs as Python and compiles with numba unchanged. ``koala.policies.interface``
handles requests, names and refusals.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.koala.frozen_order import next_most_idle
from koala.policies.koala.near_sites import (
    ANCHORS_MAX,
    NEARER_LOOKS_MAX,
    NEARER_SETS_MAX,
    combination_cost,
    near_sites,
)


def network_flexible_cluster_minimization(
    idle: Sequence[int],
    total: int,
    component_min: int,
    components_max: int,
    slowness: Sequence[Sequence[float]],
    parts: MutableSequence[int],
) -> int:
    """Divide what FCM divides, where ``(clusters - 1) * slowness of the worst link`` is least.

    FCM's own answer is the first; it gives way to FCM's answer on a set of nearer sites only if every link combined
    is faster than the slowest of the first answer and the product is less. So with equal links this is FCM, and it
    refuses exactly what FCM refuses. The other arguments and the answer are as for FCM. To compile this with numba,
    make the imported functions known first with ``numba.extending.register_jitable``.
    """
    unplaced = flexible_cluster_minimization(idle, total, component_min, components_max, parts)
    if unplaced > 0:
        return unplaced
    sites = len(idle)
    nowhere, members, near, trial = [0] * sites, [0] * sites, [0] * sites, [0] * sites
    count, first_worst = combination_cost(parts, slowness, members)
    least_cost = (count - 1) * first_worst
    anchor = -1
    looks = 0
    for _ in range(ANCHORS_MAX):
        anchor = next_most_idle(idle, component_min, anchor)
        if anchor < 0 or least_cost <= 0.0 or looks > NEARER_LOOKS_MAX:
            break
        limit = first_worst
        for _ in range(NEARER_SETS_MAX):
            count = near_sites(idle, component_min, slowness, nowhere, anchor, limit, sites, near)
            looks += sites * count
            if count == 0 or looks > NEARER_LOOKS_MAX:
                break
            if flexible_cluster_minimization(near, total, component_min, components_max, trial) > 0:
                break
            count, worst = combination_cost(trial, slowness, members)
            if count < 2:
                break
            if (count - 1) * worst < least_cost:
                least_cost = (count - 1) * worst
                for site in range(sites):
                    parts[site] = trial[site]
            limit = worst
    return 0
