"""Forecasts: which predictor wins on which series, how much small transfers say, and what never happens."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.core.state.network.predictors import (
    DECLARED,
    MEASUREMENTS_MAX,
    PREDICTORS,
    MeasuredBy,
    Measurement,
    forecast,
    transfer_weight,
)


def measured(*values: float, weight: float = 1.0) -> list[Measurement]:
    return [Measurement(float(at), value, weight) for at, value in enumerate(values)]


def test_with_nothing_measured_the_declared_value_is_believed() -> None:
    assert forecast(100.0, []) == (100.0, DECLARED, 0.0)


def test_one_whole_measurement_outweighs_what_was_declared() -> None:
    assert forecast(100.0, measured(40.0)).value == 40.0


def test_one_that_weighs_little_moves_little() -> None:
    assert forecast(100.0, measured(40.0, weight=0.01)).value == pytest.approx(99.4)


@pytest.mark.parametrize(("before", "after"), [(100.0, 20.0), (100.0, 1_000.0), (20.0, 100.0)])
def test_a_link_that_has_changed_is_believed_after_three_measurements(before: float, after: float) -> None:
    rng = Random(1)
    noisy = [before * rng.uniform(0.95, 1.05) for _ in range(MEASUREMENTS_MAX - 3)]
    since = [after * rng.uniform(0.95, 1.05) for _ in range(3)]
    said = forecast(500.0, measured(*noisy, *since))
    assert said.value == pytest.approx(after, rel=0.2)


def test_a_series_with_outliers_is_forecast_by_a_median() -> None:
    values = [
        100.0,
        101.0,
        99.0,
        5.0,
        100.0,
        101.0,
        3.0,
        99.0,
        100.0,
        4.0,
        101.0,
        100.0,
        99.0,
        6.0,
        100.0,
        100.0,
        5.0,
    ]
    said = forecast(100.0, measured(*values))
    assert said.predictor.startswith("median")
    assert said.value == pytest.approx(100.0, abs=1.0)


def test_a_steady_noise_is_forecast_by_a_mean_and_a_walk_by_the_last_value() -> None:
    rng = Random(2)
    noise = forecast(100.0, measured(*[rng.gauss(100.0, 10.0) for _ in range(MEASUREMENTS_MAX)]))
    assert noise.predictor != "last value"
    assert noise.value == pytest.approx(100.0, abs=6.0)
    walk = forecast(100.0, measured(*[100.0 + 10.0 * step for step in range(MEASUREMENTS_MAX)]))
    assert walk.predictor == "last value"
    assert walk.value == 100.0 + 10.0 * (MEASUREMENTS_MAX - 1)


def test_of_equally_good_predictors_the_first_wins() -> None:
    assert forecast(50.0, measured(80.0, 80.0, 80.0)) == (80.0, PREDICTORS[0][0], 0.0)


@pytest.mark.parametrize(
    ("size_bytes", "flowing_s", "weight"),
    [(340, 5.0, 0.0), (200_000, 5.0, 0.2), (4_000_000, 0.05, 0.0), (4_000_000, 0.5, 0.1), (10**10, 900.0, 1.0)],
)
def test_what_a_transfer_tells_goes_by_its_bytes_and_its_time(
    size_bytes: int, flowing_s: float, weight: float
) -> None:
    assert transfer_weight(size_bytes, flowing_s) == pytest.approx(weight)


@settings(max_examples=60)
@given(
    declared=st.floats(1e-3, 1e12),
    series=st.lists(st.tuples(st.floats(1e-6, 1e12), st.floats(1e-9, 1.0)), max_size=MEASUREMENTS_MAX),
)
def test_a_forecast_is_never_outside_of_what_was_declared_and_measured(
    declared: float, series: list[tuple[float, float]]
) -> None:
    taken = [Measurement(0.0, value, weight, 1, MeasuredBy.TRANSFER) for value, weight in series]
    values = [declared, *[value for value, _ in series]]
    assert min(values) <= forecast(declared, taken).value <= max(values)
