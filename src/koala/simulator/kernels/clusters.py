"""The idle processors of many clusters, and the choice of one by worst fit, for kernels.

Plain functions that run as Python and compile with numba unchanged. Clusters form groups, each with the maximum of
its idle processors: worst fit, the policy itself, chooses the group and then the cluster in it. That is the cluster
it would have chosen among all, for the price of two short searches.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any, NamedTuple

from koala.policies.koala.worst_fit import worst_fit

GROUP_SHIFT = 4
GROUP = 1 << GROUP_SHIFT
NO_CLUSTER = -1


class Clusters(NamedTuple):
    """Idle processors by cluster, padded to whole groups with clusters that never fit, and the maximum of each group.

    ``size`` and ``chosen`` have one element each: the question to the policy and its answer. All are arrays of int64,
    with the types that policies have for theirs.
    """

    idle: MutableSequence[int]
    most: MutableSequence[int]
    size: MutableSequence[int]
    chosen: MutableSequence[int]


def clusters_of(capacity: Sequence[int]) -> Clusters:
    """Return clusters of these sizes, all idle."""
    import numpy

    groups = -(-len(capacity) // GROUP)
    idle: Any = numpy.full(groups * GROUP if groups > 1 else len(capacity), -1, numpy.int64)
    idle[: len(capacity)] = capacity
    most: Any = numpy.array([idle[group * GROUP : (group + 1) * GROUP].max() for group in range(groups)], numpy.int64)
    question: Any = numpy.zeros(1, numpy.int64)
    return Clusters(idle, most, question, question.copy())


def most_idle(clusters: Clusters) -> int:
    """Return the number of idle processors of the cluster with the most."""
    most = clusters.most[0]
    for group in range(1, len(clusters.most)):
        most = max(most, clusters.most[group])
    return most


def take(clusters: Clusters, size: int) -> int:
    """Take the processors from the cluster that worst fit chooses, and return it; ``NO_CLUSTER`` if none has them."""
    clusters.size[0] = size
    if len(clusters.most) == 1:
        # The policy deducts from its second list, and uses only the length of the first.
        if worst_fit(clusters.idle, clusters.size, clusters.idle, clusters.chosen) >= 0:
            return NO_CLUSTER
        refresh(clusters, 0)
        return clusters.chosen[0]
    if worst_fit(clusters.most, clusters.size, clusters.most, clusters.chosen) >= 0:
        return NO_CLUSTER
    group = clusters.chosen[0]
    members = clusters.idle[group << GROUP_SHIFT : (group + 1) << GROUP_SHIFT]
    worst_fit(members, clusters.size, members, clusters.chosen)
    refresh(clusters, group)
    return (group << GROUP_SHIFT) + clusters.chosen[0]


def give(clusters: Clusters, cluster: int, size: int) -> None:
    """Make the processors idle again."""
    idle = clusters.idle[cluster] + size
    clusters.idle[cluster] = idle
    group = cluster >> GROUP_SHIFT
    clusters.most[group] = max(clusters.most[group], idle)


def refresh(clusters: Clusters, group: int) -> None:
    """Recompute the maximum of a group, after one of its clusters has lost processors."""
    begin = group << GROUP_SHIFT
    most = clusters.idle[begin]
    for cluster in range(begin + 1, min(begin + GROUP, len(clusters.idle))):
        most = max(most, clusters.idle[cluster])
    clusters.most[group] = most
