"""Why tasks with a shape found no places: the refusal of the first group that did not fit, counted in tasks, in the
terms of places."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from koala.model.api import Refusal
from koala.model.nodes import NodePool
from koala.policies.attempt import place_on
from koala.policies.demand import Demand, TaskGroup
from koala.policies.places import Room, needs_nodes, places_at
from koala.policies.refusals.cure import refuse_now_fitting
from koala.policies.units import PlaceUnits
from koala.policies.view import View

Refuse = Callable[[Demand, Sequence[int], View], Refusal]


# The cure for components that fit alone, but never all together.
_NOT_TOGETHER = "ask for fewer or smaller tasks, since its components do not fit together on idle sites either"


def refuse_groups(demand: Demand, idle: Sequence[int], view: View, refuse: Refuse) -> Refusal:
    """Explain which group does not fit on ``idle``, with permanent reasons first; ``refuse``
    explains plain demands."""
    sites = range(len(view.names))
    whole = [view.pools.whole(site) for site in sites]
    empty = view.unloaded()
    for group in demand.groups:
        most = _most_places(demand, group, view, whole)
        if place_on(group.demand, most, empty) is None:
            refusal = _refuse_group(demand, group, Room(idle, view), most, view, refuse)
            if refusal.permanent:
                return refusal
    room = Room(idle, view)
    for group in demand.groups:
        places = room.places(group.shape)
        spots = place_on(group.demand, places, view)
        if spots is None:
            most = _most_places(demand, group, view, whole)
            return _or_never(demand, _refuse_group(demand, group, room, most, view, refuse), view, whole)
        room.take(group.shape, spots)
    return refuse_now_fitting(demand)


def _most_places(demand: Demand, group: TaskGroup, view: View, whole: Sequence[NodePool | None]) -> list[int]:
    """Return for how many tasks of the group each site may ever have room.

    A site that has not reported its nodes may have what the tasks need besides processors.
    """
    shape = group.shape
    return [
        0
        if site in demand.barred
        else limit // shape.processors
        if whole[site] is None
        else places_at(shape, limit, whole[site])
        for site, limit in enumerate(view.limit)
    ]


def _or_never(demand: Demand, refusal: Refusal, view: View, whole: Sequence[NodePool | None]) -> Refusal:
    """Return the refusal of components that fit alone, or of what never fits together."""
    foreign = demand.policy.checked or demand.rule.checked
    untold = any(pool is None for pool in whole) and any(needs_nodes(group.shape) for group in demand.groups)
    if len(demand.groups) == 1 or foreign or untold:
        return refusal
    if place_on(demand, demand.allowed(view.limit), view.unloaded().with_whole_nodes()) is not None:
        return refusal
    return replace(refusal, cure=_NOT_TOGETHER, permanent=True)


def _nodes(room: Room, site: int) -> NodePool | None:
    """Return the nodes as they are now, one by one."""
    pool = room.pool(site)
    return pool if isinstance(pool, NodePool) else None


def _refuse_group(
    demand: Demand, group: TaskGroup, room: Room, most: list[int], view: View, refuse: Refuse
) -> Refusal:
    shape, sites = group.shape, range(len(view.names))
    places = room.places(shape)
    whole = [view.pools.whole(site) for site in sites]
    limit = [0 if site in demand.barred else places_at(shape, view.limit[site], whole[site]) for site in sites]
    counted = view.with_link_demand(view.link_demand_bit_s)
    counted.idle, counted.limit = places, limit
    counted.units = PlaceUnits(shape, room.idle, view.limit, [_nodes(room, site) for site in sites], whole, places)
    refusal = refuse(group.demand, places, counted)
    permanent = refusal.permanent
    if permanent and most != limit:
        counted.limit = most
        permanent = refuse(group.demand, places, counted).permanent
    component = refusal.component
    if component is not None and not demand.flexible:
        component = group.components[component]
    return replace(
        refusal, reason=f"{refusal.reason}; a task holds {shape}", component=component, permanent=permanent
    )
