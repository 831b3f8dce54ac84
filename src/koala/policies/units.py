"""The wording of refusals: counted in idle processors, or in places for tasks of a shape. For places it names the
lack: processors, memory or GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.nodes import UNTOLD, NodePool, TaskShape, gpus_text, meets, memory_text


class Units:
    """Processors."""

    one = "processor"
    many = "processors"
    processors_each = 1

    def text(self, count: int) -> str:
        """Return this many of them, in words."""
        return f"{count} {self.one if count == 1 else self.many}"

    def room(self, count: int) -> str:
        """Return this many idle ones, in words."""
        return f"{count} idle {self.one if count == 1 else self.many}"

    def more(self, count: int, site: int | None) -> str:
        """Return this many more idle ones, at the site or anywhere, in words."""
        del site
        return f"{count} more idle {self.one if count == 1 else self.many}"

    def resource(self, count: int, site: int) -> str:
        """Return what the site lacks for this many more."""
        del count, site
        return "processors"

    def never(self, site: int, name: str, most: int) -> str:
        """Return why the site never has more than ``most``."""
        del site
        return f"{name} never offers more than {most}"

    def nowhere(self) -> str:
        """Return what to do if no site ever has any."""
        return "ask for something else, since no site will ever run it"


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
        """Return places for this many, in words."""
        return f"places for {self.text(count)}"

    def more(self, count: int, site: int | None) -> str:
        """Return what must come free for this many more tasks."""
        if site is None:
            return f"room for {self.text(count)} more of {self._shape}"
        lacking = self._lacking(count, site)
        if not lacking:
            return f"room for {self.text(count)} more of {self._shape}, each on one node"
        return " and ".join(text for _, text in lacking)

    def resource(self, count: int, site: int) -> str:
        """Return the first resource that is lacking."""
        lacking = self._lacking(count, site)
        return lacking[0][0] if lacking else "room on one node"

    def never(self, site: int, name: str, most: int) -> str:
        """Return what the site does not have, or has too little of."""
        shape, pool = self._shape, self._whole[site]
        if pool is None:
            return f"{name} has not told of its nodes"
        nodes = [(size, count) for size, features, count in pool if meets(shape.constraint, features)]
        if not nodes:
            return f"no node of {name} is {shape.constraint}"
        if shape.gpus:
            there = sum(count * size.gpus_of(shape.gpu) for size, count in nodes)
            if not there:
                has_others = any(size.gpus_of() for size, _, _ in pool)
                return f"{name} has no {shape.gpu_word if has_others and shape.gpu else 'GPUs'}"
            if there < shape.gpus * (most + 1):
                return f"{name} has {gpus_text(there, shape.gpu)} in all"
        if shape.memory_bytes and not any(size.memory_places(shape) for size, _ in nodes):
            most_bytes = max(size.memory_bytes for size, _ in nodes)
            if most_bytes == UNTOLD:
                return f"{name} does not say how much memory it has; write memory in the grid file"
            return f"no node of {name} has more than {memory_text(most_bytes)} of memory"
        if not most:
            return f"no node of {name} has room for one task"
        return f"{name} never has places for more than {self.text(most)}"

    def nowhere(self) -> str:
        """Return what to ask for instead of what no site has, or of more than any node has."""
        shape = self._shape
        every = [
            entry for site, pool in enumerate(self._whole) if pool and self._limit[site] for entry in pool if entry[2]
        ]
        if not every and any(pool is None for pool in self._whole):
            return "wait until the sites have told of their nodes"
        if not every:
            return super().nowhere()
        nodes = [size for size, features, _ in every if meets(shape.constraint, features)]
        if not nodes:
            return f"ask for another constraint, since no node of any site is {shape.constraint}"
        if shape.gpus:
            most = max(size.gpus_of(shape.gpu) for size in nodes)
            if not most:
                kinds = dict.fromkeys(kind for size, _, _ in every for kind, count in size.gpus if kind and count)
                there = f"; there {'is' if len(kinds) == 1 else 'are'} {', '.join(kinds)}" if kinds else ""
                if not any(count for size, _, _ in every for _, count in size.gpus):
                    return "ask for no GPUs, since no site has a GPU"
                asked = "another kind of GPU" if shape.gpu else "no GPUs"
                return f"ask for {asked}, since no site has {_with_article(shape.gpu_word)}{there}"
            if most < shape.gpus:
                return f"ask for fewer GPUs a task, since no node has more than {gpus_text(most, shape.gpu)}"
        if shape.memory_bytes and not any(size.memory_places(shape) for size in nodes):
            most = max(size.memory_bytes for size in nodes)
            if most == UNTOLD:
                return "ask for no memory, or write memory in the grid file, since no site says how much it has"
            if most < shape.memory_bytes:
                return f"ask for less memory a task, since no node has more than {memory_text(most)}"
        most = max(size.processors for size in nodes)
        if most < shape.processors:
            return f"ask for fewer processors a task, since no node has more than {PROCESSORS.text(most)}"
        return "ask for smaller tasks, since no node has room for one"

    def _lacking(self, count: int, site: int) -> list[tuple[str, str]]:
        """Return what more must be free, by resource."""
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
                        memory_bytes += nodes * size.memory_places(shape) * shape.memory_bytes
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


def _with_article(word: str) -> str:
    """Return the word with its article, such as ``an a100`` and ``a v100``, whose letters are spoken singly, and ``a
    tesla``."""
    spoken_alone = word[1:2].isdigit()
    first = word[:1].lower()
    return f"{'an' if first in ('aefhilmnorsx' if spoken_alone else 'aeio') else 'a'} {word}"
