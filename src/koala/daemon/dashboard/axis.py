"""Maps a period to the width of a picture: the position of a moment in percent, and the axis's marks.

Pictures stretch with the window, so all positions along the axis are percentages of its width.
"""

from __future__ import annotations

import math

import msgspec

TICKS_MAX = 5
_MINUS = "\N{MINUS SIGN}"
_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_SECONDS = [1, 2, 5, 10, 20, 30]
_STEPS_S = [
    *_SECONDS,
    *(60 * step for step in _SECONDS),
    *(3_600 * step for step in (1, 2, 3, 6, 12)),
    *(86_400 * step for step in (1, 2, 7, 14, 28, 91, 182, 364)),
]


class AxisTick(msgspec.Struct, frozen=True, kw_only=True):
    """A mark on the axis, and the anchor of its label, which keeps the label inside the picture."""

    percent: float
    label: str
    anchor: str


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """From one moment to a later one. The labels count from the moment ``zero_at``."""

    from_at: float
    to_at: float
    zero_at: float
    zero_label: str = "now"

    def __post_init__(self) -> None:
        if not self.to_at > self.from_at:
            raise ValueError(f"an axis from {self.from_at} to {self.to_at} has no width")

    @property
    def length_s(self) -> float:
        """The duration that the axis spans."""
        return self.to_at - self.from_at

    def percent(self, at: float) -> float:
        """Return the position of a moment, 0 to 100; moments outside have the nearer end's."""
        return round(100.0 * min(1.0, max(0.0, (at - self.from_at) / self.length_s)), 3)

    def ticks(self) -> list[AxisTick]:
        """Return at most ``TICKS_MAX`` marks at round distances from ``zero_at``."""
        step_s = next((step for step in _STEPS_S if self.length_s / step <= TICKS_MAX - 1), None)
        if step_s is None:
            step_s = math.ceil(self.length_s / (TICKS_MAX - 1))
        first = math.ceil((self.from_at - self.zero_at) / step_s - 1e-9)
        last = math.floor((self.to_at - self.zero_at) / step_s + 1e-9)
        return [self._tick(number * step_s, step_s) for number in range(first, last + 1)]

    def _tick(self, offset_s: float, step_s: int) -> AxisTick:
        percent = self.percent(self.zero_at + offset_s)
        anchor = "start" if percent < 8 else "end" if percent > 92 else "middle"
        return AxisTick(percent=percent, label=self._label(offset_s, step_s), anchor=anchor)

    def _label(self, offset_s: float, step_s: int) -> str:
        """Format the distance in the largest unit in which all labels are whole."""
        if offset_s == 0:
            return self.zero_label
        sign = _MINUS if offset_s < 0 else "+"
        unit_s, unit = next(each for each in _UNITS if step_s % each[0] == 0)
        return f"{sign}{abs(offset_s) / unit_s:.0f} {unit}"


def recent(now: float, length_s: float) -> Axis:
    """Return the axis of the last ``length_s`` seconds."""
    return Axis(from_at=now - length_s, to_at=now, zero_at=now)


def life(submitted_at: float, until: float) -> Axis:
    """Return the axis of a job's life, from its submission on."""
    return Axis(
        from_at=submitted_at,
        to_at=max(until, submitted_at + 1.0),
        zero_at=submitted_at,
        zero_label="submitted",
    )
