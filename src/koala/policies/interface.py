"""The interface of the policies for the core, the simulator and the CLI: from a request to places and back.

A request is compiled to a ``Demand`` once; ``try_place`` then answers from a ``View``, as site indexes, and
``to_placement`` gives them their names. A failed try is explained by ``refuse``. Nothing here changes the view.
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
    """Where the demand goes on the processors that are idle now; None where it does not fit. All or nothing.

    The scheduler calls this for every waiting job at every scan, so the two quick answers come first: no site
    is large enough, and the most idle site simply takes it all.
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
    """Whether its policy would place the demand if these processors, the most that sites ever have, were all idle
    and nothing on any link. Where a file has no replica yet, or the policy is somebody else's, nobody can say: then
    it counts as possible."""
    if demand.policy.checked or demand.rule.checked or missing_file(demand, view) is not None:
        return True
    empty = view.unloaded()
    if demand.groups:
        if any(_may_be_untold(group.shape, demand, most, view) for group in demand.groups):
            return True
        empty = empty.with_whole_nodes()
    return place_on(demand, demand.allowed(most), empty) is not None


def _may_be_untold(shape: TaskShape, demand: Demand, most: Sequence[int], view: View) -> bool:
    """Whether a site that has not told of its nodes may have what such a task needs beside processors."""
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
    """Another site for one component of a placed job, close to its files; -1 where there is none.

    ``left`` are the processors that are there, by site; the transfers must end within ``transfer_s_max``. A
    component whose site the user chose can only stay there, and so does a part of a job that was divided with an eye
    on the links: on another site it would load others. So do tasks, which were mapped by the powers of their sites.
    ``under_way_s`` tells of files that are being brought to a
    site already.
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
    """Where those tasks of the demand go that a running job does not hold at these spots: near those that they
    exchange with, on these idle processors. The spots of new components alone."""
    assert demand.tasks is not None
    before = TaskSpots(spots.sites, spots.tasks)
    found = view.lans.spawned(demand.tasks, before, demand.home, demand.allowed(idle))
    return found if isinstance(found, NoPlace) else Spots(found.sites, tuple(map(len, found.tasks)), found.tasks)


def tasks_of(demand: Demand, spots: Spots, part: int) -> tuple[str, ...]:
    """The tasks that component ``part`` holds, by name, in the order of their ranks; none but of a job of tasks."""
    if demand.tasks is None:
        return ()
    return tuple([demand.tasks.graph.names[task] for task in spots.tasks[part]])


def to_placement(demand: Demand, spots: Spots, view: View) -> Placement:
    """The spots with the names of the sites, and the replica that each component reads its files from."""
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
