"""Networks in three tiers after Doar's generator Tiers, written anew: one WAN, MANs around it, and LANs at the MANs.

Nodes lie in a plane. The nodes of a WAN or MAN are joined by the shortest tree and, for redundancy, each with its
nearest until it has enough links; a LAN is a star of hosts around its router. All randomness comes from the
``Random`` that is passed in. ``grids`` adds bandwidths and makes the grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import msgspec

# The nodes of a MAN are in a square of this side.
MAN_SIDE_KM = 50.0
# Those of a WAN, and of a LAN.
WAN_SIDE_KM = 1000.0
LAN_SIDE_KM = 1.0


class InvalidTiersError(ValueError):
    """No network can be made with these parameters."""

    def for_user(self) -> str:
        """Return the parameter and what to write."""
        return str(self)


class TiersParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of Tiers, which makes one WAN; its own names are in brackets.

    - ``wan_nodes`` (SW), ``mans`` (NM) and ``man_nodes`` (SM), ``lans_per_man`` (NL) and ``lan_hosts`` (SL): sizes;
    - ``wan_redundancy`` (RW), ``man_redundancy`` (RM) and ``lan_redundancy`` (RL): the least number of links of each
      node in such a network, as far as there are nodes to link it with; 1 is a tree;
    - ``man_to_wan`` (RMW) and ``lan_to_man`` (RLM): the number of nodes of the tier above that a network is linked
      with.
    """

    wan_nodes: int = 10
    mans: int = 10
    man_nodes: int = 10
    lans_per_man: int = 5
    lan_hosts: int = 5
    wan_redundancy: int = 2
    man_redundancy: int = 1
    lan_redundancy: int = 1
    man_to_wan: int = 2
    lan_to_man: int = 1

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise InvalidTiersError(f"{name} is {getattr(self, name)}; write a number from 1 on")

    @property
    def hosts(self) -> int:
        """The number of hosts in the network."""
        return self.mans * self.lans_per_man * self.lan_hosts


class NodePosition(NamedTuple):
    """The position of a node."""

    x_km: float
    y_km: float


class TierNetwork(NamedTuple):
    """One WAN, MAN or LAN: its nodes, the links between them, and the links to the tier above, own node first.

    The first node of a LAN is the router and the others are the hosts. The WAN has no uplinks.
    """

    nodes: range
    links: tuple[tuple[int, int], ...]
    uplinks: tuple[tuple[int, int], ...] = ()


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """A whole network. The LANs of one MAN are adjacent, in the order of the MANs."""

    parameters: TiersParameters
    places: tuple[NodePosition, ...]
    wan: TierNetwork
    mans: tuple[TierNetwork, ...]
    lans: tuple[TierNetwork, ...]

    def lans_of(self, man: int) -> tuple[TierNetwork, ...]:
        """Return the LANs of a MAN."""
        each = self.parameters.lans_per_man
        return self.lans[man * each : (man + 1) * each]

    @property
    def links(self) -> list[tuple[int, int]]:
        """All links of the network."""
        return [link for network in (self.wan, *self.mans, *self.lans) for link in network.links + network.uplinks]


def tiers_topology(parameters: TiersParameters, draws: Random) -> Topology:
    """Return a network with these parameters; the same state of ``draws`` gives the same network."""
    places: list[NodePosition] = []
    middle = NodePosition(WAN_SIDE_KM / 2, WAN_SIDE_KM / 2)
    wan = _network(places, parameters.wan_nodes, (middle, WAN_SIDE_KM), parameters.wan_redundancy, draws)
    mans: list[TierNetwork] = []
    lans: list[TierNetwork] = []
    for _ in range(parameters.mans):
        area = (_inside(middle, WAN_SIDE_KM - MAN_SIDE_KM, draws), MAN_SIDE_KM)
        man = _network(places, parameters.man_nodes, area, parameters.man_redundancy, draws)
        mans.append(man._replace(uplinks=_uplinks(places, man.nodes, wan.nodes, parameters.man_to_wan)))
        lans += [_lan(places, parameters, area[0], mans[-1], draws) for _ in range(parameters.lans_per_man)]
    return Topology(parameters=parameters, places=tuple(places), wan=wan, mans=tuple(mans), lans=tuple(lans))


