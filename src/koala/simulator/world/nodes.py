"""The nodes of a simulated site that can fail one by one: which work, and who holds how much of each.

Only sites with a failure trace, or whose grid file has nodes with memory and GPUs, have them; every other site is a
plain number of processors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, NamedTuple, TypeVar

from koala.model.nodes import NamedNode, NodeClass, NodeSize, TaskShape, few_alike, held_node_classes, meets

Holder = TypeVar("Holder")

_PLAIN = TaskShape()


class _TaskShare(NamedTuple):
    """The memory and GPUs of a node that tasks of one holder have."""

    memory_bytes: int
    gpus: dict[str, int]


class SiteNodes(Generic[Holder]):
    """The nodes in their order, taken from the first on; processors without a node in the trace form a last node.

    A processor is free, held by one holder, or out of work with its node; a failed node holds nothing.
    """

    __slots__ = ("_features", "_free", "_held", "_left", "_shares", "_sizes", "_whole", "working")

    def __init__(self, sizes: Sequence[int], processors: int) -> None:
        rest = processors - sum(sizes)
        assert rest >= 0, "the mapping gives a site no more than it has"
        self._sizes = [*sizes, rest]
        self._free = list(self._sizes)
        self._held: dict[Holder, dict[int, int]] = {}
        self.working = [True] * len(self._sizes)
        # For nodes with memory and GPUs: the size of each, and its free memory and GPUs (its processors are above).
        self._whole: list[NodeSize] = []
        self._left: list[NodeSize] = []
        self._features: list[tuple[str, ...]] = []
        self._shares: dict[Holder, dict[int, _TaskShare]] = {}

    @classmethod
    def of_classes(cls, classes: Sequence[NodeClass]) -> SiteNodes[Holder]:
        """Return nodes with memory and GPUs, from their classes in a grid file."""
        nodes = [each for each in classes for _ in range(each.count)]
        made: SiteNodes[Holder] = cls([each.whole.processors for each in nodes], _processors_of(classes))
        made._whole = [*(each.whole for each in nodes), NodeSize(0)]
        made._left = list(made._whole)
        made._features = [*(each.features for each in nodes), ()]
        return made

    @property
    def tells(self) -> bool:
        """True if the site reports more about them than processors."""
        return bool(self._whole)

    def classes(self, token_of: Callable[[Holder], str | None]) -> tuple[NodeClass, ...]:
        """Return the working nodes, by class, with their free resources, and the resources of each holder that has a
        token."""
        held: dict[int, list[tuple[str, NodeSize]]] = {}
        for holder, parts in self._held.items():
            token = token_of(holder)
            shares = self._shares.get(holder, {})
            for index, processors in parts.items() if token is not None else ():
                share = shares.get(index)
                size = NodeSize(processors)
                if share is not None:
                    size = NodeSize(processors, share.memory_bytes, tuple(sorted(share.gpus.items())))
                held.setdefault(index, []).append((token or "", size))
        return held_node_classes(
            (self._whole[index], self._now(index), self._features[index], tuple(held.get(index, ())))
            for index, size in enumerate(self._sizes)
            if size and self.working[index]
        )

    def holders(self) -> list[Holder]:
        """Return all holders, in the order in which they began."""
        return list(self._held)

    def _now(self, index: int) -> NodeSize:
        return self._left[index]._replace(processors=self._free[index])

    def _places(self, index: int, shape: TaskShape) -> int:
        if not self.working[index] or not meets(shape.constraint, self._features[index]):
            return 0
        return self._now(index).places(shape)

    def places(self, shape: TaskShape) -> int:
        """Return for how many tasks of the shape there is room now; by processors alone without further data."""
        if not self._whole:
            return sum(free // shape.processors for free in self._free)
        return sum(self._places(index, shape) for index in range(len(self._free)))

    def problems(self) -> list[str]:
        """Return overcommitted nodes with their holders; empty if there are none."""
        if not self._whole:
            return []
        processors: dict[int, int] = {}
        for shares in self._held.values():
            for index, share in shares.items():
                processors[index] = processors.get(index, 0) + share
        parts: dict[int, list[_TaskShare]] = {}
        for holdings in self._shares.values():
            for index, part in holdings.items():
                parts.setdefault(index, []).append(part)
        found = []
        for index, held in processors.items():
            whole = self._whole[index]
            if held > whole.processors:
                found.append(f"{held} of {whole.processors} processors of node {index}")
        for index, here in parts.items():
            whole = self._whole[index]
            memory_bytes = sum(part.memory_bytes for part in here)
            if whole.counts_memory and memory_bytes > max(0, whole.memory_bytes):
                found.append(f"{memory_bytes} of {whole.memory_bytes} bytes of node {index}")
            for kind, count in whole.gpus:
                gpus = sum(part.gpus[kind] for part in here)
                if gpus > count:
                    found.append(f"{gpus} of {count} {kind or 'GPUs'} of node {index}")
        return found

    def take_tasks(self, holder: Holder, shape: TaskShape, tasks: int) -> None:
        """Give the holder room for this many tasks, on the nodes where they fit best; the caller has checked the
        room."""
        held, shares = self._held.setdefault(holder, {}), self._shares.setdefault(holder, {})
        order = sorted(
            (index for index in range(len(self._free)) if self._places(index, shape)),
            key=lambda index: self._fit(index, shape),
        )
        for index in order:
            here = min(tasks, self._places(index, shape))
            before, after = self._now(index), self._now(index).without(shape, here)
            gpus = {kind: count - dict(after.gpus)[kind] for kind, count in before.gpus}
            held[index] = here * shape.processors
            shares[index] = _TaskShare(before.memory_bytes - after.memory_bytes, gpus)
            self._free[index] = after.processors
            self._left[index] = after
            tasks -= here
            if not tasks:
                return
        raise AssertionError("a site gives no more than is idle")

    def _fit(self, index: int, shape: TaskShape) -> tuple[object, ...]:
        """Return the order in which nodes are taken, the same as a ``NodePool``'s: the core knows what is left."""
        now = self._now(index)
        return now.fit(shape), now, tuple(sorted(self._features[index])), index

    @property
    def processors(self) -> int:
        """Processors of the working nodes."""
        return sum(size for size, works in zip(self._sizes, self.working, strict=True) if works)

    @property
    def is_dark(self) -> bool:
        """True if no processor works."""
        return self.processors == 0

    def would_be_dark_without(self, nodes: Iterable[int]) -> bool:
        """Return True if no processor would work if these nodes failed."""
        gone = sum(self._sizes[index] for index in set(nodes) if self.working[index])
        return gone == self.processors

    def named(self, name: str) -> tuple[NamedNode, ...]:
        """Return the working nodes of rare kinds: the name of each is this one and its place."""
        return few_alike(
            NamedNode(f"{name}{index}", NodeSize(size))
            for index, size in enumerate(self._sizes)
            if size and self.working[index]
        )

    def free_beside(self, excluded: Collection[int]) -> int:
        """Return the free processors of the working nodes, without these."""
        return sum(free for index, free in enumerate(self._free) if self.working[index] and index not in excluded)

    def processors_beside(self, excluded: Collection[int]) -> int:
        """Return the processors of all nodes without these."""
        return sum(size for index, size in enumerate(self._sizes) if index not in excluded)

    def take(self, holder: Holder, processors: int, excluded: Collection[int] = ()) -> None:
        """Give the holder this many more processors, of the first nodes that have them and are not excluded; the
        caller has checked that there are enough."""
        shares = self._held.setdefault(holder, {})
        order: Iterable[int] = range(len(self._free))
        if self._whole:
            order = sorted(order, key=lambda index: self._fit(index, _PLAIN))
        elif excluded:
            order = [index for index in order if index not in excluded]
        for index in order:
            free = self._free[index]
            if free and self.working[index]:
                share = min(free, processors)
                self._free[index] = free - share
                shares[index] = shares.get(index, 0) + share
                processors -= share
                if not processors:
                    return
        raise AssertionError("a site gives no more than is idle")

    def give_back(self, holder: Holder) -> None:
        """Free everything of the holder."""
        for index, share in self._held.pop(holder).items():
            self._free[index] += share
        for index, part in self._shares.pop(holder, {}).items():
            left = self._left[index]
            gpus = tuple((kind, count + part.gpus[kind]) for kind, count in left.gpus)
            self._left[index] = left._replace(memory_bytes=left.memory_bytes + part.memory_bytes, gpus=gpus)

    def held(self, holder: Holder) -> dict[int, int]:
        """Return how much of each node the holder has, by the node's place."""
        return dict(self._held.get(holder, {}))

    def resize(self, holder: Holder, processors: int) -> None:
        """Let the holder have exactly this many processors, anywhere."""
        if holder in self._held:
            self.give_back(holder)
        if processors:
            self.take(holder, processors)

    def holders_of(self, nodes: Iterable[int]) -> list[Holder]:
        """Return the holders of these nodes, in the order in which they began."""
        wanted = set(nodes)
        return [holder for holder, shares in self._held.items() if not wanted.isdisjoint(shares)]

    def fail(self, nodes: Iterable[int]) -> int:
        """Let these nodes stop working, without holders; return how many processors are lost."""
        return self._switch(nodes, works=False)

    def recover(self, nodes: Iterable[int]) -> int:
        """Let these nodes work again; return how many processors come back."""
        return self._switch(nodes, works=True)

    def _switch(self, nodes: Iterable[int], *, works: bool) -> int:
        switched = 0
        for index in nodes:
            assert self._free[index] == self._sizes[index], "a node that fails or returns is held by nobody"
            if self.working[index] is not works:
                self.working[index] = works
                switched += self._sizes[index]
        return switched

    def clear(self) -> None:
        """Free everything."""
        self._held.clear()
        self._shares.clear()
        self._free = list(self._sizes)
        self._left = list(self._whole)


def _processors_of(classes: Iterable[NodeClass]) -> int:
    return sum(each.count * each.whole.processors for each in classes)
