"""Placing a job of communicating tasks: by WASE, with sites as LANs and their idle processors as machines.

Each task takes one processor. The tasks of one site become one component. ``koala.mapping`` makes the mapping; this
module translates the scheduler's numbers to its terms and back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from koala.mapping.clustering.catalogue import cluster
from koala.mapping.placing.catalogue import map_tasks
from koala.mapping.placing.power_left import PowerLeft
from koala.mapping.placing.spawning import joined, map_spawned
from koala.mapping.result import NoPlace, TaskMapping, plurality_lan
from koala.mapping.site_lans import MachineClass, NodePowers, arranged, machines_of, seen_grid
from koala.model.dendrogram import LAN, MACHINES_MAX, Dendrogram, Machine
from koala.model.grid import Grid, Site
from koala.model.request import InvalidRequestError, Request
from koala.model.task_graph import InvalidTaskGraphError, SpawnedTasks, TaskGraph

# At most this many trees of machines are kept, by the number of tasks that they have room for.
TREES_KEPT = 8
# The clusters of at most this many graphs are kept.
CLUSTERINGS_KEPT = 64


class ClusteredTasks(NamedTuple):
    """The task graph of a request, and its clusters: given by the user, or else found once."""

    graph: TaskGraph
    clusters: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, request: Request) -> ClusteredTasks | None:
        """Return the clustered tasks of a request, None if it has no tasks."""
        if request.tasks is None:
            return None
        clusters = request.task_clusters or _found(request.tasks)
        return cls(request.tasks, clusters)

    def grown(self, spawned: SpawnedTasks) -> ClusteredTasks:
        """Return the same with these tasks added, each in the cluster that it exchanges the most data with."""
        graph = spawned.join(self.graph)
        return ClusteredTasks(graph, joined(graph, self.clusters))

    def dealt(self, sizes: Sequence[int]) -> tuple[tuple[int, ...], ...]:
        """Deal the tasks over parts of these sizes, cluster by cluster, so that few clusters are cut.

        A policy that ignores tasks has made the parts.
        """
        in_order = [task for tasks in self.clusters for task in tasks]
        parts: list[tuple[int, ...]] = []
        for size in sizes:
            taken, in_order = in_order[:size], in_order[size:]
            parts.append(tuple(sorted(taken)))
        return tuple(parts)


def with_spawned(request: Request, spawned: Sequence[SpawnedTasks]) -> Request:
    """Return the request of a job of tasks with the tasks that came while it ran. Raises ``InvalidRequestError``."""
    tasks = ClusteredTasks.of(request)
    if tasks is None:
        raise InvalidRequestError("tasks", "it is no job of tasks; only such a job can spawn some")
    try:
        tasks = tasks.grown(_together(spawned))
    except InvalidTaskGraphError as error:
        raise InvalidRequestError(error.part, error.message) from None
    component = replace(request.components[0], processors=len(tasks.graph.names))
    return replace(request, components=(component,), tasks=tasks.graph, task_clusters=tasks.clusters)


def _together(spawned: Sequence[SpawnedTasks]) -> SpawnedTasks:
    """Merge all of them: a graph is large, and growing it takes time."""
    rcr: dict[str, float] = {}
    for each in spawned:
        for name in each.names:
            if name in rcr:
                raise InvalidTaskGraphError(f"task {name}", "there is one already; give the spawned one another name")
        rcr |= dict(zip(each.names, each.rcr, strict=True))
    return SpawnedTasks.of(rcr, [edge for each in spawned for edge in each.edges])


@lru_cache(maxsize=CLUSTERINGS_KEPT)
def _found(graph: TaskGraph) -> tuple[tuple[int, ...], ...]:
    """Return the clusters of a graph: jobs often share one, and a restart reads them all again."""
    return cluster(graph, "local-search").clusters


class TaskSpots(NamedTuple):
    """By component, its site, and its tasks in the order of their ranks."""

    sites: tuple[int, ...]
    tasks: tuple[tuple[int, ...], ...]


class SiteLans:
    """The sites of a grid as LANs: their place in the tree, and the powers of their processors."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._powers = [NodePowers(site) for site in grid.sites]
        self.index = {site.name: index for index, site in enumerate(grid.sites)}
        self._trees: dict[int, tuple[Dendrogram, list[int]]] = {}
        self.machines: dict[int, tuple[MachineClass, ...]] = {}  # as measured, by site
        self.latency_s: dict[tuple[int, int], float] = {}  # as measured, by link
        self.bytes_per_s: dict[tuple[int, int], float] = {}
        self._seen: Grid | None = grid

    def measured(self, site: int, machines: Sequence[tuple[int, float, float]]) -> None:
        """Set the measured machines of a site; none if nothing is known."""
        self.machines[site] = tuple(MachineClass(*each) for each in machines)
        self._powers[site] = NodePowers(self._grid.sites[site], self.machines[site])

    def believe(self, values: dict[tuple[int, int], float], link: tuple[int, int], value: float | None) -> None:
        """Set the measured value of a link, in ``latency_s`` or ``bytes_per_s``; None to forget it."""
        if value is None:
            values.pop(link, None)
        else:
            values[link] = value
        self._trees.clear()
        self._seen = None

    @property
    def seen(self) -> Grid:
        """The grid, with the measurements of its links."""
        if self._seen is None:
            self._seen = seen_grid(self._grid, self.latency_s, self.bytes_per_s)
        return self._seen

    def classes(self, site: int) -> tuple[list[MachineClass], bool]:
        """Return the machines of a site, equal ones together, and True if these include measurements."""
        described, measured = self._grid.sites[site], self.machines.get(site, ())
        counts: dict[tuple[float, float], int] = {}
        for processors, power, load in machines_of(described, measured):
            counts[power, load] = counts.get((power, load), 0) + processors
        found = [MachineClass(processors, *kind) for kind, processors in counts.items()]
        return found, bool(measured) and not described.nodes

    def unloaded(self) -> SiteLans:
        """Return the same without the load of others, and with at least the power in the grid file."""
        if not any(self.machines.values()):
            return self
        other = SiteLans(self._grid)
        other.latency_s, other.bytes_per_s, other._seen = self.latency_s, self.bytes_per_s, self._seen
        for index, machines in self.machines.items():
            least = self._grid.sites[index].node_power
            other.measured(index, [(each.processors, max(each.power, least), 0.0) for each in machines])
        return other

    @classmethod
    def alike(cls, names: Sequence[str], processors: Sequence[int]) -> SiteLans:
        """Return sites with nothing known except their sizes."""
        sites = [Site(name=name, processors=count) for name, count in zip(names, processors, strict=True)]
        return cls(Grid(sites=tuple(sites)))

    def placed(self, tasks: ClusteredTasks, method: str, home: int, idle: Sequence[int]) -> TaskSpots | NoPlace:
        """Return where the tasks go on these idle processors; the search begins at the home (-1: the first site)."""
        tree, site_of = self._tree(len(tasks.graph.names))
        left = self._left(tree, site_of, idle, [0] * len(self._powers))
        answer = map_tasks(tasks.graph, tasks.clusters, tree, method, user_lan=self._user_lan(home), left=left)
        return answer if isinstance(answer, NoPlace) else _by_site(answer, tree, site_of)

    def spawned(
        self, tasks: ClusteredTasks, before: TaskSpots, home: int, idle: Sequence[int]
    ) -> TaskSpots | NoPlace:
        """Return places on these idle processors for the tasks that ``before`` does not hold.

        They go near the tasks that they exchange data with; those stay.
        """
        tree, site_of = self._tree(len(tasks.graph.names))
        flat = tree.flat
        held = [0] * len(self._powers)
        lan_of = {site: lan for lan, site in enumerate(site_of)}
        machines = [0] * sum(map(len, before.tasks))
        for site, here in zip(before.sites, before.tasks, strict=True):
            sons = flat.levels[LAN].sons[lan_of[site]]
            for task in here:
                machines[task] = sons[min(held[site], len(sons) - 1)]
                held[site] += 1
        first = [tuple(task for task in cluster if task < len(machines)) for cluster in tasks.clusters]
        clusters = tuple(filter(None, first))
        running = TaskMapping(
            method="spawned",
            clusters=clusters,
            machines=tuple(machines),
            affinities=(1.0,) * len(machines),
            homes=tuple([plurality_lan(flat, [machines[task] for task in cluster]) for cluster in clusters]),
        )
        left = self._left(tree, site_of, idle, held)
        answer = map_spawned(tasks.graph, running, tree, left=left, user_lan=self._user_lan(home))
        return answer if isinstance(answer, NoPlace) else _by_site(answer, tree, site_of, len(machines))

    def _left(self, tree: Dendrogram, site_of: Sequence[int], idle: Sequence[int], held: Sequence[int]) -> PowerLeft:
        """Return what is left of the machines: in each LAN the held ones come first, then as many as are idle."""
        left = PowerLeft(tree.flat, exclusive=True)
        left.power.clear()
        for lan, machines in enumerate(tree.flat.levels[LAN].sons):
            site = site_of[lan]
            taken = min(held[site], len(machines))
            powers = self._powers[site].best_of_weakest(idle[site], len(machines) - taken)
            left.lan_best[lan] = powers[0] if powers else 0.0
            left.power += [0.0] * taken + powers + [0.0] * (len(machines) - taken - len(powers))
        return left

    def _user_lan(self, home: int) -> str:
        return self._grid.sites[max(home, 0)].name

    def _tree(self, tasks: int) -> tuple[Dendrogram, list[int]]:
        """Return a tree in which each site has room for this many tasks, and the index of the site of each LAN."""
        found = self._trees.get(tasks)
        if found is None:
            if len(self._trees) >= TREES_KEPT:
                self._trees.clear()
            tree = arranged(self.seen, lambda site: _room(site, min(tasks, MACHINES_MAX // len(self._powers))))
            found = self._trees[tasks] = tree, [self.index[name] for name in tree.flat.levels[LAN].names]
        return found


def _by_site(answer: TaskMapping, tree: Dendrogram, site_of: Sequence[int], first: int = 0) -> TaskSpots:
    """Return the tasks from ``first`` on, grouped by site."""
    by_site: dict[int, list[int]] = {}
    for task, machine in enumerate(answer.machines[first:], start=first):
        by_site.setdefault(site_of[tree.flat.machine_lan[machine]], []).append(task)
    return TaskSpots(tuple(by_site), tuple(map(tuple, by_site.values())))


def _room(site: Site, most: int) -> tuple[Machine, ...]:
    """Return machines that stand for the site's processors; their powers are set at each try."""
    return tuple(Machine(name=f"{site.name}/{number}", power=1.0) for number in range(min(site.processors, most)))
