"""The time by a site's shell, and its distance from ours."""

from __future__ import annotations

# Longer than any time in seconds; a longer number is no time.
_DIGITS_MAX = 12


def read_time(text: str) -> float | None:
    """Parse seconds since the epoch as ``date +%s`` prints them; None for anything else."""
    text = text.strip()
    return float(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX else None


def ahead_s(told: float, began: float, ended: float) -> float:
    """Return how far ahead of us a clock is that showed this time between two moments of ours; 0 if it may be right.

    The shell shows whole seconds, so a correct clock may seem to be up to one second behind.
    """
    if told + 1.0 < began:
        return told + 1.0 - began
    return max(0.0, told - ended)
