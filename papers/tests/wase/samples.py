"""Made-up results of the mapping study, in which each claim can be made true or false."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from random import Random
from typing import Any

from koala.study.frame.experiment import FinishedUnit, Unit
from koala_papers.wase.data import AFFINITY, BOUND, PIPELINE
from koala_papers.wase.parameters import WaseParameters
from koala_papers.wase.pipeline import run_pipeline
from koala_papers.wase.spawning import ANYWHERE, NEAR
from koala_papers.wase.study import WaseStudy
from koala_papers.wase.trials import (
    ALL,
    BY_LAN,
    FAR,
    GREEDY,
    GREEDY_SCAN,
    MEASURES,
    SOFT,
    WASE,
    WHOLE,
    Trial,
    trials_of,
)

PARAMETERS = WaseParameters(
    tasks=(8, 16),
    graphs=3,
    mcr=(25.0, 50.0),
    cluster_sizes=((1.0, 3.0), (4.0, 6.0)),
    machines=(32, 64),
    machines_per_lan=(4, 8),
)
SEEDS = 8
# An application on the smallest grid and on the largest.
SMALLEST, LARGEST = (Trial(0, 25.0, machines, 4) for machines in (32, 64))

# The expected values of a method, in the paper or here: LAN hit ratio, minimum affinity, share between LANs, carried,
# time.
PATTERN: dict[str, list[float]] = {
    WASE: [0.90, 1.4, 0.3, 0.70, 0.001],
    BY_LAN: [0.90, 1.4, 0.3, 0.70, 0.001],
    GREEDY: [0.40, 1.0, 0.8, 0.20, 0.0005],
    GREEDY_SCAN: [0.40, 1.0, 0.8, 0.20, 0.002],
    WHOLE: [0.92, 1.3, 0.28, 0.72, 0.002],
    FAR: [0.92, 1.8, 0.29, 0.71, 0.003],
    SOFT: [0.92, 1.3, 0.27, 0.80, 0.004],
    ALL: [0.92, 1.7, 0.28, 0.79, 0.005],
    NEAR: [0.85, 1.3, 0.33, 0.65, 0.0],
    ANYWHERE: [0.80, 1.1, 0.50, 0.40, 0.0],
}
_PLACES = {"lan_hit": 0, "tasks_at_home": 0, "whole": 0, "affinity_min": 1, "inter_lan": 2, "carried": 3, "cpu_s": 4}
# Multiples of this are spread evenly over 0 to 1.
_GOLDEN = 0.6180339887

# Decides from the method, the tasks and the trial whether a method fails; the number is evenly spread from 0 to 1.
Fails = Callable[[str, int, Trial, float], bool]


def paper_fails(method: str, tasks: int, trial: Trial, number: float) -> bool:
    """Return True for some runs: WASE fails more often with more tasks and larger clusters, the others never."""
    share = 0.1 + (0.2 if tasks == 16 else 0.0) + (0.1 if trial.cluster_size else 0.0)
    return method in (WASE, BY_LAN) and number < share


@cache
def _pipeline() -> dict[str, Any]:
    return run_pipeline("local-search")


def results(
    pattern: dict[str, list[float]] | None = None,
    fails: Fails = paper_fails,
    affinity_factor: Callable[[Trial], float] = lambda _trial: 1.0,
    spread: float = 0.01,
) -> list[FinishedUnit]:
    """Return results of all seeds around a pattern."""
    units = WaseStudy().units(PARAMETERS, 1, SEEDS)
    rng = Random(2004)
    finished = []
    for unit in units:
        if unit.work["kind"] == PIPELINE:
            finished.append(FinishedUnit(unit, _pipeline()))
        elif unit.work["kind"] == AFFINITY:
            change = rng.uniform(-2.0, 2.0) + 100 * (affinity_factor(LARGEST) / affinity_factor(SMALLEST) - 1)
            finished.append(FinishedUnit(unit, {"change": dict.fromkeys(PARAMETERS.bands, change)}))
        elif unit.work["kind"] == BOUND:
            finished.append(FinishedUnit(unit, {"rows": [bound_row(rng) for _ in range(4)]}))
        else:
            finished.append(FinishedUnit(unit, _made(unit, pattern or PATTERN, fails, affinity_factor, rng, spread)))
    return finished


def _made(
    unit: Unit,
    pattern: dict[str, list[float]],
    fails: Fails,
    affinity_factor: Callable[[Trial], float],
    rng: Random,
    spread: float,
) -> dict[str, Any]:
    trials = trials_of(PARAMETERS)
    methods: dict[str, dict[str, list[float | None]]] = {
        name: {measure: [] for measure in MEASURES} for name in pattern
    }
    offset = rng.random()
    for place, trial in enumerate(trials):
        number = (offset + place * _GOLDEN) % 1.0
        for name, values in pattern.items():
            failed = fails(name, unit.work["tasks"], trial, number)
            for measure in MEASURES:
                value = values[_PLACES[measure]] if measure in _PLACES else 0.0
                if measure == "tasks_in_man":
                    # All that are not at home, where they are not far too many.
                    value = min(1.0 - values[0], 0.3)
                if measure == "affinity_min":
                    value *= affinity_factor(trial)
                methods[name][measure].append(None if failed else value * rng.uniform(1 - spread, 1 + spread))
    clusters: list[dict[str, Any]] = [
        {"theta": 0.0, "clusters": 4, "mean_size": 2.0, "largest": 5, "reached": True, "cpu_s": 0.01}
        for _ in PARAMETERS.cluster_sizes
    ]
    bands = {name: {"clusters": clusters, "methods": methods} for name in PARAMETERS.bands}
    return {"impossible": [False] * len(trials), "bands": bands}


def bound_row(rng: Random) -> dict[str, Any]:
    """Return an instance on which wase-whole is a point below the best."""
    little = rng.uniform(0.0, 0.005)
    return {
        "cluster_size": 0,
        "mcr": 25.0,
        "machines_per_lan": 4,
        "lan_hit": {
            "status": "optimal",
            "value": 0.95,
            "bound": 0.95,
            "methods": {WASE: 0.9 - little, GREEDY: 0.4 - little, WHOLE: 0.94 - little},
        },
        "inter_lan": {
            "status": "time-limit",
            "value": 0.2,
            "bound": 0.1,
            "methods": {WASE: 0.3 + little, GREEDY: 0.8 + little, WHOLE: 0.25 + little},
        },
    }
