"""Claims of the papers and their verdicts, judged from confidence intervals alone.

A claim is a list of comparisons. It holds when every interval lies wholly where the claim says, the contrary is shown
when one lies wholly elsewhere, and otherwise it is undecided: then it says how far from a decision it is, and about
how many more seeds a decision would take. ``looks`` sets the confidence of a look at the data.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from koala.study.frame.statistics import CONFIDENCE, Interval

# No estimate is given of the seeds for a decision beyond this number.
SEEDS_FORESEEN_MAX = 1_000_000


class ComparisonVerdict(enum.StrEnum):
    """The meaning of an interval for a comparison."""

    SHOWN = "shown"
    CONTRARY = "contrary"
    UNDECIDED = "undecided"


class ClaimVerdict(enum.StrEnum):
    """The meaning of the comparisons for a claim.

    >>> from koala.study import ClaimVerdict
    >>> [str(verdict) for verdict in ClaimVerdict]
    ['holds', 'contrary', 'undecided']
    """

    HOLDS = "holds"
    CONTRARY = "contrary"
    UNDECIDED = "undecided"


class Gap(NamedTuple):
    """The distance of an undecided comparison from a decision.

    ``beyond`` of its interval lies across the bound from the mean. ``leaning`` is the result of the same mean with a
    narrower interval, and ``more_seeds`` the number of seeds for that: None if it is beyond reach, or unknown after a
    single value.
    """

    bound: float
    beyond: float
    leaning: ComparisonVerdict
    more_seeds: int | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One measured quantity and the open range in which the claim wants it, ``least`` to ``most``.

    >>> from koala.study import Comparison, mean_interval
    >>> gain = Comparison(what="gain", unit="s", interval=mean_interval([4.0, 5.0, 6.0]), least=0.0)
    >>> gain.wanted, str(gain.verdict)
    ('above 0', 'shown')
    """

    what: str
    unit: str
    interval: Interval
    least: float = -math.inf
    most: float = math.inf

    @property
    def verdict(self) -> ComparisonVerdict:
        """Shown when the whole interval is in the range, contrary when all of it is outside."""
        if self.least < self.interval.low and self.interval.high < self.most:
            return ComparisonVerdict.SHOWN
        if self.interval.high <= self.least or self.interval.low >= self.most:
            return ComparisonVerdict.CONTRARY
        return ComparisonVerdict.UNDECIDED

    @property
    def gap(self) -> Gap | None:
        """Its distance from a decision, or None if it is decided."""
        if self.verdict is not ComparisonVerdict.UNDECIDED:
            return None
        mean, low, high = self.interval.mean, self.interval.low, self.interval.high
        inside = self.least < mean < self.most
        # The bound that the interval crosses; the farther it reaches beyond the bound, the farther it is from a
        # decision.
        if inside:
            beyond, bound = max((self.least - low, self.least), (high - self.most, self.most))
            distance = min(mean - self.least, self.most - mean)
        elif mean <= self.least:
            beyond, bound, distance = high - self.least, self.least, self.least - mean
        else:
            beyond, bound, distance = self.most - low, self.most, mean - self.most
        wanted = self.interval.seeds_within(distance, SEEDS_FORESEEN_MAX)
        leaning = ComparisonVerdict.SHOWN if inside else ComparisonVerdict.CONTRARY
        return Gap(bound, beyond, leaning, None if wanted is None else max(1, wanted - self.interval.n))

    @property
    def wanted(self) -> str:
        """The range in words."""
        if math.isinf(self.least):
            return f"below {self.most:.4g}"
        if math.isinf(self.most):
            return f"above {self.least:.4g}"
        return f"between {self.least:.4g} and {self.most:.4g}"

    def in_words(self) -> str:
        """Return the measured quantity with its interval."""
        return f"{self.what}: {measured(self.interval, self.unit)}"

    def gap_in_words(self) -> str:
        """Return its distance from a decision; empty if it is decided."""
        gap = self.gap
        if gap is None:
            return ""
        if self.interval.n == 0:
            return "no seed has a value"
        if not self.interval.bounded:
            return "one seed tells nothing of the spread"
        space = f" {self.unit}" if self.unit else ""
        reaches = f"reaches {gap.beyond:.2g}{space} beyond {gap.bound:.4g}"
        return f"{reaches}, {seeds_in_words(gap.more_seeds)}"

    def as_json(self) -> dict[str, Any]:
        """Return a row of the evidence."""
        gap = self.gap
        return {
            "what": self.what,
            "unit": self.unit,
            **self.interval.as_json(),
            "wanted": self.wanted,
            "least": self.least if math.isfinite(self.least) else None,
            "most": self.most if math.isfinite(self.most) else None,
            "verdict": str(self.verdict),
            "beyond": None if gap is None or not math.isfinite(gap.beyond) else gap.beyond,
            "more_seeds": None if gap is None else gap.more_seeds,
        }


