"""Claims of the papers and their verdicts, judged from confidence intervals and from nothing else.

A claim is a list of comparisons. It holds when every interval lies wholly where the claim says; where it does
not hold, the reason says which comparisons show the contrary and which leave it open.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from koala.experiments.frame.statistics import CONFIDENCE, Interval


class ClaimVerdict(enum.StrEnum):
    """What an interval says about a comparison."""

    SHOWN = "shown"
    CONTRARY = "contrary"
    UNDECIDED = "undecided"


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One measured quantity and the open range in which the claim wants it, ``least`` to ``most``."""

    what: str
    unit: str
    interval: Interval
    least: float = -math.inf
    most: float = math.inf

    @property
    def verdict(self) -> ClaimVerdict:
        """Shown when the whole interval is in the range, contrary when all of it is outside."""
        if self.least < self.interval.low and self.interval.high < self.most:
            return ClaimVerdict.SHOWN
        if self.interval.high <= self.least or self.interval.low >= self.most:
            return ClaimVerdict.CONTRARY
        return ClaimVerdict.UNDECIDED

    @property
    def wanted(self) -> str:
        """The range in words."""
        if math.isinf(self.least):
            return f"below {self.most:.4g}"
        if math.isinf(self.most):
            return f"above {self.least:.4g}"
        return f"between {self.least:.4g} and {self.most:.4g}"

    def in_words(self) -> str:
        """The measured quantity with its interval."""
        return f"{self.what}: {measured(self.interval, self.unit)}"

    def as_json(self) -> dict[str, Any]:
        """A row of the evidence."""
        return {
            "what": self.what,
            "unit": self.unit,
            **self.interval.as_json(),
            "wanted": self.wanted,
            "verdict": str(self.verdict),
        }


class PaperClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of a paper, whether it holds here, the numbers, and in ``why`` what they amount to."""

    id: str
    text: str
    holds: bool
    evidence: dict[str, Any]
    why: str
    comparisons: tuple[Comparison, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """As it stands in ``report.json``."""
        evidence = {"why": self.why, **self.evidence}
        return {"id": self.id, "text": self.text, "holds": self.holds, "evidence": evidence}


def below(what: str, interval: Interval, bound: float = 0.0, *, unit: str = "s") -> Comparison:
    """The quantity should be below the bound."""
    return Comparison(what=what, unit=unit, interval=interval, most=bound)


def above(what: str, interval: Interval, bound: float = 0.0, *, unit: str = "s") -> Comparison:
    """The quantity should be above the bound."""
    return Comparison(what=what, unit=unit, interval=interval, least=bound)


def within(what: str, interval: Interval, least: float, most: float, *, unit: str = "s") -> Comparison:
    """The quantity should lie between the two."""
    return Comparison(what=what, unit=unit, interval=interval, least=least, most=most)


def judge(name: str, text: str, comparisons: Sequence[Comparison], *, note: str = "", **more: Any) -> PaperClaim:
    """The claim with its verdict: it holds when every comparison is shown, and there is at least one.

    ``note`` is added to the reason: what a reader must know to weigh it. ``more`` goes to the evidence.
    """
    by_verdict = {verdict: [each for each in comparisons if each.verdict is verdict] for verdict in ClaimVerdict}
    holds = bool(comparisons) and len(by_verdict[ClaimVerdict.SHOWN]) == len(comparisons)
    why = " ".join(part for part in (_why(by_verdict, len(comparisons)), note) if part)
    evidence = {
        "confidence": CONFIDENCE,
        "seeds": min((each.interval.n for each in comparisons), default=0),
        "comparisons": [each.as_json() for each in comparisons],
        **more,
    }
    return PaperClaim(id=name, text=text, holds=holds, evidence=evidence, why=why, comparisons=tuple(comparisons))


def _why(by_verdict: dict[ClaimVerdict, list[Comparison]], count: int) -> str:
    if not count:
        return "Nothing was measured that could show it."
    shown = len(by_verdict[ClaimVerdict.SHOWN])
    if shown == count:
        return (
            "The interval lies where the claim says." if count == 1 else f"All {count} intervals lie where it says."
        )
    parts = [f"{shown} of {count} shown." if count > 1 else ""]
    for verdict, word in ((ClaimVerdict.CONTRARY, "The contrary is shown"), (ClaimVerdict.UNDECIDED, "Undecided")):
        if by_verdict[verdict]:
            parts.append(f"{word} by {'; '.join(each.in_words() for each in by_verdict[verdict])}.")
    return " ".join(part for part in parts if part)


def measured(interval: Interval, unit: str) -> str:
    """An interval for people: mean, unit and bounds, with as many digits as its width deserves."""
    space = f" {unit}" if unit else ""
    if not interval.bounded:
        return f"{interval.mean:.3g}{space} (one seed only)"
    digits = decimals(interval)
    mean, low, high = (f"{value:.{digits}f}" for value in (interval.mean, interval.low, interval.high))
    return f"{mean}{space} ({low} to {high})"


def decimals(interval: Interval) -> int:
    """How many decimals are worth printing: two digits of the half width, or of the mean where there is none."""
    half = (interval.high - interval.low) / 2
    scale = half if half > abs(interval.mean) * 1e-9 else abs(interval.mean) / 10
    if scale <= 0.0 or not math.isfinite(scale):
        return 1
    return min(4, max(0, 1 - math.floor(math.log10(scale))))
