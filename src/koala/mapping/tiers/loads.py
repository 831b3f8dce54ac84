"""Loads that vary like those of shared machines and links: around a mean of their own, with a long memory.

The Network Weather Service recorded processors and links every few seconds. Such series are autocorrelated over all
scales of time, with a Hurst exponent H of about 0.7: the autocorrelation falls as the lag to the power 2H - 2. Here a
series is a sum of waves at random rates, drawn so that it has that autocorrelation on average. So the load at any
time can be computed without the loads before it.
"""

from __future__ import annotations

import math
from random import Random
from typing import TypeAlias

import msgspec

Range: TypeAlias = tuple[float, float]

# A machine or link always has something left.
LOAD_MOST = 0.95
_WAVES = 16


class LoadModel(msgspec.Struct, frozen=True, kw_only=True):
    """The range for the mean of each series, drawn evenly, and how far and how slowly it varies.

    ``memory_s`` are the shortest and the longest times over which it forgets.
    """

    mean: Range = (0.1, 0.5)
    deviation: float = 0.1
    hurst: float = 0.7
    memory_s: Range = (60.0, 86_400.0)

    def __post_init__(self) -> None:
        low, high = self.mean
        if not 0 <= low <= high < 1:
            raise ValueError(f"mean from {low:g} to {high:g}: write loads from 0 to below 1, the smaller one first")
        if not 0 <= self.deviation < 1:
            raise ValueError(f"deviation {self.deviation:g}: write a number from 0 to below 1")
        if not 0.5 <= self.hurst < 1:
            raise ValueError(f"hurst {self.hurst:g}: write a number from 0.5 to below 1")
        if not 0 < self.memory_s[0] < self.memory_s[1]:
            raise ValueError(f"memory_s {list(self.memory_s)}: write two numbers above 0, the smaller one first")


class LoadSeries:
    """The load of one machine or link over time; drawn once, and the same ever after."""

    def __init__(self, model: LoadModel, draws: Random) -> None:
        self.mean = draws.uniform(*model.mean)
        self._height = model.deviation * math.sqrt(2 / _WAVES)
        self._waves = [(_rate(model, draws), draws.uniform(0, 2 * math.pi)) for _ in range(_WAVES)]

    def at(self, time_s: float) -> float:
        """Return the load, from 0 to 0.95."""
        around = self._height * sum(math.cos(rate * time_s + phase) for rate, phase in self._waves)
        return min(LOAD_MOST, max(0.0, self.mean + around))


def _rate(model: LoadModel, draws: Random) -> float:
    """Draw a rate in radians a second: first the wave's memory, by a power law, then a rate of such a process.

    A process that forgets as exp(-lag / memory) has rates with a Cauchy distribution of that width. Such memories,
    drawn with the density memory ** (2H - 3), add up to lag ** (2H - 2).
    """
    power = 2 - 2 * model.hurst
    short, long = (math.pow(end, -power) for end in model.memory_s)
    memory_s = math.pow(short + draws.random() * (long - short), -1 / power)
    return math.tan(math.pi * (draws.random() - 0.5)) / memory_s
