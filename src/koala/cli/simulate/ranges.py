"""Numbers among the options of ``koala simulate`` and ``koala trace``: no infinity, and nothing that is no number."""

from __future__ import annotations

import math
from typing import Any

import click


class FiniteRange(click.FloatRange):
    """A range that also refuses ``nan`` and ``inf``, which Python reads as numbers and no comparison keeps out."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or an error of the command line that names the option."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number that one can count with.", param, ctx)
        return number
