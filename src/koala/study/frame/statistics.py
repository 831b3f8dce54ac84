"""Means, paired differences and shares with their confidence intervals: the basis of every claim.

The input is one value for each seed: runs of different seeds are independent of each other, jobs of one run are not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

# The default confidence of an interval.
CONFIDENCE = 0.95


class Interval(msgspec.Struct, frozen=True):
    """A mean over ``n`` seeds and the interval that contains the true one with the requested confidence.

    A single value says nothing about the spread: its interval is the whole line. An interval without width is a fact,
    such as the worst of all runs, and is the same at any confidence.

    >>> from koala.study import Interval, mean_interval
    >>> found = mean_interval([4.0, 5.0, 6.0])
    >>> found.n, found.bounded, found.low < found.at(0.5).low
    (3, True, True)
    """

    mean: float
    low: float
    high: float
    n: int
    confidence: float = CONFIDENCE

    @property
    def bounded(self) -> bool:
        """True if there were enough values for an interval."""
        return math.isfinite(self.low) and math.isfinite(self.high)

    def at(self, confidence: float) -> Interval:
        """Return the same mean over the same seeds with Student's t interval for another confidence."""
        if not self.bounded or self.low == self.high or self.n < 2 or confidence == self.confidence:
            return msgspec.structs.replace(self, confidence=confidence)
        ratio = _t_quantile(confidence, self.n - 1) / _t_quantile(self.confidence, self.n - 1)
        low, high = self.mean - ratio * (self.mean - self.low), self.mean + ratio * (self.high - self.mean)
        return Interval(self.mean, low, high, self.n, confidence)

    def seeds_within(self, distance: float, most: int) -> int | None:
        """Return how many seeds, at most ``most``, would give an interval that reaches less than this far from its
        mean.

        It takes the observed spread for the true one. None if that many are not enough, or if nothing is known.
        """
        if not self.bounded or self.n < 2 or distance <= 0.0:
            return None
        half = (self.high - self.low) / 2
        spread = half * math.sqrt(self.n) / _t_quantile(self.confidence, self.n - 1)

        def enough(seeds: int) -> bool:
            return _t_quantile(self.confidence, seeds - 1) * spread / math.sqrt(seeds) < distance

        if not enough(most):
            return None
        low, high = 1, most
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if enough(middle) else (middle, high)
        return high

    def as_json(self) -> dict[str, float | int | None]:
        """Return it for a report; an unknown bound is null."""
        return {
            "mean": self.mean,
            "low": self.low if math.isfinite(self.low) else None,
            "high": self.high if math.isfinite(self.high) else None,
            "n": self.n,
        }


@cache
def _t_quantile(confidence: float, freedom: int) -> float:
    # The same as in scipy.stats, which takes a second to import.
    from scipy.special import stdtrit  # type: ignore[import-untyped]

    return float(stdtrit(freedom, (1.0 + confidence) / 2.0))


@cache
def _normal_quantile(confidence: float) -> float:
    from scipy.special import ndtri

    return float(ndtri((1.0 + confidence) / 2.0))


def mean_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Return the mean of at least one value, with Student's t interval.

    >>> from koala.study import mean_interval
    >>> found = mean_interval([4.0, 5.0, 6.0])
    >>> round(found.low, 2), found.mean, round(found.high, 2)
    (2.52, 5.0, 7.48)
    """
    if not values:
        raise ValueError("a mean needs at least one value")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Interval(mean, -math.inf, math.inf, 1, confidence)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    half = _t_quantile(confidence, count - 1) * math.sqrt(variance / count)
    return Interval(mean, mean - half, mean + half, count, confidence)


def paired_difference(
    first: Mapping[int, float], second: Mapping[int, float], confidence: float = CONFIDENCE
) -> Interval | None:
    """Return the mean of ``first`` minus ``second`` over the seeds that both have, or None if they share none.

    The values are by seed. Common effects of a seed, such as a busy hour, cancel out.

    >>> from koala.study import paired_difference
    >>> paired_difference({1: 10.0, 2: 20.0, 3: 30.0}, {1: 9.0, 2: 19.0}).mean
    1.0
    """
    shared = sorted(first.keys() & second.keys())
    if not shared:
        return None
    return mean_interval([first[seed] - second[seed] for seed in shared], confidence)


def proportion(successes: int, trials: int, confidence: float = CONFIDENCE) -> Interval:
    """Return a share of independent trials with Wilson's interval, which stays between 0 and 1."""
    if not 0 <= successes <= trials or trials == 0:
        raise ValueError(f"{successes} of {trials} is no share")
    z = _normal_quantile(confidence)
    share = successes / trials
    centre = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    # At the ends the bound is exact, and floating point would put it slightly off the share.
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == trials else min(1.0, centre + half)
    return Interval(share, low, high, trials, confidence)
