"""The meta-scheduler: home if the job fits there, else the tightest site that holds it, else a module divides it.

Plain functions over numbers that run as Python and compile with numba unchanged; the simulator's kernel compiles
these same functions. Grids with links that several sites share use ``koala.policies.minigrid.routed_scheduling``.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.model.network import CUBE, MASTER_WORKER
from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.chunking import chunkable_most, chunking
from koala.policies.minigrid.largest_free_first import largest_free_first
from koala.policies.minigrid.least_saturated_first import least_saturated_first
from koala.policies.minigrid.load_balancing import load_balancing
from koala.policies.minigrid.open_sites import is_open
from koala.policies.minigrid.reserve import reserving
from koala.policies.minigrid.satisfy import FEWEST_CLUSTERS, INDEX_ORDER, LEAST_BANDWIDTH, MOST_FREE_ORDER, satisfying

MIGRATION_ONLY = 0
INITIAL = 1
A1_INDEX = 2
A1_MOST_FREE = 3
A1_FEWEST = 4
A1_LEAST = 5
B1 = 6
B2 = 7
B3 = 8
B4 = 9
A2 = 10
B5 = 11
# The choice of solution of each module of class A1, in the order of their numbers.
A1_CHOICES = (INDEX_ORDER, MOST_FREE_ORDER, FEWEST_CLUSTERS, LEAST_BANDWIDTH)


def whole_site(idle: Sequence[int], total: int, home: int) -> int:
    """Return the site that takes the job whole: its home, else the tightest; -1 if none does."""
    site = local_allocation(idle, total, home)
    return site if site >= 0 else migration(idle, total)


def is_class_a1(module: int) -> bool:
    """Return True if a module is A1, with any choice of solution."""
    return module in (A1_INDEX, A1_MOST_FREE, A1_FEWEST, A1_LEAST)


def coallocate(module: int, case: PlacementCase, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Divide a job that no site holds whole, by the module. Arguments and answer are as for ``metaschedule``."""
    if module == INITIAL:
        return flexible_cluster_minimization(idle, case.total, case.component_min, case.components_max, parts)
    if module == B1:
        return largest_free_first(case, idle, parts)
    if module == B2:
        return least_saturated_first(case, idle, parts)
    if module == B3:
        return chunking(case, idle, parts)
    if module == B4:
        return load_balancing(case, idle, parts)
    # One call of each: a kernel inlines a function once for every place that calls it.
    if is_class_a1(module):
        return satisfying(case, A1_CHOICES[module - A1_INDEX], idle, parts)
    if module in (A2, B5):
        return reserving(case, module == B5, idle, parts)
    for site in range(len(idle)):
        parts[site] = 0
    return case.total


def metaschedule(module: int, case: PlacementCase, idle: Sequence[int], parts: MutableSequence[int]) -> int:
    """Place a job: whole at home, whole on the tightest site, or divided by the module; all or nothing.

    ``parts[site]`` gets the processors. Returns those left without a place: 0 when placed; otherwise ``parts`` holds
    no placement.
    """
    site = whole_site(idle, case.total, case.home)
    if site >= 0:
        for other in range(len(idle)):
            parts[other] = 0
        parts[site] = case.total
        return 0
    return coallocate(module, case, idle, parts)


def placeable_most(
    module: int,
    idle: Sequence[int],
    demand: Sequence[int],
    capacity: Sequence[int],
    threshold: float,
    chunk: float,
) -> int:
    """Return an upper bound of the processors of a job that can be placed now, to skip most of a queue quickly.

    For Migration Only, Initial and classes B1 to B4 every smaller job that may be divided freely can be placed; for
    the others it is only a bound.
    """
    most = 0
    idle_in_all = 0
    most_open = 0
    open_in_all = 0
    for site in range(len(idle)):
        most = max(most, idle[site])
        idle_in_all += idle[site]
        if is_open(demand[site], capacity[site], threshold):
            most_open = max(most_open, idle[site])
            open_in_all += idle[site]
    if module == MIGRATION_ONLY:
        return most
    if module in (B1, B2, B4):
        return max(most, open_in_all)
    if module == B3:
        return max(most, chunkable_most(most_open, chunk, open_in_all))
    return idle_in_all


def is_monotone(module: int, pattern: int, shared_links: bool) -> bool:
    """Return True if a refused job stays refused while idle processors only fall and link demands only rise.

    A1 and A2 try only some divisions of jobs whose traffic depends on which processors go together, and with less
    idle they may try others. B5's belief about a job changes with every job that it sees. If sites share links,
    modules that consider links divide a job within groups of sites, and with less idle, or another link closed, the
    groups differ.
    """
    if module in (MIGRATION_ONLY, INITIAL):
        return True
    tries_some = (is_class_a1(module) or module == A2) and pattern in (CUBE, MASTER_WORKER)
    return module != B5 and not shared_links and not tries_some


def local_allocation(idle: Sequence[int], total: int, home: int) -> int:
    """Return the home site if it holds the whole job, else -1; so too for a job without a home, which is below 0."""
    if home >= 0 and idle[home] >= total:
        return home
    return -1


def migration(idle: Sequence[int], total: int) -> int:
    """Return the site that holds the whole job most tightly, ties to the lowest index; -1 if none does.

    The tightest site leaves the large gaps for large jobs.
    """
    tightest = -1
    for site in range(len(idle)):
        if idle[site] >= total and (tightest < 0 or idle[site] < idle[tightest]):
            tightest = site
    return tightest
