"""The worlds of the heterogeneous experiment: grids whose links differ, and their jobs.

Every world is a grid and a workload that follow from a case and a seed alone. The sites are those of the example
two-islands; only the links between them change. This module also defines which policies meet in a world; ``study``
measures the results.
"""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

import msgspec

from koala.descriptions import RequestKind, WorkloadText
from koala.model.grid import Grid, Link, Links, PairLink
from koala.simulator import Workload, WorkloadFile, example_grid, example_workload, stream, workload_from_file
from koala.study import varied

GRID = "two-islands"
COMMUNICATING = "wide-area"
READING = "divided-input"
# Links within an island: those of the DAS-2.
NEAR = Link(bandwidth_mbit_s=100.0, latency_s=0.005)
# The extreme factors of a drawn link against the near one, in bandwidth and in latency.
DRAWN_FACTOR_MAX = 4.0

NETWORK_POLICIES = {
    "CM": RequestKind.NON_FIXED,
    "NCM": RequestKind.NON_FIXED,
    "FCM": RequestKind.FLEXIBLE,
    "NFCM": RequestKind.FLEXIBLE,
}
FILE_POLICIES = {"CF": RequestKind.NON_FIXED, "FCM": RequestKind.FLEXIBLE, "FCF": RequestKind.FLEXIBLE}


class WorldKind(NamedTuple):
    """A kind of world.

    ``contrast`` is the factor by which links between the islands have less bandwidth and more latency than within
    them (1: all links are equal); None draws every link. With ``files`` the jobs have input files; ``communicating``
    is set if their components communicate over the wide area.
    """

    title: str
    contrast: float | None
    files: bool = False
    communicating: bool = True

    @property
    def policies(self) -> dict[str, RequestKind]:
        """The policies that meet in it, and the requests of their jobs."""
        return FILE_POLICIES if self.files else NETWORK_POLICIES


CASES: dict[str, WorldKind] = {
    "equal": WorldKind("equal links", 1.0),
    "islands-2": WorldKind("two islands, links between them 2 times worse", 2.0),
    "islands-4": WorldKind("two islands, links between them 4 times worse", 4.0),
    "islands-8": WorldKind("two islands, links between them 8 times worse", 8.0),
    "random": WorldKind("every link drawn at random", None),
    "input": WorldKind("input files, no communication", 4.0, files=True, communicating=False),
    "input-communicating": WorldKind("input files and communication", 4.0, files=True),
}


def island_of(site: int) -> int:
    """Return the island of a site of the grid: its sites alternate between the two."""
    return site % 2


def grid_of(case: WorldKind, seed: int) -> Grid:
    """Return the grid of a case; if the links are drawn, each seed has its own."""
    grid = example_grid(GRID)
    names = [site.name for site in grid.sites]
    rng = stream(seed, "heterogeneous links")
    pairs = []
    for one, other in combinations(range(len(names)), 2):
        if case.contrast is None:
            # Each factor is as likely below 1 as above, and its logarithm is uniform.
            bandwidth_factor = DRAWN_FACTOR_MAX ** rng.uniform(-1.0, 1.0)
            latency_factor = DRAWN_FACTOR_MAX ** rng.uniform(-1.0, 1.0)
        else:
            latency_factor = 1.0 if island_of(one) == island_of(other) else case.contrast
            bandwidth_factor = 1.0 / latency_factor
        pairs.append(
            PairLink(
                between=(names[one], names[other]),
                bandwidth_mbit_s=NEAR.bandwidth_mbit_s * bandwidth_factor,
                latency_s=NEAR.latency_s * latency_factor,
            )
        )
    return msgspec.structs.replace(grid, links=Links(default=NEAR, pairs=tuple(pairs)))


def workload_of(case: WorldKind, kind: RequestKind, jobs: int, interarrival_s: float) -> Workload:
    """Return the jobs of a case as requests of this kind; under a seed the jobs are the same for every kind."""
    text = example_workload(READING if case.files else COMMUNICATING).text
    if case.files and case.communicating:
        text = _communicating(text)
    file = WorkloadFile(text, ())
    return workload_from_file(varied(file, jobs=jobs, interarrival_s=interarrival_s, request=kind))


def _communicating(text: WorkloadText) -> WorkloadText:
    """Return the same jobs, slowed down by each further cluster like Laplace in the other workload."""
    laplace = example_workload(COMMUNICATING).text.applications["laplace"]
    slowed = {
        "per_extra_cluster": laplace.per_extra_cluster,
        "bandwidth_share": laplace.bandwidth_share,
        "latency_share": laplace.latency_share,
    }
    applications = {name: model.model_copy(update=slowed) for name, model in text.applications.items()}
    return text.model_copy(update={"applications": applications})
