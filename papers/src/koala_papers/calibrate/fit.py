"""The cost model of a solver and its fit to measured times: four coefficients for each application.

A run of I iterations takes

    I * (turns * (call_s + points * point_s) + exchanges * inside_s) + wait_s * across_factor

where ``wait_s`` and the counts follow from the pattern of messages. ``points`` are those of the largest block. With
more workers than cores they take turns, and since all must be done before any goes on, three on two cores take two.
The fit is least squares of relative errors, no coefficient below zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from koala_papers.calibrate.patterns import EXCHANGES, pattern_of, wait_s
from koala_papers.calibrate.runs import SolverRun

_BITS_PER_BYTE = 8


class Costs(NamedTuple):
    """The costs of an application's parts on the measured machine.

    - ``call_s``: an iteration of one process without its points, which is the price of calling numpy;
    - ``point_s``: a point in an iteration;
    - ``inside_s``: an exchange between processes of one cluster;
    - ``across_factor``: the wait for other clusters, as a multiple of the counted one.
    """

    call_s: float
    point_s: float
    inside_s: float
    across_factor: float


def bytes_per_s(mbit_s: float) -> float:
    """Return a bandwidth in bytes."""
    return mbit_s * 1e6 / _BITS_PER_BYTE


def counts(run: SolverRun, cores: int) -> tuple[float, float, float, float]:
    """Return the weight of each coefficient in a run."""
    pattern = pattern_of(run.application, run.size, run.clusters)
    turns = math.ceil(pattern.workers / cores)
    exchanges = EXCHANGES[run.application] if pattern.inside_bytes else 0
    waited_s = 0.0
    if run.bandwidth_mbit_s is not None:
        speed = bytes_per_s(run.bandwidth_mbit_s)
        waited_s = wait_s(run.application, pattern, run.iterations, run.latency_ms / 1e3, speed, shared=False)
    return (
        float(run.iterations * turns),
        float(run.iterations * turns * pattern.points_most),
        float(run.iterations * exchanges),
        waited_s,
    )


def predicted_s(run: SolverRun, costs: Costs, cores: int) -> float:
    """Return the time of a run by the model."""
    return sum(count * cost for count, cost in zip(counts(run, cores), costs, strict=True))


def fitted(times_s: Mapping[SolverRun, float], cores: int) -> dict[str, Costs]:
    """Return the coefficients of each application that explain these times best."""
    return {
        application: _fitted_one(
            {run: time_s for run, time_s in times_s.items() if run.application == application}, cores
        )
        for application in dict.fromkeys(run.application for run in times_s)
    }


def _fitted_one(times_s: Mapping[SolverRun, float], cores: int) -> Costs:
    import numpy as np
    from scipy.optimize import nnls  # type: ignore[import-untyped]

    rows = np.array([[count / time_s for count in counts(run, cores)] for run, time_s in times_s.items()])
    # Scaled columns: a point costs nanoseconds and the factor is about one.
    scales = np.abs(rows).max(axis=0)
    scales[scales == 0.0] = 1.0
    solution, _ = nnls(rows / scales, np.ones(len(rows)))
    return Costs(*(float(value) for value in solution / scales))


def relative_errors(times_s: Mapping[SolverRun, float], costs: Mapping[str, Costs], cores: int) -> list[float]:
    """Return for each run the excess of the model's time, as a share of the measured time."""
    return [predicted_s(run, costs[run.application], cores) / time_s - 1.0 for run, time_s in times_s.items()]


def least(by_seed: Sequence[Mapping[SolverRun, float]]) -> dict[SolverRun, float]:
    """Return for each run the least time over the seeds; each seed has every run.

    Other activity of a machine only makes a run slower, so the least time is nearest to its cost.
    """
    return {run: min(times_s[run] for times_s in by_seed) for run in by_seed[0]}


def spread(by_seed: Sequence[Mapping[SolverRun, float]]) -> dict[SolverRun, float]:
    """Return for each run the excess of its median over the seeds above the least, as a share of it."""
    lowest = least(by_seed)
    return {run: median(times_s[run] for times_s in by_seed) / lowest[run] - 1.0 for run in lowest}
