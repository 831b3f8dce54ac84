"""WASE with packing in place of suitability: each cluster goes whole into one LAN wherever one can take it.

A judge may find that a LAN lacks something else, such as affinity or bandwidth (``soft_bandwidth``); then the search
continues for one that lacks nothing, and takes the one that lacks least. A cluster that no LAN can take is divided
over few LANs. ``scarce_machines`` helps when machines are too scarce for this.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from koala.mapping.placing.closest_first import SearchOrders
from koala.mapping.placing.power_left import Placing, Spot
from koala.mapping.placing.suitability import may_take, pack_most, pack_whole
from koala.mapping.placing.wase import no_machine
from koala.mapping.result import NoPlace

# The most LANs with enough power for a cluster that are compared before the best of them is taken.
LANS_WEIGHED_MAX = 1_000


class Judge(Protocol):
    """What else a LAN should have for a cluster; 0 lacks nothing, and less is better."""

    def begin(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Prepare for questions about these tasks, largest need first."""

    def promising(self, man: int, lans: Sequence[int], enough: float) -> Sequence[int]:
        """Return these LANs of a MAN, without those that clearly lack ``enough`` or more."""

    def least_lack(self, placing: Placing, lan: int, enough: float) -> float:
        """Return quickly what the LAN lacks at least, whichever machines the tasks get. The computation may stop once
        that is ``enough``."""

    def lack(self, placing: Placing, lan: int, spots: Sequence[Spot]) -> float:
        """Return what the LAN lacks if the tasks go onto these machines."""

    def settled(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Note that these tasks have been placed."""


class Lenient:
    """The judge that finds nothing lacking: the closest LAN that takes the cluster is chosen."""

    def begin(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Prepare nothing."""

    def promising(self, man: int, lans: Sequence[int], enough: float) -> Sequence[int]:
        """Return all LANs."""
        return lans

    def least_lack(self, placing: Placing, lan: int, enough: float) -> float:
        """Return that nothing is lacking."""
        return 0.0

    def lack(self, placing: Placing, lan: int, spots: Sequence[Spot]) -> float:
        """Return that nothing is lacking."""
        return 0.0

    def settled(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Remember nothing."""


class WantsAffinity:
    """The judge that wants every task's machine to have a multiple of the power that the task needs.

    Closest-first search stops at the first sufficient LAN, so the affinity of the worst-off task does not gain from a
    larger grid. With this judge the search continues until a LAN gives each task of the cluster this affinity.
    """

    def __init__(self, affinity: float) -> None:
        self._wanted = affinity
        self._needs: list[float] = []

    def begin(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Note what the tasks need."""
        self._needs = [placing.needs[task] for task in tasks]

    def promising(self, man: int, lans: Sequence[int], enough: float) -> Sequence[int]:
        """Return all LANs, because nothing is known of a MAN without a look at its LANs."""
        return lans

    def least_lack(self, placing: Placing, lan: int, enough: float) -> float:
        """Return what the task with the largest need would lack on the best machine."""
        lack = 1.0 - placing.left.lan_best[lan] / self._needs[0] / self._wanted
        return lack if lack > 0.0 else 0.0

    def lack(self, placing: Placing, lan: int, spots: Sequence[Spot]) -> float:
        """Return what the worst-off task lacks, as a share of the affinity wanted."""
        affinity = min(power / need for (_, power), need in zip(spots, self._needs, strict=True))
        return max(0.0, 1.0 - affinity / self._wanted)

    def settled(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Remember nothing."""


class CombinedJudge:
    """The sum of two judges: what a LAN lacks by each is added up."""

    def __init__(self, one: Judge, other: Judge) -> None:
        self._one = one
        self._other = other

    def begin(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Prepare both."""
        self._one.begin(placing, tasks)
        self._other.begin(placing, tasks)

    def promising(self, man: int, lans: Sequence[int], enough: float) -> Sequence[int]:
        """Return the LANs that are promising by both, each judged alone."""
        return self._other.promising(man, self._one.promising(man, lans, enough), enough)

    def least_lack(self, placing: Placing, lan: int, enough: float) -> float:
        """Return the sum of both, or the first judge's value if that is enough."""
        lack = self._one.least_lack(placing, lan, enough)
        return lack if lack >= enough else lack + self._other.least_lack(placing, lan, enough - lack)

    def lack(self, placing: Placing, lan: int, spots: Sequence[Spot]) -> float:
        """Return the sum of both."""
        return self._one.lack(placing, lan, spots) + self._other.lack(placing, lan, spots)

    def settled(self, placing: Placing, tasks: Sequence[int]) -> None:
        """Let both remember."""
        self._one.settled(placing, tasks)
        self._other.settled(placing, tasks)


@dataclass(frozen=True, slots=True)
class LanChoice:
    """A LAN for some tasks, with their machines in it."""

    lan: int
    tasks: list[int]
    spots: list[Spot]


def map_whole(placing: Placing, orders: SearchOrders, user_lan: int, judge: Judge, method: str) -> NoPlace | None:
    """Place each cluster, largest need first, in one LAN or few. None means that every task has a machine."""
    for cluster in placing.clusters_by_need():
        unplaced = place_cluster(placing, orders, user_lan, cluster, judge)
        if unplaced:
            return no_machine(placing, method, cluster, unplaced[0])
    return None


def place_cluster(placing: Placing, orders: SearchOrders, origin: int, cluster: int, judge: Judge) -> list[int]:
    """Place a cluster in the LAN that the judge prefers, and return the tasks that found no machine.

    A cluster that no LAN can take whole goes where most of it fits, and its rest as near to that as possible.
    """
    tasks = placing.by_need(placing.clusters[cluster])
    judge.begin(placing, tasks)
    choice = whole_choice(placing, orders, origin, tasks, judge)
    if choice is None:
        choice = part_choice(placing, orders.closest_first(origin), tasks)
    home = placing.homes[cluster] = choice.lan if choice is not None else -1
    while choice is not None:
        placing.put_all(choice.tasks, choice.spots)
        judge.settled(placing, choice.tasks)
        placed = set(choice.tasks)
        tasks = [task for task in tasks if task not in placed]
        choice = near_choice(placing, orders, home, tasks) if tasks else None
    return tasks


def whole_choice(
    placing: Placing, orders: SearchOrders, origin: int, tasks: list[int], judge: Judge
) -> LanChoice | None:
    """Return the closest LAN that takes all tasks and lacks nothing, or the one that lacks least; ties to the
    closest."""
    left = placing.left
    needs = [placing.needs[task] for task in tasks]
    total = sum(needs)
    best: LanChoice | None = None
    least = math.inf
    weighed = 0
    for man, lans in orders.closest_first(origin).by_man():
        for lan in judge.promising(man, lans, least):
            if not may_take(left, lan, needs, total):
                continue
            weighed += 1
            if judge.least_lack(placing, lan, least) < least:
                spots = pack_whole(left, lan, needs)
                lack = math.inf if spots is None else judge.lack(placing, lan, spots)
                if spots is not None and lack < least:
                    best, least = LanChoice(lan, tasks, spots), lack
            if least <= 0 or weighed >= LANS_WEIGHED_MAX:
                return best
    return best


def part_choice(placing: Placing, lans: Iterable[int], tasks: list[int]) -> LanChoice | None:
    """Return the LAN among these that takes most of the tasks, the smallest first; ties to the first.

    ``tasks`` come largest need first. None if no machine has room for any.
    """
    left = placing.left
    increasing = tasks[::-1]
    needs = [placing.needs[task] for task in increasing]
    best: LanChoice | None = None
    weighed = 0
    for lan in lans:
        if left.lan_best[lan] < needs[0]:
            continue
        weighed += 1
        spots = pack_most(left, lan, needs)
        if best is None or len(spots) > len(best.spots):
            best = LanChoice(lan, increasing[: len(spots)], spots)
        if len(best.spots) == len(needs) or weighed >= LANS_WEIGHED_MAX:
            break
    return best


def near_choice(placing: Placing, orders: SearchOrders, home: int, tasks: list[int]) -> LanChoice | None:
    """Do the same among the LANs at the least distance from home that have room for any of the tasks.

    The rest of a cluster communicates with the tasks at home, so near is more important than together.
    """
    flat = placing.left.flat
    for _, lans in groupby(orders.closest_first(home), key=lambda lan: flat.distance(home, lan)):
        choice = part_choice(placing, lans, tasks)
        if choice is not None:
            return choice
    return None
