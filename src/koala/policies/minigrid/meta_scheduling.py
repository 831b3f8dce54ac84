"""The meta-scheduler: home if the job fits there, else the tightest site that holds it, else a module divides it.

Plain functions over numbers that run as Python and compile with numba unchanged; the kernel of the simulator compiles
these very ones. Grids with links that several sites share go through ``koala.policies.minigrid.routed_scheduling``.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.model.network import ALL_TO_ALL, CUBE, MASTER_WORKER, bisection_factor
from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.minigrid.chunking import chunkable_most, chunking
from koala.policies.minigrid.largest_free_first import largest_free_first
from koala.policies.minigrid.learned_bandwidth import believing
from koala.policies.minigrid.least_saturated_first import least_saturated_first
from koala.policies.minigrid.load_balancing import load_balancing
from koala.policies.minigrid.local_allocation import local_allocation
from koala.policies.minigrid.migration import migration
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

# As many parts as one likes.
COMPONENTS_UNBOUNDED = 2**31 - 1


def whole_site(idle: Sequence[int], total: int, home: int) -> int:
    """The site that takes the job whole: its home, else the tightest; -1 where none does."""
    site = local_allocation(idle, total, home)
    return site if site >= 0 else migration(idle, total)


def is_class_a1(module: int) -> bool:
    """Whether a module is A1, whatever its choice of solution."""
    return module in (A1_INDEX, A1_MOST_FREE, A1_FEWEST, A1_LEAST)


def all_to_all_bit_s(pattern: int, dimensions: int, total: int, per_processor_bit_s: float) -> float:
    """The bandwidth of one processor that would give a job the same bisection bandwidth if all talked to all."""
    if pattern == ALL_TO_ALL or total < 2:
        return per_processor_bit_s
    own = bisection_factor(pattern, dimensions, total)
    return per_processor_bit_s * own / bisection_factor(ALL_TO_ALL, dimensions, total)


def coallocate(
    module: int,
    idle: Sequence[int],
    total: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    per_processor_bit_s: float,
    threshold: float,
    chunk: float,
    spare: MutableSequence[int],
    parts: MutableSequence[int],
    pattern: int,
    dimensions: int,
    component_min: int,
    components_max: int,
) -> int:
    """Divide a job that no site holds whole, by the module. Arguments and answer as of ``metaschedule``."""
    if module == INITIAL:
        return flexible_cluster_minimization(idle, total, component_min, components_max, parts)
    if module == B1:
        return largest_free_first(
            idle, total, component_min, components_max, demand, capacity, threshold, spare, parts
        )
    if module == B2:
        return least_saturated_first(
            idle, total, component_min, components_max, demand, capacity, threshold, spare, parts
        )
    if module == B3:
        return chunking(idle, total, component_min, components_max, demand, capacity, threshold, chunk, spare, parts)
    if module == B4:
        return load_balancing(idle, total, demand, capacity, threshold, spare, parts)
    if is_class_a1(module):
        choice = INDEX_ORDER
        if module == A1_MOST_FREE:
            choice = MOST_FREE_ORDER
        elif module == A1_FEWEST:
            choice = FEWEST_CLUSTERS
        elif module == A1_LEAST:
            choice = LEAST_BANDWIDTH
        return satisfying(
            idle,
            total,
            demand,
            capacity,
            per_processor_bit_s,
            threshold,
            choice,
            pattern,
            dimensions,
            spare,
            parts,
        )
    if module == A2:
        sent_bit_s = all_to_all_bit_s(pattern, dimensions, total, per_processor_bit_s)
        return reserving(idle, total, demand, capacity, sent_bit_s, threshold, spare, parts)
    if module == B5:
        return believing(idle, total, demand, capacity, per_processor_bit_s, threshold, spare, parts)
    for site in range(len(idle)):
        parts[site] = 0
    return total


def metaschedule(
    module: int,
    idle: Sequence[int],
    total: int,
    home: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    per_processor_bit_s: float,
    threshold: float,
    chunk: float,
    spare: MutableSequence[int],
    parts: MutableSequence[int],
    pattern: int = ALL_TO_ALL,
    dimensions: int = 2,
    component_min: int = 1,
    components_max: int = COMPONENTS_UNBOUNDED,
) -> int:
    """Place a job: whole at home, whole on the tightest site, or divided by the module; all or nothing.

    ``home`` is below 0 where there is none. ``demand`` and ``capacity`` are those of the sites' own links, in bits
    per second. ``per_processor_bit_s`` is the job's own for the modules of class A, and for B5 what is believed of it
    as if all its processors talked to all; the others do not look at it. A2 takes every job for one in which all talk
    to all, with the same bisection bandwidth. ``threshold`` says how far links may be used, ``chunk`` is for B3 only,
    and the bounds on parts are honoured by Initial, B1, B2 and B3. ``spare`` is scratch room. ``parts[site]`` gets
    the processors. Returns those left without a place: 0 when placed; what ``parts`` holds otherwise is no placement.
    """
    site = whole_site(idle, total, home)
    if site >= 0:
        for other in range(len(idle)):
            parts[other] = 0
        parts[site] = total
        return 0
    return coallocate(
        module,
        idle,
        total,
        demand,
        capacity,
        per_processor_bit_s,
        threshold,
        chunk,
        spare,
        parts,
        pattern,
        dimensions,
        component_min,
        components_max,
    )


def placeable_most(
    module: int,
    idle: Sequence[int],
    demand: Sequence[int],
    capacity: Sequence[int],
    threshold: float,
    chunk: float,
) -> int:
    """No job of more processors than this can be placed now, so that most of a queue is passed over at a glance.

    For Migration Only, Initial and class B up to B4 every smaller one that may be divided freely can be placed; for
    the others it is a bound only.
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
    """Whether a refused job stays refused while idle processors only fall and link demands only rise.

    A1 tries only one division of jobs whose traffic depends on which processors go together, and with less idle it
    may try another. What B5 believes of a job changes with every one that it sees. Where sites share links, those
    that look at links divide a job within groups of sites, and with less idle, or a link more closed, the groups are
    other ones.
    """
    if module in (MIGRATION_ONLY, INITIAL):
        return True
    return module != B5 and not shared_links and not (is_class_a1(module) and pattern in (CUBE, MASTER_WORKER))
