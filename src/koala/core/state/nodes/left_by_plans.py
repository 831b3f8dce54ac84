"""What plans leave of the nodes: places for one more job that put no plan off, and a check that all plans stand.

A plan for shaped tasks holds if its places are guaranteed at its start time. The tasks of other plans, and of the job
in question, count there as loose tasks: their nodes are unknown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Protocol

from koala.core.state.nodes.future_nodes import FutureNodes
from koala.core.state.nodes.guaranteed_places import KnownNodes, LooseTasks, NodesAtTime, have_room
from koala.core.state.nodes.pools import PLAIN
from koala.model.nodes import NodePool, TaskShape
from koala.policies.interface import Demand, Spots, View, needs_nodes
from koala.policies.view import TaskPool

_MANY = 10**12

# By site: the tasks that go there, by shape.
SiteTasks = dict[int, dict[TaskShape, int]]


class Planned(Protocol):
    """See ``koala.core.state.reservations.Reservation``."""

    at: float
    until: float
    spots: Spots
    demand: Demand | None


def tasks_by_site(demand: Demand | None, spots: Spots) -> SiteTasks:
    """Return the tasks of a job with these places, in the order in which its shapes are placed and claimed."""
    groups = () if demand is None else demand.groups
    parts: Sequence[tuple[TaskShape, Iterable[int]]] = [(group.shape, group.components) for group in groups]
    if len(parts) <= 1:
        parts = [(parts[0][0] if parts else PLAIN, range(len(spots.sites)))]
    found: SiteTasks = {}
    for shape, components in parts:
        for part in components:
            here = found.setdefault(spots.sites[part], {})
            here[shape] = here.get(shape, 0) + spots.sizes[part] // shape.processors
    return found


def has_places(demand: Demand, spots: Spots, view: View) -> bool:
    """Return True if the demand's tasks have these places on the current nodes, one shape after the other."""
    by_site = tasks_by_site(demand, spots)
    for site, tasks in by_site.items():
        pool = view.pool(site)
        left = None if pool is None else pool.copy()
        for shape, count in tasks.items():
            if left is None:
                if needs_nodes(shape):
                    return False
            elif (shape != PLAIN and left.places(shape) < count) or left.take(shape, count):
                return False
    return True


class _Guard:
    """Plans for shapes that begin at a site at one time, and the nodes known there then."""

    __slots__ = ("_needs", "_room")

    def __init__(self, needs: Sequence[tuple[dict[TaskShape, int], NodesAtTime]]) -> None:
        self._needs = needs  # the tasks of each, and the nodes beside all others
        # Known bounds of the room for a shape: a number of tasks that fits, and one that does not.
        self._room: dict[tuple[TaskShape, KnownNodes], tuple[int, int]] = {}

    def stands(self, more: Sequence[LooseTasks] = ()) -> bool:
        """Return True if all of them have guaranteed places beside these tasks."""
        return all(have_room(nodes.beside(more), tasks) for tasks, nodes in self._needs)

    def room_for(self, shape: TaskShape, begin: KnownNodes, most: int, taken: Sequence[LooseTasks]) -> int:
        """Return how many tasks of the shape fit there, at most ``most``."""
        key = shape, begin
        low, beyond = (0, _MANY) if taken else self._room.get(key, (0, _MANY))
        if low >= most:
            return most
        beyond = min(beyond, most + 1)
        middle = beyond - 1  # usually all of them fit
        while beyond - low > 1:
            if self.stands((*taken, LooseTasks(shape, middle, begin))):
                low = middle
            else:
                beyond = middle
            middle = (low + beyond) // 2
        if not taken:
            self._room[key] = low, beyond if low < most else self._room.get(key, (0, _MANY))[1]
        return low


