"""The shape of a task, the nodes of a site by class, and how many tasks of a shape they have places for.

Nodes that are alike are one class with a count, so that a hundred thousand of them cost what their classes cost. All
numbers are whole. Nothing here knows who holds what; whoever does takes it off a ``NodePool``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

# One task has at most so many GPUs, and so much memory (an exabyte).
TASK_GPUS_MAX = 1_024
TASK_MEMORY_BYTES_MAX = 10**18
# With less memory than that a task cannot be asked for: hardly a program starts.
TASK_MEMORY_BYTES_MIN = 16 * 2**20
# The longest constraint, and the longest kind of a GPU.
CONSTRAINT_CHARACTERS_MAX = 255
# So many classes of nodes a site tells of at most; nodes beyond them are told as less than they are.
NODE_CLASSES_MAX = 256
# So many it tells of where it says who holds what of them; of more it does not say that.
HELD_CLASSES_MAX = 2_048

# So many ends of other users' jobs a site tells of at most; the later ones count as one.
RELEASES_MAX = 256

# A component is kept off so many nodes of its site at most: those of the last failures.
EXCLUDED_NODES_MAX = 16
# So many nodes a site names at most, of kinds with no more than ``EXCLUDED_NODES_MAX`` nodes.
NAMED_NODES_MAX = 64

# For so many pairs of a node and a shape it is remembered how many tasks fit.
PLACES_REMEMBERED = 65_536

# Of a node that does not say how much memory it has.
UNTOLD = -1

GPU_KIND_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
_FEATURE = r"[A-Za-z0-9_][A-Za-z0-9_.+-]*"
# Features that all must be there (a&b), or one of which must (a|b).
CONSTRAINT_PATTERN = rf"^{_FEATURE}((&{_FEATURE})*|(\|{_FEATURE})*)$"
_CONSTRAINT = re.compile(CONSTRAINT_PATTERN)
_GPU_KIND = re.compile(GPU_KIND_PATTERN)
_GIBIBYTE = 2**30
# More tasks than there ever are on a node.
_MANY = 10**12


class TaskNeeds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What each task of a component needs beside its processors: memory, GPUs (of a kind, or of any), and features
    that its node must have."""

    memory_bytes: int = 0
    gpus: int = 0
    gpu: str = ""
    constraint: str = ""

    def problem(self) -> tuple[str, str] | None:
        """The field that is wrong and what is wrong with it, with what to write; None where nothing is."""
        if not 0 <= self.memory_bytes <= TASK_MEMORY_BYTES_MAX:
            return "memory", f"{self.memory_bytes} bytes are no memory; write 0 to {TASK_MEMORY_BYTES_MAX}"
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
            return "constraint", f"{self.constraint!r} is no constraint; write features as a, a&b or a|b"
        return None


class TaskShape(msgspec.Struct, frozen=True, order=True):
    """All that one task holds. Two tasks of the same shape are alike to every site."""

    processors: int = 1
    memory_bytes: int = 0
    gpus: int = 0
    gpu: str = ""
    constraint: str = ""

    @classmethod
    def of(cls, processors: int, needs: TaskNeeds | None) -> TaskShape:
        """The shape of a task of so many processors that needs this beside them."""
        if needs is None:
            return cls(processors)
        return cls(processors, needs.memory_bytes, needs.gpus, needs.gpu, needs.constraint)

    @property
    def gpu_word(self) -> str:
        """What its GPUs are called."""
        return self.gpu or "GPU"

    def __str__(self) -> str:
        """Such as ``4 processors, 16 GiB and 1 a100``."""
        parts = ["1 processor" if self.processors == 1 else f"{self.processors} processors"]
        if self.memory_bytes:
            parts.append(memory_text(self.memory_bytes))
        if self.gpus:
            parts.append(gpus_text(self.gpus, self.gpu))
        text = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
        return f"{text} ({self.constraint})" if self.constraint else text


def gpus_text(count: int, kind: str) -> str:
    """So many GPUs, in words."""
    if kind:
        return f"{count} {kind}"
    return "1 GPU" if count == 1 else f"{count} GPUs"


def gpu_time_text(gpu_s: float) -> str:
    """GPU time, in hours where it is long enough."""
    return f"{gpu_s:.0f} GPU seconds" if gpu_s < 360 else f"{gpu_s / 3600:,.1f} GPU hours"


