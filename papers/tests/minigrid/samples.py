"""Results of a mini-grid study that was never run: numbers from a formula, for tests of claims and figures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from koala.study.frame.experiment import FinishedUnit, Unit
from koala_papers.minigrid.cases import MiniGridCase, MiniGridParameters
from koala_papers.minigrid.data import MiniGridData
from koala_papers.minigrid.study import MiniGridStudy

SMALL = MiniGridParameters(
    jobs_per_cluster=100,
    bsbw=(200.0, 300.0, 500.0, 800.0),
    lslt=(0.6, 0.8, 1.0),
    chunks=(0.7, 0.85, 0.9),
    lslt_seeds=3,
    pattern_seeds=3,
    surface_seeds=2,
)
SEEDS = 4

Turnaround = Callable[[MiniGridCase, int], float]


def as_the_paper_says(case: MiniGridCase, seed: int) -> float:
    """Return the numbers of a world in which every claim holds."""
    module, _, inside = case.policy.partition("(")
    busy = (case.bsbw_low + case.bsbw_high - 400.0) / 1400.0
    lslt = 0.0 if case.lslt is None else abs(case.lslt - 1.0)
    if module == "B3":
        chunk = float(inside.removeprefix("chunk=").rstrip(")"))
        if chunk >= 0.95:
            mean_s = 1087.0 - 1000.0 * (1.0 - chunk)
        elif chunk <= 0.5:
            mean_s = 740.0 + 500.0 * busy + 20.0 * (chunk - 0.25)
        else:
            mean_s = 800.0 + 30.0 * busy + 200.0 * abs(chunk - 0.85)
    else:
        mean_s = {
            "Ideal": 735.0,
            "Migration-Only": 1087.0,
            "Initial": 760.0 + (5000.0 * busy) ** 1.5,
            "A1": 740.0 + 200.0 * busy,
            "A2": 700.0 + 90.0 * busy,
            "B1": 740.0 + 500.0 * busy,
            "B2": 750.0 + 600.0 * busy,
            "B4": 1200.0 + 900.0 * busy,
            "B5": 720.0 + 20.0 * busy,
        }[module]
    if case.whole_gaps:  # nearer to the paper than the others are
        mean_s -= 12.5
    # The effect of a seed on all cases, and a small one on each.
    return mean_s + 50.0 * lslt + 5.0 * seed + 0.01 * (sum(map(ord, case.name)) * seed % 7)


def numbers(mean_s: float, lslt: float | None, **others: Any) -> dict[str, Any]:
    """Return a run with this mean turnaround, which loads links up to the threshold."""
    found = {
        "jobs": 400,
        "mean_turnaround_s": mean_s,
        "mean_wait_s": mean_s - 450.0,
        "mean_stretch": 1.01,
        "coallocated_share": 0.3,
        "saturation": 1.0 if lslt is None else lslt,
        "quarters_turnaround_s": [mean_s] * 4,
    }
    return {**found, **others}


def data_of(
    turnaround: Turnaround = as_the_paper_says,
    parameters: MiniGridParameters = SMALL,
    change: Callable[[MiniGridCase], dict[str, Any]] = lambda _case: {},
) -> MiniGridData:
    """Return the study with these outcomes of its runs."""
    return MiniGridData(parameters, results_of(turnaround, parameters, change))


def results_of(
    turnaround: Turnaround = as_the_paper_says,
    parameters: MiniGridParameters = SMALL,
    change: Callable[[MiniGridCase], dict[str, Any]] = lambda _case: {},
) -> list[FinishedUnit]:
    """Return the results of every unit of the first look."""
    return [finished(unit, turnaround, change) for unit in MiniGridStudy().units(parameters, 1, SEEDS)]


def finished(
    unit: Unit,
    turnaround: Turnaround = as_the_paper_says,
    change: Callable[[MiniGridCase], dict[str, Any]] = lambda _case: {},
) -> FinishedUnit:
    """Return the result of one unit."""
    case = msgspec.convert(unit.work["case"], MiniGridCase)
    return FinishedUnit(unit, numbers(turnaround(case, unit.work["seed"]), case.lslt, **change(case)))
