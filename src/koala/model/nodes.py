"""The shape of a task, the nodes of a site by class, and the number of tasks of a shape that fit on them.

Equal nodes are one class with a count, so that a hundred thousand nodes cost what their classes cost. All numbers are
whole. Nothing here knows who holds what; callers take held resources off a ``NodePool``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

# The most GPUs and memory (an exabyte) of one task.
TASK_GPUS_MAX = 1_024
TASK_MEMORY_BYTES_MAX = 10**18
# The least memory that a task can ask for: hardly a program starts with less.
TASK_MEMORY_BYTES_MIN = 16 * 2**20
# The longest constraint, and the longest name of a GPU kind.
CONSTRAINT_CHARACTERS_MAX = 255
# A site reports at most this many classes of nodes; further nodes are reported smaller than they are.
NODE_CLASSES_MAX = 256
# A site reports who holds what of its nodes in at most this many classes; with more it leaves out the holders.
HELD_CLASSES_MAX = 2_048

# A site reports at most this many ends of other users' jobs; the later ones count as one.
RELEASES_MAX = 256

# A component avoids at most this many nodes of its site: those of the last failures.
EXCLUDED_NODES_MAX = 16
# A site names at most this many nodes, of kinds with no more than ``EXCLUDED_NODES_MAX`` nodes.
NAMED_NODES_MAX = 64

# The number of pairs of a node and a shape whose places are cached.
PLACES_REMEMBERED = 65_536

# The memory of a node that does not report it.
UNTOLD = -1

GPU_KIND_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_FEATURE = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
# Features that must all be present (a&b), or at least one of them (a|b).
CONSTRAINT_PATTERN = rf"^{_FEATURE}((&{_FEATURE})*|(\|{_FEATURE})*)$"
_CONSTRAINT = re.compile(CONSTRAINT_PATTERN)
_GPU_KIND = re.compile(GPU_KIND_PATTERN)
_GIBIBYTE = 2**30
# More tasks than any node ever has.
_MANY = 10**12


class TaskNeeds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The needs of each task of a component beside its processors: memory, GPUs (of one kind, or of any), and
    features of its node."""

    memory_bytes: int = 0
    gpus: int = 0
    gpu: str = ""
    constraint: str = ""

    def problem(self) -> tuple[str, str] | None:
        """Return the wrong field, with the problem and what to write; None if nothing is wrong."""
        if not 0 <= self.memory_bytes <= TASK_MEMORY_BYTES_MAX:
            return "memory", f"{self.memory_bytes} bytes is not a size of memory; write 0 to {TASK_MEMORY_BYTES_MAX}"
        if not 0 <= self.gpus <= TASK_GPUS_MAX:
            return "gpus", f"{self.gpus} is not a number of GPUs; write 0 to {TASK_GPUS_MAX} (TASK_GPUS_MAX)"
        if self.gpu and not self.gpus:
            return "gpu", f"it names the kind {self.gpu} and no GPUs; write gpus: 1 or more, or leave the kind out"
        if self.gpu and (len(self.gpu) > CONSTRAINT_CHARACTERS_MAX or _GPU_KIND.fullmatch(self.gpu) is None):
            return "gpu", f"{self.gpu[:40]!r} is not a kind of GPU; write letters, digits, '.', '_' and '-'"
        if len(self.constraint) > CONSTRAINT_CHARACTERS_MAX:
            most = f"{CONSTRAINT_CHARACTERS_MAX} characters (CONSTRAINT_CHARACTERS_MAX)"
            return "constraint", f"longer than {most}; write a shorter one"
        if self.constraint and _CONSTRAINT.fullmatch(self.constraint) is None:
            return "constraint", f"{self.constraint!r} is not a constraint; write features such as a, a&b or a|b"
        return None


