"""The workload model of Lublin and Feitelson (2003), with the parameters that they fitted to three traces.

Sizes are log-uniform in two stages with extra shares of serial jobs and powers of two; the logarithm of a run time is
hyper-gamma, its first part rarer for larger jobs; the logarithm of a gap between arrivals is gamma and stretched by a
daily cycle. Source: U. Lublin, D. G. Feitelson, "The workload on parallel supercomputers: modeling the
characteristics of rigid jobs", J. Parallel and Distributed Computing 63(11), 2003.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from koala.simulator.traces.reader import Floats, Trace
from koala.simulator.workloads.synthetic import BUCKETS, DailyCycle, SyntheticError, synthetic_trace

NODES_MIN = 8
# Larger values, as natural logarithms of seconds, are drawn again: 45 hours and 5 days.
LONGEST_RUN_LOG_S = 12.0
LONGEST_GAP_LOG_S = 13.0
# The half hour, counted from midnight, at which the day of the model begins.
DAY_STARTS_AT = 11


class Population(NamedTuple):
    """The parameters of one kind of jobs, named as in the paper's tables.

    - sizes: ``serial`` and ``power_of_two`` shares; log2 of the size is uniform from ``u_low`` to the middle with
      chance ``u_prob``, else from there to the top. The top is ``below_top`` under log2 of the machine, the
      middle ``u_width`` under the top;
    - log run time: gamma(``a1``, ``b1``) with chance ``pa`` * size + ``pb``, else gamma(``a2``, ``b2``);
    - log gap: gamma(``a_arrival`` * ``rush_ratio``, ``b_arrival``), where the ratio converts the rush hours to
      the whole day; arrivals over the half hours: gamma(``a_day``, ``b_day``).
    """

    serial: float
    power_of_two: float
    u_low: float
    u_width: float
    below_top: float
    u_prob: float
    a1: float
    b1: float
    a2: float
    b2: float
    pa: float
    pb: float
    a_arrival: float
    b_arrival: float
    rush_ratio: float
    a_day: float
    b_day: float


# fmt: off
ALL_JOBS = Population(
    serial=0.244, power_of_two=0.576, u_low=0.8, u_width=2.5, below_top=0.0, u_prob=0.86,
    a1=4.2, b1=0.94, a2=312.0, b2=0.03, pa=-0.0054, pb=0.78,
    a_arrival=10.2303, b_arrival=0.4871, rush_ratio=1.0225, a_day=8.1737, b_day=3.9631,
)
BATCH = Population(
    serial=0.2927, power_of_two=0.6686, u_low=1.2, u_width=2.0, below_top=0.0, u_prob=0.875,
    a1=6.57, b1=0.823, a2=639.1, b2=0.0156, pa=-0.003, pb=0.6986,
    a_arrival=6.0415, b_arrival=0.8531, rush_ratio=1.0519, a_day=6.1271, b_day=5.2740,
)
INTERACTIVE = Population(
    serial=0.1541, power_of_two=0.625, u_low=1.0, u_width=2.5, below_top=1.5, u_prob=0.705,
    a1=3.8351, b1=0.6605, a2=7.073, b2=0.6856, pa=-0.0118, pb=0.9156,
    a_arrival=6.5510, b_arrival=0.6621, rush_ratio=0.9797, a_day=8.9186, b_day=3.6680,
)
# fmt: on


def lublin(jobs: int, seed: int, *, nodes: int = 128, by_type: bool = False) -> Trace:
    """Return a trace drawn from Lublin and Feitelson's model of 2003, from midnight on, for a machine of ``nodes``.

    ``by_type`` draws batch and interactive jobs separately, each with its own arrivals, and merges them by time;
    otherwise all jobs are of the one kind that was fitted to both together. The model has no estimates. Needs numpy.

    >>> from koala.simulator import lublin
    >>> trace = lublin(1500, seed=1, nodes=128)
    >>> trace.jobs, int(trace.size.max())
    (1500, 128)
    """
    if nodes < NODES_MIN:
        raise SyntheticError(
            f"a machine of {nodes} is too small for the model's sizes; give {NODES_MIN} nodes or more"
        )
    rng = np.random.default_rng(seed)
    drawn = [
        _drawn(population, jobs, nodes, rng) for population in ((BATCH, INTERACTIVE) if by_type else (ALL_JOBS,))
    ]
    submit_s, size, run_s = (np.concatenate(column) for column in zip(*drawn, strict=True))
    order = np.argsort(submit_s, kind="stable")[:jobs]
    kinds = "batch and interactive jobs" if by_type else "all jobs of one kind"
    note = f"Lublin and Feitelson's model, {kinds}, {nodes} nodes; seed {seed}"
    run_s = run_s[order]
    return synthetic_trace("lublin", submit_s[order], run_s, size[order], run_s, nodes=nodes, note=note)


def _drawn(
    population: Population, jobs: int, nodes: int, rng: np.random.Generator
) -> tuple[Floats, npt.NDArray[np.int64], Floats]:
    submit_s = arrivals(population, jobs, rng)
    size = sizes(population, jobs, nodes, rng)
    return submit_s, size, run_times(population, size, rng)


def sizes(population: Population, jobs: int, nodes: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw numbers of processors: serial jobs, powers of two, and the rest."""
    top = math.log2(nodes) - population.below_top
    middle = max(population.u_low, top - population.u_width)
    low_stage = rng.random(jobs) <= population.u_prob
    place = rng.random(jobs)
    log_size = np.where(
        low_stage,
        population.u_low + place * (middle - population.u_low),
        middle + place * (top - middle),
    )
    kind = rng.random(jobs)
    # A machine whose size is no power of two fits at most the next lower one.
    rounded = np.minimum(np.floor(log_size + 0.5), math.floor(top))
    log_size = np.where(kind <= population.serial + population.power_of_two, rounded, log_size)
    parallel = np.maximum(2, np.floor(2.0**log_size + 0.5).astype(np.int64))
    return np.where(kind <= population.serial, 1, parallel)


