"""Storms with shaped tasks: sites whose nodes have memory and GPUs, jobs whose tasks need them."""

from __future__ import annotations

import random

from msgspec.structs import replace

from koala.model.grid import Grid, Site
from koala.model.nodes import NodeClass, NodeSize, TaskNeeds
from koala.model.request import Component, Flexibility, Request
from koala.policies import Catalogue
from koala.policies.interface import View, compile_demand, try_place
from koala.simulator.workloads.workload import Arrival

_GIB = 2**30
# A drawn job needs at most this share of each site, and of the processors of each node, since users come and go.
_SHARE = 0.5
# At most this many shapes are tried on a job before it is left unchanged.
_DRAWS = 8


def with_shapes(
    rng: random.Random, grid: Grid, arrivals: tuple[Arrival, ...], share: float = _SHARE
) -> tuple[Grid, tuple[Arrival, ...]]:
    """In some storms give some sites such nodes, and some jobs such tasks, which fit there in this share of the
    total."""
    if rng.random() < 0.6:
        return grid, arrivals
    sites = tuple(
        _with_nodes(rng, site) if not site.simulation.faults.bad_nodes and rng.random() < 0.7 else site
        for site in grid.sites
    )
    grid = replace(grid, sites=sites)
    view = View.from_grid(replace(grid, sites=tuple(_in_part(site, share) for site in sites)))
    view.idle = [int(limit * share) for limit in view.limit]
    whole = View.from_grid(grid)
    closed = [view.index[name] for name in grid.closed_to_guests]
    catalogue = Catalogue.builtin()
    found = []
    for arrival in arrivals:
        drawn = [_shaped(rng, arrival.request) for _ in range(_DRAWS if rng.random() < 0.7 else 0)]
        for request in drawn:
            policy = catalogue.choose(request, grid.scheduler.policy)
            demand = compile_demand(request, policy, view.index)
            demand = demand.barring(closed) if arrival.guest else demand
            # Packing one shape after the other is a heuristic: with more idle space it may find no places.
            if all(try_place(demand, each) is not None for each in (view, whole)):
                found.append(arrival._replace(request=request))
                break
        else:
            found.append(arrival)
    return grid, tuple(found)


def _with_nodes(rng: random.Random, site: Site) -> Site:
    classes = []
    left = site.processors
    while left:
        processors = min(left, rng.choice((1, 2, 4, 8)))
        count = rng.randint(1, left // processors)
        gpus = ((rng.choice(("a100", "v100")), rng.randint(1, 4)),) if rng.random() < 0.5 else ()
        size = NodeSize(processors, rng.choice((-1, 8 * _GIB, 64 * _GIB)), gpus)
        classes.append(NodeClass(count, size, size, rng.choice(((), ("big",), ("big", "new")))))
        left -= count * processors
    return replace(site, node_classes=tuple(classes))


def _in_part(site: Site, share: float) -> Site:
    classes = []
    for each in site.node_classes:
        size = each.whole._replace(processors=int(each.whole.processors * share))
        classes.append(NodeClass(each.count, size, size, each.features))
    return replace(site, node_classes=tuple(classes))


def _shaped(rng: random.Random, request: Request) -> Request:
    """Return the request with a shape for its tasks; in some jobs each component has its own."""
    if (
        request.has_image
        or request.required
        or request.tasks is not None
        or (request.flexible is not None and request.flexible.splits)
    ):
        return request  # a job restricted to some sites was drawn to fit them
    shared = _shape(rng)
    components = []
    for component in request.components:
        per_task, needs = shared if request.flexible is not None or rng.random() < 0.7 else _shape(rng)
        smaller = component.processors // rng.choice((1, 2, 4))
        processors = max(per_task, smaller - smaller % per_task)
        application = replace(component.application, processors_per_task=per_task)
        components.append(replace(component, processors=processors, application=application, needs=needs))
    flexible = None if request.flexible is None else _bounded(request.flexible, components[0])
    return replace(request, components=tuple(components), flexible=flexible)


def _bounded(flexible: Flexibility, component: Component) -> Flexibility:
    return replace(flexible, component_min=min(flexible.component_min, component.processors))


def _shape(rng: random.Random) -> tuple[int, TaskNeeds | None]:
    gpus = rng.choice((0, 0, 1, 2))
    needs = TaskNeeds(
        memory_bytes=rng.choice((0, 0, _GIB, 8 * _GIB)),
        gpus=gpus,
        gpu=rng.choice(("", "a100")) if gpus else "",
        constraint=rng.choice(("", "", "big", "big&new", "new|old")),
    )
    return rng.choice((1, 1, 2, 4)), None if needs == TaskNeeds() else needs
