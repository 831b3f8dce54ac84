"""A soft quality of service for links: the traffic of tasks between LANs loads the uplinks on the way.

A LAN is preferred if its uplinks, and those on the way to tasks already placed, can carry the traffic between a
cluster and these tasks. If no LAN has such links, the one with the least uncarried traffic is taken, so nothing fails
for lack of bandwidth. This module also measures how well a whole mapping is carried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

from koala.mapping.placing.power_left import Placing, Spot
from koala.mapping.result import TaskMapping
from koala.model.dendrogram import LAN, LEVELS, MAN, WAN, Dendrogram, FlatGrid
from koala.model.task_graph import TaskGraph

# The uplink of a node: its level and index.
Link: TypeAlias = tuple[int, int]


def links_between(flat: FlatGrid, one: int, other: int) -> Iterator[Link]:
    """Yield the uplinks that traffic between two LANs crosses; none within a LAN."""
    for level in range(len(LEVELS)):
        if one == other:
            return
        yield level, one
        yield level, other
        one, other = flat.levels[level].father[one], flat.levels[level].father[other]


class LinkLoads:
    """The demand of placed tasks on each uplink, in Mbit/s."""

    def __init__(self, flat: FlatGrid) -> None:
        self._flat = flat
        self.mbit_s: dict[Link, float] = {}

    def add(self, one_lan: int, other_lan: int, mbit_s: float) -> None:
        """Add traffic between two LANs."""
        for link in links_between(self._flat, one_lan, other_lan):
            self.mbit_s[link] = self.mbit_s.get(link, 0.0) + mbit_s

    def capacity_mbit_s(self, link: Link) -> float:
        """Return the capacity of an uplink."""
        level, node = link
        return self._flat.levels[level].uplink_mbit_s[node]


class WantsBandwidth:
    """The judge that wants the links to carry a cluster's traffic with the tasks placed before it."""

    def __init__(self, graph: TaskGraph, flat: FlatGrid, mbit_s_per_rqoc: float) -> None:
        self._flat = flat
        # The free bandwidth of each node's uplink, by level; below 0 if the demand exceeds the capacity.
        self._free_mbit_s = [level.uplink_mbit_s.copy() for level in flat.levels]
        self._exchanged: list[list[tuple[int, float]]] = [[] for _ in graph.names]
        for one, other, rqoc in graph.edges:
            self._exchanged[one].append((other, rqoc * mbit_s_per_rqoc))
            self._exchanged[other].append((one, rqoc * mbit_s_per_rqoc))
        self._lan = [-1] * len(graph.names)
        # The traffic of the tasks in question with each node of each level, and the part that its uplink could not
        # carry, for the two worst nodes of each level.
        self._mbit_s: list[dict[int, float]] = []
        self._worst: list[list[tuple[float, int]]] = []
        self._known: list[dict[int, float]] = []
        self._total_mbit_s = 0.0

    def begin(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Sum up the traffic of the tasks with each LAN that has tasks already, and with the MANs and WANs above."""
        lans: dict[int, float] = {}
        for task in tasks:
            for other, mbit_s in self._exchanged[task]:
                if self._lan[other] >= 0:
                    lans[self._lan[other]] = lans.get(self._lan[other], 0.0) + mbit_s
        self._total_mbit_s = sum(lans.values())
        self._mbit_s = [lans]
        for level in self._flat.levels[:-1]:
            above: dict[int, float] = {}
            for node, mbit_s in self._mbit_s[-1].items():
                above[level.father[node]] = above.get(level.father[node], 0.0) + mbit_s
            self._mbit_s.append(above)
        self._worst = [
            sorted([(self._uncarried(level, node, more), node) for node, more in nodes.items()], reverse=True)[:2]
            for level, nodes in enumerate(self._mbit_s)
        ]
        self._known = [{} for _ in self._mbit_s]

    def promising(self, man: int, lans: Sequence[int], enough: float) -> Sequence[int]:
        """Return all LANs; or only those with partners, if enough traffic fails to leave the MAN or reach others
        anyway."""
        wanted = enough * self._total_mbit_s
        if self._total_mbit_s == 0 or (self._worst[LAN][0][0] < wanted and self._uncarried_from(MAN, man) < wanted):
            return lans
        return [lan for lan in lans if lan in self._mbit_s[LAN]] if man in self._mbit_s[MAN] else ()

    def least_lack(self, placing: Placing, lan: int, enough: float) -> float:
        """Return the share of the traffic that the worst link on its way cannot carry.

        Outgoing traffic crosses the uplinks of the LAN, its MAN and its WAN, and then those of the receivers.
        """
        return self._uncarried_from(LAN, lan) / self._total_mbit_s if self._total_mbit_s > 0 else 0.0

    def _uncarried_from(self, level: int, node: int) -> float:
        """Return the traffic that the worst link of this level or one above cannot carry, if the tasks are below this
        node.

        All LANs of a MAN share the links above it, so each node is computed once.
        """
        known = self._known[level]
        found = known.get(node)
        if found is not None:
            return found
        nodes = self._mbit_s[level]
        inside = nodes.get(node, 0.0)
        found = 0.0
        if len(nodes) > (inside > 0):
            worst = self._worst[level]
            # The traffic that others of this level cannot receive: at the worst node, or the second worst if that is
            # the node itself.
            others = worst[0] if worst[0][1] != node else worst[-1]
            found = max(
                self._uncarried(level, node, self._total_mbit_s - inside),
                others[0],
                0.0 if level == WAN else self._uncarried_from(level + 1, self._flat.levels[level].father[node]),
            )
        known[node] = found
        return found

    def _uncarried(self, level: int, node: int, more_mbit_s: float) -> float:
        """Return how much of this additional traffic an uplink cannot carry."""
        free = self._free_mbit_s[level][node]
        if free <= 0:
            return more_mbit_s
        return more_mbit_s - free if more_mbit_s > free else 0.0

    def lack(self, placing: Placing, lan: int, spots: Sequence[Spot]) -> float:
        """Return the same value: the choice of machines within the LAN makes no difference."""
        return self.least_lack(placing, lan, math.inf)

    def settled(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Load the links with the traffic of these tasks with those placed before, and among themselves."""
        for task in tasks:
            lan = self._lan[task] = self._flat.machine_lan[placing.machines[task]]
            for other, mbit_s in self._exchanged[task]:
                if self._lan[other] >= 0:
                    for level, node in links_between(self._flat, lan, self._lan[other]):
                        self._free_mbit_s[level][node] -= mbit_s


class BandwidthMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """How well the links carry a mapping.

    ``carried_share`` is the share of all communication that gets through, within LANs and between them, with every
    edge reduced by the most loaded uplink on its way. ``overloaded_links`` counts the uplinks whose demand exceeds
    their capacity.
    """

    carried_share: float
    overloaded_links: int


def bandwidth_measured(
    mapping: TaskMapping, graph: TaskGraph, dendrogram: Dendrogram, mbit_s_per_rqoc: float
) -> BandwidthMeasures:
    """Return how well the uplinks of the grid carry this mapping's traffic."""
    flat = dendrogram.flat
    lans = [flat.machine_lan[machine] for machine in mapping.machines]
    loads = LinkLoads(flat)
    for one, other, rqoc in graph.edges:
        loads.add(lans[one], lans[other], rqoc * mbit_s_per_rqoc)
    granted = {link: min(1.0, loads.capacity_mbit_s(link) / mbit_s) for link, mbit_s in loads.mbit_s.items()}
    carried = sum(
        rqoc * min((granted[link] for link in links_between(flat, lans[one], lans[other])), default=1.0)
        for one, other, rqoc in graph.edges
    )
    total = sum(rqoc for _, _, rqoc in graph.edges)
    return BandwidthMeasures(
        carried_share=carried / total if total else 1.0,
        overloaded_links=sum(share < 1 for share in granted.values()),
    )