def distance_km(one: NodePosition, other: NodePosition) -> float:
    """Return the distance between two places."""
    return math.hypot(one.x_km - other.x_km, one.y_km - other.y_km)


def _inside(middle: NodePosition, side_km: float, draws: Random) -> NodePosition:
    half = side_km / 2
    return NodePosition(middle.x_km + draws.uniform(-half, half), middle.y_km + draws.uniform(-half, half))


def _new_nodes(places: list[NodePosition], count: int, area: tuple[NodePosition, float], draws: Random) -> range:
    first = len(places)
    places.extend(_inside(*area, draws) for _ in range(count))
    return range(first, first + count)


def _network(
    places: list[NodePosition], count: int, area: tuple[NodePosition, float], redundancy: int, draws: Random
) -> TierNetwork:
    """Return a WAN or MAN by itself: the shortest tree over its nodes, and more links where it is redundant."""
    nodes = _new_nodes(places, count, area, draws)
    return TierNetwork(nodes, _redundant(places, nodes, _shortest_tree(places, nodes), redundancy))


def _lan(
    places: list[NodePosition], parameters: TiersParameters, middle: NodePosition, man: TierNetwork, draws: Random
) -> TierNetwork:
    """Return a star around a router in the area of the MAN, linked with the nearest of the MAN's nodes."""
    area = (_inside(middle, MAN_SIDE_KM, draws), LAN_SIDE_KM)
    nodes = _new_nodes(places, 1 + parameters.lan_hosts, area, draws)
    router, hosts = nodes[0], nodes[1:]
    star = [(router, host) for host in hosts]
    links = _redundant(places, hosts, star, parameters.lan_redundancy)
    return TierNetwork(nodes, links, _uplinks(places, nodes[:1], man.nodes, parameters.lan_to_man))


def _shortest_tree(places: Sequence[NodePosition], nodes: range) -> list[tuple[int, int]]:
    """Return the minimum spanning tree, by Prim's algorithm."""
    nearest = {node: (distance_km(places[nodes[0]], places[node]), nodes[0]) for node in nodes[1:]}
    tree = []
    while nearest:
        node = min(nearest, key=lambda each: (nearest[each][0], each))
        tree.append((nearest.pop(node)[1], node))
        for other, (known_km, _) in nearest.items():
            km = distance_km(places[node], places[other])
            if km < known_km:
                nearest[other] = (km, node)
    return tree


def _redundant(
    places: Sequence[NodePosition], nodes: range, links: Sequence[tuple[int, int]], redundancy: int
) -> tuple[tuple[int, int], ...]:
    """Return the links, and more links from each node with too few to its nearest nodes."""
    found = list(links)
    linked: dict[int, set[int]] = {node: set() for node in nodes}
    for one, other in found:
        linked.setdefault(one, set()).add(other)
        linked.setdefault(other, set()).add(one)
    for node in nodes:
        others = [other for other in nodes if other != node and other not in linked[node]]
        others.sort(key=lambda other: distance_km(places[node], places[other]))
        for other in others[: max(0, redundancy - len(linked[node]))]:
            found.append((node, other))
            linked[node].add(other)
            linked[other].add(node)
    return tuple(found)


def _uplinks(places: Sequence[NodePosition], nodes: range, above: range, count: int) -> tuple[tuple[int, int], ...]:
    """Return links from the nearest nodes to the ``count`` nearest nodes of the tier above, one each."""
    pairs = []
    for upper in above:
        node = min(nodes, key=lambda each: distance_km(places[each], places[upper]))
        pairs.append((distance_km(places[node], places[upper]), node, upper))
    return tuple((node, upper) for _, node, upper in sorted(pairs)[:count])
