"""Clusters in short: ``4x100`` is a grid of four clusters of 100 processors, and nothing else."""

from __future__ import annotations

import re

from koala.model.grid import PLAN_DEPTH_DEFAULT, SITES_MAX, Grid, Preemption, SchedulerParameters, Site
from koala.model.request import PROCESSORS_MAX

_SHORT = re.compile(r"([0-9]{1,18})x([0-9]{1,18})")


class ShortGridError(ValueError):
    """Invalid clusters in short: not two whole numbers, or more or larger clusters than a grid can have.

    >>> from koala.simulator import ShortGridError, clusters_in_short
    >>> try:
    ...     clusters_in_short("0x100")
    ... except ShortGridError as error:
    ...     print(error)
    give 1 to 10000 clusters (SITES_MAX)
    """

    def for_user(self) -> str:
        """Return what to write instead."""
        return str(self)


def is_short(name: str) -> bool:
    """Return True if the name describes clusters in short."""
    return _SHORT.fullmatch(name) is not None


def clusters_in_short(name: str) -> Grid:
    """Return a grid of equal clusters from its name, as on the command line: ``4x100`` is four clusters of 100
    processors.

    Nothing takes time except the jobs. The queue is scanned whenever that could help, and the first waiting job has a
    plan.

    >>> from koala.simulator import clusters_in_short
    >>> [(site.name, site.processors) for site in clusters_in_short("2x100").sites]
    [('c1', 100), ('c2', 100)]
    """
    found = _SHORT.fullmatch(name)
    if found is None:
        raise ShortGridError("write two whole numbers: 4x100 is four clusters of 100 processors")
    clusters, processors = int(found[1]), int(found[2])
    if not 1 <= clusters <= SITES_MAX:
        raise ShortGridError(f"give 1 to {SITES_MAX} clusters (SITES_MAX)")
    if not 1 <= processors <= PROCESSORS_MAX:
        raise ShortGridError(f"give 1 to {PROCESSORS_MAX} processors a cluster (PROCESSORS_MAX)")
    return Grid(
        name=name,
        sites=tuple(Site(name=f"c{number}", processors=processors) for number in range(1, clusters + 1)),
        scheduler=SchedulerParameters(
            scan_interval_s=0.0,
            check_interval_s=None,
            plan_depth=PLAN_DEPTH_DEFAULT,
            preemption=Preemption.PLACES,
        ),
    )
