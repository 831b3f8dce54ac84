"""The power left on every machine while tasks are placed, and the places of one application's tasks so far.

Everything can be undone exactly: earlier values are kept, never recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from koala.mapping.result import TaskMapping
from koala.model.dendrogram import LAN, FlatGrid
from koala.model.task_graph import TaskGraph

# A machine, and the power that it had left when a task came to it.
Spot: TypeAlias = tuple[int, float]


class PowerLeft:
    """The power left, by machine, and the largest in each LAN.

    An ``exclusive`` machine has nothing left once it has a task; otherwise the task takes what it needs.
    """

    def __init__(self, flat: FlatGrid, *, exclusive: bool = False) -> None:
        self.flat = flat
        self.exclusive = exclusive
        self.power = flat.power.copy()
        self.lan_best = flat.lan_best.copy()

    def after(self, power: float, need: float) -> float:
        """Return what a task leaves of this power."""
        return 0.0 if self.exclusive else power - need

    def set(self, machine: int, power: float) -> None:
        """Set the power that a machine has left."""
        lan = self.flat.machine_lan[machine]
        before = self.power[machine]
        self.power[machine] = power
        best = self.lan_best[lan]
        if power >= best:
            self.lan_best[lan] = power
        elif before == best:
            self.lan_best[lan] = max(self.of_lan(lan))

    def take(self, machine: int, need: float) -> None:
        """Take what a task needs, which the machine must have."""
        assert self.power[machine] >= need, "tasks go only where they fit"
        self.set(machine, self.after(self.power[machine], need))

    def of_lan(self, lan: int) -> list[float]:
        """Return the power left on the machines of a LAN, by index."""
        machines = self.flat.levels[LAN].sons[lan]
        return self.power[machines.start : machines.stop]


class Placing:
    """The tasks of one application while they are being placed.

    ``needs`` is the power that each task needs, ``machines`` its machine (-1 for none yet), and ``affinities`` the
    power of that machine, before the task came, divided by the need. ``homes`` is the LAN chosen for each cluster.
    """

    def __init__(self, graph: TaskGraph, clusters: Sequence[tuple[int, ...]], left: PowerLeft) -> None:
        self.graph = graph
        self.clusters = clusters
        self.left = left
        self.needs = [graph.mcr * rcr for rcr in graph.rcr]
        self.machines = [-1] * len(self.needs)
        self.affinities = [0.0] * len(self.needs)
        self.homes = [-1] * len(clusters)
        self._put: list[tuple[int, float]] = []

    def put(self, task: int, machine: int) -> None:
        """Place a task. The machine must have what it needs."""
        power = self.left.power[machine]
        self.left.take(machine, self.needs[task])
        self.machines[task] = machine
        self.affinities[task] = power / self.needs[task]
        self._put.append((task, power))

    def put_all(self, tasks: Iterable[int], spots: Iterable[Spot]) -> None:
        """Place each of the tasks onto the machine of its spot."""
        for task, (machine, _) in zip(tasks, spots, strict=True):
            self.put(task, machine)

    def mark(self) -> int:
        """Return the present position, for ``roll_back``."""
        return len(self._put)

    def roll_back(self, mark: int = 0) -> None:
        """Undo the placements since the mark; the machines have their earlier power back, to the last bit."""
        while len(self._put) > mark:
            task, power = self._put.pop()
            self.left.set(self.machines[task], power)
            self.machines[task] = -1
            self.affinities[task] = 0.0

    def mapping(self, method: str, *, scarce: bool) -> TaskMapping:
        """Return the mapping, once every task has a machine."""
        return TaskMapping(
            method=method,
            clusters=tuple(self.clusters),
            machines=tuple(self.machines),
            affinities=tuple(self.affinities),
            homes=tuple(self.homes),
            scarce=scarce,
        )

    def by_need(self, tasks: Iterable[int]) -> list[int]:
        """Return the tasks, largest need first; ties by index."""
        return sorted(tasks, key=lambda task: (-self.needs[task], task))

    def clusters_by_need(self) -> list[int]:
        """Return the clusters, largest total need first; ties by index."""
        total = [sum(self.needs[task] for task in cluster) for cluster in self.clusters]
        return sorted(range(len(total)), key=lambda cluster: (-total[cluster], cluster))
