"""The parameters of the mapping study."""

from __future__ import annotations

from typing import Annotated

import msgspec

from koala.study import Parameters

# Grids as Tiers generates them, with variable loads, or evenly nested with constant loads.
TIERS = "tiers"
NESTED = "nested"
TOPOLOGIES = (TIERS, NESTED)
# The reading of a range of cluster sizes: as limits of each cluster, or of the mean over them.
EACH = "each"
MEAN = "mean"
BANDS = (EACH, MEAN)

Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Positive = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]


class WaseParameters(Parameters, frozen=True, kw_only=True):
    """The parameters.

    - ``tasks``: the sizes of the graphs; ``graphs``: the number of each size in a seed;
    - ``mcr``: minimal computational requirements; every graph is mapped with each of them;
    - ``cluster_sizes``: ranges of the number of tasks in a cluster, and ``bands``: their readings as limits of each
      cluster, of the mean over clusters, or both in turn; the first is judged under the papers' names;
    - ``clustering``: the method;
    - ``machines`` and ``machines_per_lan``: the grids of a seed, one for each pair;
    - ``edges_per_task``: 1.5, or 3 or 8 for dense graphs;
    - ``topology``: grids as ``tiers`` generates them or ``nested`` four by four; ``lans_per_man``: the number of LANs
      in each MAN of a grid of Tiers is drawn from these;
    - ``load``: the range of the machines' load, or 0 to 0.2 for a light one; ``load_deviation``: how far the loads of
      machines and links go from their mean over the day, on grids of Tiers;
    - ``beyond``: try the methods beyond the paper, which takes most of the time;
    - ``affinity_wanted`` and ``mbit_s_per_rqoc``: the targets of the methods for affinity and bandwidth;
    - ``spawned_share``: the part of the tasks that come while the application runs, in the trials of that;
    - ``affinity_seeds``: the number of seeds for the minimum affinity of small graphs between grids;
    - ``bound_seeds``: the number of seeds for the search of the optimum, and ``bound_s``: the time for each.
    """

    tasks: tuple[Count, ...] = (8, 16, 32, 64, 128)
    graphs: Count = 4
    mcr: tuple[Positive, ...] = (25.0, 50.0, 75.0, 100.0)
    cluster_sizes: tuple[tuple[float, float], ...] = ((1.0, 3.0), (4.0, 6.0), (7.0, 9.0))
    bands: tuple[str, ...] = BANDS
    clustering: str = "region-growing"
    machines: tuple[Count, ...] = (32, 64, 128, 256, 512)
    machines_per_lan: tuple[Count, ...] = (4, 8, 16)
    edges_per_task: Positive = 1.5
    topology: str = TIERS
    lans_per_man: tuple[Count, ...] = (2, 4, 8)
    load: tuple[Share, Share] = (0.1, 0.5)
    load_deviation: Share = 0.1
    beyond: bool = True
    affinity_wanted: Positive = 2.0
    mbit_s_per_rqoc: Positive = 10.0
    spawned_share: Share = 0.25
    affinity_seeds: Annotated[int, msgspec.Meta(ge=0)] = 40
    bound_seeds: Annotated[int, msgspec.Meta(ge=0)] = 4
    bound_s: Positive = 2.0

    @property
    def applications(self) -> int:
        """The number of applications of a seed."""
        return len(self.tasks) * self.graphs * len(self.mcr) * len(self.cluster_sizes)

    @property
    def grids(self) -> int:
        """The number of grids of a seed."""
        return len(self.machines) * len(self.machines_per_lan)
