"""What is left of every machine while tasks are placed, and where the tasks of one application have gone so far.

Everything can be taken back exactly: what was there before is kept, never added up again.
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
    """The power that is left, by machine, and the largest in each LAN.

    A machine that is ``exclusive`` has nothing left once it has a task; otherwise the task takes what it needs.
    """

    def __init__(self, flat: FlatGrid, *, exclusive: bool = False) -> None:
        self.flat = flat
        self.exclusive = exclusive
        self.power = flat.power.copy()
        self.lan_best = flat.lan_best.copy()

    def after(self, power: float, need: float) -> float:
        """What a task leaves of this power."""
        return 0.0 if self.exclusive else power - need

    def set(self, machine: int, power: float) -> None:
        """Let a machine have this much left."""
        lan = self.flat.machine_lan[machine]
        before = self.power[machine]
        self.power[machine] = power
        best = self.lan_best[lan]
        if power >= best:
            self.lan_best[lan] = power
        elif before == best:
            self.lan_best[lan] = max(self.of_lan(lan))

    def take(self, machine: int, need: float) -> None:
        """Take what a task needs. It must be there."""
        assert self.power[machine] >= need, "tasks go only where they fit"
        self.set(machine, self.after(self.power[machine], need))

    def of_lan(self, lan: int) -> list[float]:
        """The power left of the machines of a LAN, by index."""
        machines = self.flat.levels[LAN].sons[lan]
        return self.power[machines.start : machines.stop]


class Placing:
    """The tasks of one application on their way to machines.

    ``needs`` is by task the power that it needs, ``machines`` the machine that has it (-1 none yet), ``affinities``
    the power of that machine, before the task came, over the need, and ``homes`` by cluster the LAN chosen for it.
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
        """Now, for ``roll_back``."""
        return len(self._put)

    def roll_back(self, mark: int = 0) -> None:
        """Take back what was placed since; the machines have what they had, to the last bit."""
        while len(self._put) > mark:
            task, power = self._put.pop()
            self.left.set(self.machines[task], power)
            self.machines[task] = -1
            self.affinities[task] = 0.0

    def mapping(self, method: str, *, scarce: bool) -> TaskMapping:
        """Where everything is, once every task has a machine."""
        return TaskMapping(
            method=method,
            clusters=tuple(self.clusters),
            machines=tuple(self.machines),
            affinities=tuple(self.affinities),
            homes=tuple(self.homes),
            scarce=scarce,
        )

    def by_need(self, tasks: Iterable[int]) -> list[int]:
        """Those that need most first; ties by index."""
        return sorted(tasks, key=lambda task: (-self.needs[task], task))

    def clusters_by_need(self) -> list[int]:
        """The clusters that need most in all first; ties by index."""
        total = [sum(self.needs[task] for task in cluster) for cluster in self.clusters]
        return sorted(range(len(total)), key=lambda cluster: (-total[cluster], cluster))
