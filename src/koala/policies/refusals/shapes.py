"""Why tasks with a shape found no places: the refusal of the first group that did not fit, counted in tasks, in the
words of what makes a place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from koala.model.nodes import NodePool
from koala.model.request import Refusal
from koala.policies.attempt import place_on
from koala.policies.demand import Demand, TaskGroup
from koala.policies.places import Room, places_at
from koala.policies.refusals.cure import refuse_now_fitting
from koala.policies.units import PlaceUnits
from koala.policies.view import View

Refuse = Callable[[Demand, Sequence[int], View], Refusal]


def refuse_groups(demand: Demand, idle: Sequence[int], view: View, refuse: Refuse) -> Refusal:
    """Explain which of the groups does not fit on ``idle``; ``refuse`` explains plain demands."""
    room = Room(idle, view)
    for group in demand.groups:
        places = room.places(group.shape)
        spots = place_on(group.demand, places, view)
        if spots is None:
            return _refuse_group(demand, group, room, places, view, refuse)
        room.take(group.shape, spots)
    return refuse_now_fitting(demand)


def _nodes(room: Room, site: int) -> NodePool | None:
    """The nodes as they are now, one by one."""
    pool = room.pool(site)
    return pool if isinstance(pool, NodePool) else None


def _refuse_group(
    demand: Demand, group: TaskGroup, room: Room, places: list[int], view: View, refuse: Refuse
) -> Refusal:
    shape, sites = group.shape, range(len(view.names))
    whole = [view.pools.whole(site) for site in sites]
    limit = [0 if site in demand.barred else places_at(shape, view.limit[site], whole[site]) for site in sites]
    counted = view.with_link_demand(view.link_demand_bit_s)
    counted.idle, counted.limit = places, limit
    counted.units = PlaceUnits(shape, room.idle, view.limit, [_nodes(room, site) for site in sites], whole, places)
    refusal = refuse(group.demand, places, counted)
    component = refusal.component
    if component is not None and not demand.flexible:
        component = group.components[component]
    untold = any(pool is None for pool in whole)
    return replace(
        refusal,
        reason=f"{refusal.reason}; a task holds {shape}",
        component=component,
        permanent=refusal.permanent and len(demand.groups) == 1 and not untold,
    )
