"""Loads that change as those of shared machines and links do: around a mean of their own, with a long memory.

The Network Weather Service recorded processors and links every few seconds. Such series are autocorrelated over all
scales of time, with a Hurst exponent of about 0.7. Here a series is a sum of waves whose periods are spread evenly on
a logarithmic scale and whose power falls with the period as that exponent wants it, so that the load at any time is
had without those before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from random import Random
from typing import NamedTuple, TypeAlias

import msgspec

Range: TypeAlias = tuple[float, float]

# Something is always left of a machine and of a link.
LOAD_MOST = 0.95
_WAVES = 24


class LoadModel(msgspec.Struct, frozen=True, kw_only=True):
    """The range from which the mean of each series is drawn evenly, and how far and how slowly it varies."""

    mean: Range = (0.1, 0.5)
    deviation: float = 0.1
    hurst: float = 0.7
    periods_s: Range = (60.0, 86_400.0)

    def __post_init__(self) -> None:
        low, high = self.mean
        if not 0 <= low <= high < 1:
            raise ValueError(f"mean from {low:g} to {high:g}: write loads from 0 to below 1, the smaller one first")
        if not 0 <= self.deviation < 1:
            raise ValueError(f"deviation {self.deviation:g}: write a number from 0 to below 1")
        if not 0.5 <= self.hurst < 1:
            raise ValueError(f"hurst {self.hurst:g}: write a number from 0.5 to below 1")
        if not 0 < self.periods_s[0] < self.periods_s[1]:
            raise ValueError(f"periods_s {list(self.periods_s)}: write two numbers above 0, the smaller one first")


class _Wave(NamedTuple):
    height: float
    per_s: float


@cache
def _waves(model: LoadModel) -> tuple[_Wave, ...]:
    """Heights and angular frequencies; the squares of the heights add up to twice the variance."""
    short_s, long_s = model.periods_s
    step = (long_s / short_s) ** (1 / (_WAVES - 1))
    rates = [2 * math.pi / (short_s * step**number) for number in range(_WAVES)]
    # Noise of exponent H has the density f ** (1 - 2H), and a wave stands for a band as wide as its frequency.
    powers = [rate ** (2 - 2 * model.hurst) for rate in rates]
    whole = 2 * model.deviation**2 / sum(powers)
    return tuple(_Wave(math.sqrt(whole * power), rate) for power, rate in zip(powers, rates, strict=True))


def turned(model: LoadModel, time_s: float) -> tuple[tuple[float, float], ...]:
    """What all series of a model share at one time: cosine and sine of every wave."""
    return tuple((math.cos(wave.per_s * time_s), math.sin(wave.per_s * time_s)) for wave in _waves(model))


class LoadSeries:
    """The load of one machine or link over time; drawn once, and the same ever after."""

    def __init__(self, model: LoadModel, draws: Random) -> None:
        self.mean = draws.uniform(*model.mean)
        phases = [draws.uniform(0, 2 * math.pi) for _ in range(_WAVES)]
        self._waves = tuple(
            (wave.height * math.cos(phase), wave.height * math.sin(phase))
            for wave, phase in zip(_waves(model), phases, strict=True)
        )

    def at(self, turns: Sequence[tuple[float, float]]) -> float:
        """The load, from 0 to 0.95, at the time that ``turned`` was asked about."""
        pairs = zip(self._waves, turns, strict=True)
        load = self.mean + sum(even * cosine - odd * sine for (even, odd), (cosine, sine) in pairs)
        return min(LOAD_MOST, max(0.0, load))
