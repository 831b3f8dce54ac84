"""Forecasts of what a link will give, from what was measured on it, as the Network Weather Service made them.

A family of simple predictors looks at the same series of measurements. Each is judged by how far it would have been
from every measurement that came, and the one that was nearest so far makes the forecast. Pure functions over numbers:
who measures, and what the forecast is for, is nothing of theirs.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

# So many measurements of one thing are kept; older ones are forgotten.
MEASUREMENTS_MAX = 32
# A transfer of fewer bytes, or one that took less time, weighs as much less: setting it up took a part of its time.
TELLING_BYTES = 1_000_000
TELLING_S = 5.0
# One of fewer bytes, or that took less time, is no measurement at all: it is nothing but setting up.
MEASURED_BYTES_MIN = 100_000
MEASURED_S_MIN = 0.1
# A transfer that is overdue may be slow or lost: it weighs so much of what it would if it had arrived.
OVERDUE_WEIGHT = 0.3
# What a predictor was wrong by weighs so much at the next measurement: a link may change, and what was best before.
ERROR_MEMORY = 0.9
# So many forecasts are remembered with what they were made from.
FORECASTS_REMEMBERED = 1_024


class MeasuredBy(enum.StrEnum):
    """How a measurement was made."""

    TRANSFER = "transfer"  # a file of a job arrived
    OVERDUE = "overdue"  # a file of a job has not arrived so far: the link is no faster than this
    PROBE = "probe"  # bytes were sent in order to measure


class Measurement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One value at one time. ``weight`` is 1 for one that tells all, and less for one of which only a part of the
    time was spent on bytes; ``size_bytes`` is what was sent."""

    at: float
    value: float
    weight: float = 1.0
    size_bytes: int = 0
    by: MeasuredBy = MeasuredBy.PROBE


class Forecast(NamedTuple):
    """What is believed, who says so, and what the forecasts of this predictor were wrong by on average."""

    value: float
    predictor: str
    error: float


def transfer_weight(size_bytes: int, flowing_s: float) -> float:
    """How much a transfer of a file tells of the bandwidth; 0 where it tells nothing."""
    if size_bytes < MEASURED_BYTES_MIN or flowing_s < MEASURED_S_MIN:
        return 0.0
    return min(1.0, size_bytes / TELLING_BYTES, flowing_s / TELLING_S)


class _Smoothed:
    """Exponential smoothing: each measurement moves the value by a part of what it differs. With a gain of 1 it is
    the last value. The first ones move it by more, so that they count alike."""

    __slots__ = ("_gain", "_weight", "value")

    def __init__(self, gain: float, declared: float) -> None:
        self._gain = gain
        self._weight = 0.0
        self.value = declared

    def see(self, value: float, weight: float) -> None:
        self._weight += weight
        gain = weight * max(self._gain, 1.0 / max(1.0, self._weight))
        self.value = (1.0 - gain) * self.value + gain * value


class _Mean:
    """The mean of the last few. What is lacking to the weight of one whole measurement, the declared value has."""

    __slots__ = ("_declared", "_seen", "_size", "_sum", "_weight", "value")

    def __init__(self, size: int, declared: float) -> None:
        self._size = size
        self._declared = declared
        self._seen: list[tuple[float, float]] = []
        self._sum = 0.0
        self._weight = 0.0
        self.value = declared

    def see(self, value: float, weight: float) -> None:
        seen = self._seen
        seen.append((value, weight))
        if len(seen) > self._size:
            del seen[0]
            self._sum = sum([each * its_weight for each, its_weight in seen])
            self._weight = sum([its_weight for _, its_weight in seen])
        else:
            self._sum += value * weight
            self._weight += weight
        lacking = max(0.0, 1.0 - self._weight)
        self.value = (self._sum + self._declared * lacking) / (self._weight + lacking)


class _Median:
    """The median of the last few: half of their weight is at or below it. What is lacking to the weight of one whole
    measurement, the declared value has."""

    __slots__ = ("_declared", "_ordered", "_seen", "_size", "value")

    def __init__(self, size: int, declared: float) -> None:
        self._size = size
        self._declared = declared
        self._seen: list[tuple[float, float]] = []
        self._ordered: list[tuple[float, float]] = []
        self.value = declared

    def see(self, value: float, weight: float) -> None:
        self._seen.append((value, weight))
        insort(self._ordered, (value, weight))
        if len(self._seen) > self._size:
            self._ordered.remove(self._seen.pop(0))
        ordered = self._ordered
        total = sum([each for _, each in ordered])
        if total < 1.0:
            ordered = sorted([*ordered, (self._declared, 1.0 - total)])
            total = 1.0
        half = total / 2.0
        below = 0.0
        last = len(ordered) - 1
        for place, (each, its_weight) in enumerate(ordered):
            below += its_weight
            if below > half or place == last:
                self.value = each
                return
            if below == half:
                self.value = (each + ordered[place + 1][0]) / 2.0
                return


# The family, by name. Of several that were equally wrong the first one wins.
PREDICTORS: tuple[tuple[str, Callable[[float], _Smoothed | _Mean | _Median]], ...] = (
    ("last value", lambda declared: _Smoothed(1.0, declared)),
    ("median of 5", lambda declared: _Median(5, declared)),
    ("mean of 5", lambda declared: _Mean(5, declared)),
    ("EWMA 0.5", lambda declared: _Smoothed(0.5, declared)),
    ("EWMA 0.2", lambda declared: _Smoothed(0.2, declared)),
    ("EWMA 0.05", lambda declared: _Smoothed(0.05, declared)),
    ("median of 15", lambda declared: _Median(15, declared)),
    ("mean of all", lambda declared: _Mean(MEASUREMENTS_MAX, declared)),
)
DECLARED = "declared"


def forecast(declared: float, measurements: Sequence[Measurement]) -> Forecast:
    """What the best predictor says comes next; with nothing measured, what was declared.

    The forecast is never outside of what was declared and measured.
    """
    return _forecast(declared, tuple(measurements)) if measurements else Forecast(declared, DECLARED, 0.0)


# A scheduler that was restarted, and one beside it, make the forecasts of the one before again.
@lru_cache(maxsize=FORECASTS_REMEMBERED)
def _forecast(declared: float, measurements: tuple[Measurement, ...]) -> Forecast:
    family = [make(declared) for _, make in PREDICTORS]
    wrong = [0.0] * len(family)
    told = 0.0
    for place, measured in enumerate(measurements):
        value, weight = measured.value, measured.weight
        if place:  # before the first one all say the same
            told = told * ERROR_MEMORY + weight
            for number, predictor in enumerate(family):
                wrong[number] = wrong[number] * ERROR_MEMORY + weight * abs(predictor.value - value)
        for predictor in family:
            predictor.see(value, weight)
    best = min(range(len(family)), key=wrong.__getitem__)
    values = [declared, *[measured.value for measured in measurements]]
    # The rounding of sums must not lead out of what was measured.
    believed = min(max(family[best].value, min(values)), max(values))
    return Forecast(believed, PREDICTORS[best][0], wrong[best] / told if told > 0.0 else 0.0)
