"""The nodes of a Grid Engine cell for tasks with a shape: slots, and the free memory and GPUs by its consumables.

The grid file names the consumables. No command prints a host's total: it is the free amount plus the requests of the
jobs that run there. If memory is not a consumable, its use is not counted: a task only needs a host with that much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from koala.model.grid import BatchSettings
from koala.model.nodes import UNTOLD, NodeSize, TaskShape
from koala.sites.batch.grid_engine.keys import keys_of
from koala.sites.batch.grid_engine.needs import amount_of, rounded_off
from koala.sites.batch.grid_engine.xml import QueueInstance, Resource
from koala.sites.shell_script import call, shell_file

MIB = 2**20
# What consumes a resource: each slot of a job, or a job once at its first node.
_BY_SLOT, _BY_JOB = "YES", ("JOB", "HOST")
# The memory load value that every host reports.
MEMORY_LOAD = "mem_total"


def request_words(settings: BatchSettings, shape: TaskShape, tasks: int) -> tuple[str, str]:
    """Return what precedes a qsub for these tasks, and its words for their needs other than processors. A job that an
    empty cell could not run is refused (``-w e``)."""
    keys, wanted, words = keys_of(settings), [], ["-w e"]
    if shape.memory_bytes and keys.memory_complex is not None:
        wanted.append(f"{keys.memory_complex}={shape.memory_bytes}")
    if shape.gpus:
        wanted.append(f"{keys.gpu_complex or 'gpu_complex'}={shape.gpus}")
    if shape.gpu:
        words.append(f"-l {keys.gpu_kind_complex or 'gpu_kind_complex'}={shape.gpu}")
    if not wanted:
        return "", ""
    asked = call("koala_task_requests", tasks, shape.processors, *wanted).rstrip("\n")
    words.append('-l "$koala_needs"')
    return f"{shell_file(__package__, 'needs.sh')}koala_needs=$({asked}) &&\n", " ".join(words)


class _Consumable(msgspec.Struct, frozen=True):
    """A consumable resource, by its full name."""

    name: str
    short: str
    by_slot: bool

    def used(self, instances: Iterable[QueueInstance]) -> float:
        """Return how much of it the jobs that run there hold."""
        taken = 0.0
        for instance in instances:
            for job in instance.jobs:
                asked = dict(job.requests)
                amount = amount_of(asked.get(self.name, asked.get(self.short, "")))
                if amount is not None and math.isfinite(amount):
                    taken += amount * (job.slots if self.by_slot else 1)
        return taken


class CellNodes:
    """Reads the resources of hosts in a listing. ``complexes`` are lines of ``qconf -sc``, ``hosts`` the resources of
    each host from ``qhost``."""

    def __init__(self, settings: BatchSettings, complexes: str, hosts: Mapping[str, Sequence[Resource]]) -> None:
        self._hosts, keys = hosts, keys_of(settings)
        rows = [fields for line in complexes.splitlines() if len(fields := line.split()) >= 7]
        self._memory = _consumable(rows, keys.memory_complex)
        self._gpus = _consumable(rows, keys.gpu_complex)
        kinds = [row[0] for row in rows if keys.gpu_kind_complex in row[:2]]
        self._kind = kinds[0] if kinds else None

    def sizes(
        self,
        slots: Mapping[str, tuple[int, int]],
        instances: Sequence[QueueInstance],
        usable: Sequence[QueueInstance],
    ) -> dict[str, tuple[NodeSize, NodeSize]]:
        """Return the total and the free size of each host, for the given numbers of slots."""
        here: dict[str, list[QueueInstance]] = {}
        for each in instances:
            here.setdefault(each.host, []).append(each)
        offered: dict[str, list[QueueInstance]] = {}
        for each in usable:
            offered.setdefault(each.host, []).append(each)
        found = {}
        for host, (total, free) in slots.items():
            if self._memory is not None:
                memory = self._amounts(self._memory, host, here[host], offered[host], MIB) or (UNTOLD, UNTOLD)
            else:
                memory = self._memory_of(host, offered[host])
            gpus = self._amounts(self._gpus, host, here[host], offered[host])
            kind = self._kind_at(host, offered[host])
            sizes = [
                NodeSize(processors, memory[index], _gpus(kind, gpus, index), counts_memory=self._memory is not None)
                for index, processors in enumerate((total, free))
            ]
            found[host] = sizes[0], sizes[1]
        return found

    def _amounts(
        self,
        consumable: _Consumable | None,
        host: str,
        instances: Sequence[QueueInstance],
        offered: Sequence[QueueInstance],
        unit: int = 1,
    ) -> tuple[int, int] | None:
        """Return a host's total and free amount, in whole units; the amounts of its queues if the host itself has
        none."""
        if consumable is None:
            return None
        left = [_left(each) for each in self._told(consumable.name, host, offered, "h")[:1]]
        if not left:
            left = [_left(each) for each in self._told(consumable.name, host, offered, "q")]
        known = [each for each in left if each is not None]
        if not known:
            return None
        free = sum(known)
        whole = free + consumable.used(instances)
        return math.floor(max(0.0, whole) / unit) * unit, math.floor(max(0.0, free) / unit) * unit

    def _memory_of(self, host: str, offered: Sequence[QueueInstance]) -> tuple[int, int]:
        """Return a host's memory as total and free, since any task may use all of it."""
        left = [_left(each) for each in self._told(MEMORY_LOAD, host, offered, "h")[:1]]
        there = UNTOLD if not left or left[0] is None else math.floor(left[0] / MIB) * MIB
        return there, there

    def _told(self, name: str, host: str, offered: Sequence[QueueInstance], layer: str) -> list[Resource]:
        """Return the values of a resource at the host (``h``) or in its queues (``q``)."""
        there = [*self._hosts.get(host, ()), *(each for instance in offered for each in instance.resources)]
        return [each for each in there if each.name == name and each.kind.startswith(layer)]

    def _kind_at(self, host: str, offered: Sequence[QueueInstance]) -> str:
        if self._kind is None:
            return ""
        there = [*self._told(self._kind, host, offered, "h"), *self._told(self._kind, host, offered, "q")]
        return there[0].text.strip() if there else ""


def _consumable(rows: Sequence[Sequence[str]], name: str | None) -> _Consumable | None:
    for row in rows:
        used_up = row[5].upper()
        if name in row[:2] and (used_up == _BY_SLOT or used_up in _BY_JOB):
            return _Consumable(row[0], row[1], used_up == _BY_SLOT)
    return None


def _left(resource: Resource) -> float | None:
    """Return the free amount; None if it is no amount or has no bound."""
    amount = amount_of(resource.text)
    return None if amount is None or math.isinf(amount) else amount + rounded_off(resource.text)


def _gpus(kind: str, amounts: tuple[int, int] | None, index: int) -> tuple[tuple[str, int], ...]:
    return () if amounts is None or not amounts[0] else ((kind, amounts[index]),)