class _SparePool:
    """A ``TaskPool`` of nodes that keeps what plans need that begin later."""

    __slots__ = ("_begin", "_guards", "_nodes", "_taken")

    def __init__(
        self, nodes: TaskPool, begin: KnownNodes, guards: Sequence[_Guard], taken: Sequence[LooseTasks] = ()
    ) -> None:
        self._nodes = nodes
        self._begin = begin
        self._guards = guards
        self._taken = taken

    def places(self, shape: TaskShape) -> int:
        most = self._nodes.places(shape)
        for guard in self._guards:
            most = guard.room_for(shape, self._begin, most, self._taken)
        return most

    def take(self, shape: TaskShape, tasks: int) -> int:
        self._taken = (*self._taken, LooseTasks(shape, tasks, self._begin))
        return self._nodes.take(shape, tasks)

    def copy(self) -> _SparePool:
        return _SparePool(self._nodes.copy(), self._begin, self._guards, self._taken)


class _SparePools:
    """The ``SitePools`` of a time: nodes that are guaranteed, and that no plan before that end needs."""

    changes = 0

    def __init__(self, beside: NodesLeftByPlans, view: View, at: float | None, until: float) -> None:
        self._beside = beside
        self._view = view
        self._at = at
        self._until = until
        self._pools: dict[int, TaskPool | None] = {}

    def free(self, site: int) -> TaskPool | None:
        if site not in self._pools:
            self._pools[site] = self._beside.pool(site, self._view, self._at, self._until)
        return self._pools[site]

    def whole(self, site: int) -> NodePool | None:
        return self._view.pools.whole(site)


