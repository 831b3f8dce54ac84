"""``koala simulate --grid``: a grid file, a shipped example, or clusters in short: 4x100."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from koala.cli.errors import UserError
from koala.cli.examples import read_named

if TYPE_CHECKING:
    from koala.grid import Grid

_SHORT = re.compile(r"([0-9]{1,9})x([0-9]{1,9})")


def named_grid(name: str) -> Grid:
    """The grid of that name; ``4x100`` is four clusters of 100 processors, unless there is a file of that name."""
    from koala.descriptions import read_grid

    short = _SHORT.fullmatch(name)
    if short is None or Path(name).is_file():
        return read_grid(*read_named("grid", name))
    return _clusters(name, int(short[1]), int(short[2]))


def _clusters(name: str, clusters: int, processors: int) -> Grid:
    """Equal clusters with nothing else to them: the queue is looked at whenever that could help."""
    from koala.grid import SITES_MAX, Grid, SchedulerParameters, Site
    from koala.model import PROCESSORS_MAX

    if not 1 <= clusters <= SITES_MAX:
        raise UserError(f"--grid {name}: give 1 to {SITES_MAX} clusters (SITES_MAX)")
    if not 1 <= processors <= PROCESSORS_MAX:
        raise UserError(f"--grid {name}: give 1 to {PROCESSORS_MAX} processors a cluster (PROCESSORS_MAX)")
    return Grid(
        name=name,
        sites=tuple(Site(name=f"c{number}", processors=processors) for number in range(1, clusters + 1)),
        scheduler=SchedulerParameters(scan_interval_s=0.0, check_interval_s=None),
    )
