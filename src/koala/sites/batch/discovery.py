"""The search for batch systems at a host: the script that searches, and the parser of its output.

The search for each batch system is in its own folder (``SystemDiscovery``). The caller chooses the hosts and uses the
answers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from koala.sites.shell_script import assign, quoted, shell_file

# Of a cluster with more queues, the first ones are reported.
QUEUES_TOLD_MAX = 50
NODES_TOLD_MAX = 1000
# Time limit for the lookup of node addresses; no node is reported if it is not enough.
RESOLVE_S = 5
# The first line of an answer; the output of a login precedes it.
_MARK = "koala-found"
_PATH = "PATH"

_RESOLVE = shell_file(__package__, "resolve.sh")


class FoundQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A partition or queue and all its processors. ``own`` maps keys of the grid file that only this batch system has
    to their values for this queue; ``remark`` is a further note."""

    name: str
    processors: int
    is_default: bool = False
    own: tuple[tuple[str, str], ...] = ()
    remark: str = ""


# The output of a script for one batch system: the lines by their first word, without that word.
Printed: TypeAlias = Mapping[str, list[str]]


class SystemDiscovery(msgspec.Struct, frozen=True, kw_only=True):
    """The search for clusters of one batch system.

    ``script`` defines the shell function ``koala_find_NAME``, with the name of the kind. It prints lines that begin
    with ``NAME-``: a ``queue`` for each queue, the ``name`` of the cluster, its ``master``, and by
    ``koala_tell_nodes`` its nodes; ``silent`` and the reason if the programs exist and do not answer. ``queues``
    parses the output. ``variables`` are the environment variables that the programs need.
    """

    variables: tuple[str, ...]
    script: str
    queues: Callable[[Printed], list[FoundQueue]]


# By the name of the kind.
Discoveries: TypeAlias = Mapping[str, SystemDiscovery]


class ClusterNode(msgspec.Struct, frozen=True):
    """A node, with its address as the host of its batch system resolves it."""

    name: str
    address: str | None


class FoundCluster(msgspec.Struct, frozen=True, kw_only=True):
    """A batch system that answers. ``identity`` is the same from every host that sees the cluster.

    ``environment`` is what commands there need in addition to their own environment. ``nodes`` are the nodes of the
    queue to use if the batch system reports them, some of them for a large cluster, and none if the lookup takes
    long.
    """

    kind: str
    name: str
    identity: str
    queues: tuple[FoundQueue, ...]
    environment: tuple[tuple[str, str], ...] = ()
    nodes: tuple[ClusterNode, ...] = ()

    @property
    def queue(self) -> FoundQueue:
        """The queue to use: the default queue, or else the largest, or else the first."""
        return max(self.queues, key=lambda queue: (queue.is_default, queue.processors))


class FoundClusters(msgspec.Struct, frozen=True):
    """The clusters of a host, and the reasons why other possible clusters do not answer."""

    clusters: tuple[FoundCluster, ...] = ()
    silent: tuple[str, ...] = ()


class DiscoveryError(ValueError):
    """The output of a host is no answer to the question."""


def login_variables(discoveries: Discoveries) -> tuple[str, ...]:
    """Return the environment variables that the programs need."""
    return tuple(name for each in discoveries.values() for name in each.variables)


def discovery_script(discoveries: Discoveries) -> str:
    """Return the script whose output ``parse_discovery`` parses."""
    values = assign(
        koala_queues_max=QUEUES_TOLD_MAX,
        koala_nodes_max=NODES_TOLD_MAX,
        koala_resolve_s=RESOLVE_S,
        koala_found_mark=_MARK,
        koala_login_names=" ".join([_PATH, *login_variables(discoveries)]),
        koala_kinds=" ".join(discoveries),
    )
    searches = "".join(each.script for each in discoveries.values())
    return f"{values}{_RESOLVE}{shell_file(__package__, 'discovery.sh')}{searches}koala_discover\n"


def parse_discovery(printed: str, discoveries: Discoveries) -> FoundClusters:
    """Parse the output of the script. Raises ``DiscoveryError`` if the script did not get as far as printing."""
    _, mark, rest = printed.rpartition(f"{_MARK}\n")
    if not mark:
        raise DiscoveryError("it runs no commands")
    login: list[str] = []
    told: dict[str, dict[str, list[str]]] = {}
    for line in rest.splitlines():
        word, _, value = line.partition(" ")
        kind, _, key = word.partition("-")
        if word == "koala-login":
            login.append(value)
        elif kind in discoveries:
            told.setdefault(kind, {}).setdefault(key, []).append(value)
    clusters, silent = [], []
    for kind, system in discoveries.items():
        lines = told.get(kind, {})
        queues = system.queues(lines)
        if queues:
            name = " ".join(lines.get("name", [])[:1])
            master = " ".join(lines.get("master", []))
            cluster = FoundCluster(
                kind=kind,
                name=name,
                identity=f"{kind} {name} {master}",
                queues=tuple(queues),
                environment=_login_environment(system, login),
            )
            nodes = _nodes(lines.get("node", []), cluster.queue.name)
            clusters.append(msgspec.structs.replace(cluster, nodes=nodes))
        elif "silent" in lines:
            silent.append(f"{kind} is there, but: {' '.join(lines['silent'][-1].split())}")
        elif "queue" in lines:
            silent.append(f"{kind} is there, but: it has no queue with processors")
    return FoundClusters(tuple(clusters), tuple(silent))


def resolving(names: Sequence[str]) -> str:
    """Return a script that prints how a host resolves these node names."""
    lines = "".join(f"printf '%s\\n' \"$(koala_resolve {quoted([name])})\"\n" for name in names)
    return f"{_RESOLVE}{assign(koala_found_mark=_MARK)}printf '%s\\n' \"$koala_found_mark\"\n{lines}"


def parse_resolved(printed: str, names: Sequence[str]) -> dict[str, str | None]:
    """Return the addresses that such a script printed. Raises ``DiscoveryError`` if it did not reach its end."""
    _, mark, rest = printed.rpartition(f"{_MARK}\n")
    lines = rest.splitlines()
    if not mark or len(lines) != len(names):
        raise DiscoveryError("it runs no commands")
    return {name: _address(line) for name, line in zip(names, lines, strict=True)}


def _nodes(lines: list[str], queue: str) -> tuple[ClusterNode, ...]:
    """Parse lines of queue, name and address; a line without a queue counts for every queue."""
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


def _login_environment(system: SystemDiscovery, lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    pairs = [line.partition(" ")[::2] for line in lines]
    return tuple((name, value) for name, value in pairs if name in (_PATH, *system.variables) and value)
