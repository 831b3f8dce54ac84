"""The randomness of a simulation: one named stream of random numbers for each purpose.

A stream is seeded by the run's seed and by its purpose, so that the choices of one policy never shift the draws of
another: two policies under one seed meet the same arrivals, the same start-ups and the same faults.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate

import msgspec


def stream(seed: int, *purpose: str) -> random.Random:
    """Return the random numbers for one purpose; the same seed and purpose always give the same numbers.

    >>> from koala.simulator import stream
    >>> stream(1, "pauses").random() == stream(1, "pauses").random()
    True
    """
    return random.Random("/".join((str(seed), *purpose)))


class Constant(msgspec.Struct, frozen=True):
    """A constant value."""

    value: float

    def draw(self, rng: random.Random) -> float:
        return self.value


class Uniform(msgspec.Struct, frozen=True):
    """A value between two bounds, uniformly distributed."""

    low: float
    high: float

    def draw(self, rng: random.Random) -> float:
        return rng.uniform(self.low, self.high)


class Exponential(msgspec.Struct, frozen=True):
    """Exponential with a mean: the gaps of a Poisson process. A mean of zero always gives zero."""

    mean: float

    def draw(self, rng: random.Random) -> float:
        return exponential(rng, self.mean)


class Choice:
    """The index of one of several, by weight."""

    __slots__ = ("_sums",)

    def __init__(self, weights: Sequence[float]) -> None:
        self._sums = list(accumulate(weights))

    def draw(self, rng: random.Random) -> int:
        return min(bisect(self._sums, rng.random() * self._sums[-1]), len(self._sums) - 1)


Distribution = Constant | Uniform | Exponential


def exponential(rng: random.Random, mean: float) -> float:
    """Return an exponential draw with this mean.

    >>> from koala.simulator import exponential, stream
    >>> exponential(stream(1, "gaps"), 0.0)
    0.0
    """
    return rng.expovariate(1.0 / mean) if mean > 0.0 else 0.0


def geometric(rng: random.Random, mean: float) -> int:
    """Return a whole number of at least 1 with (nearly) this mean: the size of a job of a site's own users."""
    if mean <= 1.0:
        return 1
    return 1 + int(math.log(1.0 - rng.random()) / math.log(1.0 - 1.0 / mean))