def processor_time_text(used_s: float, held_s: float) -> str:
    """Processor time out of that which was held, in hours where that is long enough, and the share."""
    share = f" ({used_s / held_s:.0%})" if held_s > 0 else ""
    if held_s < 36_000:
        return f"{used_s:,.1f} of {held_s:,.1f} processor seconds{share}"
    return f"{used_s / 3600:,.1f} of {held_s / 3600:,.1f} processor hours{share}"


def memory_text(size_bytes: int) -> str:
    """A size of memory in the largest binary unit that leaves it whole, or with one decimal."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        scale = 1024**power
        if size_bytes >= scale:
            return f"{size_bytes // scale} {unit}" if size_bytes % scale == 0 else f"{size_bytes / scale:.1f} {unit}"
    return f"{size_bytes} B"


def meets(constraint: str, features: Iterable[str]) -> bool:
    """Whether a node with these features is one that the constraint allows."""
    if not constraint:
        return True
    there = set(features)
    if "|" in constraint:
        return not there.isdisjoint(constraint.split("|"))
    return there.issuperset(constraint.split("&"))


class NodeSize(NamedTuple):
    """What a node has, or has free: GPUs by kind ('' where it does not say which), in the order of the kinds.

    Where nobody counts who uses its memory (not ``counts_memory``), a task takes none of it away: it needs a node
    that has so much, or one that does not say.
    """

    processors: int
    memory_bytes: int = UNTOLD
    gpus: tuple[tuple[str, int], ...] = ()
    counts_memory: bool = True

    def places(self, shape: TaskShape) -> int:
        """For how many tasks of the shape it has room, whatever its features. A task has GPUs of one kind."""
        places = self.processors // shape.processors
        if shape.memory_bytes:
            places = min(places, self.memory_places(shape))
        if shape.gpus:
            fit = sum(free // shape.gpus for kind, free in self.gpus if not shape.gpu or kind == shape.gpu)
            places = min(places, fit)
        return places

    def memory_places(self, shape: TaskShape) -> int:
        """For how many tasks of the shape, which need memory, there is enough of it."""
        if self.counts_memory:
            return max(0, self.memory_bytes) // shape.memory_bytes
        return _MANY if self.memory_bytes == UNTOLD or self.memory_bytes >= shape.memory_bytes else 0

    def _with_memory(self, more_bytes: int) -> int:
        if self.memory_bytes == UNTOLD or not self.counts_memory:
            return self.memory_bytes
        return max(0, self.memory_bytes + more_bytes)

    def fit(self, shape: TaskShape) -> tuple[int, int, int]:
        """How badly tasks of the shape fit; the node with the least is theirs. Nodes whose GPUs they do not need come
        last. Then come those on which they leave most processors that no task of theirs can use: another task could
        have, and a node whose memory or GPUs run out first is for tasks that need less of these. Then those with more
        places come later."""
        places = self.places(shape)
        return (0 if shape.gpus else self.gpus_of()), self.processors - places * shape.processors, places

    def without(self, shape: TaskShape, tasks: int) -> NodeSize:
        """What is left beside so many tasks of the shape, for which there is room. GPUs of the kind of which there
        are fewest go first."""
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
        """With what somebody lets go of it."""
        memory_bytes = self._with_memory(max(0, share.memory_bytes))
        more = dict(share.gpus)
        gpus = tuple([(kind, count + more.get(kind, 0)) for kind, count in self.gpus])
        return self._replace(processors=self.processors + share.processors, memory_bytes=memory_bytes, gpus=gpus)

    def minus(self, share: NodeSize) -> NodeSize:
        """Without what somebody holds of it; never less than nothing."""
        memory_bytes = self._with_memory(-max(0, share.memory_bytes))
        less = dict(share.gpus)
        gpus = tuple([(kind, max(0, count - less.get(kind, 0))) for kind, count in self.gpus])
        processors = max(0, self.processors - share.processors)
        return self._replace(processors=processors, memory_bytes=memory_bytes, gpus=gpus)

    def gpus_of(self, kind: str = "") -> int:
        """GPUs of the kind, or of all kinds."""
        return sum(count for each, count in self.gpus if not kind or each == kind)


class NodeClass(msgspec.Struct, frozen=True, array_like=True):
    """So many nodes of a site that are alike: what each has, what of it nobody holds, its features, and what our
    components hold of each, by token, where the site tells that. What else is not free of them others hold."""

    count: int
    whole: NodeSize
    free: NodeSize
    features: tuple[str, ...] = ()
    held: tuple[tuple[str, NodeSize], ...] = ()


class NamedNode(msgspec.Struct, frozen=True, array_like=True):
    """A node by its name, with what it has when nobody holds any of it, and its features."""

    name: str
    whole: NodeSize
    features: tuple[str, ...] = ()


class _PoolKey(NamedTuple):
    free: NodeSize
    features: tuple[str, ...]


class NodePool:
    """Free nodes by class, from which tasks take what they hold. The same calls give the same answers.

    Tasks go where they fit best (``NodeSize.fit``); ties go to the smaller node.
    """

    __slots__ = ("_counts", "_places")

    def __init__(self, counts: dict[_PoolKey, int]) -> None:
        self._counts = counts
        self._places: dict[TaskShape, int] = {}

    @classmethod
    def free(cls, classes: Iterable[NodeClass]) -> NodePool:
        """What nobody holds of these nodes."""
        return cls(_counted((each.free, each.features, each.count) for each in classes))

    @classmethod
    def whole(cls, classes: Iterable[NodeClass]) -> NodePool:
        """These nodes as if nobody held anything."""
        return cls(_counted((each.whole, each.features, each.count) for each in classes))

    @classmethod
    def of(cls, nodes: Iterable[tuple[NodeSize, tuple[str, ...], int]]) -> NodePool:
        """So many nodes with this free, and these features."""
        return cls(_counted(nodes))

    def copy(self) -> NodePool:
        """Another one with the same nodes."""
        return NodePool(dict(self._counts))

    def __iter__(self) -> Iterator[tuple[NodeSize, tuple[str, ...], int]]:
        return ((key.free, key.features, count) for key, count in self._counts.items())

    def places(self, shape: TaskShape) -> int:
        """For how many tasks of the shape there is room."""
        places = self._places.get(shape)
        if places is None:
            places = sum(count * _places_on(key, shape) for key, count in self._counts.items())
            self._places[shape] = places
        return places

    def take(self, shape: TaskShape, tasks: int) -> int:
        """Give room to so many tasks; how many found none."""
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
    """What nodes have together: GPUs by kind, and memory, None where no node tells."""

    gpus: dict[str, int]
    memory_bytes: int | None


def total_of(pool: NodePool | None) -> PoolCount:
    """All nodes of a pool together."""
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
    """For how many tasks of the shape a node with these features has room."""
    return _places_on(_PoolKey(free, features), shape)


# Nodes are few by what they have free, and sites have the same ones.
@lru_cache(maxsize=PLACES_REMEMBERED)
def _places_on(key: _PoolKey, shape: TaskShape) -> int:
    return key.free.places(shape) if meets(shape.constraint, key.features) else 0


@lru_cache(maxsize=PLACES_REMEMBERED)
def _fit_on(key: _PoolKey, shape: TaskShape) -> tuple[int, int, int]:
    return key.free.fit(shape)


def held_node_classes(
    nodes: Iterable[tuple[NodeSize, NodeSize, tuple[str, ...], tuple[tuple[str, NodeSize], ...]]],
) -> tuple[NodeClass, ...]:
    """Nodes (what each has, what is free of it, its features, what our components hold of it) by class, in order.
    Where these are more than ``HELD_CLASSES_MAX`` nobody is told who holds what."""
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
    """Nodes (what each has, what is free of it, its features) by class, in order; no more than ``NODE_CLASSES_MAX``.

    Where there are more, free memory is told in whole GiB; where that is not enough, nodes that are alike but for
    what is free of them are told as what the least of them has free.
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
    """The nodes of kinds with no more than ``EXCLUDED_NODES_MAX`` nodes, in order; none where these are more than
    ``NAMED_NODES_MAX``. Of any other kind a component is never kept off all nodes."""
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
    """What a site tells of ends, by time: no more ends than ``RELEASES_MAX``, the last ones as one, and no more
    processors than others hold. What is too many is left out where it ends first: it may have ended already."""
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
