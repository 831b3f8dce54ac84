"""The meta-scheduler on grids where several sites share links, behind the links of their own.

Plain functions over numbers that run as Python and compile with numba unchanged. A module sees only the sites' own
links, so it is called for one group of sites at a time: open shared links connect a group.
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
from koala.policies.minigrid.reserve import reserve_of, reserved_room_bit_s, sent_bit_s


def route_is_open(routes: SharedRoutes, one: int, other: int, sites: int) -> bool:
    """Return True if no shared link between two sites is closed."""
    pair = min(one, other) * sites + max(one, other)
    shut = 0
    for place in range(routes.first[pair], routes.first[pair + 1]):
        shut += routes.closed[routes.links[place]]
    return shut == 0


def gather(routes: SharedRoutes, first: int, idle: Sequence[int]) -> None:
    """Put the ungrouped sites into the group of ``first`` if they are connected to all of it.

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
    """Return True if a module checks the traffic of a division before it is made, also on links that sites share."""
    return is_class_a1(module) or module in (A2, B5)


def close_exceeded(module: int, case: PlacementCase, routes: SharedRoutes, parts: Sequence[int]) -> int:
    """Close the shared links without room for the traffic of these parts; return how many there were."""
    for link in range(len(routes.crossed)):
        routes.crossed[link] = 0.0
    add_shared_crossings(case.pattern, case.dimensions, parts, case.total, routes.first, routes.links, routes.crossed)
    sent = sent_bit_s(case, module == B5)
    reserve = reserve_of(case, module == B5) if module in (A2, B5) else 0.0
    exceeded = 0
    for link in range(len(parts), len(routes.crossed)):
        added = demand_bit_s(sent, routes.crossed[link])
        room = reserved_room_bit_s(case.demand[link], case.capacity[link], case.threshold, reserve)
        if added > room:
            routes.closed[link] = 1
            exceeded += 1
    return exceeded


def close_shared(module: int, case: PlacementCase, routes: SharedRoutes, apart: bool, sites: int) -> None:
    """Close the shared links that the module must not use now, and open the others.

    With ``apart`` all limited links close, otherwise those at the threshold, for modules that do not look ahead.
    """
    looks_first = module != INITIAL and not looks_ahead(module)
    for link in range(sites, len(case.capacity)):
        if apart:
            closed = case.capacity[link] < UNLIMITED_BIT_S
        else:
            closed = looks_first and not is_open(case.demand[link], case.capacity[link], case.threshold)
        routes.closed[link] = 1 if closed else 0


def coallocate_in_groups(
    module: int, case: PlacementCase, routes: SharedRoutes, idle: Sequence[int], parts: MutableSequence[int]
) -> tuple[int, int]:
    """Call the module for one group after the other; return the processors without a place, and the links
    that it closed.

    A link closes if a division of A1, A2 or B5 would bring it beyond the threshold.
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

    Initial ignores links. A1 first takes all sites as one group. If its division would bring shared links beyond the
    threshold it tries again in groups that avoid them: it never exceeds a link, but may miss a division that would
    use one a little. A2 and B5 do the same, and first look for a division that uses no shared link at all, since
    traffic inside an island is cheaper. For the others a shared link is closed when it has reached the threshold.
    Groups are tried in the order of their first sites.
    """
    site = whole_site(idle, case.total, case.home)
    if site >= 0 or module == MIGRATION_ONLY:
        for other in range(len(idle)):
            parts[other] = 0
        if site < 0:
            return case.total
        parts[site] = case.total
        return 0
    apart = module in (A2, B5)
    close_shared(module, case, routes, apart, len(idle))
    while True:
        unplaced, exceeded = coallocate_in_groups(module, case, routes, idle, parts)
        # Parts that exceed a link are connected over it: every round except the one apart closes another link.
        if unplaced == 0 or (exceeded == 0 and not apart):
            return unplaced
        if apart:
            apart = False
            close_shared(module, case, routes, apart, len(idle))
