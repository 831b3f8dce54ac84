"""Intervals over seeds: against values from tables, against each other, and how often they hold the truth."""

from __future__ import annotations

import math
from random import Random

import pytest

from koala.study.frame.statistics import Interval, mean_interval, paired_difference, proportion


def test_the_interval_of_a_mean_is_students() -> None:
    interval = mean_interval([1.0, 2.0, 3.0, 4.0, 5.0])
    # 2.776 is Student's quantile for four degrees of freedom.
    assert interval.mean == 3.0
    assert interval.high - 3.0 == pytest.approx(2.776 * math.sqrt(2.5 / 5), rel=1e-3)
    assert 3.0 - interval.low == pytest.approx(interval.high - 3.0)
    assert interval.n == 5


def test_a_higher_confidence_gives_a_wider_interval() -> None:
    values = [1.0, 4.0, 2.0]
    assert mean_interval(values, 0.99).high > mean_interval(values, 0.95).high


def test_95_percent_of_the_intervals_hold_the_true_mean() -> None:
    rng = Random(6)
    held = 0
    for _ in range(4_000):
        interval = mean_interval([rng.gauss(10.0, 3.0) for _ in range(6)])
        held += interval.low <= 10.0 <= interval.high
    assert 0.94 < held / 4_000 < 0.96


def test_one_value_says_nothing_about_the_spread() -> None:
    interval = mean_interval([7.0])
    assert (interval.low, interval.high) == (-math.inf, math.inf)
    assert not interval.bounded
    assert interval.as_json() == {"mean": 7.0, "low": None, "high": None, "n": 1}


def test_values_that_are_all_the_same_have_an_interval_of_no_width() -> None:
    assert mean_interval([2.0, 2.0, 2.0]) == Interval(2.0, 2.0, 2.0, 3)


def test_no_value_has_no_mean() -> None:
    with pytest.raises(ValueError, match="at least one value"):
        mean_interval([])


def test_what_a_seed_does_to_both_cancels_out_of_a_paired_difference() -> None:
    rng = Random(1)
    busy = {seed: rng.uniform(0.0, 1_000.0) for seed in range(20)}
    first = {seed: hour + 5.0 + rng.uniform(-1.0, 1.0) for seed, hour in busy.items()}
    interval = paired_difference(first, busy)
    assert interval is not None
    # Whether this one interval holds 5 is a matter of luck, see above; that hours of 1,000 s left no trace is not.
    assert 4.0 < interval.mean < 6.0
    assert interval.high - interval.low < 1.0


def test_only_seeds_that_both_have_are_compared() -> None:
    interval = paired_difference({1: 5.0, 2: 6.0, 3: 99.0}, {1: 4.0, 2: 5.0, 4: -99.0})
    assert interval == Interval(1.0, 1.0, 1.0, 2)
    assert paired_difference({1: 5.0}, {2: 5.0}) is None


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"), [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0)]
)
def test_the_interval_of_a_share_is_wilsons(successes: int, trials: int, low: float, high: float) -> None:
    interval = proportion(successes, trials)
    assert interval.low == pytest.approx(low, abs=1e-4)
    assert interval.high == pytest.approx(high, abs=1e-4)
    assert interval.mean == successes / trials


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 2)])
def test_a_share_of_nothing_is_refused(successes: int, trials: int) -> None:
    with pytest.raises(ValueError, match="is no share"):
        proportion(successes, trials)
