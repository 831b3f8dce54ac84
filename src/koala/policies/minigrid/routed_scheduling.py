"""The meta-scheduler on grids where links are shared by several sites, behind the link that each has of its own.

Plain functions over numbers that run as Python and compile with numba unchanged. A module sees only the sites' own
links, so that it is asked about one group of sites at a time: a group is connected by shared links that are open.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.model.network import ALL_TO_ALL, add_shared_crossings, demand_bit_s
from koala.policies.minigrid.meta_scheduling import (
    COMPONENTS_UNBOUNDED,
    INITIAL,
    MIGRATION_ONLY,
    coallocate,
    is_class_a1,
    whole_site,
)
from koala.policies.minigrid.open_sites import is_open
from koala.policies.minigrid.satisfy import link_room_bit_s


def route_is_open(
    one: int, other: int, sites: int, route_first: Sequence[int], route_links: Sequence[int], closed: Sequence[int]
) -> bool:
    """Whether no shared link between two sites is closed."""
    pair = min(one, other) * sites + max(one, other)
    shut = 0
    for place in range(route_first[pair], route_first[pair + 1]):
        shut += closed[route_links[place]]
    return shut == 0


def gather(
    first: int,
    idle: Sequence[int],
    route_first: Sequence[int],
    route_links: Sequence[int],
    closed: Sequence[int],
    group: MutableSequence[int],
    masked: MutableSequence[int],
) -> None:
    """Put the sites that are not in a group yet into that of ``first``, if they are connected to all of it.

    ``masked`` gets what is idle on the sites of the group, and 0 for the others.
    """
    sites = len(idle)
    for site in range(sites):
        masked[site] = 0
    for site in range(first, sites):
        if group[site] >= 0 or idle[site] <= 0:
            continue
        connected = True
        for member in range(first, site):
            if group[member] == first and not route_is_open(member, site, sites, route_first, route_links, closed):
                connected = False
                break
        if connected:
            group[site] = first
            masked[site] = idle[site]


def close_exceeded(
    pattern: int,
    dimensions: int,
    parts: Sequence[int],
    total: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    per_processor_bit_s: float,
    threshold: float,
    route_first: Sequence[int],
    route_links: Sequence[int],
    crossed: MutableSequence[float],
    closed: MutableSequence[int],
) -> int:
    """Close the shared links that have no room for what these parts send over them; how many there were."""
    for link in range(len(crossed)):
        crossed[link] = 0.0
    add_shared_crossings(pattern, dimensions, parts, total, route_first, route_links, crossed)
    exceeded = 0
    for link in range(len(parts), len(crossed)):
        added = demand_bit_s(per_processor_bit_s, crossed[link])
        if added > link_room_bit_s(demand[link], capacity[link], threshold):
            closed[link] = 1
            exceeded += 1
    return exceeded


def coallocate_in_groups(
    module: int,
    idle: Sequence[int],
    total: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    per_processor_bit_s: float,
    threshold: float,
    chunk: float,
    route_first: Sequence[int],
    route_links: Sequence[int],
    crossed: MutableSequence[float],
    closed: MutableSequence[int],
    group: MutableSequence[int],
    masked: MutableSequence[int],
    spare: MutableSequence[int],
    parts: MutableSequence[int],
    pattern: int,
    dimensions: int,
    component_min: int,
    components_max: int,
) -> tuple[int, int]:
    """Ask the module about one group after the other; the processors left without a place, and links closed by it.

    A link is closed that a division of A1 would bring beyond the threshold.
    """
    exceeded = 0
    least_unplaced = total
    for first in range(len(idle)):
        group[first] = -1
    for first in range(len(idle)):
        if group[first] >= 0 or idle[first] <= 0:
            continue
        gather(first, idle, route_first, route_links, closed, group, masked)
        unplaced = coallocate(
            module,
            masked,
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
        if unplaced > 0:
            least_unplaced = min(least_unplaced, unplaced)
            continue
        newly = 0
        if is_class_a1(module):
            newly = close_exceeded(
                pattern,
                dimensions,
                parts,
                total,
                demand,
                capacity,
                per_processor_bit_s,
                threshold,
                route_first,
                route_links,
                crossed,
                closed,
            )
        if newly == 0:
            return 0, 0
        exceeded += newly
    return least_unplaced, exceeded


def metaschedule_routed(
    module: int,
    idle: Sequence[int],
    total: int,
    home: int,
    demand: Sequence[int],
    capacity: Sequence[int],
    per_processor_bit_s: float,
    threshold: float,
    chunk: float,
    route_first: Sequence[int],
    route_links: Sequence[int],
    crossed: MutableSequence[float],
    closed: MutableSequence[int],
    group: MutableSequence[int],
    masked: MutableSequence[int],
    spare: MutableSequence[int],
    parts: MutableSequence[int],
    pattern: int = ALL_TO_ALL,
    dimensions: int = 2,
    component_min: int = 1,
    components_max: int = COMPONENTS_UNBOUNDED,
) -> int:
    """Place a job as ``metaschedule`` does, where ``demand`` and ``capacity`` are those of all links.

    Initial does not look at links. A1 first takes all sites for one group, and where its division would bring shared
    links beyond the threshold it tries again in groups that avoid them: it never exceeds one, but may miss a
    division that would use one a little. For the others a shared link is closed when it has reached the threshold.
    Groups are tried in the order of their first sites. ``crossed`` and ``closed`` (by link), ``group``, ``masked``
    and ``spare`` (by site) are scratch room.
    """
    site = whole_site(idle, total, home)
    if site >= 0 or module == MIGRATION_ONLY:
        for other in range(len(idle)):
            parts[other] = 0
        if site < 0:
            return total
        parts[site] = total
        return 0
    looks_first = module != INITIAL and not is_class_a1(module)
    for link in range(len(capacity)):
        closed[link] = 1 if looks_first and not is_open(demand[link], capacity[link], threshold) else 0
    while True:
        unplaced, exceeded = coallocate_in_groups(
            module,
            idle,
            total,
            demand,
            capacity,
            per_processor_bit_s,
            threshold,
            chunk,
            route_first,
            route_links,
            crossed,
            closed,
            group,
            masked,
            spare,
            parts,
            pattern,
            dimensions,
            component_min,
            components_max,
        )
        # What exceeds a link is connected over it, so that every round closes another one.
        if exceeded == 0:
            return unplaced