class TaskShape(msgspec.Struct, frozen=True, order=True):
    """All resources that one task holds. Tasks of the same shape are alike to every site."""

    processors: int = 1
    memory_bytes: int = 0
    gpus: int = 0
    gpu: str = ""
    constraint: str = ""

    @classmethod
    def of(cls, processors: int, needs: TaskNeeds | None) -> TaskShape:
        """Return the shape of a task with this many processors and these needs."""
        if needs is None:
            return cls(processors)
        return cls(processors, needs.memory_bytes, needs.gpus, needs.gpu, needs.constraint)

    @property
    def gpu_word(self) -> str:
        """The word for its GPUs."""
        return self.gpu or "GPU"

    def __str__(self) -> str:
        """Format the shape, such as ``4 processors, 16 GiB and 1 a100``."""
        parts = ["1 processor" if self.processors == 1 else f"{self.processors} processors"]
        if self.memory_bytes:
            parts.append(memory_text(self.memory_bytes))
        if self.gpus:
            parts.append(gpus_text(self.gpus, self.gpu))
        text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        return f"{text} ({self.constraint})" if self.constraint else text


def gpus_text(count: int, kind: str) -> str:
    """Format a number of GPUs."""
    if kind:
        return f"{count} {kind}"
    return "1 GPU" if count == 1 else f"{count} GPUs"


def gpu_time_text(gpu_s: float) -> str:
    """Format GPU time, in hours where it is long enough."""
    return f"{gpu_s:.0f} GPU seconds" if gpu_s < 360 else f"{gpu_s / 3600:,.1f} GPU hours"


def processor_time_text(used_s: float, held_s: float) -> str:
    """Format processor time used and held, in hours where it is long enough, with the share."""
    share = f" ({used_s / held_s:.0%})" if held_s > 0 else ""
    if held_s < 36_000:
        return f"{used_s:,.1f} of {held_s:,.1f} processor seconds{share}"
    return f"{used_s / 3600:,.1f} of {held_s / 3600:,.1f} processor hours{share}"


