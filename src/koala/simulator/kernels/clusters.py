"""The idle processors of many clusters, and the choice of one by worst fit, for kernels.

Plain functions that run as Python and compile with numba unchanged. Clusters stand in groups, and the most that any
cluster of a group has idle is kept: worst fit, the policy itself, chooses the group and then the cluster in it. That
is the cluster it would have chosen among all, at the price of two short looks.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from typing import Any, NamedTuple

from koala.policies.koala.worst_fit import worst_fit

GROUP_SHIFT = 4
GROUP = 1 << GROUP_SHIFT
NO_CLUSTER = -1


class Clusters(NamedTuple):
    """Idle processors by cluster, filled up with clusters that never fit to whole groups, and the most of each group.

    ``size`` and ``chosen`` have one element each: the question to the policy and its answer. All are arrays of int64,
    with the types that policies give to theirs.
    """

    idle: MutableSequence[int]
    most: MutableSequence[int]
    size: MutableSequence[int]
    chosen: MutableSequence[int]


def clusters_of(capacity: Sequence[int]) -> Clusters:
    """Clusters of these sizes, all idle."""
    import numpy

    groups = -(-len(capacity) // GROUP)
    idle: Any = numpy.full(groups * GROUP if groups > 1 else len(capacity), -1, numpy.int64)
    idle[: len(capacity)] = capacity
    most: Any = numpy.array([idle[group * GROUP : (group + 1) * GROUP].max() for group in range(groups)], numpy.int64)
    question: Any = numpy.zeros(1, numpy.int64)
    return Clusters(idle, most, question, question.copy())


def most_idle(clusters: Clusters) -> int:
    """How many processors the cluster with the most idle ones has."""
    most = clusters.most[0]
    for group in range(1, len(clusters.most)):
        most = max(most, clusters.most[group])
    return most


def take(clusters: Clusters, size: int) -> int:
    """Take the processors from the cluster that worst fit chooses, and say which; ``NO_CLUSTER`` if none has them."""
    clusters.size[0] = size
    if len(clusters.most) == 1:
        # The policy deducts from the second of its lists, and of the first it looks at the length alone.
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
    """The processors are idle again."""
    idle = clusters.idle[cluster] + size
    clusters.idle[cluster] = idle
    group = cluster >> GROUP_SHIFT
    clusters.most[group] = max(clusters.most[group], idle)


def refresh(clusters: Clusters, group: int) -> None:
    """Find out again what the most is in a group, after a cluster of it has got less."""
    begin = group << GROUP_SHIFT
    most = clusters.idle[begin]
    for cluster in range(begin + 1, min(begin + GROUP, len(clusters.idle))):
        most = max(most, clusters.idle[cluster])
    clusters.most[group] = most