def run_times(population: Population, size: npt.NDArray[np.int64], rng: np.random.Generator) -> Floats:
    """Draw run times in whole seconds; excessive ones are drawn again."""
    first = np.clip(population.pa * size + population.pb, 0.0, 1.0)

    def draw(rows: npt.NDArray[np.int64]) -> Floats:
        short = rng.random(len(rows)) <= first[rows]
        return np.where(
            short,
            rng.gamma(population.a1, population.b1, len(rows)),
            rng.gamma(population.a2, population.b2, len(rows)),
        )

    logs = draw(np.arange(len(size)))
    while len(again := np.flatnonzero(logs > LONGEST_RUN_LOG_S)):
        logs[again] = draw(again)
    return np.floor(np.exp(logs))


def arrivals(population: Population, jobs: int, rng: np.random.Generator) -> Floats:
    """Draw submit times in whole seconds since midnight, ascending."""
    shape = population.a_arrival * population.rush_ratio
    logs = rng.gamma(shape, population.b_arrival, jobs)
    while len(again := np.flatnonzero(logs > LONGEST_GAP_LOG_S)):
        logs[again] = rng.gamma(shape, population.b_arrival, len(again))
    return np.floor(model_cycle(population).times(np.cumsum(np.exp(logs))))


def model_cycle(population: Population) -> DailyCycle:
    """Return the daily cycle: a gamma distribution over the half hours of a day that begins in the small hours."""
    weights = np.empty(BUCKETS)
    for bucket in range(DAY_STARTS_AT, DAY_STARTS_AT + BUCKETS):
        share = _gamma_below(bucket + 0.5, population.a_day, population.b_day)
        share -= _gamma_below(bucket - 0.5, population.a_day, population.b_day)
        weights[(bucket - 1) % BUCKETS] = share
    return DailyCycle(weights)


def _gamma_below(value: float, shape: float, scale: float) -> float:
    """Return the chance that a gamma variate is below a value, by the power series of the incomplete gamma
    function."""
    x = value / scale
    term = total = 1.0 / shape
    step = shape
    while term > total * 1e-16:
        step += 1.0
        term *= x / step
        total += term
    return total * math.exp(shape * math.log(x) - x - math.lgamma(shape))
