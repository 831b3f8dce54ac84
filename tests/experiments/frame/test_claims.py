"""Verdicts come from whole intervals: on the right side, on the wrong one, or across the bound."""

from __future__ import annotations

import math

import pytest

from koala.experiments.frame.claims import ClaimVerdict, Comparison, above, below, judge, measured, within
from koala.experiments.frame.statistics import Interval


def around(mean: float, half: float) -> Interval:
    return Interval(mean, mean - half, mean + half, 20)


@pytest.mark.parametrize(
    ("comparison", "verdict"),
    [
        (below("x", around(-3, 1)), ClaimVerdict.SHOWN),
        (below("x", around(3, 1)), ClaimVerdict.CONTRARY),
        (below("x", around(-1, 3)), ClaimVerdict.UNDECIDED),
        (below("x", around(-1, 1)), ClaimVerdict.UNDECIDED),
        (below("x", around(0, 0)), ClaimVerdict.CONTRARY),
        (above("x", around(12, 1), 10), ClaimVerdict.SHOWN),
        (above("x", around(9, 1), 10), ClaimVerdict.CONTRARY),
        (within("x", around(0, 1), -2, 2), ClaimVerdict.SHOWN),
        (within("x", around(2, 1), -2, 2), ClaimVerdict.UNDECIDED),
        (within("x", around(5, 1), -2, 2), ClaimVerdict.CONTRARY),
        (above("x", Interval(50.0, -math.inf, math.inf, 1)), ClaimVerdict.UNDECIDED),
    ],
)
def test_only_a_whole_interval_on_the_right_side_shows_something(
    comparison: Comparison, verdict: ClaimVerdict
) -> None:
    assert comparison.verdict is verdict


def test_a_claim_holds_when_every_comparison_is_shown() -> None:
    claim = judge("C1", "It is so.", [below("a", around(-3, 1)), above("b", around(3, 1))])
    assert claim.holds
    assert claim.why == "All 2 intervals lie where it says."


def test_a_claim_that_does_not_hold_says_what_contradicts_it_and_what_is_open() -> None:
    pieces = [below("good", around(-3, 1)), below("bad", around(3, 1)), below("wide", around(-1, 30))]
    claim = judge("C1", "It is so.", pieces, note="It rained.")
    assert not claim.holds
    assert claim.why == (
        "1 of 3 shown. The contrary is shown by bad: 3.0 s (2.0 to 4.0). "
        "Undecided by wide: -1 s (-31 to 29). It rained."
    )


def test_a_claim_without_measurements_does_not_hold() -> None:
    claim = judge("C1", "It is so.", [])
    assert not claim.holds
    assert claim.why == "Nothing was measured that could show it."


def test_the_evidence_has_every_number_and_the_fewest_seeds() -> None:
    pieces = [below("a", around(-3, 1)), above("b", Interval(5.0, 4.0, 6.0, 7), 2.0, unit="%")]
    claim = judge("C1", "It is so.", pieces, shares={"low": 0.1}).as_json()
    assert list(claim) == ["id", "text", "holds", "evidence"]
    assert claim["evidence"]["seeds"] == 7
    assert claim["evidence"]["shares"] == {"low": 0.1}
    assert claim["evidence"]["comparisons"][1] == {
        "what": "b",
        "unit": "%",
        "mean": 5.0,
        "low": 4.0,
        "high": 6.0,
        "n": 7,
        "wanted": "above 2",
        "verdict": "shown",
    }


@pytest.mark.parametrize(
    ("interval", "text"),
    [
        (around(1234.56, 123.4), "1235 s (1111 to 1358)"),
        (around(12.345, 1.234), "12.3 s (11.1 to 13.6)"),
        (around(0.01234, 0.0012), "0.0123 s (0.0111 to 0.0135)"),
        (around(48.0, 0.0), "48.0 s (48.0 to 48.0)"),
        (Interval(3.14159, -math.inf, math.inf, 1), "3.14 s (one seed only)"),
    ],
)
def test_an_interval_is_printed_with_the_digits_it_deserves(interval: Interval, text: str) -> None:
    assert measured(interval, "s") == text
