"""Repeated looks at the data without self-deception: when a run stops, and how wide its intervals are.

A run looks at its claims after a number of seeds, and takes more for undecided ones. Each look spends a part of the
total permitted error (a spending function of Pocock's type, by Lan and DeMets), and its intervals have the confidence
of its part. By the union bound all intervals of all looks hold together with the confidence that a single look would
have, so that stopping when a claim is decided makes no verdict more likely. ADR 0032 has the reasons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec

from koala.study.frame.claims import ClaimVerdict, PaperClaim
from koala.study.frame.experiment import Conclusion, Experiment, FinishedUnit, P
from koala.study.frame.statistics import CONFIDENCE

# Each look has this many times the seeds of the previous one.
GROWTH = 2


class Look(NamedTuple):
    """One look at the data: its number of seeds, and the share of the total permitted error that it may spend."""

    seeds: int
    error_share: float

    @property
    def confidence(self) -> float:
        """The confidence of an interval that would have ``CONFIDENCE`` if this were the only look."""
        return 1.0 - (1.0 - CONFIDENCE) * self.error_share


class Judged(NamedTuple):
    """The result of the last look, the looks taken and possible, and why no more followed."""

    conclusion: Conclusion
    looks: tuple[Look, ...]
    looks_max: int
    stopped: str

    @property
    def seeds(self) -> int:
        """The number of seeds of the last look; a claim that was decided before rests on fewer."""
        return self.looks[-1].seeds

    def as_json(self) -> dict[str, Any]:
        """Return it for the report."""
        return {
            "looks": [{"seeds": look.seeds, "confidence": look.confidence} for look in self.looks],
            "looks_max": self.looks_max,
            "stopped": self.stopped,
        }


def planned_looks(first: int, most: int) -> tuple[Look, ...]:
    """Return looks after ``first`` seeds and then after twice as many each time, the last one after ``most``."""
    counts = [first]
    while counts[-1] < most:
        counts.append(min(most, counts[-1] * GROWTH))
    spent = [math.log(1.0 + (math.e - 1.0) * count / counts[-1]) for count in counts]
    shares = [after - before for before, after in pairwise([0.0, *spent])]
    return tuple(Look(count, share) for count, share in zip(counts, shares, strict=True))


def seen_at(claims: Sequence[PaperClaim], look: Look, *, first_look: bool = False) -> list[PaperClaim]:
    """Return the claims with the intervals that this look may use.

    An interval with a confidence of its own, like that of the best of several, keeps its part of the error.
    """
    return [
        msgspec.structs.replace(
            claim,
            confidence=look.confidence,
            first_look=first_look,
            comparisons=tuple(
                msgspec.structs.replace(
                    each,
                    interval=each.interval.at(1.0 - (1.0 - each.interval.confidence) * look.error_share),
                )
                for each in claim.comparisons
            ),
        )
        for claim in claims
    ]


def judged(
    experiment: Experiment[P],
    parameters: P,
    looks: Sequence[Look],
    results_of: Callable[[int, Sequence[PaperClaim]], list[FinishedUnit]],
    *,
    quick: bool = False,
) -> Judged:
    """Look at the data until every claim is decided, until no look could decide one, or until the last look.

    ``results_of`` computes the units of the given number of seeds; those beyond the previous look are for the given
    claims. The estimate that a claim needs more seeds than the last look has comes from the observed spread; stopping
    then makes no verdict, so it needs no part of the error. A claim keeps the verdict and the evidence of the look
    that decided it: later ones may have nothing new about it.
    """
    decided: dict[tuple[str, str], PaperClaim] = {}
    reachable: list[PaperClaim] = []
    before: Judged | None = None
    computed = 0
    for number, look in enumerate(looks, 1):
        results = results_of(look.seeds, reachable)
        if before is not None and len(results) == computed:
            return before._replace(stopped="there is nothing more to run")
        computed = len(results)
        conclusion = experiment.conclude(parameters, results)
        first_look = quick or look.seeds < experiment.seeds_min
        seen = seen_at(conclusion.claims, look, first_look=first_look)
        claims = [decided.get((claim.id, claim.text), claim) for claim in seen]
        left = [claim for claim in claims if claim.verdict is ClaimVerdict.UNDECIDED]
        decided = {(each.id, each.text): each for each in claims if each.verdict is not ClaimVerdict.UNDECIDED}
        reachable = [claim for claim in left if _within_reach(claim, looks[-1].seeds)]
        before = Judged(conclusion._replace(claims=claims), tuple(looks[:number]), len(looks), "")
        stopped = ""
        if not left:
            stopped = "every claim is decided"
        elif look is looks[-1]:
            stopped = "there were no more looks"
        elif not reachable:
            stopped = f"{looks[-1].seeds} seeds would decide no further claim"
        if stopped:
            return before._replace(stopped=stopped)
    raise ValueError("at least one look is needed")


def _within_reach(claim: PaperClaim, seeds_max: int) -> bool:
    """Return True if this many seeds would probably decide the claim; one measurement says nothing about the
    spread."""
    nearest = claim.nearest
    if nearest is None or nearest.interval.n == 1:
        return True
    gap = nearest.gap
    return gap is not None and gap.more_seeds is not None and nearest.interval.n + gap.more_seeds <= seeds_max
