"""The pauses between looks at something that a test waits for."""

from __future__ import annotations

LEAST_S = 0.05
MOST_S = 0.5
# For looks that are commands of a batch system, whose jobs last only seconds.
BATCH_LEAST_S = 0.2


def pause_s(waited_s: float, least_s: float = LEAST_S) -> float:
    """Return the pause before another look: a fifth of the time waited, because each look costs something."""
    return min(MOST_S, max(least_s, waited_s / 5))
