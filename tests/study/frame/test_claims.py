"""Verdicts come from whole intervals: on the right side, on the wrong one, or across the bound."""

from __future__ import annotations

import math

import pytest

from koala.study.frame.claims import (
    SEEDS_FORESEEN_MAX,
    ClaimVerdict,
    Comparison,
    ComparisonVerdict,
    PaperClaim,
    above,
    below,
    judge,
    measured,
    within,
)
from koala.study.frame.statistics import Interval


def around(mean: float, half: float) -> Interval:
    return Interval(mean, mean - half, mean + half, 20)


@pytest.mark.parametrize(
    ("comparison", "verdict"),
    [
        (below("x", around(-3, 1)), ComparisonVerdict.SHOWN),
        (below("x", around(3, 1)), ComparisonVerdict.CONTRARY),
        (below("x", around(-1, 3)), ComparisonVerdict.UNDECIDED),
        (below("x", around(-1, 1)), ComparisonVerdict.UNDECIDED),
        (below("x", around(0, 0)), ComparisonVerdict.CONTRARY),
        (above("x", around(12, 1), 10), ComparisonVerdict.SHOWN),
        (above("x", around(9, 1), 10), ComparisonVerdict.CONTRARY),
        (within("x", around(0, 1), -2, 2), ComparisonVerdict.SHOWN),
        (within("x", around(2, 1), -2, 2), ComparisonVerdict.UNDECIDED),
        (within("x", around(5, 1), -2, 2), ComparisonVerdict.CONTRARY),
        (above("x", Interval(50.0, -math.inf, math.inf, 1)), ComparisonVerdict.UNDECIDED),
    ],
)
def test_only_a_whole_interval_on_the_right_side_shows_something(
    comparison: Comparison, verdict: ComparisonVerdict
) -> None:
    assert comparison.verdict is verdict


def test_a_claim_holds_when_every_comparison_is_shown() -> None:
    claim = judge("C1", "It is so.", [below("a", around(-3, 1)), above("b", around(3, 1))])
    assert claim.verdict is ClaimVerdict.HOLDS
    assert claim.why == "All 2 intervals lie where it says."


def test_a_claim_that_does_not_hold_says_what_contradicts_it_and_what_is_open() -> None:
    pieces = [below("good", around(-3, 1)), below("bad", around(3, 1)), below("wide", around(-1, 30))]
    claim = judge("C1", "It is so.", pieces, note="It rained.")
    assert claim.verdict is ClaimVerdict.CONTRARY
    assert claim.to_go == ""
    assert claim.why == (
        "1 of 3 shown. The contrary is shown by bad: 3.0 s (2.0 to 4.0). "
        "Undecided by wide: -1 s (-31 to 29). It rained."
    )


def test_a_claim_of_which_nothing_is_contrary_and_something_open_is_undecided() -> None:
    claim = judge("C1", "It is so.", [below("good", around(-3, 1)), below("wide", around(-1, 2))])
    assert claim.verdict is ClaimVerdict.UNDECIDED
    # Twice as narrow takes four times the seeds, and a little less since Student's t narrows too.
    assert claim.more_seeds in range(50, 60)
    assert (
        claim.to_go == f"Farthest from a decision: wide, reaches 1 s beyond 0, about {claim.more_seeds} more seeds."
    )


def test_what_leans_to_the_contrary_decides_alone_and_the_first_of_it_counts() -> None:
    pieces = [below("far", around(-1, 30)), below("against", around(2, 3)), below("more", around(1, 9))]
    claim = judge("C1", "It is so.", pieces)
    assert claim.nearest is pieces[1]
    assert claim.more_seeds == pytest.approx(22, abs=4)


@pytest.mark.parametrize(
    ("comparison", "bound", "beyond"),
    [
        (below("x", around(-1, 3)), 0.0, 2.0),
        (below("x", around(1, 3)), 0.0, 2.0),
        (above("x", around(9, 3), 10), 10.0, 2.0),
        (within("x", around(1, 4), -2, 2), 2.0, 3.0),
        (within("x", around(-1, 4), -2, 2), -2.0, 3.0),
        (within("x", around(3, 4), -2, 2), 2.0, 3.0),
    ],
)
def test_the_gap_is_what_lies_on_the_other_side_of_the_bound_than_the_mean(
    comparison: Comparison, bound: float, beyond: float
) -> None:
    gap = comparison.gap
    assert gap is not None
    assert (gap.bound, gap.beyond) == (bound, beyond)


def test_a_mean_at_the_bound_is_beyond_any_number_of_seeds() -> None:
    for comparison in (below("x", around(0, 1)), below("x", around(-1e-5, 1))):
        gap = comparison.gap
        assert gap is not None
        assert gap.more_seeds is None
        assert f"more than {SEEDS_FORESEEN_MAX:,} seeds from a decision" in comparison.gap_in_words()


@pytest.mark.parametrize("mean", [3.0, -3.0])
def test_a_first_look_decides_nothing_and_says_where_it_leans(mean: float) -> None:
    comparisons = (below("x", around(mean, 1)),)
    claim = PaperClaim(id="C1", text="It is so.", comparisons=comparisons, first_look=True)
    assert claim.verdict is ClaimVerdict.UNDECIDED
    assert claim.leaning is (ClaimVerdict.CONTRARY if mean > 0 else ClaimVerdict.HOLDS)
    assert claim.to_go == f"A first look decides nothing; it leans to: {claim.leaning}."


def test_a_claim_without_measurements_is_undecided() -> None:
    claim = judge("C1", "It is so.", [])
    assert claim.verdict is ClaimVerdict.UNDECIDED
    assert claim.why == "Nothing was measured that could show it."


def test_the_evidence_has_every_number_and_the_fewest_seeds() -> None:
    pieces = [below("a", around(-3, 1)), above("b", Interval(5.0, 4.0, 6.0, 7), 2.0, unit="%")]
    claim = judge("C1", "It is so.", pieces, shares={"low": 0.1}).as_json()
    assert list(claim) == ["id", "text", "verdict", "leaning", "more_seeds", "evidence"]
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
        "least": 2.0,
        "most": None,
        "verdict": "shown",
        "beyond": None,
        "more_seeds": None,
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
