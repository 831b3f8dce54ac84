"""The interface of the policies for the core, the simulator and the CLI: from a request to places and back.

A request is compiled to a ``Demand`` once; ``try_place`` then answers from a ``View``, as site indexes, and
``to_placement`` adds the site names. ``refuse`` explains a failed try. Nothing here changes the view.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.mapping.result import NoPlace
from koala.model.nodes import TaskShape
from koala.model.request import FileSource, PlacedComponent, Placement
from koala.policies.attempt import place_on
from koala.policies.demand import Demand, DemandKey, compile_demand, demand_key
from koala.policies.errors import MissingFileError, PolicyError, UnknownSiteError
from koala.policies.forms import Form
from koala.policies.koala.close_to_files import closest_site
from koala.policies.places import needs_nodes, places_at
from koala.policies.refusals.refusal import refuse
from koala.policies.tasks.wase import TaskSpots, with_spawned
from koala.policies.transfer_estimates import (
    Input,
    Spots,
    UnderWay,
    inputs,
    link_s,
    missing_file,
    staging_s,
    transfer_row_s,
    transfer_s,
)
from koala.policies.view import FileAt, View, described_pool, quota_processors

__all__ = [
    "Demand",
    "DemandKey",
    "FileAt",
    "Input",
    "MissingFileError",
    "PolicyError",
    "Spots",
    "UnknownSiteError",
    "View",
    "can_ever_fit",
    "compile_demand",
    "demand_key",
    "described_pool",
    "inputs",
    "link_s",
    "needs_nodes",
    "place_on",
    "place_spawned",
    "places_at",
    "quota_processors",
    "refuse",
    "replace_one",
    "staging_s",
    "tasks_of",
    "to_placement",
    "transfer_s",
    "try_place",
    "with_spawned",
]


def try_place(demand: Demand, view: View) -> Spots | None:
    """Return places for the demand on the processors that are idle now, all or nothing; None if it does not fit.

    The scheduler calls this for every waiting job at every scan, so the two quick answers come first: no site is
    large enough, and the most idle site simply takes it all.
    """
    idle = view.idle if not demand.barred else demand.allowed(view.idle)
    if demand.licenses:
        idle = view.licenses.open_to(demand.licenses, idle)
    most = max(idle)
    if most < demand.least:
        return None
    if demand.lone and most >= demand.total:
        return Spots((idle.index(most),), demand.whole)
    if sum(idle) < demand.total:
        return None
    return place_on(demand, idle, view)


def can_ever_fit(demand: Demand, most: Sequence[int], view: View) -> bool:
    """Return True if its policy would place the demand with these processors idle and nothing on any link.

    These processors are the most that sites ever have. If a file has no replica yet, or the policy is foreign, the
    answer is unknown: then it counts as possible.
    """
    if demand.policy.checked or demand.rule.checked or missing_file(demand, view) is not None:
        return True
    empty = view.unloaded()
    if demand.groups:
        if any(_may_be_untold(group.shape, demand, most, view) for group in demand.groups):
            return True
        empty = empty.with_whole_nodes()
    return place_on(demand, demand.allowed(most), empty) is not None


def _may_be_untold(shape: TaskShape, demand: Demand, most: Sequence[int], view: View) -> bool:
    """Return True if a site that has not reported its nodes may have what such a task needs besides processors."""
    return needs_nodes(shape) and any(
        processors >= shape.processors and site not in demand.barred and view.pools.whole(site) is None
        for site, processors in enumerate(most)
    )


def replace_one(
    demand: Demand,
    spots: Spots,
    part: int,
    left: Sequence[int],
    transfer_s_max: float,
    view: View,
    under_way_s: UnderWay | None = None,
) -> int:
    """Return another site for one component of a placed job, close to its files; -1 if there is none.

    ``left`` are the processors that are there, by site; the transfers must end within ``transfer_s_max``. A component
    whose site the user chose can only stay there. So can a part of a job that was divided by the load on links, as it
    would load others from another site; and so can tasks, which were mapped by the powers of their sites.
    ``under_way_s`` has the files that are already on their way to a site.
    """
    if demand.policy.form is Form.LINKS and demand.bounds is not None and len(spots.sites) > 1:
        return -1
    if spots.tasks:
        return -1
    left = demand.allowed(left)
    row_s: Sequence[float]
    row_s = transfer_row_s(demand, spots.sizes, part, view, under_way_s) if demand.has_files else (0.0,) * len(left)
    pinned_to = -1 if demand.flexible else demand.shapes[0].sites[part]
    if pinned_to < 0:
        return closest_site(left, spots.sizes[part], row_s, transfer_s_max)
    only_there = [idle if site == pinned_to else 0 for site, idle in enumerate(left)]
    return closest_site(only_there, spots.sizes[part], row_s, transfer_s_max)


def place_spawned(demand: Demand, spots: Spots, idle: Sequence[int], view: View) -> Spots | NoPlace:
    """Return places for the demand's tasks that a running job does not hold at these spots yet.

    They go near the tasks that they exchange data with, on these idle processors. Only spots of new
    components are returned.
    """
    assert demand.tasks is not None
    before = TaskSpots(spots.sites, spots.tasks)
    found = view.lans.spawned(demand.tasks, before, demand.home, demand.allowed(idle))
    return found if isinstance(found, NoPlace) else Spots(found.sites, tuple(map(len, found.tasks)), found.tasks)


def tasks_of(demand: Demand, spots: Spots, part: int) -> tuple[str, ...]:
    """Return the tasks of component ``part``, by name, in the order of their ranks; empty except for a
    job of tasks."""
    if demand.tasks is None:
        return ()
    return tuple([demand.tasks.graph.names[task] for task in spots.tasks[part]])


def to_placement(demand: Demand, spots: Spots, view: View) -> Placement:
    """Return the spots with the names of the sites, and the replica from which each component reads its files."""
    return Placement(
        policy=demand.policy.name,
        components=tuple(
            PlacedComponent(
                index=part,
                site=view.names[site],
                processors=spots.sizes[part],
                tasks=tasks_of(demand, spots, part),
                sources=tuple(
                    FileSource(name=read.file, site=view.names[read.source], transfer_s=read.transfer_s)
                    for read in inputs(demand, spots, part, view)
                ),
            )
            for part, site in enumerate(spots.sites)
        ),
    )