def memory_text(size_bytes: int) -> str:
    """Format a size of memory in the largest binary unit that leaves it whole, or with one decimal."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        scale = 1024**power
        if size_bytes >= scale:
            return f"{size_bytes // scale} {unit}" if size_bytes % scale == 0 else f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} B"


def meets(constraint: str, features: Iterable[str]) -> bool:
    """Return True if a node with these features satisfies the constraint."""
    if not constraint:
        return True
    there = set(features)
    if "|" in constraint:
        return not there.isdisjoint(constraint.split("|"))
    return there.issuperset(constraint.split("&"))


class NodeSize(NamedTuple):
    """The resources of a node, or its free ones: ``gpus`` by kind ('' where the node does not name it), in the order
    of the kinds.

    Where nobody tracks the use of its memory (not ``counts_memory``), a task takes none of it away: it needs a node
    with at least that much memory, or with an unknown size.
    """

    processors: int
    memory_bytes: int = UNTOLD
    gpus: tuple[tuple[str, int], ...] = ()
    counts_memory: bool = True

    def places(self, shape: TaskShape) -> int:
        """Return the number of tasks of the shape that fit, whatever its features. A task has GPUs of one kind."""
        places = self.processors // shape.processors
        if shape.memory_bytes:
            places = min(places, self.memory_places(shape))
        if shape.gpus:
            fit = sum(free // shape.gpus for kind, free in self.gpus if not shape.gpu or kind == shape.gpu)
            places = min(places, fit)
        return places

    def memory_places(self, shape: TaskShape) -> int:
        """Return the number of tasks that fit into the memory, for a shape that needs memory."""
        if self.counts_memory:
            return max(0, self.memory_bytes) // shape.memory_bytes
        return _MANY if self.memory_bytes == UNTOLD or self.memory_bytes >= shape.memory_bytes else 0

    def _with_memory(self, more_bytes: int) -> int:
        if self.memory_bytes == UNTOLD or not self.counts_memory:
            return self.memory_bytes
        return max(0, self.memory_bytes + more_bytes)

    def fit(self, shape: TaskShape) -> tuple[int, int, int]:
        """Return how badly tasks of the shape fit; the node with the least value is chosen. Nodes with GPUs that the
        tasks do not need come last. Before them, nodes come later the more processors would be left that no task of
        this shape can use: another task could use them, and a node whose memory or GPUs run out first suits tasks
        that need less of these. Then nodes with more places come later."""
        places = self.places(shape)
        return (0 if shape.gpus else self.gpus_of()), self.processors - places * shape.processors, places

    def without(self, shape: TaskShape, tasks: int) -> NodeSize:
        """Return what is left beside this many tasks of the shape, which must fit. GPUs of the rarest kind are taken
        first."""
        gpus = self.gpus
        if shape.gpus:
            left = dict(gpus)
            wanted = tasks
            for free, kind in sorted((free, kind) for kind, free in gpus if not shape.gpu or kind == shape.gpu):
                here = min(wanted, free // shape.gpus)
                left[kind] -= here * shape.gpus
                wanted -= here
            gpus = tuple(left.items())
        memory_bytes = self._with_memory(-tasks * shape.memory_bytes)
        processors = self.processors - tasks * shape.processors
        return self._replace(processors=processors, memory_bytes=memory_bytes, gpus=gpus)

    def plus(self, share: NodeSize) -> NodeSize:
        """Return the node with a share given back."""
        memory_bytes = self._with_memory(max(0, share.memory_bytes))
        more = dict(share.gpus)
        gpus = tuple([(kind, count + more.get(kind, 0)) for kind, count in self.gpus])
        return self._replace(processors=self.processors + share.processors, memory_bytes=memory_bytes, gpus=gpus)

    def minus(self, share: NodeSize) -> NodeSize:
        """Return the node without a share that somebody holds; never less than nothing."""
        memory_bytes = self._with_memory(-max(0, share.memory_bytes))
        less = dict(share.gpus)
        gpus = tuple([(kind, max(0, count - less.get(kind, 0))) for kind, count in self.gpus])
        processors = max(0, self.processors - share.processors)
        return self._replace(processors=processors, memory_bytes=memory_bytes, gpus=gpus)

    def gpus_of(self, kind: str = "") -> int:
        """Return the number of GPUs of the kind, or of all kinds."""
        return sum(count for each, count in self.gpus if not kind or each == kind)


class NodeClass(msgspec.Struct, frozen=True, array_like=True):
    """Equal nodes of a site: their number, the resources of each, its free ones, its features, and what our
    components hold of each, by token, where the site reports that. Others hold the rest."""

    count: int
    whole: NodeSize
    free: NodeSize
    features: tuple[str, ...] = ()
    held: tuple[tuple[str, NodeSize], ...] = ()


class NamedNode(msgspec.Struct, frozen=True, array_like=True):
    """A node with its name, its resources when nobody holds any, and its features."""

    name: str
    whole: NodeSize
    features: tuple[str, ...] = ()


class _PoolKey(NamedTuple):
    free: NodeSize
    features: tuple[str, ...]


class NodePool:
    """Free nodes by class, from which tasks take their resources. The same calls give the same answers.

    Tasks go where they fit best (``NodeSize.fit``); ties go to the smaller node.
    """

    __slots__ = ("_counts", "_places")

    def __init__(self, counts: dict[_PoolKey, int]) -> None:
        self._counts = counts
        self._places: dict[TaskShape, int] = {}

    @classmethod
    def free(cls, classes: Iterable[NodeClass]) -> NodePool:
        """Return a pool of the free resources of these nodes."""
        return cls(_counted((each.free, each.features, each.count) for each in classes))

    @classmethod
    def whole(cls, classes: Iterable[NodeClass]) -> NodePool:
        """Return a pool of these nodes as if nobody held anything."""
        return cls(_counted((each.whole, each.features, each.count) for each in classes))

    @classmethod
    def of(cls, nodes: Iterable[tuple[NodeSize, tuple[str, ...], int]]) -> NodePool:
        """Return a pool of nodes, given as (free resources, features, count)."""
        return cls(_counted(nodes))

    def copy(self) -> NodePool:
        """Return a pool with the same nodes."""
        return NodePool(dict(self._counts))

    def __iter__(self) -> Iterator[tuple[NodeSize, tuple[str, ...], int]]:
        return ((key.free, key.features, count) for key, count in self._counts.items())

    def places(self, shape: TaskShape) -> int:
        """Return the number of tasks of the shape that fit."""
        places = self._places.get(shape)
        if places is None:
            places = sum(count * _places_on(key, shape) for key, count in self._counts.items())
            self._places[shape] = places
        return places

    def take(self, shape: TaskShape, tasks: int) -> int:
        """Take the resources of this many tasks; return how many found no room."""
        if tasks:
            self._places.clear()
        while tasks > 0:
            open_to = [(_fit_on(key, shape), key) for key in self._counts if _places_on(key, shape)]
            if not open_to:
                break
            key = min(open_to)[1]
            each = _places_on(key, shape)
            nodes = min(self._counts[key], tasks // each)
            if nodes:
                self._move(key, key.free.without(shape, each), nodes)
                tasks -= nodes * each
            else:
                self._move(key, key.free.without(shape, tasks), 1)
                tasks = 0
        return tasks

    def _move(self, key: _PoolKey, free: NodeSize, nodes: int) -> None:
        left = self._counts[key] - nodes
        if left:
            self._counts[key] = left
        else:
            del self._counts[key]
        other = _PoolKey(free, key.features)
        self._counts[other] = self._counts.get(other, 0) + nodes


class PoolCount(NamedTuple):
    """The sum over nodes: GPUs by kind, and memory, None if no node reports it."""

    gpus: dict[str, int]
    memory_bytes: int | None


def total_of(pool: NodePool | None) -> PoolCount:
    """Return the sum over all nodes of a pool."""
    gpus: dict[str, int] = {}
    memory_bytes = None
    for size, _, count in pool or ():
        for kind, here in size.gpus:
            gpus[kind] = gpus.get(kind, 0) + count * here
        if size.memory_bytes != UNTOLD:
            memory_bytes = (memory_bytes or 0) + count * size.memory_bytes
    return PoolCount(dict(sorted(gpus.items())), memory_bytes)


def _counted(nodes: Iterable[tuple[NodeSize, tuple[str, ...], int]]) -> dict[_PoolKey, int]:
    counts: dict[_PoolKey, int] = {}
    for free, features, count in nodes:
        key = _PoolKey(free, features)
        counts[key] = counts.get(key, 0) + count
    return counts


def places_of(free: NodeSize, features: tuple[str, ...], shape: TaskShape) -> int:
    """Return the number of tasks of the shape that fit on a node with these features."""
    return _places_on(_PoolKey(free, features), shape)


# Few nodes differ in their free resources, and sites have equal ones.
@lru_cache(maxsize=PLACES_REMEMBERED)
def _places_on(key: _PoolKey, shape: TaskShape) -> int:
    return key.free.places(shape) if meets(shape.constraint, key.features) else 0


@lru_cache(maxsize=PLACES_REMEMBERED)
def _fit_on(key: _PoolKey, shape: TaskShape) -> tuple[int, int, int]:
    return key.free.fit(shape)


def held_node_classes(
    nodes: Iterable[tuple[NodeSize, NodeSize, tuple[str, ...], tuple[tuple[str, NodeSize], ...]]],
) -> tuple[NodeClass, ...]:
    """Group nodes (resources, free resources, features, what our components hold) into classes, in order. With more
    than ``HELD_CLASSES_MAX`` classes the holders are left out."""
    known = list(nodes)
    counts: dict[tuple[NodeSize, tuple[str, ...], NodeSize, tuple[tuple[str, NodeSize], ...]], int] = {}
    for whole, free, features, held in known:
        key = (whole, tuple(sorted(features)), free, tuple(sorted(held)))
        counts[key] = counts.get(key, 0) + 1
    if len(counts) > HELD_CLASSES_MAX:
        return node_classes((whole, free, features) for whole, free, features, _ in known)
    return tuple(
        [
            NodeClass(count, whole, free, features, held)
            for (whole, features, free, held), count in sorted(counts.items())
        ]
    )


def node_classes(nodes: Iterable[tuple[NodeSize, NodeSize, tuple[str, ...]]]) -> tuple[NodeClass, ...]:
    """Group nodes (resources, free resources, features) into classes, in order; at most ``NODE_CLASSES_MAX``.

    If there are more, free memory is rounded down to whole GiB. If that is not enough, nodes that differ only in
    their free resources are reported with the least that any of them has free.
    """
    counts: dict[tuple[NodeSize, tuple[str, ...], NodeSize], int] = {}
    for whole, free, features in nodes:
        key = (whole, tuple(sorted(features)), free)
        counts[key] = counts.get(key, 0) + 1
    if len(counts) > NODE_CLASSES_MAX:
        counts = _merged(counts)
    if len(counts) > NODE_CLASSES_MAX:
        counts = _least_of_alike(counts)
    classes = [NodeClass(count, whole, free, features) for (whole, features, free), count in sorted(counts.items())]
    return tuple(classes[:NODE_CLASSES_MAX])


def few_alike(nodes: Iterable[NamedNode]) -> tuple[NamedNode, ...]:
    """Return the nodes of kinds with no more than ``EXCLUDED_NODES_MAX`` nodes, in order; none if these are more than
    ``NAMED_NODES_MAX``. A component never avoids all nodes of any other kind."""
    kinds: dict[tuple[NodeSize, tuple[str, ...]], list[NamedNode]] = {}
    for node in nodes:
        kinds.setdefault((node.whole, node.features), []).append(node)
    named = [node for alike in kinds.values() if len(alike) <= EXCLUDED_NODES_MAX for node in alike]
    return tuple(sorted(named, key=lambda node: node.name)) if len(named) <= NAMED_NODES_MAX else ()


def _merged(
    counts: dict[tuple[NodeSize, tuple[str, ...], NodeSize], int],
) -> dict[tuple[NodeSize, tuple[str, ...], NodeSize], int]:
    merged: dict[tuple[NodeSize, tuple[str, ...], NodeSize], int] = {}
    for (whole, features, free), count in counts.items():
        memory_bytes = free.memory_bytes
        if memory_bytes != UNTOLD and free.counts_memory:
            memory_bytes -= memory_bytes % _GIBIBYTE
        key = (whole, features, free._replace(memory_bytes=memory_bytes))
        merged[key] = merged.get(key, 0) + count
    return merged


def _least_of_alike(
    counts: dict[tuple[NodeSize, tuple[str, ...], NodeSize], int],
) -> dict[tuple[NodeSize, tuple[str, ...], NodeSize], int]:
    alike: dict[tuple[NodeSize, tuple[str, ...]], list[tuple[NodeSize, int]]] = {}
    for (whole, features, free), count in counts.items():
        alike.setdefault((whole, features), []).append((free, count))
    merged = {}
    for (whole, features), members in alike.items():
        frees = [free for free, _ in members]
        gpus = [dict(free.gpus) for free in frees]
        least = NodeSize(
            min(free.processors for free in frees),
            min(free.memory_bytes for free in frees),
            tuple((kind, min(each.get(kind, 0) for each in gpus)) for kind, _ in whole.gpus),
            whole.counts_memory,
        )
        merged[whole, features, least] = sum(count for _, count in members)
    return merged


def releases_within(releases: Iterable[tuple[float, int]], others: int) -> list[tuple[float, int]]:
    """Return the ends that a site reports, by time: at most ``RELEASES_MAX``, with the last ones as one, and no more
    processors than others hold. Excess processors are dropped from the earliest ends, which may be over already."""
    told = sorted((at, processors) for at, processors in releases if processors > 0)
    if len(told) > RELEASES_MAX:
        rest = told[RELEASES_MAX - 1 :]
        told[RELEASES_MAX - 1 :] = [(rest[-1][0], sum(processors for _, processors in rest))]
    kept: list[tuple[float, int]] = []
    for at, processors in reversed(told):
        if others <= 0:
            break
        kept.append((at, min(processors, others)))
        others -= processors
    return kept[::-1]
