"""Options that ``koala simulate`` shares with ``replay``, ``place`` and ``trace``: grids by name, finite numbers.

``--grid`` takes a grid file, a shipped example, or clusters in short: 4x100.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import UserError
from koala.cli.examples import read_named

if TYPE_CHECKING:
    from koala.model.grid import Grid

# Only numbers and multiplication signs, or something short with a number before or after the sign: the short form was
# meant.
_MEANT_SHORT = re.compile(
    r"\s*(?=.*[0-9])[-+0-9.,e\s]*[xX*\u00d7][-+0-9.,exX*\u00d7\s]*|[0-9]+[xX*\u00d7][^./\\]*|[^./\\0-9]*[xX*\u00d7][0-9]+"
)


def named_grid(name: str) -> Grid:
    """Return the grid of that name; ``4x100`` is four clusters of 100 processors, unless there is a file of that
    name."""
    from koala.descriptions import read_grid
    from koala.descriptions.grid.short import ShortGridError, clusters_in_short, is_short

    if is_short(name) and not Path(name).is_file():
        try:
            return clusters_in_short(name)
        except ShortGridError as error:
            raise UserError(f"--grid {name}: {error}") from None
    if not name:
        raise UserError("--grid: it names no grid; give a grid file, an example's name, or clusters in short: 4x100")
    if _MEANT_SHORT.fullmatch(name) and not Path(name).exists():
        raise UserError(
            f"--grid {name}: there is no such file; clusters in short are written as two whole numbers: "
            "4x100 is four clusters of 100 processors"
        )
    return read_grid(*read_named("grid", name))


class FiniteRange(click.FloatRange):
    """A range that also refuses ``nan`` and ``inf``, which Python parses as numbers and no comparison excludes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, or raise an error of the command line that names the option."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number that one can count with.", param, ctx)
        return number
