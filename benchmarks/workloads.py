"""The workload that simulators are compared with: Poisson arrivals, exponential execution, sizes 10 to 50."""

from __future__ import annotations

import random
from typing import NamedTuple

SEED = 20240601
INTERARRIVAL_MEAN_S = 37.5
EXECUTION_MEAN_S = 450.0
SIZE_MIN, SIZE_MAX = 10, 50


class Jobs(NamedTuple):
    """Three columns in order of submission. Times are whole seconds, as in the Standard Workload Format."""

    submit_s: list[float]
    processors: list[int]
    execution_s: list[float]


def poisson(jobs: int) -> Jobs:
    """A load of 0.91 on 400 processors."""
    rng = random.Random(SEED)
    drawn = Jobs([], [], [])
    now_s = 0.0
    for _ in range(jobs):
        now_s += rng.expovariate(1 / INTERARRIVAL_MEAN_S)
        drawn.execution_s.append(float(max(1, round(rng.expovariate(1 / EXECUTION_MEAN_S)))))
        drawn.processors.append(rng.randint(SIZE_MIN, SIZE_MAX))
        drawn.submit_s.append(float(int(now_s)))
    return drawn


def burst(jobs: int) -> Jobs:
    """The same jobs, all submitted at once: nearly all of them wait at first."""
    drawn = poisson(jobs)
    return drawn._replace(submit_s=[0.0] * jobs)


def calm(jobs: int) -> Jobs:
    """The same jobs with gaps three times as long: hardly any of them waits."""
    drawn = poisson(jobs)
    return drawn._replace(submit_s=[3 * submit_s for submit_s in drawn.submit_s])
