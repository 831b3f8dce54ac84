"""The nodes of a simulated site that can fail one by one: which work, and who holds how much of each.

Only sites with a failure trace have them; every other site is a plain number of processors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class SiteNodes(Generic[Holder]):
    """The nodes in their order, taken from the first on; what no node of the trace stands for is a last node.

    A processor is free, held by one holder, or out of work with its node; a node that does not work holds nothing.
    """

    __slots__ = ("_free", "_held", "_sizes", "working")

    def __init__(self, sizes: Sequence[int], processors: int) -> None:
        rest = processors - sum(sizes)
        assert rest >= 0, "the mapping gives a site no more than it has"
        self._sizes = [*sizes, rest]
        self._free = list(self._sizes)
        self._held: dict[Holder, dict[int, int]] = {}
        self.working = [True] * len(self._sizes)

    @property
    def processors(self) -> int:
        """Processors of the nodes that work."""
        return sum(size for size, works in zip(self._sizes, self.working, strict=True) if works)

    @property
    def is_dark(self) -> bool:
        """Whether no processor works."""
        return self.processors == 0

    def would_be_dark_without(self, nodes: Iterable[int]) -> bool:
        """Whether no processor would work if these nodes failed."""
        gone = sum(self._sizes[index] for index in set(nodes) if self.working[index])
        return gone == self.processors

    def take(self, holder: Holder, processors: int, last: Collection[int] = ()) -> None:
        """Give the holder so many more processors, of the first nodes that have them; the caller knows they do. The
        nodes of ``last`` come last."""
        shares = self._held.setdefault(holder, {})
        order: Iterable[int] = range(len(self._free))
        if last:
            order = sorted(order, key=lambda index: index in last)
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
        """The holder has nothing any more."""
        for index, share in self._held.pop(holder).items():
            self._free[index] += share

    def held(self, holder: Holder) -> dict[int, int]:
        """How much of each node the holder has, by the node's place."""
        return dict(self._held.get(holder, {}))

    def resize(self, holder: Holder, processors: int) -> None:
        """Let the holder have just so many, anywhere."""
        if holder in self._held:
            self.give_back(holder)
        if processors:
            self.take(holder, processors)

    def holders_of(self, nodes: Iterable[int]) -> list[Holder]:
        """Who holds something of these nodes, in the order in which they began."""
        wanted = set(nodes)
        return [holder for holder, shares in self._held.items() if not wanted.isdisjoint(shares)]

    def fail(self, nodes: Iterable[int]) -> int:
        """These nodes stop working, and nobody holds any of them; how many processors are lost."""
        return self._switch(nodes, works=False)

    def recover(self, nodes: Iterable[int]) -> int:
        """These nodes work again; how many processors come back."""
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
        """Nobody holds anything any more."""
        self._held.clear()
        self._free = list(self._sizes)
