"""Forecasts of what a link will give, from its measurements, in the manner of the Network Weather Service.

A family of simple predictors sees the same series of measurements. Each is judged by its past errors, and the one
with the smallest makes the forecast. These are pure functions over numbers: they know neither the source of the
measurements nor the purpose of the forecast.
"""

from __future__ import annotations

import enum
from bisect import insort
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

# At most this many measurements of one quantity are kept; older ones are forgotten.
MEASUREMENTS_MAX = 32
# A transfer of fewer bytes, or a shorter one, weighs proportionally less: a part of its time was set-up.
TELLING_BYTES = 1_000_000
TELLING_S = 5.0
# A transfer of fewer bytes, or a shorter one, is no measurement at all: it is all set-up.
MEASURED_BYTES_MIN = 100_000
MEASURED_S_MIN = 0.1
# An overdue transfer may be slow or lost: this is its weight relative to that of an arrived one.
OVERDUE_WEIGHT = 0.3
# The weight of a predictor's past error at the next measurement: a link may change, and the best predictor with it.
ERROR_MEMORY = 0.9
# At most this many forecasts are remembered with their inputs.
FORECASTS_REMEMBERED = 1_024


class MeasuredBy(enum.StrEnum):
    """The source of a measurement."""

    TRANSFER = "transfer"  # a file of a job arrived
    OVERDUE = "overdue"  # a file of a job has not arrived so far: the link is no faster than this
    PROBE = "probe"  # bytes were sent in order to measure


class Measurement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One value at one time.

    ``weight`` is 1 if the whole time was spent on bytes, and less if only a part was; ``size_bytes`` is
    what was sent.
    """

    at: float
    value: float
    weight: float = 1.0
    size_bytes: int = 0
    by: MeasuredBy = MeasuredBy.PROBE


class Forecast(NamedTuple):
    """The forecast value, its predictor, and the predictor's mean error."""

    value: float
    predictor: str
    error: float


def transfer_weight(size_bytes: int, flowing_s: float) -> float:
    """Return how much a file transfer reveals about the bandwidth; 0 if nothing."""
    if size_bytes < MEASURED_BYTES_MIN or flowing_s < MEASURED_S_MIN:
        return 0.0
    return min(1.0, size_bytes / TELLING_BYTES, flowing_s / TELLING_S)


class _Smoothed:
    """Exponential smoothing: each measurement moves the value by a part of the difference.

    With a gain of 1 it is the last value. The first measurements move it by more, so that they count alike.
    """

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
    """The mean of the last few. If their weight is less than one whole measurement, the declared value
    has the rest."""

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
    """The median of the last few: half of their weight is at or below it. If their weight is less than one whole
    measurement, the declared value has the rest."""

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


# The family, by name. The first of several equally good predictors wins.
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
    """Return the best predictor's next value; without measurements, the declared value.

    The forecast is never outside the range of declared and measured values.
    """
    return _forecast(declared, tuple(measurements)) if measurements else Forecast(declared, DECLARED, 0.0)


# A restarted scheduler, and a second one in the same process, make the same forecasts again.
@lru_cache(maxsize=FORECASTS_REMEMBERED)
def _forecast(declared: float, measurements: tuple[Measurement, ...]) -> Forecast:
    family = [make(declared) for _, make in PREDICTORS]
    wrong = [0.0] * len(family)
    told = 0.0
    for place, measured in enumerate(measurements):
        value, weight = measured.value, measured.weight
        if place:  # before the first one all are equal
            told = told * ERROR_MEMORY + weight
            for number, predictor in enumerate(family):
                wrong[number] = wrong[number] * ERROR_MEMORY + weight * abs(predictor.value - value)
        for predictor in family:
            predictor.see(value, weight)
    best = min(range(len(family)), key=wrong.__getitem__)
    values = [declared, *[measured.value for measured in measurements]]
    # Rounding of sums must not leave the measured range.
    believed = min(max(family[best].value, min(values)), max(values))
    return Forecast(believed, PREDICTORS[best][0], wrong[best] / told if told > 0.0 else 0.0)
