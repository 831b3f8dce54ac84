"""Which processes run together in one cluster, and how far clusters are apart.

The clusters are known from an option, or from what Koala tells every component. Distance is emulated, so that one
machine can show what several clusters would cost: a message is held back for the latency and for its bytes over the
bandwidth. Messages do not slow each other down: the links of this emulation are never saturated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from koala.examples.applications.errors import ApplicationError

# The processors of each component, in order; Koala sets it for every component of a job.
VARIABLE = "KOALA_PROCESSORS_ALL"
GROUPS_WANTED = "the processes of each cluster, such as 4,4"
_BITS_PER_BYTE = 8


@dataclass(frozen=True)
class ProcessClusters:
    """``sizes`` are the processes of each cluster; ranks are dealt out in that order."""

    sizes: tuple[int, ...]

    def cluster_of(self, rank: int) -> int:
        """The cluster in which a process runs."""
        return bisect_right(list(accumulate(self.sizes)), rank)

    def are_apart(self, one: int, other: int) -> bool:
        """Whether a message between two processes leaves its cluster."""
        return self.cluster_of(one) != self.cluster_of(other)

    def members(self, cluster: int) -> range:
        """The ranks in a cluster; the first of them leads it."""
        first = sum(self.sizes[:cluster])
        return range(first, first + self.sizes[cluster])

    def leaders(self) -> list[int]:
        """The first rank of every cluster."""
        return [self.members(cluster)[0] for cluster in range(len(self.sizes))]


@dataclass(frozen=True)
class WanEmulation:
    """How far clusters are apart. Without a bandwidth only the latency counts."""

    latency_ms: float = 0.0
    bandwidth_mbit_s: float | None = None

    @property
    def is_emulated(self) -> bool:
        """Whether any message is held back at all."""
        return self.latency_ms > 0 or self.bandwidth_mbit_s is not None

    def delay_s(self, size_bytes: int) -> float:
        """How long after it was sent a message of this size may be used in another cluster."""
        delay_s = self.latency_ms / 1e3
        if self.bandwidth_mbit_s is not None:
            delay_s += size_bytes * _BITS_PER_BYTE / (self.bandwidth_mbit_s * 1e6)
        return delay_s

    def __str__(self) -> str:
        speed = "any bandwidth" if self.bandwidth_mbit_s is None else f"{self.bandwidth_mbit_s:g} Mbit/s"
        return f"{self.latency_ms:g} ms, {speed}"


def clusters_from(option: tuple[int, ...] | None, environment: Mapping[str, str], processes: int) -> ProcessClusters:
    """The clusters of this run. The option goes before the environment; without either there is one cluster."""
    if option is not None:
        sizes, source = option, "--groups"
        advice = f"give sizes that add up to {processes}, or start as many processes"
    elif VARIABLE in environment:
        text, source = environment[VARIABLE], VARIABLE
        read = group_sizes(text)
        if read is None:
            raise ApplicationError(f"{source} {text!r}: it must be {GROUPS_WANTED}; set it right, or give --groups")
        sizes = read
        advice = "write 'type: mpi' in the job so that its components are one run, or give --groups"
    else:
        return ProcessClusters((processes,))
    if sum(sizes) != processes:
        text = ",".join(map(str, sizes))
        raise ApplicationError(f"{source} {text}: that is {_counted(sum(sizes))}, and {processes} run; {advice}")
    return ProcessClusters(sizes)


def group_sizes(text: str) -> tuple[int, ...] | None:
    """Sizes such as ``4,4``; nothing if it is anything else."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and len(word) < 8 and int(word) > 0 for word in words):
        return None
    return tuple(map(int, words))


def _counted(processes: int) -> str:
    return "1 process" if processes == 1 else f"{processes} processes"
