"""From a network in tiers to the grid that WASE sees: machines with powers and loads, and the free part of each
uplink.

A dendrogram has one uplink for each LAN and MAN. A LAN's uplink is the widest path from its router to a node that
links its MAN with the WAN; a MAN's uplink is the widest path from there to the centre of the WAN, its node with most
links.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import TypeAlias

import msgspec

from koala.mapping.tiers.loads import LoadModel, LoadSeries, Range
from koala.mapping.tiers.topology import TierNetwork, TiersParameters, Topology, tiers_topology
from koala.model.dendrogram import Dendrogram, Lan, Machine, Man, Wan

Link: TypeAlias = tuple[int, int]


class TiersShape(msgspec.Struct, frozen=True, kw_only=True):
    """The machines and links of such grids: values are drawn evenly from ranges, powers are in MFlop/s.

    Links inside a MAN and from its LANs have ``man_mbit_s``, those from a MAN to the WAN ``access_mbit_s``, and those
    inside the WAN ``wan_mbit_s``, minus what others use.
    """

    power_mflop_s: Range = (600.0, 1300.0)
    machine_load: LoadModel = LoadModel()
    link_load: LoadModel = LoadModel()
    man_mbit_s: Range = (100.0, 1000.0)
    access_mbit_s: Range = (10.0, 155.0)
    wan_mbit_s: Range = (34.0, 622.0)


class TiersGrid:
    """A network with machines at its hosts. Loads depend on the time; the network and its machines do not."""

    def __init__(self, parameters: TiersParameters, draws: Random, shape: TiersShape | None = None) -> None:
        self.shape = shape or TiersShape()
        self.topology = tiers_topology(parameters, draws)
        hosts = [host for lan in self.topology.lans for host in lan.nodes[1:]]
        self._powers = {host: draws.uniform(*self.shape.power_mflop_s) for host in hosts}
        self._loads = {host: LoadSeries(self.shape.machine_load, draws) for host in hosts}
        self._mbit_s = {link: draws.uniform(*mbit_s) for link, mbit_s in _ranges(self.topology, self.shape)}
        self._link_loads = {link: LoadSeries(self.shape.link_load, draws) for link in self._mbit_s}
        self.user_lan = draws.randrange(len(self.topology.lans))

    def at(self, time_s: float) -> Dendrogram:
        """Return the grid as it is measured at one time."""
        left = {link: mbit_s * (1 - self._link_loads[link].at(time_s)) for link, mbit_s in self._mbit_s.items()}
        topology = self.topology
        core = _most_linked(topology.wan)
        to_core = widest(topology.wan.links, left, (core,))
        mans = []
        for number, man in enumerate(topology.mans):
            to_edge = widest(man.links, left, {node for node, _ in man.uplinks})
            first = number * topology.parameters.lans_per_man
            lans = tuple(
                self._lan(first + place, lan, _uplink(lan, left, to_edge), time_s)
                for place, lan in enumerate(topology.lans_of(number))
            )
            mans.append(Man(name=f"man{number}", lans=lans, uplink_mbit_s=_uplink(man, left, to_core)))
        return Dendrogram(wans=(Wan(name="wan", mans=tuple(mans)),), user_lan=f"lan{self.user_lan}")

    def _lan(self, number: int, lan: TierNetwork, uplink_mbit_s: float, time_s: float) -> Lan:
        machines = tuple(
            Machine(name=f"lan{number}-m{place}", power=self._powers[host], load=self._loads[host].at(time_s))
            for place, host in enumerate(lan.nodes[1:])
        )
        return Lan(name=f"lan{number}", machines=machines, uplink_mbit_s=uplink_mbit_s)


def _ranges(topology: Topology, shape: TiersShape) -> Iterable[tuple[Link, Range]]:
    """Yield every link between routers with the range of its bandwidth; inside a LAN nothing is scarce."""
    yield from ((link, shape.wan_mbit_s) for link in topology.wan.links)
    for man in topology.mans:
        yield from ((link, shape.access_mbit_s) for link in man.uplinks)
        yield from ((link, shape.man_mbit_s) for link in man.links)
    for lan in topology.lans:
        yield from ((link, shape.man_mbit_s) for link in lan.uplinks)


def _most_linked(network: TierNetwork) -> int:
    counts = dict.fromkeys(network.nodes, 0)
    for link in network.links:
        for node in link:
            counts[node] += 1
    return max(counts, key=lambda node: (counts[node], -node))


def _uplink(network: TierNetwork, left: Mapping[Link, float], ways: Mapping[int, float]) -> float:
    """Return the bandwidth of a network's best path upwards: a link and the way from there on."""
    return max(min(left[link], ways[link[1]]) for link in network.uplinks)


def widest(links: Sequence[Link], mbit_s: Mapping[Link, float], ends: Iterable[int]) -> dict[int, float]:
    """Return for each reachable node the bandwidth of the widest path to one of the ends; unlimited at an end."""
    at_node: dict[int, list[tuple[int, float]]] = {}
    for link in links:
        for node, other in (link, link[::-1]):
            at_node.setdefault(node, []).append((other, mbit_s[link]))
    found: dict[int, float] = {}
    waiting = [(-float("inf"), node) for node in sorted(ends)]
    while waiting:
        width, node = heapq.heappop(waiting)
        if node in found:
            continue
        found[node] = -width
        for other, link_mbit_s in at_node.get(node, []):
            if other not in found:
                heapq.heappush(waiting, (-min(-width, link_mbit_s), other))
    return found
