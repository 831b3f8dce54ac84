"""What can be set of the mapping study."""

from __future__ import annotations

from typing import Annotated

import msgspec

from koala.study import Parameters

# Grids as Tiers makes them, with loads that change, or nested evenly with loads that stay.
TIERS = "tiers"
NESTED = "nested"
TOPOLOGIES = (TIERS, NESTED)
# How a range of cluster sizes is read: as limits of each cluster, or of the mean over them.
EACH = "each"
MEAN = "mean"
BANDS = (EACH, MEAN)

Count = Annotated[int, msgspec.Meta(ge=1, le=100_000)]
Positive = Annotated[float, msgspec.Meta(gt=0.0, le=1e9)]
Share = Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)]


class WaseParameters(Parameters, frozen=True, kw_only=True):
    """What can be set.

    - ``tasks``: the sizes of the graphs; ``graphs``: how many of each size a seed has;
    - ``mcr``: minimal computational requirements, with each of which every graph is mapped;
    - ``cluster_sizes``: ranges of the number of tasks in a cluster, and ``bands``: whether they are limits of each
      cluster, of the mean over clusters, or one after the other; the first is judged under the papers' names;
    - ``clustering``: the method;
    - ``machines`` and ``machines_per_lan``: the grids of a seed, one for each pair;
    - ``edges_per_task``: 1.5, or 3 or 8 for dense graphs;
    - ``topology``: grids as ``tiers`` makes them or ``nested`` four by four; ``lans_per_man``: from which of these
      the number of LANs in each MAN is drawn for a grid of Tiers;
    - ``load``: the range of the machines' load, or 0 to 0.2 for a light one; ``load_deviation``: how far the loads of
      machines and links go from their mean over the day, on grids of Tiers;
    - ``beyond``: whether the methods beyond the paper are tried, which takes most of the time;
    - ``affinity_wanted`` and ``mbit_s_per_rqoc``: what the methods that look for affinity and bandwidth want;
    - ``spawned_share``: the part of the tasks that come while the application runs, where that is tried;
    - ``affinity_seeds``: under how many seeds the minimum affinity of small graphs is compared between grids;
    - ``bound_seeds``: under how many seeds the best mapping is looked for, and ``bound_s``: for how long each.
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
        """How many applications a seed has."""
        return len(self.tasks) * self.graphs * len(self.mcr) * len(self.cluster_sizes)

    @property
    def grids(self) -> int:
        """How many grids a seed has."""
        return len(self.machines) * len(self.machines_per_lan)
