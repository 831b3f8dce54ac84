"""Drawn workloads: they have the shares and moments of their models, and a seed gives one trace and no other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from koala.simulator.traces.reader import Trace
from koala.simulator.traces.writer import swf_bytes
from koala.simulator.workloads.lublin import (
    ALL_JOBS,
    BATCH,
    INTERACTIVE,
    Population,
    arrivals,
    lublin,
    model_cycle,
    run_times,
    sizes,
)
from koala.simulator.workloads.synthetic import (
    BUCKETS,
    DAY_S,
    DailyCycle,
    SyntheticError,
    daily_cycle,
    fitted,
    poisson,
)

JOBS = 100_000
# Five standard errors of a share, at most: one run in a million would be outside by chance.
SHARE = 5 * 0.5 / JOBS**0.5


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture(scope="module")
def stats() -> Any:
    """The distributions of scipy, which takes long to import."""
    from scipy import stats  # type: ignore[import-untyped]

    return stats


def example() -> Trace:
    return poisson(2_000, 3, interarrival_mean_s=300, run_mean_s=600, size_min=1, size_max=40, nodes=64)


# ---------------------------------------------------------------------------------------------- Lublin, Feitelson


@pytest.mark.parametrize("population", [ALL_JOBS, BATCH, INTERACTIVE])
def test_the_shares_of_serial_jobs_and_powers_of_two_are_those_published(population: Population) -> None:
    drawn = sizes(population, JOBS, 128, rng())
    top = 7 - population.below_top
    middle = top - population.u_width
    assert np.mean(drawn == 1) == pytest.approx(population.serial, abs=SHARE)
    powers = np.isin(drawn, 2 ** np.arange(1, 8)).mean()
    # Some of the other parallel jobs are powers of two by chance.
    assert population.power_of_two - SHARE <= powers < 1 - population.serial
    others = 1 - population.serial - population.power_of_two
    odd_ones = np.mean((drawn > 2) & (drawn & (drawn - 1) != 0))
    assert odd_ones <= others + SHARE
    assert drawn.max() <= 2**top + 0.5
    # The two stages meet at the middle. A size is rounded, so the share below it is known to the next size only.
    parallel = drawn[drawn > 1]
    assert np.mean(parallel < 2 ** (middle - 0.5)) < population.u_prob < np.mean(parallel <= 2 ** (middle + 0.5))


@pytest.mark.parametrize(("population", "size"), [(ALL_JOBS, 1), (ALL_JOBS, 100), (BATCH, 16), (INTERACTIVE, 60)])
def test_the_logarithm_of_run_times_is_the_published_hyper_gamma(
    population: Population, size: int, stats: Any
) -> None:
    drawn = run_times(population, np.full(JOBS, size), rng(2))
    first = min(1.0, max(0.0, population.pa * size + population.pb))
    gammas = (
        (first, stats.gamma(population.a1, scale=population.b1)),
        (1 - first, stats.gamma(population.a2, scale=population.b2)),
    )
    whole = sum(weight * gamma.cdf(12.0) for weight, gamma in gammas)
    for log_s in (2.0, 4.0, 6.0, 8.0, 10.0):
        wanted = sum(weight * gamma.cdf(log_s) for weight, gamma in gammas) / whole
        # Times are cut to whole seconds, so a bound between two of them is not blurred.
        below = np.mean(drawn < np.ceil(np.exp(log_s)))
        step = sum(weight * gamma.cdf(np.log(np.ceil(np.exp(log_s)))) for weight, gamma in gammas) / whole
        assert below == pytest.approx(step, abs=SHARE)
        assert step == pytest.approx(wanted, abs=0.05)
    assert drawn.max() <= np.exp(12.0)


def test_larger_jobs_run_longer() -> None:
    means = [run_times(ALL_JOBS, np.full(JOBS, size), rng(3)).mean() for size in (1, 32, 128)]
    assert means[0] < means[1] < means[2]


def test_gaps_have_the_published_gamma_once_the_cycle_is_taken_out(stats: Any) -> None:
    submitted = arrivals(ALL_JOBS, JOBS, rng(4))
    assert (np.diff(submitted) >= 0).all()
    logs = np.log(np.maximum(1.0, np.diff(model_cycle(ALL_JOBS).effort(submitted))))
    wanted = stats.gamma(ALL_JOBS.a_arrival * ALL_JOBS.rush_ratio, scale=ALL_JOBS.b_arrival)
    for log_s in (4.0, 5.0, 6.0, 8.0):
        assert np.mean(logs < log_s) == pytest.approx(wanted.cdf(log_s), abs=0.02)


@pytest.mark.parametrize("population", [ALL_JOBS, BATCH, INTERACTIVE])
def test_the_daily_cycle_is_the_gamma_over_half_hours(population: Population, stats: Any) -> None:
    cycle = model_cycle(population)
    assert cycle.weights.mean() == pytest.approx(1.0)
    gamma = stats.gamma(population.a_day, scale=population.b_day)
    shares = np.array([gamma.cdf(half_hour + 1.5) - gamma.cdf(half_hour + 0.5) for half_hour in range(10, 58)])
    expected = np.empty(BUCKETS)
    expected[np.arange(10, 58) % BUCKETS] = shares / shares.mean()
    assert cycle.weights == pytest.approx(expected, rel=1e-9)
    hours = np.bincount((arrivals(population, JOBS, rng(5)) % DAY_S / 3600).astype(int), minlength=24)
    # Gaps have long tails, so that an hour's share varies more than that of independent arrivals would.
    assert hours / JOBS == pytest.approx(cycle.weights.reshape(24, 2).sum(axis=1) / BUCKETS, abs=0.006)


def test_batch_and_interactive_jobs_mix_by_time() -> None:
    mixed = lublin(20_000, 9, by_type=True)
    assert mixed.jobs == 20_000
    assert (np.diff(mixed.submit_s) >= 0).all()
    serial = np.mean(mixed.size == 1)
    assert INTERACTIVE.serial < serial < BATCH.serial


@pytest.mark.parametrize("nodes", [8, 9, 100, 1000, 4096])
def test_jobs_fit_machines_of_any_size(nodes: int) -> None:
    drawn = lublin(5_000, 1, nodes=nodes, by_type=nodes > 64)
    assert 1 <= drawn.size.min() <= drawn.size.max() <= nodes
    assert drawn.processors == nodes


def test_too_small_a_machine_is_refused() -> None:
    with pytest.raises(SyntheticError, match="a machine of 4 is too small"):
        lublin(10, 1, nodes=4)


# ---------------------------------------------------------------------------------------------- Poisson


def test_a_poisson_stream_has_its_means() -> None:
    drawn = poisson(JOBS, 7, interarrival_mean_s=37.5, run_mean_s=450, size_min=10, size_max=50, nodes=400)
    error = 5 / JOBS**0.5
    assert drawn.submit_s[-1] / JOBS == pytest.approx(37.5, rel=error)
    assert drawn.run_s.mean() == pytest.approx(450, rel=error)
    assert drawn.run_s.std() == pytest.approx(450, rel=2 * error)
    assert (drawn.size.min(), drawn.size.max()) == (10, 50)
    assert np.bincount(drawn.size)[10:] / JOBS == pytest.approx(np.full(41, 1 / 41), abs=SHARE)


@pytest.mark.parametrize(("least", "most", "nodes"), [(0, 5, 10), (6, 5, 10), (1, 11, 10)])
def test_sizes_that_cannot_be_are_refused(least: int, most: int, nodes: int) -> None:
    with pytest.raises(SyntheticError, match=f"sizes {least} to {most} on {nodes} nodes"):
        poisson(5, 1, interarrival_mean_s=1, run_mean_s=1, size_min=least, size_max=most, nodes=nodes)


# ---------------------------------------------------------------------------------------------- fitted


def test_a_cycle_and_its_inverse_are_one() -> None:
    cycle = DailyCycle(rng().random(BUCKETS) + 0.1)
    times_s = np.sort(rng(2).random(1000) * 5 * DAY_S)
    assert cycle.times(cycle.effort(times_s)) == pytest.approx(times_s, rel=1e-12)
    assert cycle.effort(np.array([3 * DAY_S])).tolist() == [3 * DAY_S]


def test_a_fitted_workload_has_the_sizes_times_rate_and_cycle_of_its_trace(stats: Any) -> None:
    original = lublin(20_000, 11)
    drawn = fitted(original, 60_000, 5)
    for size in (1, 2, 4, 8, 16, 32):
        assert np.mean(drawn.size == size) == pytest.approx(np.mean(original.size == size), abs=0.015)
    for size_class in range(7):
        logs = [np.log1p(each.run_s[np.ceil(np.log2(each.size)) == size_class]) for each in (original, drawn)]
        error = 5 * logs[0].std() / len(logs[1]) ** 0.5
        assert logs[1].mean() == pytest.approx(logs[0].mean(), abs=error)
    gaps = [np.diff(each.submit_s).mean() for each in (original, drawn)]
    assert gaps[0] == pytest.approx(gaps[1], rel=0.05)
    before, after = (daily_cycle(each.submit_s).weights for each in (original, drawn))
    assert stats.pearsonr(before, after).statistic > 0.97
    assert drawn.processors == original.processors


def test_a_fitted_job_takes_run_time_and_estimate_as_a_pair_from_its_size_class() -> None:
    original = example()
    pairs: dict[int, set[tuple[float, float]]] = {}
    for size, run_s, requested_s in zip(original.size, original.run_s, original.run_s * 3, strict=True):
        pairs.setdefault(int(np.ceil(np.log2(size))), set()).add((run_s, requested_s))
    drawn = fitted(dataclasses.replace(original, requested_s=original.run_s * 3), 500, 1)
    for size, run_s, requested_s in zip(drawn.size, drawn.run_s, drawn.requested_s, strict=True):
        assert (run_s, requested_s) in pairs[int(np.ceil(np.log2(size)))]


def test_a_short_trace_has_no_daily_cycle() -> None:
    assert daily_cycle(np.array([0.0, 10.0, DAY_S])).weights.tolist() == [1.0] * BUCKETS


def test_one_job_is_too_few_to_draw_from() -> None:
    with pytest.raises(SyntheticError, match="it takes 2 jobs or more to draw from, and it has 1"):
        fitted(example().chosen(np.array([0])), 5, 1)


# ---------------------------------------------------------------------------------------------- seeds


def drawn_by(name: str, seed: int) -> Trace:
    if name == "poisson":
        return poisson(500, seed, interarrival_mean_s=10, run_mean_s=20, size_min=1, size_max=9, nodes=10)
    return fitted(example(), 500, seed) if name == "fit" else lublin(500, seed, by_type=name == "types")


@pytest.mark.parametrize("name", ["poisson", "fit", "lublin", "types"])
def test_a_seed_gives_the_same_bytes_and_another_seed_others(name: str) -> None:
    assert swf_bytes(drawn_by(name, 1), packed=True) == swf_bytes(drawn_by(name, 1), packed=True)
    assert swf_bytes(drawn_by(name, 1)) != swf_bytes(drawn_by(name, 2))
