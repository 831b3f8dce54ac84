"""What batch systems are found at a host: a shell script that searches for Slurm and Grid Engine, and the parser of
what it prints. Who is asked, and what becomes of the answer, is the caller's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

import msgspec

from koala.model.grid import SiteKind
from koala.sites.shell_script import assign, quoted, shell_file

# Of a cluster with more, the first ones are told.
QUEUES_TOLD_MAX = 50
NODES_TOLD_MAX = 1000
# Their addresses are looked up for so long; where that is not enough, none of them is told.
RESOLVE_S = 5
# The first line of an answer; whatever a login prints stands before it.
_MARK = "koala-found"
# What the programs need of a login's environment where a command by itself does not have it.
_LOGIN_VARIABLES = ("PATH", "SLURM_CONF", "SGE_ROOT", "SGE_CELL", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")

_VALUES = assign(
    koala_queues_max=QUEUES_TOLD_MAX,
    koala_nodes_max=NODES_TOLD_MAX,
    koala_resolve_s=RESOLVE_S,
    koala_found_mark=_MARK,
    koala_login_names=" ".join(_LOGIN_VARIABLES),
)
_RESOLVE = shell_file(__package__, "resolve.sh")
DISCOVERY_SCRIPT = f"{_VALUES}{_RESOLVE}{shell_file(__package__, 'discovery.sh')}koala_discover\n"


class FoundQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A partition or queue and all its processors; ``environments`` are the parallel ones that it offers."""

    name: str
    processors: int
    is_default: bool = False
    environments: tuple[str, ...] = ()


class ClusterNode(msgspec.Struct, frozen=True):
    """A node, and its address as the host of its batch system knows it."""

    name: str
    address: str | None


class FoundCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A batch system that answers. ``identity`` is the same wherever the cluster is seen from.

    ``environment`` is what commands there must be given, since they do not have it by themselves. ``nodes`` are those
    of the queue to use where the batch system tells that, of a large cluster some; none where looking them up takes
    long.
    """

    kind: SiteKind
    name: str
    identity: str
    queues: tuple[FoundQueue, ...]
    environment: tuple[tuple[str, str], ...] = ()
    nodes: tuple[ClusterNode, ...] = ()

    @property
    def queue(self) -> FoundQueue:
        """The one to use: the default one, or else the largest, or else the first."""
        return max(self.queues, key=lambda queue: (queue.is_default, queue.processors))


class FoundClusters(msgspec.Struct, frozen=True):
    """What a host has: clusters, and reasons why others that it could have do not answer."""

    clusters: tuple[FoundCluster, ...] = ()
    silent: tuple[str, ...] = ()


class DiscoveryError(ValueError):
    """What a host printed is no answer to the question."""


def parse_discovery(printed: str) -> FoundClusters:
    """What ``DISCOVERY_SCRIPT`` printed. Raises ``DiscoveryError`` where it did not get as far as printing."""
    _, mark, rest = printed.rpartition(f"{_MARK}\n")
    if not mark:
        raise DiscoveryError("it runs no commands")
    told: dict[str, list[str]] = {}
    for line in rest.splitlines():
        key, _, value = line.partition(" ")
        told.setdefault(key, []).append(value)
    clusters, silent = [], []
    for kind, queues in (
        (SiteKind.SLURM, _slurm_queues(told.get("slurm-queue", []))),
        (SiteKind.GRID_ENGINE, _grid_engine_queues(told)),
    ):
        if queues:
            name = " ".join(told.get(f"{kind}-name", [])[:1])
            master = " ".join(told.get(f"{kind}-master", []))
            login = _login_environment(kind, told.get("koala-login", []))
            cluster = FoundCluster(
                kind=kind, name=name, identity=f"{kind} {name} {master}", queues=tuple(queues), environment=login
            )
            nodes = _nodes(told.get(f"{kind}-node", []), cluster.queue.name)
            clusters.append(msgspec.structs.replace(cluster, nodes=nodes))
        elif f"{kind}-silent" in told:
            silent.append(f"{kind} is there, but: {' '.join(told[f'{kind}-silent'][-1].split())}")
        elif f"{kind}-queue" in told:
            silent.append(f"{kind} is there, but: it has no queue with processors")
    return FoundClusters(tuple(clusters), tuple(silent))


def resolving(names: Sequence[str]) -> str:
    """A script that tells what a host knows these names of nodes by."""
    lines = "".join(f"printf '%s\\n' \"$(koala_resolve {quoted([name])})\"\n" for name in names)
    return f"{_RESOLVE}{assign(koala_found_mark=_MARK)}printf '%s\\n' \"$koala_found_mark\"\n{lines}"


def parse_resolved(printed: str, names: Sequence[str]) -> dict[str, str | None]:
    """What such a script printed: the addresses. Raises ``DiscoveryError`` where it did not get to its end."""
    _, mark, rest = printed.rpartition(f"{_MARK}\n")
    lines = rest.splitlines()
    if not mark or len(lines) != len(names):
        raise DiscoveryError("it runs no commands")
    return {name: _address(line) for name, line in zip(names, lines, strict=True)}


def _nodes(lines: list[str], queue: str) -> tuple[ClusterNode, ...]:
    """Lines of queue, name and address; without a queue they are of every one."""
    fields = [each.split("|") for each in lines]
    return tuple(
        ClusterNode(each[1], _address(each[2]))
        for each in fields
        if len(each) == 3 and each[0] in ("", queue) and each[1]
    )


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.IPv4Address(text))
    except ValueError:
        return None


def _login_environment(kind: SiteKind, lines: list[str]) -> tuple[tuple[str, str], ...]:
    prefixes = ("PATH", "SLURM_" if kind is SiteKind.SLURM else "SGE_")
    pairs = [line.partition(" ")[::2] for line in lines]
    return tuple((name, value) for name, value in pairs if name.startswith(prefixes) and value)


def _slurm_queues(lines: list[str]) -> list[FoundQueue]:
    """Lines of name, availability and processors by state, such as ``main*|up|0/8/0/8``; those that are up."""
    queues = []
    for line in lines:
        fields = line.split("|")
        counts = fields[2].split("/") if len(fields) == 3 else []
        if len(counts) == 4 and fields[1] == "up" and counts[3].isdecimal() and int(counts[3]) > 0:
            name = fields[0].rstrip("*")
            queues.append(FoundQueue(name=name, processors=int(counts[3]), is_default=fields[0].endswith("*")))
    return queues


def _grid_engine_queues(told: dict[str, list[str]]) -> list[FoundQueue]:
    """Lines of ``qstat -g c``: name, load, used, reserved, available, total, and how many are in which states."""
    offers = {
        name: words.split() for name, _, words in (each.partition(" ") for each in told.get("grid_engine-offers", []))
    }
    environments = [each.split() for each in told.get("grid_engine-environment", []) if each.split()]
    # Those that let a job start processes on all its nodes come first.
    known = [words[0] for words in sorted(environments, key=lambda words: words[1:2] != ["TRUE"])]
    queues = []
    for line in told.get("grid_engine-queue", []):
        fields = line.split()
        if len(fields) >= 8 and all(field.isdecimal() for field in fields[2:6]) and int(fields[5]) > 0:
            offered = tuple(name for name in known if name in offers.get(fields[0], []))
            queues.append(FoundQueue(name=fields[0], processors=int(fields[5]), environments=offered))
    return queues
