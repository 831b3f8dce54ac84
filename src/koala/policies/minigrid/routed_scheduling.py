"""The meta-scheduler on grids where links are shared by several sites, behind the link that each has of its own.

Plain functions over numbers that run as Python and compile with numba unchanged. A module sees only the sites' own
links, so that it is asked about one group of sites at a time: a group is connected by shared links that are open.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.model.network import UNLIMITED_BIT_S, add_shared_crossings, demand_bit_s
from koala.policies.minigrid.case import PlacementCase, SharedRoutes
from koala.policies.minigrid.meta_scheduling import (
    A2,
    B5,
    INITIAL,
    MIGRATION_ONLY,
    coallocate,
    is_class_a1,
    whole_site,
)
from koala.policies.minigrid.open_sites import is_open
from koala.policies.minigrid.reserve import (
    RESERVE_BELIEVED,
    RESERVE_KNOWN,
    in_pattern_bit_s,
    pattern_reserve,
    reserved_room_bit_s,
)


def route_is_open(routes: SharedRoutes, one: int, other: int, sites: int) -> bool:
    """Whether no shared link between two sites is closed."""
    pair = min(one, other) * sites + max(one, other)
    shut = 0
    for place in range(routes.first[pair], routes.first[pair + 1]):
        shut += routes.closed[routes.links[place]]
    return shut == 0


def gather(routes: SharedRoutes, first: int, idle: Sequence[int]) -> None:
    """Put the sites that are not in a group yet into that of ``first``, if they are connected to all of it.

    ``routes.masked`` gets what is idle on the sites of the group, and 0 for the others.
    """
    sites = len(idle)
    for site in range(sites):
        routes.masked[site] = 0
    for site in range(first, sites):
        if routes.group[site] >= 0 or idle[site] <= 0:
            continue
        connected = True
        for member in range(first, site):
            if routes.group[member] == first and not route_is_open(routes, member, site, sites):
                connected = False
                break
        if connected:
            routes.group[site] = first
            routes.masked[site] = idle[site]


def looks_ahead(module: int) -> bool:
    """Whether a module asks what a division would send before it is made, also of links that sites share."""
    return is_class_a1(module) or module in (A2, B5)


def sent_bit_s(module: int, case: PlacementCase) -> float:
    """What one processor sends, as the module knows or believes it."""
    if module == B5:
        return in_pattern_bit_s(case.pattern, case.dimensions, case.total, case.per_processor_bit_s)
    return case.per_processor_bit_s


def reserve_of(module: int, case: PlacementCase) -> float:
    """The reserve that the module leaves on links, as a share of what the job sends; none for A1."""
    if module == A2:
        return pattern_reserve(case.pattern, RESERVE_KNOWN)
    return pattern_reserve(case.pattern, RESERVE_BELIEVED) if module == B5 else 0.0


def close_exceeded(module: int, case: PlacementCase, routes: SharedRoutes, parts: Sequence[int]) -> int:
    """Close the shared links that have no room for what these parts send over them; how many there were."""
    for link in range(len(routes.crossed)):
        routes.crossed[link] = 0.0
    add_shared_crossings(case.pattern, case.dimensions, parts, case.total, routes.first, routes.links, routes.crossed)
    sent = sent_bit_s(module, case)
    reserve = reserve_of(module, case)
    exceeded = 0
    for link in range(len(parts), len(routes.crossed)):
        added = demand_bit_s(sent, routes.crossed[link])
        room = reserved_room_bit_s(case.demand[link], case.capacity[link], case.threshold, reserve)
        if added > room:
            routes.closed[link] = 1
            exceeded += 1
    return exceeded


def coallocate_in_groups(
    module: int, case: PlacementCase, routes: SharedRoutes, idle: Sequence[int], parts: MutableSequence[int]
) -> tuple[int, int]:
    """Ask the module about one group after the other; the processors left without a place, and links closed by it.

    A link is closed that a division of A1, A2 or B5 would bring beyond the threshold.
    """
    exceeded = 0
    least_unplaced = case.total
    for first in range(len(idle)):
        routes.group[first] = -1
    for first in range(len(idle)):
        if routes.group[first] >= 0 or idle[first] <= 0:
            continue
        gather(routes, first, idle)
        unplaced = coallocate(module, case, routes.masked, parts)
        if unplaced > 0:
            least_unplaced = min(least_unplaced, unplaced)
            continue
        newly = close_exceeded(module, case, routes, parts) if looks_ahead(module) else 0
        if newly == 0:
            return 0, 0
        exceeded += newly
    return least_unplaced, exceeded


def metaschedule_routed(
    module: int, case: PlacementCase, routes: SharedRoutes, idle: Sequence[int], parts: MutableSequence[int]
) -> int:
    """Place a job as ``metaschedule`` does, where the demand and capacity of the case are those of all links.

    Initial does not look at links. A1 first takes all sites for one group, and where its division would bring shared
    links beyond the threshold it tries again in groups that avoid them: it never exceeds one, but may miss a
    division that would use one a little. A2 and B5 do the same, and look first for a division that uses no shared
    link at all, since traffic that stays inside an island is cheaper. For the others a shared link is closed when it
    has reached the threshold. Groups are tried in the order of their first sites.
    """
    site = whole_site(idle, case.total, case.home)
    if site >= 0 or module == MIGRATION_ONLY:
        for other in range(len(idle)):
            parts[other] = 0
        if site < 0:
            return case.total
        parts[site] = case.total
        return 0
    if module in (A2, B5):
        for link in range(len(case.capacity)):
            shared = link >= len(idle) and case.capacity[link] < UNLIMITED_BIT_S
            routes.closed[link] = 1 if shared else 0
        unplaced, _ = coallocate_in_groups(module, case, routes, idle, parts)
        if unplaced == 0:
            return 0
    looks_first = module != INITIAL and not looks_ahead(module)
    for link in range(len(case.capacity)):
        closed = looks_first and not is_open(case.demand[link], case.capacity[link], case.threshold)
        routes.closed[link] = 1 if closed else 0
    while True:
        unplaced, exceeded = coallocate_in_groups(module, case, routes, idle, parts)
        # What exceeds a link is connected over it, so that every round closes another one.
        if exceeded == 0:
            return unplaced
