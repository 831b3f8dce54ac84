"""CM, cluster minimization: components are packed on as few sites as a fixed order of sites allows.

A plain function over integers that runs as Python and compiles with numba unchanged. ``koala.policies.interface``
handles requests, names and refusals.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence


def cluster_minimization(
    idle: Sequence[int], sizes: Sequence[int], left: MutableSequence[int], chosen: MutableSequence[int]
) -> int:
    """Pack the components: the largest first, each onto the first site, by idle processors, that still fits.

    The order of the sites is fixed once, by ``idle`` (decreasing, ties to the lowest index); "fits" counts what this
    job has already taken. The first site of that order that fits is the one with the greatest ``idle`` among those
    that fit, so no site list is sorted here. Arguments and answer are as for worst fit.
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


def cluster_minimization_beside(
    idle: Sequence[int],
    sizes: Sequence[int],
    combined: Sequence[int],
    left: MutableSequence[int],
    chosen: MutableSequence[int],
) -> int:
    """Place as CM, for a job with components whose sites are fixed, which ``combined`` marks: they are used already.

    So they come first in the order of the sites, by idle processors among themselves. If that combines more sites
    than the plain order does, or finds no place, the plain order is used: whatever CM places is placed, on no more
    sites. ``idle`` excludes what the fixed components take. With equal sizes no placement combines fewer sites.
    """
    sites, components = len(idle), len(sizes)
    failed = cluster_minimization(idle, sizes, left, chosen)
    most = marked = 0
    for site in range(sites):
        most = max(most, idle[site])
        marked += combined[site]
    if marked == 0:
        return failed
    rank, trial_left, trial = [0] * sites, [0] * sites, [-1] * components
    for site in range(sites):
        rank[site] = idle[site] + most + 1 if combined[site] else idle[site]
        trial_left[site] = idle[site]
    if cluster_minimization(rank, sizes, trial_left, trial) >= 0:
        return failed
    if failed < 0 and sites_added(chosen, combined) < sites_added(trial, combined):
        return -1
    for site in range(sites):
        left[site] = trial_left[site]
    for component in range(components):
        chosen[component] = trial[component]
    return -1


def sites_added(chosen: Sequence[int], combined: Sequence[int]) -> int:
    """Return how many unmarked sites the components take."""
    marks = [0] * len(combined)
    added = 0
    for component in range(len(chosen)):
        site = chosen[component]
        if not combined[site] and not marks[site]:
            marks[site] = 1
            added += 1
    return added
