"""The baseline: tasks one by one, those that need most first, each onto the tightest machine of the whole grid.

It knows neither clusters nor LANs. Twice the same answer: found by halving, and by going through the queue of
machines for each task, as in the paper, to compare times with.
"""

from __future__ import annotations

from koala.mapping.placing.power_left import Placing
from koala.mapping.placing.suitability import best_fit, powers_by_size
from koala.mapping.placing.wase import no_machine
from koala.mapping.result import NoPlace, plurality_lan

NAME = "greedy"
NAME_BY_SCAN = "greedy-scan"


def map_greedily(placing: Placing) -> NoPlace | None:
    """Each task onto the machine that has enough, and least of those; ties by index. None means that all have one."""
    left = placing.left
    by_size = powers_by_size(left, range(len(left.power)))
    for task in placing.by_need(range(len(placing.needs))):
        spot = best_fit(by_size, left, placing.needs[task])
        if spot is None:
            return _failed(placing, NAME, task)
        placing.put(task, spot[0])
    _settle_homes(placing)
    return None


def map_greedily_by_scan(placing: Placing) -> NoPlace | None:
    """The same, looking at every machine for every task."""
    power = placing.left.power
    for task in placing.by_need(range(len(placing.needs))):
        need = placing.needs[task]
        tightest = -1
        for machine, left in enumerate(power):
            if left >= need and (tightest < 0 or left < power[tightest]):
                tightest = machine
        if tightest < 0:
            return _failed(placing, NAME_BY_SCAN, task)
        placing.put(task, tightest)
    _settle_homes(placing)
    return None


def _settle_homes(placing: Placing) -> None:
    for cluster, tasks in enumerate(placing.clusters):
        placing.homes[cluster] = plurality_lan(placing.left.flat, [placing.machines[task] for task in tasks])


def _failed(placing: Placing, method: str, task: int) -> NoPlace:
    cluster = next(index for index, tasks in enumerate(placing.clusters) if task in tasks)
    return no_machine(placing, method, cluster, task)
