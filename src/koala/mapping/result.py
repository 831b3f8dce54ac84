"""The result of a mapping: the machine of every task, or which task or cluster found no place and why; and measures.

Values only. Indices are those of the task graph and of the dendrogram's flat lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from koala.model.dendrogram import BEYOND, Dendrogram, FlatGrid
from koala.model.task_graph import TaskGraph

# A sentence names at most this many tasks.
TASKS_NAMED = 5


class TaskMapping(msgspec.Struct, frozen=True, kw_only=True):
    """Every task on a machine.

    ``affinities`` is for each task the power that its machine had left when it came, divided by its need: at least 1.
    ``homes`` is for each cluster its chosen LAN or, with a method that chooses none, the LAN with most of its tasks.
    ``scarce`` means that the method's own search failed, and that the tasks were packed tightly instead.
    """

    method: str
    clusters: tuple[tuple[int, ...], ...]
    machines: tuple[int, ...]
    affinities: tuple[float, ...]
    homes: tuple[int, ...]
    scarce: bool = False

    def by_name(self, graph: TaskGraph, dendrogram: Dendrogram) -> dict[str, str]:
        """Return the names of the tasks, each with the name of its machine."""
        names = dendrogram.flat.machine_names
        return {task: names[machine] for task, machine in zip(graph.names, self.machines, strict=True)}


class NoPlace(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was mapped: a cluster found no suitable LAN or, where ``task`` is given, a task found no machine.

    ``wanted`` is the required power, ``offered`` the most that was available, at ``where``: a LAN, or a machine; None
    in a grid without any.
    """

    method: str
    cluster: tuple[str, ...]
    wanted: float
    offered: float
    where: str | None
    task: str | None = None

    @property
    def missing(self) -> float:
        """The power that this cluster or task lacked."""
        return self.wanted - self.offered

    def for_user(self) -> str:
        """Return which task or cluster found no place, what it lacked and what to do."""
        return f"{self.who_lacks_what}; lower mcr, give the grid more power or try another method"

    @property
    def who_lacks_what(self) -> str:
        """The same without what to do."""
        return f"{self._who()} {self._lack()}"

    def _who(self) -> str:
        if self.task is not None:
            return f"task {self.task} found no machine:"
        named = ", ".join(self.cluster[:TASKS_NAMED])
        more = len(self.cluster) - TASKS_NAMED
        return f"the cluster of {named}{f' and {more} more' if more > 0 else ''} found no suitable LAN:"

    def _lack(self) -> str:
        if self.where is None:
            return "the grid has no machine with power left"
        if self.task is not None:
            return (
                f"it needs {self.wanted:g} MFlop/s, and the most that any has left is {self.offered:g}, on machine "
                f"{self.where}; {self.missing:g} are missing"
            )
        return (
            f"it asks for machines of {self.wanted:g} MFlop/s (mean and standard deviation of its tasks), and the "
            f"best that any LAN offers is a mean of {self.offered:g}, in {self.where}; {self.missing:g} are missing"
        )


class MappingMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """How good a mapping is.

    ``lan_hit_ratio`` is the share of a cluster's tasks in its home LAN, as a mean over the clusters, and
    ``whole_share`` the share of clusters that are in one LAN. ``distances`` counts the tasks in their cluster's home
    LAN, elsewhere in its MAN, elsewhere in its WAN, and beyond. ``inter_lan_share`` is the share of all
    communication, by RQoC, between LANs.
    """

    affinity_mean: float
    affinity_min: float
    lan_hit_ratio: float
    whole_share: float
    distances: tuple[int, int, int, int]
    inter_lan_share: float


def measured(mapping: TaskMapping, graph: TaskGraph, dendrogram: Dendrogram) -> MappingMeasures:
    """Return the measures of a mapping of this graph onto this grid."""
    flat = dendrogram.flat
    lans = [flat.machine_lan[machine] for machine in mapping.machines]
    distances = [0] * (BEYOND + 1)
    hits, whole = 0.0, 0
    for cluster, home in zip(mapping.clusters, mapping.homes, strict=True):
        for task in cluster:
            distances[flat.distance(home, lans[task])] += 1
        hits += sum(lans[task] == home for task in cluster) / len(cluster)
        whole += len({lans[task] for task in cluster}) == 1
    total = sum(rqoc for _, _, rqoc in graph.edges)
    between = sum(rqoc for one, other, rqoc in graph.edges if lans[one] != lans[other])
    at_home, in_man, in_wan, beyond = distances
    return MappingMeasures(
        affinity_mean=sum(mapping.affinities) / len(mapping.affinities),
        affinity_min=min(mapping.affinities),
        lan_hit_ratio=hits / len(mapping.clusters),
        whole_share=whole / len(mapping.clusters),
        distances=(at_home, in_man, in_wan, beyond),
        inter_lan_share=between / total if total else 0.0,
    )


def plurality_lan(flat: FlatGrid, machines: Sequence[int]) -> int:
    """Return the LAN with most of these machines, which count as often as they occur; ties by index."""
    counts = Counter(flat.machine_lan[machine] for machine in machines)
    return min(counts, key=lambda lan: (-counts[lan], lan))
