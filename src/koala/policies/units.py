"""In what a try counts, in words: idle processors, or places for tasks of a shape, where what lacks is told by what
makes a place: processors, memory, GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.nodes import UNTOLD, NodePool, TaskShape, gpus_text, meets, memory_text


class Units:
    """Processors."""

    one = "processor"
    many = "processors"
    processors_each = 1

    def text(self, count: int) -> str:
        """So many of them."""
        return f"{count} {self.one if count == 1 else self.many}"

    def room(self, count: int) -> str:
        """So many of them that are idle."""
        return f"{count} idle {self.many}"

    def more(self, count: int, site: int | None) -> str:
        """So many more of them that are idle, at the site or anywhere."""
        del site
        return f"{count} more idle {self.one if count == 1 else self.many}"

    def resource(self, count: int, site: int) -> str:
        """What lacks at the site for so many more."""
        del count, site
        return "processors"

    def never(self, site: int, name: str, most: int) -> str:
        """Why the site never has more than so many."""
        del site
        return f"{name} never offers more than {most}"


PROCESSORS = Units()


class PlaceUnits(Units):
    """Places for tasks of a shape: ``idle`` processors and free nodes by site, and what the sites have in all."""

    one = "task"
    many = "tasks"

    def __init__(
        self,
        shape: TaskShape,
        idle: Sequence[int],
        limit: Sequence[int],
        free: Sequence[NodePool | None],
        whole: Sequence[NodePool | None],
        places: Sequence[int],
    ) -> None:
        self._shape = shape
        self._idle = idle
        self._limit = limit
        self._free = free
        self._whole = whole
        self._places = places
        self.processors_each = shape.processors

    def room(self, count: int) -> str:
        """Places for so many."""
        return f"places for {self.text(count)}"

    def more(self, count: int, site: int | None) -> str:
        """What would have to come free for so many more tasks."""
        if site is None:
            return f"room for {self.text(count)} more of {self._shape}"
        lacking = self._lacking(count, site)
        if not lacking:
            return f"room for {self.text(count)} more of {self._shape}, each on one node"
        return " and ".join(text for _, text in lacking)

    def resource(self, count: int, site: int) -> str:
        """The first of what lacks."""
        lacking = self._lacking(count, site)
        return lacking[0][0] if lacking else "room on one node"

    def never(self, site: int, name: str, most: int) -> str:
        """What the site does not have, or does not have enough of."""
        shape, pool = self._shape, self._whole[site]
        if pool is None:
            return f"{name} has not told of its nodes"
        nodes = [(size, count) for size, features, count in pool if meets(shape.constraint, features)]
        if not nodes:
            return f"no node of {name} is {shape.constraint}"
        if shape.gpus:
            there = sum(count * size.gpus_of(shape.gpu) for size, count in nodes)
            if not there:
                return f"{name} has no {shape.gpu_word}"
            if there < shape.gpus * (most + 1):
                return f"{name} has {gpus_text(there, shape.gpu)} in all"
        if shape.memory_bytes and all(size.memory_bytes == UNTOLD for size, _ in nodes):
            return f"{name} does not say how much memory it has; write memory in the grid file"
        if not most:
            return f"no node of {name} has room for one task"
        return f"{name} never has places for more than {self.text(most)}"

    def _lacking(self, count: int, site: int) -> list[tuple[str, str]]:
        """What more would have to be free, by resource."""
        shape, pool, want = self._shape, self._free[site], self._places[site] + count
        processors, gpus, memory_bytes = self._idle[site], 0, 0
        if pool is not None:
            together = 0
            for size, features, nodes in pool:
                if meets(shape.constraint, features):
                    together += nodes * (size.processors // shape.processors) * shape.processors
                    if shape.gpus:
                        fit = [free // shape.gpus for kind, free in size.gpus if not shape.gpu or kind == shape.gpu]
                        gpus += nodes * sum(fit) * shape.gpus
                    if shape.memory_bytes:
                        memory_bytes += nodes * (max(0, size.memory_bytes) // shape.memory_bytes) * shape.memory_bytes
            processors = min(processors, together)
        lacking = []
        if gpus < want * shape.gpus:
            missing = want * shape.gpus - gpus
            word = shape.gpu or ("GPU" if missing == 1 else "GPUs")
            lacking.append((shape.gpu_word, f"{missing} more {word}"))
        if memory_bytes < want * shape.memory_bytes:
            lacking.append(("memory", f"{memory_text(want * shape.memory_bytes - memory_bytes)} more memory"))
        if processors < want * shape.processors:
            lacking.append(("processors", PROCESSORS.more(want * shape.processors - processors, site)))
        return lacking
