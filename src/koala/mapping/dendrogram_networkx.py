"""The grid as a networkx tree, and back.

A node has its ``kind`` (``grid`` for the root, ``wan``, ``man``, ``lan``, ``machine``) and its ``name``; WANs, MANs
and LANs have ``uplink_mbit_s``, machines ``power`` and ``load``. The graph's own attribute ``user_lan`` names a LAN.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from koala.model.dendrogram import Dendrogram, InvalidDendrogramError, Lan, Machine, Man, Wan
from koala.model.libraries import library

KINDS = ("grid", "wan", "man", "lan", "machine")


def to_networkx(dendrogram: Dendrogram) -> Any:
    """The grid as a ``networkx.Graph``; its nodes are the paths of names from the root, which is ``()``."""
    graph = library("networkx").Graph(user_lan=dendrogram.user_lan)
    graph.add_node((), kind="grid", name="")

    def add(path: tuple[str, ...], **data: object) -> None:
        graph.add_node(path, kind=KINDS[len(path)], name=path[-1], **data)
        graph.add_edge(path[:-1], path)

    for wan in dendrogram.wans:
        add((wan.name,), uplink_mbit_s=wan.uplink_mbit_s)
        for man in wan.mans:
            add((wan.name, man.name), uplink_mbit_s=man.uplink_mbit_s)
            for lan in man.lans:
                add((wan.name, man.name, lan.name), uplink_mbit_s=lan.uplink_mbit_s)
                for each in lan.machines:
                    add((wan.name, man.name, lan.name, each.name), power=each.power, load=each.load)
    return graph


def from_networkx(graph: Any, *, user_lan: str | None = None) -> Dendrogram:
    """The grid of such a tree, whose nodes may be anything; brothers are in the order of the graph's nodes.

    A node without a name has its own text as one, an uplink that is not given is unlimited, and a load is 0.
    ``user_lan`` stands for the graph's own. Raises ``InvalidDendrogramError`` for what is no such tree.
    """
    user = graph.graph.get("user_lan") if user_lan is None else user_lan
    if not isinstance(user, str):
        raise InvalidDendrogramError("user_lan", "the graph has no such attribute; give the name of a LAN")
    sons = _sons(graph)
    roots = [node for node, data in graph.nodes(data=True) if data["kind"] == KINDS[0]]
    if len(roots) != 1:
        raise InvalidDendrogramError("grid", f"{len(roots)} nodes are of this kind; there is one root")

    def named(node: Hashable, *numbers: str) -> dict[str, Any]:
        data = graph.nodes[node]
        found = {number: _number(data, node, number) for number in numbers if number in data}
        return {"name": str(data.get("name", node)), **found}

    def machine(node: Hashable) -> Machine:
        if "power" not in graph.nodes[node]:
            raise InvalidDendrogramError(f"machine {node}", "it has no power; write a number above 0")
        return Machine(**named(node, "power", "load"))

    def lan(node: Hashable) -> Lan:
        return Lan(**named(node, "uplink_mbit_s"), machines=tuple(map(machine, sons[node])))

    def man(node: Hashable) -> Man:
        return Man(**named(node, "uplink_mbit_s"), lans=tuple(map(lan, sons[node])))

    def wan(node: Hashable) -> Wan:
        return Wan(**named(node, "uplink_mbit_s"), mans=tuple(map(man, sons[node])))

    return Dendrogram(wans=tuple(map(wan, sons[roots[0]])), user_lan=user)


def _sons(graph: Any) -> dict[Hashable, list[Hashable]]:
    """By node those below it, in the order of the nodes; every node but the root has one father, a level above."""
    level: dict[Hashable, int] = {}
    for node, data in graph.nodes(data=True):
        if data.get("kind") not in KINDS:
            raise InvalidDendrogramError(
                f"node {node}", f"its kind is {data.get('kind')!r}; write one of {', '.join(KINDS)}"
            )
        level[node] = KINDS.index(data["kind"])
    fathers: dict[Hashable, list[Hashable]] = {node: [] for node in graph.nodes}
    for one, other in graph.edges():
        if abs(level[one] - level[other]) != 1:
            raise InvalidDendrogramError(f"edge {one} - {other}", "its ends are not one level apart")
        upper, lower = sorted((one, other), key=lambda node: level[node])
        fathers[lower].append(upper)
    sons: dict[Hashable, list[Hashable]] = {node: [] for node in graph.nodes}
    for node in graph.nodes:
        if level[node] > 0:
            if len(fathers[node]) != 1:
                raise InvalidDendrogramError(
                    f"node {node}", f"it has {len(fathers[node])} fathers; join it with one {KINDS[level[node] - 1]}"
                )
            sons[fathers[node][0]].append(node)
    return sons


def _number(data: Mapping[str, Any], node: Hashable, key: str) -> float:
    found = data[key]
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InvalidDendrogramError(f"node {node}", f"its attribute {key} is {found!r}; give it a number")
    return float(found)
