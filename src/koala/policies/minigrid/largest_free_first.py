"""B1, largest free first: a job is divided over the sites with open links, the most idle ones first.

A plain function over integers that runs as Python and compiles with numba unchanged. It ignores the traffic of the
job, and sees only what is on the links already.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.open_sites import open_idle


def largest_free_first(case: PlacementCase, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Fill the sites below the threshold as FCM would if there were no others.

    ``parts[site]`` gets the processors. Returns those left without a place: 0 when all are placed.
    """
    open_idle(case, idle)
    return flexible_cluster_minimization(case.spare, case.total, case.component_min, case.components_max, parts)
