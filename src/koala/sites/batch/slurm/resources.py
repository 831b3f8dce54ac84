"""How many processors of a Slurm node our jobs could get, by the memory, the features and the whole nodes that they
request.

``resources.sh`` asks for it, ``koala.sites.batch.slurm.options`` parses the site's own options. Unknown or
unintelligible values take no processor away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from koala.model.nodes import UNTOLD, NodeSize
from koala.sites.batch.slurm.options import RequestedResources, Sharing, megabytes

# Precede the lines that ``resources.sh`` adds: our user, and the controller's description of itself, a partition, a
# node.
_USER_WORD, _CONFIGURATION_WORD, _PARTITION_WORD, _NODE_WORD = "user ", "configuration ", "partition ", "node "
_SHARES_MEMORY = re.compile(r"CR_(\w+_)?MEMORY", re.IGNORECASE | re.ASCII)
_BY_CORE = re.compile(r"CR_(CORE|SOCKET)(_MEMORY)?", re.IGNORECASE | re.ASCII)
MIB = 2**20
_GPUS = re.compile(r"(?:^|,)gpu(?::([A-Za-z][\w.-]*))?:(\d{1,6})(?=[(,]|$)", re.ASCII)
_GRES_CHARACTERS_MAX = 10_000
_NOBODY = ("", "N/A", "(null)")


class NodeResources(msgspec.Struct, frozen=True):
    """A node without its processors. ``whole_mb`` is None if its memory is unknown."""

    whole_mb: int | None = None
    taken_mb: int = 0
    threads: int = 1  # of a core, if each counts as a processor
    features: frozenset[str] | None = None
    owner: str | None = None  # the only user whose jobs it accepts
    processors_taken: int | None = None  # if it is reported separately
    gpus: tuple[tuple[str, int], ...] = ()  # by kind, '' if it has none
    gpus_taken: tuple[tuple[str, int], ...] = ()


class MemoryNeed(msgspec.Struct, frozen=True):
    """The memory of our job: an amount for each processor, or else for each node, 0 for all memory of the node.
    ``most_mb`` is the most for one processor: a job that requests more gets more processors. ``source`` names the
    origin of the need."""

    processor_mb: int | None = None
    node_mb: int | None = None
    most_mb: int | None = None
    source: str = ""


class ClusterResources(msgspec.Struct, frozen=True):
    """The output of ``resources.sh``, and the requests of our jobs."""

    asked: RequestedResources = RequestedResources()
    user: str = ""
    by_core: bool = False
    shares_memory: bool = False
    configuration: Mapping[str, str] = {}
    partitions: Mapping[str, Mapping[str, str]] = {}
    nodes: Mapping[str, NodeResources] = {}

    def need(self, partition: str) -> MemoryNeed | None:
        """Return the memory that a job requests there; None if memory is not allocated, or the amount is unknown."""
        if not self.shares_memory or not self.asked.memory_is_known:
            return None
        asked, own, general = self.asked, self.partitions.get(partition, {}), self.configuration
        limits = own if _size(own, "MaxMemPerCPU") or _size(own, "MaxMemPerNode") else general
        most = _size(limits, "MaxMemPerCPU")
        if asked.processor_mb is not None:
            return MemoryNeed(asked.processor_mb, None, most, "as --mem-per-cpu says")
        if asked.node_mb is not None:
            return MemoryNeed(None, asked.node_mb, most, "as --mem says" if asked.node_mb else "as --mem=0 says")
        for fields, where in ((own, f"of the partition {partition}"), (general, "of the cluster")):
            for_processor, for_node = _size(fields, "DefMemPerCPU"), _size(fields, "DefMemPerNode")
            if for_processor:
                return MemoryNeed(for_processor, None, most, f"DefMemPerCPU {where}")
            if for_node:
                return MemoryNeed(None, for_node, most, f"DefMemPerNode {where}")
        if asked.has_gpus:  # each of them may have a default
            return None
        return MemoryNeed(None, 0, most, "as no default is set")

    def processors(self, name: str, partition: str, idle: int, used: int) -> int:
        """Return how many of the idle processors of a node our jobs could get; ``used`` others are in use."""
        node = self.nodes.get(name, NodeResources())
        if not self._lets_us_in(node, used):
            return 0
        return self._with_memory(node, partition, idle, node.taken_mb)

    def processors_of_empty(self, name: str, partition: str, processors: int) -> int:
        """Return how many of a node's processors our jobs could get in an empty cluster."""
        node = self.nodes.get(name, NodeResources())
        return self._with_memory(node, partition, processors, 0) if self._suits(node) else 0

    def node_size(
        self, name: str, processors: int, idle: int, *, memory_mb: int | None = None, features: Sequence[str] = ()
    ) -> tuple[NodeSize, NodeSize, tuple[str, ...]] | None:
        """Return a node's total size, its free size and its features; None if we are not admitted. The given memory
        and features count if the controller was not asked. If memory is not allocated, all of it is free: sbatch
        refuses only what no node has."""
        node = self.nodes.get(name, NodeResources())
        if not self._lets_us_in(node, processors - idle):
            return None
        if node.processors_taken is not None:
            idle = min(idle, max(0, processors - node.processors_taken))
        taken = dict(node.gpus_taken)
        gpus = tuple((kind, max(0, count - taken.get(kind, 0))) for kind, count in node.gpus)
        whole_mb = memory_mb if node.whole_mb is None else node.whole_mb
        whole_bytes = free_bytes = UNTOLD
        if whole_mb is not None:
            taken_mb = node.taken_mb if self.shares_memory else 0
            whole_bytes, free_bytes = whole_mb * MIB, max(0, whole_mb - taken_mb) * MIB
        whole = NodeSize(processors, whole_bytes, node.gpus, counts_memory=self.shares_memory)
        free = NodeSize(idle, free_bytes, gpus, counts_memory=self.shares_memory)
        return whole, free, tuple(sorted(features if node.features is None else node.features))

    def _suits(self, node: NodeResources) -> bool:
        return node.features is None or self.asked.features.are_met(set(node.features))

    def _lets_us_in(self, node: NodeResources, used: int) -> bool:
        if not self._suits(node) or node.owner not in (None, self.user):
            return False
        sharing = self.asked.sharing
        return sharing is Sharing.ANYBODY or used == 0 or (sharing is Sharing.OWN_USER and node.owner == self.user)

    def _with_memory(self, node: NodeResources, partition: str, processors: int, taken_mb: int) -> int:
        need = self.need(partition)
        if need is None or node.whole_mb is None:
            return processors
        is_whole = self.asked.sharing is Sharing.NOBODY
        unit = node.threads if self.by_core else 1
        return processors_within(
            need, processors, max(0, node.whole_mb - taken_mb), node.whole_mb, unit=unit, is_whole=is_whole
        )


