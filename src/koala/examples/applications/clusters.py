"""Which processes run together in one cluster: by an option, or by what Koala tells every component."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate

from koala.examples.applications.errors import ApplicationError

# The processors of each component, in order; Koala sets it for every component of a job.
VARIABLE = "KOALA_PROCESSORS_ALL"
GROUPS_WANTED = "the processes of each cluster, such as 4,4"


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
