"""One try of a demand on given idle processors: fixed components first, then the policy on what remains.

``koala.policies.interface`` calls it; ``koala.policies.refusals.refusal`` explains a failed try.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from koala.mapping.result import NoPlace
from koala.policies.demand import Bounds, ComponentSizes, Demand
from koala.policies.external import ask_components, ask_flexible
from koala.policies.forms import Form
from koala.policies.link_division import divide_by_links
from koala.policies.places import Room
from koala.policies.tasks.wase import ClusteredTasks, TaskSpots
from koala.policies.transfer_estimates import Spots, division_times_s, missing_file, transfer_row_s
from koala.policies.view import View


class PartialFill(NamedTuple):
    """How far a shape came: the site of each component placed (-1 for none) and the first one without a place."""

    sites: list[int]
    failed: int | None


class PartialDivision(NamedTuple):
    """How far a division came: the processors by site, and those left without a place."""

    parts: list[int]
    unplaced: int


def place_on(demand: Demand, idle: Sequence[int], view: View) -> Spots | None:
    """Try the demand on these idle processors, all or nothing; the arguments are not changed."""
    if demand.groups:
        return _place_groups(demand, idle, view)
    if demand.has_files and missing_file(demand, view) is not None:
        return None
    if demand.tasks is not None and demand.policy.form is Form.TASKS:
        mapped = map_on(demand, demand.tasks, idle, view)
        if isinstance(mapped, NoPlace):
            return None
        return Spots(mapped.sites, tuple(map(len, mapped.tasks)), mapped.tasks)
    spots = _untasked(demand, idle, view)
    return spots if spots is None or demand.tasks is None else spots._replace(tasks=demand.tasks.dealt(spots.sizes))


def _place_groups(demand: Demand, idle: Sequence[int], view: View) -> Spots | None:
    """Place one group after the other: the policy sees places for its tasks instead of processors."""
    room = Room(idle, view)
    if len(demand.groups) == 1:
        shape, _, inner = demand.groups[0]
        places = room.places(shape)
        if sum(places) < inner.total:
            return None
        spots = place_on(inner, places, view)
        return (
            None if spots is None else spots._replace(sizes=tuple([size * shape.processors for size in spots.sizes]))
        )
    sites, sizes = {}, {}
    for shape, components, inner in demand.groups:
        spots = place_on(inner, room.places(shape), view)
        if spots is None:
            return None
        room.take(shape, spots)
        for component, site, tasks in zip(components, spots.sites, spots.sizes, strict=True):
            sites[component], sizes[component] = site, tasks * shape.processors
    order = range(len(sites))
    return Spots(tuple([sites[each] for each in order]), tuple([sizes[each] for each in order]))


def _untasked(demand: Demand, idle: Sequence[int], view: View) -> Spots | None:
    if demand.bounds is not None:
        divided = divide(demand, demand.bounds, idle, view)
        return None if divided.unplaced else _spots_of_parts(divided.parts, idle)
    for shape in demand.shapes:
        filled = fill(demand, shape, idle, view)
        if filled.failed is None:
            return Spots(tuple(filled.sites), shape.sizes)
    return None


def map_on(demand: Demand, tasks: ClusteredTasks, idle: Sequence[int], view: View) -> TaskSpots | NoPlace:
    """Map the tasks by the demand's policy, which maps tasks, or return what found no place."""
    return view.lans.placed(tasks, demand.policy.mapping, demand.home, idle)


def fill(demand: Demand, shape: ComponentSizes, idle: Sequence[int], view: View) -> PartialFill:
    """Place components of given sizes: the pinned ones on their sites, then the rest by the demand's rule."""
    free = idle
    sites = list(shape.sites)
    if shape.pinned:
        free = list(idle)
        for component in shape.pinned:
            site = sites[component]
            if free[site] < shape.sizes[component]:
                return PartialFill(sites, component)
            free[site] -= shape.sizes[component]
    if not shape.order:
        return PartialFill(sites, None)
    chosen = [-1] * len(shape.order)
    failed = _ask(demand, shape, free, view, chosen)
    for position, component in enumerate(shape.order[:failed] if failed >= 0 else shape.order):
        sites[component] = chosen[position]
    return PartialFill(sites, None if failed < 0 else shape.order[failed])


def _ask(demand: Demand, shape: ComponentSizes, free: Sequence[int], view: View, chosen: list[int]) -> int:
    """Call the function that places components of given sizes, in its form."""
    rule = demand.rule
    if rule.form is Form.COMPONENTS:
        if rule.checked:
            return ask_components(rule, free, shape.ordered, (), chosen)
        if rule.beside is not None and shape.pinned:
            return rule.beside(free, shape.ordered, _combined(shape, len(free)), list(free), chosen)
        return rule.function(free, shape.ordered, list(free), chosen)
    more: tuple[Any, ...]
    if rule.form is Form.FILES:
        more = (_transfer_rows_s(demand, shape, view),)
    else:
        more = (view.slowness, _combined(shape, len(free)))
    if rule.checked:
        return ask_components(rule, free, shape.ordered, more, chosen)
    return rule.function(free, shape.ordered, *more, list(free), chosen)


def _combined(shape: ComponentSizes, sites: int) -> list[int]:
    """Return a mark for each site where the user wants a component."""
    combined = [0] * sites
    for component in shape.pinned:
        combined[shape.sites[component]] = 1
    return combined


def _transfer_rows_s(demand: Demand, shape: ComponentSizes, view: View) -> list[list[float]]:
    if not demand.has_files:
        return [[0.0] * len(view.names)] * len(shape.order)
    return [transfer_row_s(demand, shape.sizes, component, view) for component in shape.order]


def divide(demand: Demand, bounds: Bounds, idle: Sequence[int], view: View) -> PartialDivision:
    """Divide the total by the demand's policy, which divides totals, in its form."""
    parts = [0] * len(idle)
    policy = demand.policy
    more: tuple[Any, ...] = ()
    if policy.form is Form.FLEXIBLE_FILES:
        more = division_times_s(demand, bounds.component_min, view)
    elif policy.form is Form.FLEXIBLE_NETWORK:
        more = (view.slowness,)
    elif policy.module is not None:
        return PartialDivision(parts, divide_by_links(demand, policy.module, bounds, idle, view, parts))
    elif policy.form is Form.LINKS:
        more = (
            demand.home,
            tuple(view.link_demand_bit_s),
            view.link_capacity_bit_s,
            demand.traffic.per_processor_bit_s,
        )
    if policy.checked:
        return PartialDivision(parts, ask_flexible(policy, idle, demand.total, bounds, more, parts))
    return PartialDivision(parts, policy.function(idle, demand.total, *bounds, *more, parts))


def _spots_of_parts(parts: list[int], idle: Sequence[int]) -> Spots:
    """Return the parts in the order in which they were made: by idle processors, ties by index."""
    sites = [site for site, part in enumerate(parts) if part]
    sites.sort(key=lambda site: -idle[site])
    return Spots(tuple(sites), tuple([parts[site] for site in sites]))
