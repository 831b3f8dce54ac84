"""The time that a site's shell tells, and how far it is from ours."""

from __future__ import annotations

# Longer than any time in seconds; what is longer is no time.
_DIGITS_MAX = 12


def read_time(text: str) -> float | None:
    """Seconds since the epoch as ``date +%s`` prints them; None for anything else."""
    text = text.strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None


def ahead_s(told: float, began: float, ended: float) -> float:
    """How far ahead of us a clock is that told this time between two moments of ours; 0 where it may be right.

    The shell tells whole seconds, so that a right clock may seem to be up to one behind.
    """
    if told + 1.0 < began:
        return told + 1.0 - began
    return max(0.0, told - ended)
