"""The order in which a search visits LANs: the nearest first, and the best connected first among equally near ones.

It depends on the grid alone, and is computed no further than a search has requested.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from koala.model.dendrogram import LAN, MAN, WAN, FlatGrid


def brothers_by_bandwidth(flat: FlatGrid, level: int, node: int) -> list[int]:
    """Return the other nodes with the same father, by the smaller of both uplinks, decreasing; ties by index."""
    uplinks = flat.levels[level].uplink_mbit_s
    own = uplinks[node]
    others = [brother for brother in flat.brothers(level, node) if brother != node]
    others.sort(key=lambda brother: -min(own, uplinks[brother]))
    return others


def lans_below(flat: FlatGrid, level: int, node: int) -> Iterator[int]:
    """Yield the LANs below a node, as seen from outside: level by level by uplink, decreasing; ties by index."""
    if level == LAN:
        yield node
        return
    for son in _by_uplink(flat, level - 1, flat.levels[level].sons[node]):
        yield from lans_below(flat, level - 1, son)


def _by_uplink(flat: FlatGrid, level: int, nodes: range) -> list[int]:
    uplinks = flat.levels[level].uplink_mbit_s
    return sorted(nodes, key=lambda node: -uplinks[node])


def mans_closest_first(flat: FlatGrid, lan: int) -> Iterator[tuple[int, list[int]]]:
    """Yield every MAN once, each with its LANs: the MAN of this LAN, which comes first in it, the other MANs of its
    WAN, and those of the other WANs.

    Brothers of one level come in the order of the bandwidth between them and the node that the search comes from.
    """
    node = flat.levels[LAN].father[lan]
    yield node, [lan, *brothers_by_bandwidth(flat, LAN, lan)]
    for level in (MAN, WAN):
        for brother in brothers_by_bandwidth(flat, level, node):
            for man in [brother] if level == MAN else _by_uplink(flat, MAN, flat.levels[WAN].sons[brother]):
                yield man, _by_uplink(flat, LAN, flat.levels[MAN].sons[man])
        node = flat.levels[level].father[node]


class ClosestFirst:
    """The order from one LAN, which can be iterated many times; each of its steps is computed once."""

    def __init__(self, flat: FlatGrid, lan: int) -> None:
        self._known: list[tuple[int, list[int]]] = []
        self._rest = mans_closest_first(flat, lan)
        self._complete = False

    def __iter__(self) -> Iterator[int]:
        """Yield every LAN once."""
        return chain.from_iterable(lans for _, lans in self.by_man())

    def by_man(self) -> Iterator[tuple[int, list[int]]]:
        """Yield the same LANs in the same order, with their MANs."""
        return iter(self._known) if self._complete else self._steps()

    def _steps(self) -> Iterator[tuple[int, list[int]]]:
        known = self._known
        place = 0
        while True:
            # Another search may have gone further meanwhile, so steps are taken only from the list.
            if place == len(known):
                following = next(self._rest, None)
                if following is None:
                    self._complete = True
                    return
                known.append(following)
            yield known[place]
            place += 1


class SearchOrders:
    """The orders of one search, by the LAN that they start from, and the brothers of every node requested so far."""

    def __init__(self, flat: FlatGrid) -> None:
        self._flat = flat
        self._from: dict[int, ClosestFirst] = {}
        self._brothers: dict[tuple[int, int], list[int]] = {}

    def closest_first(self, lan: int) -> ClosestFirst:
        """Return all LANs, as seen from this one."""
        found = self._from.get(lan)
        if found is None:
            found = self._from[lan] = ClosestFirst(self._flat, lan)
        return found

    def brothers(self, level: int, node: int) -> list[int]:
        """Return the brothers of a node by bandwidth."""
        found = self._brothers.get((level, node))
        if found is None:
            found = self._brothers[level, node] = brothers_by_bandwidth(self._flat, level, node)
        return found
