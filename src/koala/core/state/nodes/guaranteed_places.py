"""Guaranteed places: how many tasks of a shape find room, wherever a site puts the tasks of others.

A report of the site shows which nodes its holders are on. For tasks that have not begun, or that no report shows yet,
that is unknown: they are *loose*. A place is guaranteed if it exists for every spread of the loose tasks over the
nodes that they may be on. All bounds rest on one fact: a node with ``a`` of a resource has room for ``a // s`` tasks,
and without ``x`` of it for at least ``a // s - ceil(x / s)``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from koala.core.state.nodes.pools import PLAIN
from koala.model.nodes import NodeSize, TaskShape, places_of

_MANY = 10**30

# The unit of what is held in unknown parts: a GPU or a byte of memory, on any node.
GPU = TaskShape(0, 0, 1)
BYTE = TaskShape(0, 1)


class KnownNodes:
    """What is free of the nodes of a site at one time apart from loose tasks, by class; results are cached."""

    __slots__ = ("_before", "_changed", "_costs", "_on", "_places", "classes", "counts", "features", "free")

    def __init__(
        self,
        free: Sequence[NodeSize],
        features: Sequence[tuple[str, ...]],
        counts: Sequence[int],
        classes: Sequence[int] | None = None,
    ) -> None:
        self.free = free
        self.features = features
        self.counts = counts
        self.classes = range(len(free)) if classes is None else classes  # the classes in the site's report
        self._before: KnownNodes | None = None  # the same except for these rows
        self._changed: Sequence[int] = ()
        self._places: dict[TaskShape, int] = {}
        self._on: dict[TaskShape, list[int]] = {}
        self._costs: dict[tuple[object, ...], list[tuple[int, int]]] = {}

    def places(self, shape: TaskShape) -> int:
        """Return the room for tasks of the shape, beside nothing loose."""
        places = self._places.get(shape)
        if places is None:
            on = self.places_on(shape)
            places = self._places[shape] = sum([here * count for here, count in zip(on, self.counts, strict=True)])
        return places

    def places_on(self, shape: TaskShape) -> list[int]:
        """Return the same for one node of each class."""
        on = self._on.get(shape)
        if on is None:
            if self._before is None:
                rows = zip(self.free, self.features, strict=True)
                on = [places_of(free, features, shape) for free, features in rows]
            else:
                known, changed = self._before, dict.fromkeys(self._changed)
                while known._before is not None and shape not in known._on:
                    changed |= dict.fromkeys(known._changed)
                    known = known._before
                on = list(known.places_on(shape))
                for row in changed:
                    on[row] = places_of(self.free[row], self.features[row], shape)
            self._on[shape] = on
        return on

    def changed(self, free: Sequence[NodeSize], rows: Sequence[int]) -> KnownNodes:
        """Return the same with these free resources; only these rows differ."""
        other = KnownNodes(free, self.features, self.counts, self.classes)
        other._before, other._changed = self, rows
        return other

    @property
    def is_one_node(self) -> bool:
        """True if everything is on one node, with GPUs of one kind, so that nothing can be spread."""
        return len(self.counts) == 1 and self.counts[0] == 1 and len(self.free[0].gpus) <= 1

    def without(self, shape: TaskShape, tasks: int) -> KnownNodes:
        """Return the same after this many tasks, which have room, were put on the nodes where they fit best."""
        rows = list(zip(self.free, self.features, self.counts, self.classes, strict=True))
        on = self.places_on(shape)
        order = sorted(
            [index for index, here in enumerate(on) if here],
            key=lambda index: (rows[index][0].fit(shape), rows[index]),
        )
        found: list[tuple[NodeSize, tuple[str, ...], int, int]] = []
        for index in order:
            free, features, count, number = rows[index]
            full = min(count, tasks // on[index])
            tasks -= full * on[index]
            found.append((free.without(shape, on[index]), features, full, number))
            if full < count and tasks:
                found.append((free.without(shape, tasks), features, 1, number))
                full, tasks = full + 1, 0
            found.append((free, features, count - full, number))
        found += [rows[index] for index, here in enumerate(on) if not here]
        kept = [row for row in found if row[2]]
        return KnownNodes(
            [row[0] for row in kept], [row[1] for row in kept], [row[2] for row in kept], [row[3] for row in kept]
        )

    def costs(self, shape: TaskShape, resource: str, loose: Sequence[LooseTasks]) -> list[tuple[int, int]]:
        """Return the cost in the resource of undoing places of the shape on nodes where these tasks may be.

        The steps are (total cost, number of places), the cheapest per place first. The first entry is the cost of
        undoing any place, with no places.
        """
        key = (shape, resource, *((each.shape, each.begin) for each in loose))
        costs = self._costs.get(key)
        if costs is None:
            found: dict[tuple[int, int], int] = {}
            fewest = _MANY
            may_be = [each.begin.places_on(each.shape) for each in loose if each.shape.processors]
            anywhere = len(may_be) < len(loose)
            for index, (places, count) in enumerate(zip(self.places_on(shape), self.counts, strict=True)):
                if not places or not (anywhere or any(on[self.classes[index]] for on in may_be)):
                    continue
                least, steps = _costs_on(self.free[index], shape, places, resource)
                fewest = min(fewest, least)
                for step in steps:
                    found[step] = found.get(step, 0) + count
            cheapest = sorted(found, key=lambda step: Fraction(*step))
            together = [(cost * found[cost, places], places * found[cost, places]) for cost, places in cheapest]
            costs = self._costs[key] = [(fewest, 0), *together] if found else []
        return costs


class LooseTasks(NamedTuple):
    """This many tasks, each on any node that has room for one of them as they begin; or parts without processors, see
    ``GPU`` and ``BYTE``."""

    shape: TaskShape
    tasks: int
    begin: KnownNodes


class NodesAtTime:
    """Known nodes beside loose tasks.

    ``begin`` are the nodes for tasks that begin at a future time: others may end early, so these are all nodes.
    """

    __slots__ = ("_places", "begin", "known", "loose")

    def __init__(self, known: KnownNodes, loose: Sequence[LooseTasks], begin: KnownNodes | None = None) -> None:
        self.known = known
        self.loose = loose
        self.begin = known if begin is None else begin
        self._places: dict[TaskShape, int] = {}

    def places(self, shape: TaskShape) -> int:
        """Return the guaranteed places."""
        if not self.loose:
            return self.known.places(shape)
        places = self._places.get(shape)
        if places is None:
            places = self._places[shape] = sure_places(self.known, shape, self.loose)
        return places

    def beside(self, more: Sequence[LooseTasks]) -> NodesAtTime:
        """Return the same with more loose tasks."""
        return NodesAtTime(self.known, (*self.loose, *more), self.begin) if more else self

    def take(self, shape: TaskShape, tasks: int) -> int:
        """See ``TaskPool``. Without loose tasks the nodes of these tasks are known: those where they fit best."""
        if self.loose:
            self.loose = (*self.loose, LooseTasks(shape, tasks, self.begin))
        else:
            self.known = self.known.without(shape, tasks)
        self._places = {}
        return 0

    def copy(self) -> NodesAtTime:
        """See ``TaskPool``."""
        return NodesAtTime(self.known, self.loose, self.begin)


def have_room(nodes: NodesAtTime, tasks: Mapping[TaskShape, int]) -> bool:
    """Return True if these tasks of one job, one shape after the other, have guaranteed places.

    Plain tasks have any processor, and there are enough.
    """
    if len(tasks) == 1:
        return all(shape == PLAIN or nodes.places(shape) >= count for shape, count in tasks.items())
    left = nodes.copy()
    for shape, count in tasks.items():
        if shape != PLAIN and left.places(shape) < count:
            return False
        left.take(shape, count)
    return True


def sure_places(known: KnownNodes, shape: TaskShape, loose: Sequence[LooseTasks]) -> int:
    """Return the places for tasks of the shape that exist wherever the loose tasks are."""
    places = known.places(shape)
    if not places:
        return 0
    if known.is_one_node:
        return _on_one_node(known, shape, loose)
    loose = [each for each in _joined(loose) if known.costs(shape, "processors", (each,))]
    if not loose:
        return places
    fine = [each for each in loose if _is_fine(each.shape)]
    harm = [each.tasks * _harm(each.shape, shape) for each in loose]
    shaped_harm = sum([here for each, here in zip(loose, harm, strict=True) if not _is_fine(each.shape)])
    # One bound may use what nodes have beyond their places: for all loose tasks together, or for the smallest.
    bounds = [sum(harm), _spread(known, shape, loose), _most(known, shape, loose)]
    if fine and len(fine) < len(loose):
        bounds.append(_spread(known, shape, fine) + shaped_harm)
    return max(0, places - min(bounds))


def _is_fine(shape: TaskShape) -> bool:
    return shape == PLAIN or not shape.processors


def _joined(loose: Sequence[LooseTasks]) -> list[LooseTasks]:
    """Merge loose tasks that are alike."""
    if len(loose) == 1:
        return list(loose)
    counts: dict[tuple[TaskShape, KnownNodes], int] = {}
    for each in loose:
        counts[each.shape, each.begin] = counts.get((each.shape, each.begin), 0) + each.tasks
    return [LooseTasks(shape, tasks, begin) for (shape, begin), tasks in counts.items() if tasks > 0]


def _most(known: KnownNodes, shape: TaskShape, loose: Sequence[LooseTasks]) -> int:
    """Return all places on nodes where one of these tasks may be."""
    return sum([places for _, places in known.costs(shape, "processors", loose)])


def _spread(known: KnownNodes, shape: TaskShape, loose: Sequence[LooseTasks]) -> int:
    """Return the most places that any spread of these tasks can undo, even in parts of tasks."""
    lost = 0
    for resource, amount in _amounts(shape, loose):
        costs = known.costs(shape, resource, loose) if amount else ()
        if not costs or amount < costs[0][0]:
            continue
        for cost, places in costs[1:]:
            if amount < cost:
                lost += amount * places // cost
                break
            lost += places
            amount -= cost
    return lost


def _amounts(shape: TaskShape, loose: Sequence[LooseTasks]) -> list[tuple[str, int]]:
    """Return how much the loose tasks hold of what tasks of the shape need."""
    found = [("processors", sum([each.tasks * each.shape.processors for each in loose]))]
    if shape.memory_bytes:
        found.append(("memory", sum([each.tasks * each.shape.memory_bytes for each in loose])))
    if shape.gpus:
        same_kind = [each for each in loose if _may_share_gpus(each.shape, shape)]
        found.append(("gpus", sum([each.tasks * each.shape.gpus for each in same_kind])))
    return found


def _costs_on(free: NodeSize, shape: TaskShape, places: int, resource: str) -> tuple[int, list[tuple[int, int]]]:
    """Return the cost of undoing any of these places on the node, and the steps of the cost line.

    The steps are (cost, places) of the concave line over what each amount undoes. With a looser line, places would be
    lost once the location of a part is known.
    """
    if resource == "processors":
        have, need = free.processors, shape.processors
    elif resource == "memory":
        if not free.counts_memory:
            return _MANY, [(_MANY, places)]
        have, need = free.memory_bytes, shape.memory_bytes
    else:
        kinds = [count for kind, count in free.gpus if not shape.gpu or kind == shape.gpu]
        if len(kinds) > 1:
            return 1, [(places, places)]  # a part of one kind is of no use with a part of another
        have, need = kinds[0], shape.gpus
    first, rest = have - places * need + 1, (places - 1) * need
    if need >= first and rest:
        return first, [(first, 1), (rest, places - 1)]
    return first, [(first + rest, places)]  # undoing all of them costs the least for each


def _harm(loose: TaskShape, shape: TaskShape) -> int:
    """Return how many places of the shape one loose task can undo."""
    harm = -(-loose.processors // shape.processors)
    if shape.memory_bytes:
        harm = max(harm, -(-loose.memory_bytes // shape.memory_bytes))
    if shape.gpus and _may_share_gpus(loose, shape):
        harm = max(harm, -(-loose.gpus // shape.gpus))
    return harm


def _may_share_gpus(one: TaskShape, other: TaskShape) -> bool:
    return bool(one.gpus) and (not one.gpu or not other.gpu or one.gpu == other.gpu)


def _on_one_node(known: KnownNodes, shape: TaskShape, loose: Sequence[LooseTasks]) -> int:
    free, features = known.free[0], known.features[0]
    for each in loose:
        if each.shape.processors:
            room = places_of(free, features, each.shape)
        else:
            room = free.gpus_of() if each.shape.gpus else free.memory_bytes
        if room < each.tasks:
            return 0  # more than there is: what is let go of first is unknown
        free = free.without(each.shape, each.tasks)
    return places_of(free, features, shape)
