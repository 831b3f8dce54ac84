"""Loads over time: around their means, autocorrelated with a long memory, the same for one seed."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from koala.mapping.tiers.loads import LOAD_MOST, LoadModel, LoadSeries

SERIES = 150
STEPS = 120
STEP_S = 30.0


def autocorrelation(model: LoadModel, lag_s: float) -> float:
    """How alike a load is to itself so much later, over many series and times."""
    top = bottom = 0.0
    for number in range(SERIES):
        series = LoadSeries(model, Random(f"load {number}"))
        for step in range(STEPS):
            now = series.at(1000 * step) - series.mean
            top += now * (series.at(1000 * step + lag_s) - series.mean)
            bottom += now * now
    return top / bottom


# Far from 0 and 1, so that no end is reached.
MIDDLE = LoadModel(mean=(0.5, 0.5), deviation=0.05)


def test_a_load_is_like_itself_for_long_and_less_and_less() -> None:
    found = [autocorrelation(MIDDLE, lag_s) for lag_s in (10.0, 60.0, 600.0, 6000.0)]
    assert found[0] > 0.85
    assert found[0] > found[1] > found[2] > found[3] > 0.0
    # By the power 2H - 2 = -0.6 it is a quarter after ten times as long; without memory it would be nothing.
    assert found[2] / found[1] == pytest.approx(0.3, abs=0.12)


def test_it_varies_as_far_as_asked_for() -> None:
    loads = [
        LoadSeries(MIDDLE, Random(f"load {number}")).at(500.0 * step)
        for number in range(SERIES)
        for step in range(20)
    ]
    mean = sum(loads) / len(loads)
    assert mean == pytest.approx(0.5, abs=0.01)
    assert (sum((load - mean) ** 2 for load in loads) / len(loads)) ** 0.5 == pytest.approx(0.05, abs=0.005)


def test_a_load_stays_between_nothing_and_nearly_all() -> None:
    model = LoadModel(mean=(0.0, 0.9), deviation=0.4)
    loads = [LoadSeries(model, Random(seed)).at(60.0 * step) for seed in range(20) for step in range(50)]
    assert min(loads) == 0.0
    assert max(loads) == LOAD_MOST


def test_without_deviation_it_is_its_mean_for_ever() -> None:
    series = LoadSeries(LoadModel(deviation=0.0), Random(1))
    assert {series.at(time_s) for time_s in (0.0, 17.0, 1e6)} == {series.mean}
    assert 0.1 <= series.mean <= 0.5


def test_the_same_seed_gives_the_same_series() -> None:
    one, same, other = (LoadSeries(LoadModel(), Random(seed)) for seed in (1, 1, 2))
    assert one.at(123.0) == same.at(123.0)
    assert one.at(123.0) != other.at(123.0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mean": (0.5, 0.1)}, "the smaller one first"),
        ({"deviation": 1.0}, "deviation 1"),
        ({"hurst": 0.4}, "hurst 0.4"),
        ({"memory_s": (60.0, 60.0)}, "memory_s"),
    ],
)
def test_a_model_that_makes_no_sense_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoadModel(**wrong)
