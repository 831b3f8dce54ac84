"""A flexible total under the meta-scheduler: from a demand and a view to the functions over numbers, and back."""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from koala.model.network import ALL_TO_ALL, per_processor_bit_s
from koala.policies.demand import Bounds, Demand
from koala.policies.forms import ModuleChoice
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.meta_scheduling import B1, B2, B3, B5, INITIAL, MIGRATION_ONLY, metaschedule
from koala.policies.minigrid.reserve import believed_pattern
from koala.policies.minigrid.routed_scheduling import metaschedule_routed
from koala.policies.view import View

# The modules that keep the bounds of a job on its parts.
_BOUNDED_MODULES = (MIGRATION_ONLY, INITIAL, B1, B2, B3)


def honours(module: int, bounds: Bounds, total: int, sites: int) -> bool:
    """Return True if a module keeps the bounds: all do if there are none, and if the job must stay whole."""
    unbounded = bounds.component_min == 1 and bounds.components_max >= sites
    return unbounded or bounds == Bounds(total, 1) or module in _BOUNDED_MODULES


def divide_by_links(
    demand: Demand,
    choice: ModuleChoice,
    bounds: Bounds,
    idle: Sequence[int],
    view: View,
    parts: MutableSequence[int],
) -> int:
    """Place or divide the total by the module, with the links as they are now; return the processors without a place.

    Bounds that the module does not keep cause a refusal.
    """
    sites = len(idle)
    if not honours(choice.module, bounds, demand.total, sites):
        return demand.total
    # A job that must stay whole goes to its home or the tightest site, or to none.
    module = MIGRATION_ONLY if bounds == Bounds(demand.total, 1) else choice.module
    pattern, dimensions, own_bit_s, _ = demand.traffic
    if choice.module == B5:
        believed_bit_s = view.believed_bisection_bit_s(demand.application)
        own_bit_s = per_processor_bit_s(ALL_TO_ALL, 2, demand.total, believed_bit_s)
        pattern = believed_pattern(pattern)
    wiring = view.wiring
    case = PlacementCase(
        total=demand.total,
        demand=view.link_demand_bit_s,
        capacity=wiring.capacity_bit_s,
        per_processor_bit_s=own_bit_s,
        threshold=choice.threshold,
        spare=[0] * sites,
        home=demand.home,
        chunk=choice.chunk,
        pattern=pattern,
        dimensions=dimensions,
        component_min=bounds.component_min,
        components_max=bounds.components_max,
    )
    if wiring.is_star:
        return metaschedule(module, case, idle, parts)
    return metaschedule_routed(module, case, wiring.routes(), idle, parts)
