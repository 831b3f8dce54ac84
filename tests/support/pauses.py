"""How soon something is looked at again that a test waits for."""

from __future__ import annotations

LEAST_S = 0.05
MOST_S = 0.5
# Where a look is a command of a batch system, whose jobs come and go in seconds.
BATCH_LEAST_S = 0.2


def pause_s(waited_s: float, least_s: float = LEAST_S) -> float:
    """The pause before another look, after so long: a fifth of it, as each look costs."""
    return min(MOST_S, max(least_s, waited_s / 5))
