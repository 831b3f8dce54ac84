"""How large and how small the numbers of task graphs and grids may be: such that no sum or product of them overflows.

Requirements, communication and power are all held to the one range.
"""

from __future__ import annotations

QUANTITY_MIN = 1e-9
QUANTITY_MAX = 1e15


def quantity_advice(number: float) -> str | None:
    """What to write instead of a number that is no such quantity; None where it is one."""
    if QUANTITY_MIN <= number <= QUANTITY_MAX:
        return None
    # Whoever writes 0 need not know where the range begins.
    return "write a number above 0" if not number > 0 else f"write a number from {QUANTITY_MIN:g} to {QUANTITY_MAX:g}"
