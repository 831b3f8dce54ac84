"""``python benchmarks/mapping.py``: how long mapping takes by each method, without reading files and clustering.

128 tasks onto 512 machines, where 10 ms are allowed, and onto 100,000 machines in 10,000 LANs, where a second is. A
time is the longest over graphs, sizes of clusters and requirements, each the least of a few runs, since whatever else
the machine does can only make a run slower.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random

import msgspec
from rich.console import Console
from rich.table import Table

from clustering import timed
from koala.mapping.clustering.catalogue import ClusterSizeError, cluster
from koala.mapping.placing.catalogue import METHODS, MappingOptions, map_tasks
from koala.mapping.random_graphs import random_task_graph
from koala.mapping.random_grids import random_grid
from koala.mapping.result import NoPlace
from koala.model.task_graph import TaskGraph

TASKS = 128
# Machines, how many make a LAN, and how often each case is run.
GRIDS = ((512, 4, 3), (512, 8, 3), (512, 16, 3), (100_000, 10, 1))
EDGES_PER_TASK = (1.5, 8.0)
CLUSTER_SIZES = ((1.0, 3.0), (4.0, 6.0), (7.0, 9.0))
MCRS = (25.0, 75.0, 100.0)
SEEDS = (1, 2)
# An edge of RQoC 1 then needs as much as in the study, and many links are full.
OPTIONS = MappingOptions(mbit_s_per_rqoc=10.0)

Clusters = tuple[tuple[int, ...], ...]


def applications() -> Iterator[tuple[TaskGraph, Clusters]]:
    """Graphs in clusters of every size, with every requirement."""
    for seed in SEEDS:
        for edges_per_task in EDGES_PER_TASK:
            graph = random_task_graph(TASKS, Random(seed), edges_per_task=edges_per_task)
            for size in CLUSTER_SIZES:
                try:
                    clusters = cluster(graph, "local-search", cluster_size=size).clusters
                except ClusterSizeError as error:
                    clusters = error.nearest.clusters
                for mcr in MCRS:
                    yield msgspec.structs.replace(graph, mcr=mcr), clusters


def main() -> None:
    table = Table(title=f"Mapping {TASKS} tasks: the longest time, and how many were mapped", box=None)
    for column in ("machines", "in LANs of", "method", "ms", "mapped"):
        table.add_column(column, justify="left" if column == "method" else "right")
    cases = list(applications())
    for machines, per_lan, rounds in GRIDS:
        grid = random_grid(machines, per_lan, Random(machines))
        for method in METHODS:
            longest_s, mapped = 0.0, 0
            for graph, clusters in cases:
                work = partial(map_tasks, graph, clusters, grid, method, options=OPTIONS)
                answer, least_s = timed(work, rounds)
                longest_s = max(longest_s, least_s)
                mapped += not isinstance(answer, NoPlace)
            row = (f"{machines:,}", str(per_lan), method, f"{1000 * longest_s:.1f}", f"{mapped} of {len(cases)}")
            table.add_row(*row)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
