"""The text of the grid file that ``koala grid init`` writes: an entry for each cluster, comments for the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from koala.cli.grid.reach import nodes_reached
from koala.cli.terminal.output import counted
from koala.descriptions.errors import printable
from koala.descriptions.fields import NAME_CHARACTERS_MAX
from koala.descriptions.grid.batch import work_directory_of
from koala.model.grid import Links
from koala.sites.batch.discovery import FoundCluster, FoundClusters
from koala.sites.batch.systems import SYSTEMS

_COMMENT_CHARACTERS_MAX = 160
_REASON_CHARACTERS_MAX = 120
_UNNAMED = re.compile(r"[^A-Za-z0-9._-]+")
# YAML reads this as text without quotes, whatever it stands for.
_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9/._@-]*")
_NOT_TEXT = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


class SurveyedHost(NamedTuple):
    """A host that was asked for batch systems, and its answer. Without an address it is this machine; ``environment``
    is the one of the query."""

    address: str | None
    found: FoundClusters
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The host's name in messages."""
        return "this machine" if self.address is None else self.address

    def words(self) -> str:
        """Describe what was found, in a line; a host with a cluster is described without its failures."""
        words = [
            f"{each.kind} {each.name}, {counted(each.queue.processors, 'processor')} in {each.queue.name}"
            for each in self.found.clusters
        ]
        words = words or [printable(reason, _REASON_CHARACTERS_MAX) for reason in self.found.silent]
        return f"{self.name}: {'; '.join(words) or no_system()}"


def no_system() -> str:
    """What is said of a host without a batch system."""
    return " and ".join(f"no {each.title}" for each in SYSTEMS.values())


# How each host of a cluster resolves the name of a node.
Known: TypeAlias = Mapping[str, Sequence[str | None]]


class OmittedHost(NamedTuple):
    """A host that is in the file only as a comment, and why."""

    host: str
    reason: str


def grid_text(hosts: Sequence[SurveyedHost], check: str, known: Known | None = None) -> tuple[str, list[OmittedHost]]:
    """Return the file, in the form of grid files, and what is not a site in it; ``check`` is the command that the
    file tells its reader to begin with. ``known`` is how each host of a cluster resolves the names of nodes."""
    one_machine = all(host.address is None for host in hosts if host.found.clusters)
    names: set[str] = set()
    seen: dict[str, str] = {}  # cluster -> its site
    entries: list[str] = []
    left_out: list[OmittedHost] = []
    for host in hosts:
        for cluster in host.found.clusters:
            if cluster.identity in seen:
                left_out.append(
                    OmittedHost(host.name, f"the same {cluster.kind} cluster as {seen[cluster.identity]}")
                )
                continue
            name = _free_name(host, cluster, names)
            names.add(name)
            seen[cluster.identity] = name
            entries += _entry(name, host, cluster)
            entries += _reached(cluster, known, one_machine=one_machine)
        left_out += [OmittedHost(host.name, reason) for reason in host.found.silent]
        if host.address is not None and host.found == FoundClusters():
            left_out.append(OmittedHost(host.name, no_system()))
    lines = (*_head(check), "sites:", *entries, *_left_out(left_out), *_links())
    return "".join(f"{line}\n" for line in lines), left_out


def _head(check: str) -> Iterator[str]:
    yield "# Written by koala grid init from what it found; change it as you like, and write it again with --force."
    yield "# processors is the most that Koala uses at a site. Before the first use:"
    yield _comment(check, indent="", room="   ")
    yield "name: my grid"


def _entry(name: str, host: SurveyedHost, cluster: FoundCluster) -> Iterator[str]:
    queue = cluster.queue
    others = [f"{each.name} ({each.processors})" for each in cluster.queues if each.name != queue.name]
    environment = dict(cluster.environment) | _own_environment(host, cluster)
    yield f"  {_text(name)}:"
    yield f"    kind: {cluster.kind}"
    if host.address is not None:
        yield f"    ssh: {_text(host.address)}"
    yield f"    processors: {queue.processors}"
    if others:
        yield _comment(f"there are also {', '.join(others)}")
    yield f"    queue: {_text(queue.name)}"
    yield from (f"    {key}: {_text(value)}" for key, value in queue.own)
    if queue.remark:
        yield _comment(queue.remark)
    if environment:
        yield "    environment:"
        yield from (f"      {name}: {_quoted(value)}" for name, value in environment.items())
    yield f"    work_directory: {_quoted(work_directory_of(name))}"
    yield _comment("a directory that all its nodes see; a scratch file system is better than a small home")
    if host.address is not None:
        yield _comment("search_path: [/opt/mpich/bin]  # where MPICH's mpiexec is there, for jobs of the type mpi")


def _reached(cluster: FoundCluster, known: Known | None, *, one_machine: bool) -> Iterator[str]:
    """Yield how others reach its nodes, if their names do not suffice."""
    asked = None if known is None or not cluster.nodes else known.get(cluster.nodes[0].name)
    key, why = nodes_reached(cluster, asked, one_machine=one_machine)
    if key is not None:
        yield f"    {key[0]}: {_quoted(key[1])}"
        yield _comment(f"{why}: what jobs over several sites need")
    elif why:
        yield _comment(f"host: ADDRESS, or network: ADDRESS/BITS  # for jobs over several sites: {why}")


def _own_environment(host: SurveyedHost, cluster: FoundCluster) -> dict[str, str]:
    needed = SYSTEMS[cluster.kind].parts().discovery.variables
    return {name: value for name, value in host.environment if name in needed}


def _left_out(those: Sequence[OmittedHost]) -> Iterator[str]:
    if those:
        yield _comment("Left out:", indent="  ")
    yield from (_comment(f"{each.host}: {each.reason}", indent="  ", room="   ") for each in those)


def _links() -> Iterator[str]:
    """Yield the default of unnamed links, to be changed: the network between sites cannot be seen here."""
    link = Links().default
    default = f"{{bandwidth_mbit_s: {link.bandwidth_mbit_s:g}, latency_ms: {link.latency_s * 1000:g}}}"
    yield _comment(
        "The links between sites, also the most that rsync and streams use. Open it to write yours:", indent=""
    )
    yield _comment(f"links: {{default: {default}}}", indent="")


def _free_name(host: SurveyedHost, cluster: FoundCluster, taken: set[str]) -> str:
    """Return a name for the site: the host's, or on this machine the cluster's own."""
    wanted = cluster.name if host.address is None else host.address.rpartition("@")[2]
    name = _UNNAMED.sub("-", wanted).strip("-._")[: NAME_CHARACTERS_MAX - 10] or cluster.kind
    number = 1
    while (free := name if number == 1 else f"{name}-{number}") in taken:
        number += 1
    return free


def _comment(text: str, *, indent: str = "    ", room: str = " ") -> str:
    """Return one line, whatever the text holds; YAML refuses some characters even in a comment."""
    safe = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return f"{indent}#{room}{printable(safe, _COMMENT_CHARACTERS_MAX)}"


def _text(value: str) -> str:
    plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _NOT_TEXT
    return value if plain else _quoted(value)


def _quoted(value: str) -> str:
    """Return any text in double quotes, with the escapes of YAML for everything but plain ASCII."""
    return f'"{"".join(map(_escaped, value))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return character if " " <= character <= "~" else f"\\U{ord(character):08x}"
