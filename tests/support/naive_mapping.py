"""References for fast mapping: WASE word by word over names, without lists by index; and small random worlds.

The numbers make sums exact, so that both must agree to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from koala.mapping.placing.suitability import suitability
from koala.model.dendrogram import Dendrogram, Lan, Machine, Man, Wan
from koala.model.task_graph import TaskGraph

# Task names with their machines' names, and cluster numbers with their LANs' names.
Naive = tuple[dict[str, str], dict[int, str]]


def lan(name: str, *powers: float, uplink_mbit_s: float = math.inf) -> Lan:
    """Return machines without load, named after their LAN: a LAN x has x0, x1 and so on."""
    machines = tuple(Machine(name=f"{name}{number}", power=power) for number, power in enumerate(powers))
    return Lan(name=name, machines=machines, uplink_mbit_s=uplink_mbit_s)


def one_man(*lans: Lan) -> Dendrogram:
    """Return a grid of one MAN, whose user sits in its first LAN."""
    return Dendrogram(wans=(Wan(name="w", mans=(Man(name="m", lans=lans),)),), user_lan=lans[0].name)


def tasks(*needs: float, edges: Sequence[tuple[int, int, float]] = ()) -> TaskGraph:
    """Return tasks t0, t1 and so on with these needs."""
    return TaskGraph(names=tuple(f"t{task}" for task in range(len(needs))), rcr=needs, edges=tuple(edges), mcr=1.0)


class Tree:
    """The place of every LAN, and the power left of every machine, by name."""

    def __init__(self, grid: Dendrogram) -> None:
        self.lans: dict[str, Lan] = {}
        # The path from the root to each LAN: index and uplink of its WAN, its MAN and of the LAN itself.
        self.way: dict[str, list[tuple[int, float]]] = {}
        for wan_index, wan in enumerate(grid.wans):
            for man_index, man in enumerate(wan.mans):
                for lan_index, each in enumerate(man.lans):
                    self.lans[each.name] = each
                    self.way[each.name] = [
                        (wan_index, wan.uplink_mbit_s),
                        (man_index, man.uplink_mbit_s),
                        (lan_index, each.uplink_mbit_s),
                    ]
        self.left = {each.name: each.power * (1 - each.load) for own in self.lans.values() for each in own.machines}

    def distance(self, one: str, other: str) -> int:
        """Return 0 for the same LAN, 1 for one MAN, 2 for one WAN, 3 beyond."""
        common = 0
        while common < 3 and self.way[one][common][0] == self.way[other][common][0]:
            common += 1
        return 3 - common

    def closest_first(self, start: str) -> list[str]:
        """Return the LANs by distance, by the bandwidth where their paths part, and below that by uplinks; ties by
        index."""

        def key(name: str) -> tuple[float, ...]:
            distance = self.distance(start, name)
            if distance == 0:
                return (0,)
            parting = 3 - distance
            index, uplink = self.way[name][parting]
            below = [part for own, up in self.way[name][parting + 1 :] for part in (-up, own)]
            return (distance, -min(uplink, self.way[start][parting][1]), index, *below)

        return sorted(self.lans, key=key)

    def nodes_around(self, start: str) -> list[list[str]]:
        """Return the brothers of the LAN, of its MAN and of its WAN, each as its LANs, in the order of a visit from
        it."""
        nodes: dict[tuple[int, ...], list[str]] = {}
        for name in self.closest_first(start)[1:]:
            parting = 3 - self.distance(start, name)
            nodes.setdefault((parting, self.way[name][parting][0]), []).append(name)
        return list(nodes.values())


def naive_wase(
    graph: TaskGraph, clusters: Sequence[Sequence[int]], grid: Dendrogram, lan_by_lan: bool
) -> Naive | None:
    """Run algorithms 1, 2 and 3; None for an error."""
    tree = Tree(grid)
    machine_order = {name: index for index, name in enumerate(tree.left)}
    need = [graph.mcr * rcr for rcr in graph.rcr]
    mapping: dict[str, str] = {}
    homes: dict[int, str] = {}

    def map_simply(lans: Sequence[str], tba: list[int]) -> list[int]:
        unplaced = []
        for task in tba:
            machines = [each.name for name in lans for each in tree.lans[name].machines]
            best = max(machines, key=lambda name: (tree.left[name] / need[task], -machine_order[name]), default=None)
            if best is None or tree.left[best] / need[task] < 1:
                unplaced.append(task)
                continue
            mapping[graph.names[task]] = best
            tree.left[best] -= need[task]
        return unplaced

    for number in sorted(range(len(clusters)), key=lambda each: -sum(need[task] for task in clusters[each])):
        tba = sorted(clusters[number], key=lambda task: (-need[task], task))
        for name in tree.closest_first(grid.user_lan):
            powers = [tree.left[each.name] for each in tree.lans[name].machines]
            if suitability(powers, [need[task] for task in tba]) >= 1:
                break
        else:
            return None
        homes[number] = name
        tba = map_simply([name], tba)
        for node in tree.nodes_around(name):
            for lans in [[each] for each in node] if lan_by_lan else [node]:
                tba = map_simply(lans, tba)
        if tba:
            return None
    return mapping, homes


@st.composite
def grids(draw: st.DrawFn, power_max: int = 24) -> Dendrogram:
    """Draw up to three WANs of up to three MANs of up to three LANs of up to four machines, with many ties."""
    counter = {"machine": 0, "lan": 0}
    uplinks = st.sampled_from([1.0, 2.0, 3.0, math.inf])

    def drawn_lan() -> Lan:
        machines = []
        for _ in range(draw(st.integers(0 if counter["machine"] else 1, 4))):
            power, load = draw(st.integers(1, power_max)), draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
            machines.append(Machine(name=f"m{counter['machine']}", power=power, load=load))
            counter["machine"] += 1
        counter["lan"] += 1
        return Lan(name=f"l{counter['lan']}", machines=tuple(machines), uplink_mbit_s=draw(uplinks))

    def drawn_man(index: int) -> Man:
        lans = tuple(drawn_lan() for _ in range(draw(st.integers(1, 3))))
        return Man(name=f"man{index}", lans=lans, uplink_mbit_s=draw(uplinks))

    wans = []
    for index in range(draw(st.integers(1, 3))):
        mans = tuple(drawn_man(man) for man in range(draw(st.integers(1, 3))))
        wans.append(Wan(name=f"wan{index}", mans=mans, uplink_mbit_s=draw(uplinks)))
    user = draw(st.integers(1, counter["lan"]))
    return Dendrogram(wans=tuple(wans), user_lan=f"l{user}")


@st.composite
def graphs(draw: st.DrawFn, tasks_max: int = 8) -> TaskGraph:
    """Draw a few tasks that need whole numbers of power, with some edges."""
    count = draw(st.integers(1, tasks_max))
    pairs = [(one, other) for other in range(count) for one in range(other)]
    joined = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=10)) if pairs else []
    return TaskGraph(
        names=tuple(f"t{task}" for task in range(count)),
        rcr=tuple(float(draw(st.integers(1, 5))) for _ in range(count)),
        edges=tuple((one, other, float(draw(st.integers(1, 9)))) for one, other in joined),
        mcr=float(draw(st.sampled_from([1, 2, 4]))),
    )


@st.composite
def clustered(draw: st.DrawFn, tasks_max: int = 8) -> tuple[TaskGraph, tuple[tuple[int, ...], ...]]:
    """Draw a graph, and its tasks in clusters."""
    graph = draw(graphs(tasks_max))
    labels = [draw(st.integers(0, 3)) for _ in graph.names]
    clusters = [tuple(task for task, label in enumerate(labels) if label == each) for each in sorted(set(labels))]
    return graph, tuple(clusters)
