"""The MPI runner: one MPI_COMM_WORLD over all components, by the manual launcher of MPICH's hydra.

The first component's script runs ``mpiexec``, which prints one proxy command for each node of each component. The
driver relays them to the components as mail, and each runs its own. Programs are unmodified MPICH programs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from koala.model.launch import MAIL_BYTES_MAX, Go, LaunchError, Peer
from koala.model.request import JobId
from koala.runners.plain import check_peers, common_environment, rendezvous_port, tasks_of_nodes

# The names of the mail: from the first component, and to each component.
PROXIES = "proxies"
PROXY = "proxy"
# The hosts that mpiexec receives, and that the first component sends along with mpiexec's output.
HOSTS = "KOALA_MPI_HOSTS"

_LAUNCH = "HYDRA_LAUNCH:"
_LAUNCH_END = "HYDRA_LAUNCH_END"
# The component, the index of a node among its nodes, and the number of the node's ranks.
_HOST = re.compile(r"component([0-9]{1,9})-([0-9]{1,9}):([1-9][0-9]{0,9})")
# A proxy command contains paths, options, numbers and addresses; a word with anything else is not hydra's.
_WORD = re.compile(r"[A-Za-z0-9_.,:/@%+=\[\]-]+")


class HydraOutputError(LaunchError):
    """The output of mpiexec is not a list of proxy commands."""

    def __init__(self, message: str) -> None:
        super().__init__("mpiexec", f"{message}; is it MPICH's mpiexec (hydra)?")


def mpi_go(job: JobId, peers: Sequence[Peer], port: int | None = None) -> tuple[Go, ...]:
    """Return the ``Go`` of each component of an MPI job; ranks are numbered in the order of components and their
    nodes."""
    check_peers(peers)
    chosen = rendezvous_port(job) if port is None else port
    # Hydra requires a name for each proxy's host and never looks it up under the manual launcher.
    hosts = ",".join(
        f"component{peer.part}-{node}:{tasks}"
        for peer in peers
        for node, tasks in enumerate(tasks_of_nodes(peer))
        if tasks > 0
    )
    world = (
        ("KOALA_MPI_ADDRESS", peers[0].host),
        (HOSTS, hosts),
        ("KOALA_MPI_RANKS", str(sum(peer.tasks for peer in peers))),
    )
    return tuple(Go(environment=each + world) for each in common_environment(job, peers, chosen))


def parse_proxies(text: str) -> tuple[tuple[str, ...], ...]:
    """Return the proxy commands in the output of ``mpiexec -launcher manual``, each as its words, in the order of
    proxy ids.

    Other lines are ignored. Raises ``HydraOutputError`` for commands that are not hydra's, too many or too few of
    them, or a missing end.
    """
    if len(text) > MAIL_BYTES_MAX:
        raise HydraOutputError(f"it printed more than {MAIL_BYTES_MAX} characters (MAIL_BYTES_MAX)")
    found: dict[int, tuple[str, ...]] = {}
    for line in text.split("\n"):
        if line.strip() == _LAUNCH_END:
            break
        if line.startswith(_LAUNCH):
            words = tuple(line.removeprefix(_LAUNCH).split())
            proxy = _proxy_id(words)
            if proxy in found:
                raise HydraOutputError(f"it printed proxy {proxy} twice")
            found[proxy] = words
    else:
        raise HydraOutputError(f"its list of proxies has no {_LAUNCH_END}")
    if sorted(found) != list(range(len(found))):
        raise HydraOutputError(f"it printed proxies {sorted(found)}, not one of each")
    return tuple(found[proxy] for proxy in range(len(found)))


def _proxy_id(words: tuple[str, ...]) -> int:
    if len(words) < 3 or words[-2] != "--proxy-id" or re.fullmatch(r"[0-9]{1,6}", words[-1]) is None:
        raise HydraOutputError("a line does not end in --proxy-id and a number")
    for word in words:
        if _WORD.fullmatch(word) is None:
            raise HydraOutputError(f"{word!r} cannot be part of a proxy command")
    if not words[0].startswith("/"):
        raise HydraOutputError(f"{words[0]!r} is not the path of a proxy")
    return int(words[-1])


def proxy_mail(proxies: bytes, components: int) -> tuple[bytes, ...]:
    """Return the mail ``PROXY`` for each of the job's components, made from the first component's mail ``PROXIES``.

    For each proxy the mail has the index of its node among the component's, from 0, and the words of its command, one
    a line, with an empty line after the last. The script runs these words unchanged; they are not shell text.
    """
    text = proxies.decode(errors="replace")
    commands = parse_proxies(text)
    hosts = _parse_hosts(text)
    if len(commands) != len(hosts):
        raise HydraOutputError(f"it printed {len(commands)} proxies for {len(hosts)} nodes")
    if sorted({component for component, _ in hosts}) != list(range(components)):
        raise HydraOutputError(f"it was not given the nodes of all {components} components")
    mail = [""] * components
    for (component, node), command in zip(hosts, commands, strict=True):
        mail[component] += "".join(f"{word}\n" for word in (str(node), *command, ""))
    return tuple(letter.encode() for letter in mail)


def _parse_hosts(text: str) -> list[tuple[int, int]]:
    """Return the component and the node index of each proxy, from the line that the first component's script adds."""
    line = text.partition("\n")[0]
    found = []
    for host in line.removeprefix(f"{HOSTS}=").split(","):
        match = _HOST.fullmatch(host)
        if match is None or not line.startswith(f"{HOSTS}="):
            raise HydraOutputError(f"its list of proxies does not begin with the nodes that they are for ({HOSTS})")
        found.append((int(match[1]), int(match[2])))
    return found
