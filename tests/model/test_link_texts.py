"""Quantities for people: short, without exponents, in a unit that suits them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.model.network import bandwidth_text, latency_text


@pytest.mark.parametrize(
    ("mbit_s", "text"),
    [(0.0, "0 bit/s"), (1.57e-5, "15.7 bit/s"), (0.00901, "9.01 kbit/s"), (0.5, "500 kbit/s"), (0.9996, "1 Mbit/s"),
     (37.24, "37.2 Mbit/s"), (99.96, "100 Mbit/s"), (640.0, "640 Mbit/s"), (999.7, "1 Gbit/s"),
     (2_500.0, "2.5 Gbit/s"), (29_000.0, "29 Gbit/s"), (2e7, "20 Tbit/s")],
)  # fmt: skip
def test_a_bandwidth_has_the_unit_that_suits_it(mbit_s: float, text: str) -> None:
    assert bandwidth_text(mbit_s) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 ms"), (0.00005, "50 µs"), (0.005, "5 ms"), (0.01234, "12.3 ms"), (0.9996, "1 s"), (1.2, "1.2 s"),
     (120.0, "120 s")],
)  # fmt: skip
def test_a_latency_has_the_unit_that_suits_it(seconds: float, text: str) -> None:
    assert latency_text(seconds) == text


@given(st.floats(0, 1e9))
def test_no_quantity_has_an_exponent_or_more_than_three_digits(value: float) -> None:
    for text in (bandwidth_text(value), latency_text(min(value, 999.0))):
        assert re.fullmatch(r"\d{1,4}(\.\d{1,2})? ([kMGT]?bit/s|µs|ms|s)", text), text
