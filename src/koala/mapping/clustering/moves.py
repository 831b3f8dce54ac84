"""Clusters that change by moves of single tasks, by chains of moves between two clusters, and by joins.

``koala.mapping.clustering.local_search`` and the exact clustering are built on them. Every change has a known gain,
and changes can be undone together.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from koala.mapping.clustering.correlation import Neighbours

# A smaller gain than this is rounding.
GAIN_MIN = 1e-9
# A chain of moves between two clusters ends after this many without a new best.
CHAIN_PATIENCE = 20


class MovingClusters:
    """Tasks with labels that change where that gains.

    ``gained`` is the decrease of the cost since the beginning; ``looked_at`` counts the edges examined for it.
    """

    def __init__(self, neighbours: Neighbours, labels: Sequence[int]) -> None:
        self.neighbours = neighbours
        self.labels = list(labels)
        self.gained = 0.0
        self.looked_at = 0
        self._members: list[set[int]] = [set() for _ in neighbours]
        for task, label in enumerate(self.labels):
            self._members[label].add(task)
        # Contains every empty label, and some that are no longer empty.
        self._free = [label for label, tasks in enumerate(self._members) if not tasks]
        self._changes = [0] * len(neighbours)
        self._compared: dict[tuple[int, int], tuple[int, int]] = {}
        self.keep()

    def keep(self) -> None:
        """Make the present state the one that ``undo`` returns to."""
        self._journal: list[tuple[int, int]] = []
        self._gained_kept = self.gained

    def undo(self) -> None:
        """Undo every change since the last ``keep``."""
        for task, label in reversed(self._journal):
            self._relabel(task, label)
        self.gained = self._gained_kept
        self.keep()

    def members(self, label: int) -> list[int]:
        """Return the tasks with this label, in order of index."""
        return sorted(self._members[label])

    def regroup(self, groups: Iterable[tuple[list[int], int | None]]) -> None:
        """Give all tasks of a group this label, or a free one if it is None, at whatever cost.

        The tasks leave their clusters first, so that their old labels are as free as any other.
        """
        groups = list(groups)
        for tasks, _ in groups:
            for task in tasks:
                if len(self._members[self.labels[task]]) > 1:
                    self._put(task, self._free_label())
        for tasks, label in groups:
            into = self.labels[tasks[0]] if label is None else label
            for task in tasks:
                if self.labels[task] != into:
                    self._put(task, into)

    def _put(self, task: int, label: int) -> None:
        """Move the task and compute the gain."""
        labels = self.labels
        own = labels[task]
        self.looked_at += len(self.neighbours[task])
        gain = 0.0
        for other, weight in self.neighbours[task]:
            if labels[other] == label:
                gain += weight
            elif labels[other] == own:
                gain -= weight
        self._move(task, label, gain)

    def improve(self, tasks: Iterable[int]) -> None:
        """Move, swap and join, beginning with these tasks, until no change near a changed task gains."""
        waiting = list(tasks)
        while waiting:
            moved: list[int] = []
            for label in self.settle(waiting):
                moved += self._compare_around(label)
            near = (other for task in moved for other, _ in self.neighbours[task])
            waiting = list(dict.fromkeys([*moved, *near]))

    def settle(self, tasks: Iterable[int]) -> list[int]:
        """Move single tasks to where they gain most, then their neighbours, until none gains; return the changed
        labels."""
        neighbours, labels = self.neighbours, self.labels
        queue = deque(dict.fromkeys(tasks))
        queued = set(queue)
        touched = dict.fromkeys(labels[task] for task in queue)
        while queue:
            task = queue.popleft()
            queued.discard(task)
            own = labels[task]
            self.looked_at += len(neighbours[task])
            weights: dict[int, float] = {}
            for other, weight in neighbours[task]:
                label = labels[other]
                weights[label] = weights.get(label, 0.0) + weight
            inside = weights.pop(own, 0.0)
            best, most = -1, 0.0
            for label, weight in weights.items():
                if weight > most:
                    best, most = label, weight
            if most - inside <= GAIN_MIN:
                continue
            self._move(task, self._free_label() if best < 0 else best, most - inside)
            touched[own] = touched[labels[task]] = None
            for other, _ in neighbours[task]:
                if other not in queued:
                    queued.add(other)
                    queue.append(other)
        return list(touched)

    def _compare_around(self, label: int) -> list[int]:
        """Swap or join with every cluster that a positive edge leads to, and with an empty one; return the moved
        tasks."""
        labels = self.labels
        others = dict.fromkeys(
            labels[other]
            for task in self._members[label]
            for other, weight in self.neighbours[task]
            if weight > 0 and labels[other] != label
        )
        moved: list[int] = []
        for other in others:
            pair = (label, other) if label < other else (other, label)
            if self._compared.get(pair) != (self._changes[pair[0]], self._changes[pair[1]]):
                moved += self._exchange(*pair)
                self._compared[pair] = (self._changes[pair[0]], self._changes[pair[1]])
        if len(self._members[label]) > 2 and self._compared.get((label, label)) != (self._changes[label], 0):
            self._compared[label, label] = (self._changes[label], 0)
            moved += self._exchange(label, self._free_label())
        return moved

    def _exchange(self, one: int, other: int) -> list[int]:
        """Perform the best chain of moves between two clusters, or their join, if it gains; return the moved
        tasks."""
        members = self._members
        side = dict.fromkeys(sorted(members[one]), one)
        side.update(dict.fromkeys(sorted(members[other]), other))
        if not members[one]:
            return []
        gains, between = self._exchange_gains(side)
        heap = [(-gain, task) for task, gain in gains.items()]
        heapify(heap)
        chain: list[int] = []
        total = most = 0.0
        best = 0
        while heap and len(chain) - best < CHAIN_PATIENCE:
            negated, task = heappop(heap)
            if gains.get(task) != -negated:
                continue
            del gains[task]
            chain.append(task)
            total -= negated
            if total > most + GAIN_MIN:
                best, most = len(chain), total
            for neighbour, weight in self.neighbours[task]:
                if neighbour in gains:
                    # The neighbour loses a task that was beside it, or gains one.
                    gains[neighbour] += 2 * weight if side[neighbour] == side[task] else -2 * weight
                    heappush(heap, (-gains[neighbour], neighbour))
        if between > most + GAIN_MIN:
            chain, most = sorted(members[other]), between
            best = len(chain)
        for task in chain[:best]:
            self._move(task, other if side[task] == one else one, 0.0)
        self.gained += most
        return chain[:best]

    def _exchange_gains(self, side: dict[int, int]) -> tuple[dict[int, float], float]:
        """Return each task's gain from changing sides, and the weight between the two sides."""
        gains: dict[int, float] = {}
        between = 0.0
        for task, own in side.items():
            gain = 0.0
            self.looked_at += len(self.neighbours[task])
            for neighbour, weight in self.neighbours[task]:
                where = side.get(neighbour)
                if where == own:
                    gain -= weight
                elif where is not None:
                    gain += weight
                    between += weight
            gains[task] = gain
        return gains, between / 2

    def _free_label(self) -> int:
        while self._members[self._free[-1]]:
            self._free.pop()
        return self._free[-1]

    def _move(self, task: int, label: int, gain: float) -> None:
        self._journal.append((task, self.labels[task]))
        self._relabel(task, label)
        self.gained += gain

    def _relabel(self, task: int, label: int) -> None:
        old = self.labels[task]
        self._members[old].remove(task)
        self._members[label].add(task)
        if not self._members[old]:
            self._free.append(old)
        self.labels[task] = label
        self._changes[old] += 1
        self._changes[label] += 1