def processors_within(
    need: MemoryNeed, processors: int, free_mb: int, whole_mb: int, *, unit: int = 1, is_whole: bool = False
) -> int:
    """Return how many processors of a node with this much memory a job could get. It takes ``unit`` processors at a
    time, as with whole cores, or with ``is_whole`` all or none. A need for each node applies in full to every
    node."""
    if need.processor_mb is None:
        wanted = need.node_mb or whole_mb
        fewest = _times(wanted, need.most_mb)
        return processors if wanted <= free_mb and processors >= fewest else 0
    if need.processor_mb == 0:
        return processors
    times = _times(need.processor_mb, need.most_mb)
    each_mb = -(-need.processor_mb // times)
    fitting = free_mb // (unit * each_mb) * unit
    if is_whole and fitting < processors:
        return 0
    return min(processors, fitting) // times


def _times(wanted_mb: int, most_mb: int | None) -> int:
    """Return how many processors it takes to have this much memory."""
    return max(1, -(-wanted_mb // most_mb)) if most_mb else 1


def parse_resources(lines: Sequence[str], asked: RequestedResources) -> ClusterResources:
    """Parse the output of ``resources.sh``, for jobs with these requests."""
    user, configuration = "", dict[str, str]()
    partitions: dict[str, dict[str, str]] = {}
    nodes: dict[str, NodeResources] = {}
    for line in lines:
        fields = dict(word.partition("=")[::2] for word in reversed(line.split()) if "=" in word)
        if line.startswith(_USER_WORD):
            user = line.removeprefix(_USER_WORD).strip()
        elif line.startswith(_CONFIGURATION_WORD):
            configuration |= fields
        elif line.startswith(_PARTITION_WORD) and "PartitionName" in fields:
            partitions[fields["PartitionName"]] = fields
        elif line.startswith(_NODE_WORD) and "NodeName" in fields:
            nodes[fields["NodeName"]] = _node(fields)
    selection = configuration.get("SelectTypeParameters", "")
    return ClusterResources(
        asked=asked,
        user=user,
        by_core=any(_BY_CORE.fullmatch(word) for word in selection.split(",")),
        shares_memory=_SHARES_MEMORY.search(selection) is not None,
        configuration=configuration,
        partitions=partitions,
        nodes=nodes,
    )


def _node(fields: Mapping[str, str]) -> NodeResources:
    real = _size(fields, "RealMemory")
    features = fields.get("ActiveFeatures")
    owner = fields.get("Owner", "").partition("(")[0]
    return NodeResources(
        whole_mb=None if real is None else max(0, real - (_size(fields, "MemSpecLimit") or 0)),
        taken_mb=_size(fields, "AllocMem") or 0,
        threads=_threads(fields),
        features=None if features is None else frozenset(features.split(",")) - {*_NOBODY},
        owner=None if owner in _NOBODY else owner,
        processors_taken=_count(fields, "CPUAlloc"),
        gpus=gpus_in(fields.get("Gres", "")),
        gpus_taken=gpus_in(fields.get("GresUsed", "")),
    )


def gpus_in(text: str) -> tuple[tuple[str, int], ...]:
    """Return GPUs by kind, from ``gpu:a100:2(S:0-1),gpu:v100:1`` or ``gpu:4``, in the order of the kinds."""
    found: dict[str, int] = {}
    for kind, count in _GPUS.findall(text[:_GRES_CHARACTERS_MAX]):
        found[kind] = found.get(kind, 0) + int(count)
    return tuple(sorted(found.items()))


def _count(fields: Mapping[str, str], name: str) -> int | None:
    text = fields.get(name, "")
    return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None


def _threads(fields: Mapping[str, str]) -> int:
    """Return how many processors a core has: one if there are no more processors than cores, whatever it could
    run."""
    processors, sockets, cores = (_size(fields, name) for name in ("CPUTot", "Sockets", "CoresPerSocket"))
    if processors is None or sockets is None or cores is None or sockets * cores >= processors:
        return 1
    return min(max(1, _size(fields, "ThreadsPerCore") or 1), 1024)


def _size(fields: Mapping[str, str], name: str) -> int | None:
    """Return a size; None also for ``UNLIMITED``."""
    return megabytes(fields.get(name, ""))