class PaperClaim(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence of a paper, the measurements about it, and its least number of seeds.

    ``note`` is what a reader must know to weigh it and ``more`` goes to the evidence. A ``first_look`` has too few
    seeds, or too little work in each, for any verdict: it leaves every claim undecided and says where it leans.
    ``rests_on`` are the cases behind it, if the experiment names them: further seeds for this claim need no others.

    >>> from koala.study import PaperClaim, above, mean_interval
    >>> gain = above("gain", mean_interval([4.0, 5.0, 6.0]))
    >>> str(PaperClaim(id="C1", text="It is faster.", comparisons=(gain,)).verdict)
    'holds'
    """

    id: str
    text: str
    comparisons: tuple[Comparison, ...]
    note: str = ""
    more: dict[str, Any] = {}
    confidence: float = CONFIDENCE
    first_look: bool = False
    rests_on: frozenset[Any] = frozenset()

    @property
    def leaning(self) -> ClaimVerdict:
        """The meaning of the intervals, also in a first look."""
        verdicts = {each.verdict for each in self.comparisons}
        if ComparisonVerdict.CONTRARY in verdicts:
            return ClaimVerdict.CONTRARY
        return ClaimVerdict.HOLDS if verdicts == {ComparisonVerdict.SHOWN} else ClaimVerdict.UNDECIDED

    @property
    def verdict(self) -> ClaimVerdict:
        """Holds when every comparison is shown and there is at least one, contrary when the contrary of one is."""
        return ClaimVerdict.UNDECIDED if self.first_look else self.leaning

    @property
    def nearest(self) -> Comparison | None:
        """The comparison that a decision waits for, or None if it waits for nothing.

        Comparisons that lean to the contrary decide the claim alone, so the first of them counts; otherwise all have
        to be shown, so the last one counts.
        """
        if self.leaning is not ClaimVerdict.UNDECIDED:
            return None
        open_ones = [(each, gap) for each in self.comparisons if (gap := each.gap) is not None]
        against = [(each, gap) for each, gap in open_ones if gap.leaning is ComparisonVerdict.CONTRARY]
        if against:
            return min(against, key=lambda pair: _many(pair[1]))[0]
        return max(open_ones, key=lambda pair: _many(pair[1]))[0] if open_ones else None

    @property
    def more_seeds(self) -> int | None:
        """About how many more seeds a decision would take; None if it is decided or the number is unknown."""
        nearest = self.nearest
        gap = None if nearest is None else nearest.gap
        return None if gap is None else gap.more_seeds

    @property
    def why(self) -> str:
        """The meaning of the numbers."""
        return " ".join(part for part in (self._reason(), self.note) if part)

    @property
    def to_go(self) -> str:
        """Its distance from a decision, in words; empty if it is decided."""
        if self.first_look and self.leaning is not ClaimVerdict.UNDECIDED:
            return f"A first look decides nothing; it leans to: {self.leaning}."
        nearest = self.nearest
        return "" if nearest is None else f"Farthest from a decision: {nearest.what}, {nearest.gap_in_words()}."

    @property
    def evidence(self) -> dict[str, Any]:
        """The numbers."""
        return {
            "confidence": self.confidence,
            "seeds": min((each.interval.n for each in self.comparisons), default=0),
            "comparisons": [each.as_json() for each in self.comparisons],
            **self.more,
        }

    def _reason(self) -> str:
        count = len(self.comparisons)
        by_verdict = {kind: [c for c in self.comparisons if c.verdict is kind] for kind in ComparisonVerdict}
        shown = len(by_verdict[ComparisonVerdict.SHOWN])
        if not count:
            return "Nothing was measured that could show it."
        if shown == count:
            return "The interval lies where it says." if count == 1 else f"All {count} intervals lie where it says."
        parts = [f"{shown} of {count} shown." if count > 1 else ""]
        words = {
            ComparisonVerdict.CONTRARY: "The contrary is shown by",
            ComparisonVerdict.UNDECIDED: "Undecided by",
        }
        for kind, said in words.items():
            if by_verdict[kind]:
                parts.append(f"{said} {'; '.join(each.in_words() for each in by_verdict[kind])}.")
        return " ".join(part for part in parts if part)

    def as_json(self) -> dict[str, Any]:
        """Return its form in ``report.json``."""
        return {
            "id": self.id,
            "text": self.text,
            "verdict": str(self.verdict),
            "leaning": str(self.leaning),
            "more_seeds": self.more_seeds,
            "evidence": {"why": self.why, "to_go": self.to_go, **self.evidence},
        }


def _many(gap: Gap) -> float:
    return math.inf if gap.more_seeds is None else gap.more_seeds


def below(what: str, interval: Interval, bound: float = 0.0, *, unit: str = "s") -> Comparison:
    """Return a comparison: the quantity should be below the bound.

    >>> from koala.study import below, mean_interval
    >>> below("gain", mean_interval([4.0, 5.0, 6.0]), 10.0).wanted
    'below 10'
    """
    return Comparison(what=what, unit=unit, interval=interval, most=bound)


def above(what: str, interval: Interval, bound: float = 0.0, *, unit: str = "s") -> Comparison:
    """Return a comparison: the quantity should be above the bound.

    >>> from koala.study import above, mean_interval
    >>> above("gain", mean_interval([4.0, 5.0, 6.0]), 0.0).wanted
    'above 0'
    """
    return Comparison(what=what, unit=unit, interval=interval, least=bound)


def within(what: str, interval: Interval, least: float, most: float, *, unit: str = "s") -> Comparison:
    """Return a comparison: the quantity should lie between the two.

    >>> from koala.study import mean_interval, within
    >>> within("gain", mean_interval([4.0, 5.0, 6.0]), 0.0, 10.0).wanted
    'between 0 and 10'
    """
    return Comparison(what=what, unit=unit, interval=interval, least=least, most=most)


def judge(name: str, text: str, comparisons: Sequence[Comparison], *, note: str = "", **more: Any) -> PaperClaim:
    """Return the claim with its measurements. ``note`` is added to the reason, ``more`` to the evidence.

    >>> from koala.study import above, judge, mean_interval
    >>> claim = judge("C1", "It is faster.", [above("gain", mean_interval([4.0, 5.0, 6.0]))])
    >>> str(claim.verdict), claim.why
    ('holds', 'The interval lies where it says.')
    """
    return PaperClaim(id=name, text=text, comparisons=tuple(comparisons), note=note, more=more)


def seeds_in_words(more_seeds: int | None) -> str:
    """Return how many more seeds a decision would take."""
    if more_seeds is None:
        return f"more than {SEEDS_FORESEEN_MAX:,} seeds from a decision"
    count = more_seeds if more_seeds < 100 else float(f"{more_seeds:.2g}")
    return f"about {count:,.0f} more seed{'' if count == 1 else 's'}"


def measured(interval: Interval, unit: str) -> str:
    """Return an interval for people: mean, unit and bounds, with digits that match its width.

    >>> from koala.study import mean_interval, measured
    >>> measured(mean_interval([4.0, 5.0, 6.0]), "s")
    '5.0 s (2.5 to 7.5)'
    """
    space = f" {unit}" if unit else ""
    if interval.n == 0:
        return "nothing measured"
    if not interval.bounded:
        return f"{interval.mean:.3g}{space} (one seed only)"
    digits = decimals(interval)
    mean, low, high = (f"{value:.{digits}f}" for value in (interval.mean, interval.low, interval.high))
    return f"{mean}{space} ({low} to {high})"


def decimals(interval: Interval) -> int:
    """Return how many decimals are worth printing: two digits of the half width, or of the mean without one."""
    half = (interval.high - interval.low) / 2
    scale = half if half > abs(interval.mean) * 1e-9 else abs(interval.mean) / 10
    if scale <= 0.0 or not math.isfinite(scale):
        return 1
    return min(4, max(0, 1 - math.floor(math.log10(scale))))