class NodesLeftByPlans:
    """The nodes beside the plans of one ``PlanFinder``. ``shaped``: True if some plans are for shapes."""

    def __init__(self, ahead: FutureNodes, now: float, reserved: Sequence[Planned], *, shaped: bool) -> None:
        self._ahead = ahead
        self._now = now
        self._reserved = reserved
        self.shaped = shaped
        self._starts = sorted({each.at for each in reserved})
        self._tasks: list[SiteTasks] | None = None
        self._guards: dict[float, dict[int, _Guard]] = {}  # by start
        self._views: dict[tuple[float | None, int, int], tuple[View, View]] = {}  # with their source views
        self._between: dict[tuple[int, int], dict[int, list[_Guard]]] = {}  # by range of the starts

    # ------------------------------------------------------------------------------------------- queries

    def view_of(self, view: View, at: float | None, until: float) -> View:
        """Return what a demand with shapes sees: places that put no plan off that begins before ``until``.

        They are guaranteed from ``at`` on or, without a time, those that exist now.
        """
        begin = self._now if at is None else at
        key = at, bisect_left(self._starts, begin), bisect_left(self._starts, until)
        known = self._views.get(key)
        if known is None or known[0] is not view:
            known = self._views[key] = view, view.with_pools(_SparePools(self, view, at, until))
        return known[1]

    def spared(self, idle: Sequence[int], at: float | None, until: float) -> list[int]:
        """Return how many of these processors put no plan for shapes off."""
        found = list(idle)
        for site, guards in self._guards_between(self._now if at is None else at, until).items():
            begin = self._begin(site, at)
            for guard in guards:
                found[site] = guard.room_for(PLAIN, begin, found[site], ())
        return found

    def allow(self, demand: Demand | None, spots: Spots, at: float | None, until: float) -> bool:
        """Return True if a job with these places has room on the nodes and puts no plan off that
        begins before ``until``.

        Without a time ``at``, the job's own room is not checked.
        """
        begin = self._now if at is None else at
        shaped = at is not None and demand is not None and bool(demand.groups)
        guards = self._guards_between(begin, until) if self.shaped else {}
        if not shaped and not guards:
            return True
        for site, tasks in tasks_by_site(demand, spots).items():
            nodes = self._ahead.at(site, begin)
            if nodes is None:
                if shaped and any(needs_nodes(shape) for shape in tasks):
                    return False
                continue
            if shaped and not self._has_room(site, begin, tasks):
                return False
            loose = [LooseTasks(shape, count, self._begin(site, at)) for shape, count in tasks.items()]
            if any(not guard.stands(loose) for guard in guards.get(site, ())):
                return False
        return True

    def spare(self, demand: Demand | None, spots: Spots, until: float) -> bool:
        """Return True if a job that has these places from now on, even on nodes that are not free yet, puts
        no plan off."""
        guards = self._guards_between(self._now, until)
        for site, tasks in tasks_by_site(demand, spots).items():
            here = guards.get(site)
            if here:
                begin = self._begin(site, self._now)
                loose = [LooseTasks(shape, count, begin) for shape, count in tasks.items()]
                if not all(guard.stands(loose) for guard in here):
                    return False
        return True

    def stand(self) -> bool:
        """Return True if all plans have guaranteed places."""
        if not self.shaped:
            return True
        guards = [guard for start in self._starts for guard in self._guards_at(start).values()]
        return all(guard.stands() for guard in guards) and all(
            self._ahead.at(site, each.at) is not None
            for each, by_site in zip(self._reserved, self._all_tasks(), strict=True)
            for site, tasks in by_site.items()
            if any(needs_nodes(shape) for shape in tasks)
        )

    # ------------------------------------------------------------------------------------------ pools

    def pool(self, site: int, view: View, at: float | None, until: float) -> TaskPool | None:
        """Return the nodes of a site for tasks that begin then, or now, and end by ``until``."""
        begin = self._now if at is None else at
        nodes = self._ahead.at(site, begin)
        if nodes is None:
            return view.pool(site)
        guards = self._guards_between(begin, until).get(site, ())
        there: TaskPool | None = view.pool(site) if at is None else nodes.beside(self._loose_at(site, begin))
        return None if there is None else _SparePool(there, self._begin(site, at), guards)

    def _begin(self, site: int, at: float | None) -> KnownNodes:
        """Return the nodes for tasks that begin then, or now; the site reports its nodes."""
        if at is None:
            return self._ahead.begin_now(site)
        nodes = self._ahead.at(site, at)
        assert nodes is not None
        return nodes.begin

    def _has_room(self, site: int, at: float, tasks: dict[TaskShape, int]) -> bool:
        """Return True if these tasks have guaranteed places beside the plans that are there then."""
        nodes = self._ahead.at(site, at)
        assert nodes is not None
        return have_room(nodes.beside(self._loose_at(site, at)), tasks)

    def _loose_at(self, site: int, at: float, but: int = -1) -> list[LooseTasks]:
        """Return the tasks of plans that are there then, without those of one plan."""
        found = []
        for number, (each, by_site) in enumerate(zip(self._reserved, self._all_tasks(), strict=True)):
            if number != but and each.at <= at < each.until and site in by_site:
                nodes = self._ahead.at(site, max(each.at, self._now))
                assert nodes is not None
                found += [LooseTasks(shape, tasks, nodes.begin) for shape, tasks in by_site[site].items()]
        return found

    def _all_tasks(self) -> list[SiteTasks]:
        if self._tasks is None:
            self._tasks = [tasks_by_site(each.demand, each.spots) for each in self._reserved]
        return self._tasks

    # ----------------------------------------------------------------------------------------- guards

    def _guards_between(self, begin: float, until: float) -> dict[int, list[_Guard]]:
        """Return the guards of plans that begin from ``begin`` on and before ``until``, by site."""
        if not self.shaped:
            return {}
        span = bisect_left(self._starts, begin), bisect_left(self._starts, until)
        found = self._between.get(span)
        if found is None:
            found = self._between[span] = {}
            for start in self._starts[slice(*span)]:
                for site, guard in self._guards_at(start).items():
                    found.setdefault(site, []).append(guard)
        return found

    def _guards_at(self, start: float) -> dict[int, _Guard]:
        guards = self._guards.get(start)
        if guards is None:
            sites = {
                site
                for each, by_site in zip(self._reserved, self._all_tasks(), strict=True)
                if each.at == start
                for site, tasks in by_site.items()
                if any(shape != PLAIN for shape in tasks)
            }
            made = ((site, self._made(site, start)) for site in sorted(sites))
            guards = self._guards[start] = {site: guard for site, guard in made if guard is not None}
        return guards

    def _made(self, site: int, start: float) -> _Guard | None:
        nodes = self._ahead.at(site, start)
        if nodes is None:
            return None
        needs = []
        for number, (each, by_site) in enumerate(zip(self._reserved, self._all_tasks(), strict=True)):
            if each.at != start or site not in by_site:
                continue
            if any(shape != PLAIN for shape in by_site[site]):
                needs.append((by_site[site], nodes.beside(self._loose_at(site, start, number))))
        return _Guard(needs)
