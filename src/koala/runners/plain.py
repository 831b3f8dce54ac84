"""The plain runner: each component runs the program once, on its first node, and is told who the others are.

What every runner tells is here too; how tasks are dealt out to nodes is in ``koala.runners.dealing``.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.launch import Go, LaunchError, Peer
from koala.model.request import JobId

# Below the ports that Linux gives out by itself (32768 and up), so that a free one stays free until it is used.
RENDEZVOUS_PORT_FIRST = 20_000
RENDEZVOUS_PORTS = 10_000


def rendezvous_port(job: JobId) -> int:
    """A port for the job's components to meet at. Jobs that run at the same time rarely share one."""
    return RENDEZVOUS_PORT_FIRST + job % RENDEZVOUS_PORTS


def check_peers(peers: Sequence[Peer]) -> None:
    """The peers are all components of one job, in order."""
    if [peer.part for peer in peers] != list(range(len(peers))) or not peers:
        raise LaunchError("peers", "give every component of the job once, in the order of its parts")


def address(host: str, port: int) -> str:
    """``host:port``, with brackets where the host is an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def common_environment(job: JobId, peers: Sequence[Peer], port: int) -> list[tuple[tuple[str, str], ...]]:
    """The ``KOALA_`` variables, which every runner gives to every component.

    ``KOALA_NODES`` lists the components separated by ';' and the nodes of each by ',', ``KOALA_NODE_PROCESSORS`` in
    the same shape what the component has of each. ``KOALA_FIRST_RANK`` is the number of tasks in the components
    before this one.
    """
    nodes = ";".join(",".join(node.name for node in peer.shares) for peer in peers)
    shares = ";".join(",".join(str(node.processors) for node in peer.shares) for peer in peers)
    environments: list[tuple[tuple[str, str], ...]] = []
    first_rank = 0
    for peer in peers:
        environments.append(
            (
                ("KOALA_JOB", str(job)),
                ("KOALA_COMPONENT", str(peer.part)),
                ("KOALA_COMPONENTS", str(len(peers))),
                ("KOALA_PROCESSORS", str(peer.processors)),
                ("KOALA_PROCESSORS_ALL", ",".join(str(each.processors) for each in peers)),
                ("KOALA_PROCESSORS_PER_TASK", str(peer.processors_per_task)),
                ("KOALA_FIRST_RANK", str(first_rank)),
                ("KOALA_NODES", nodes),
                ("KOALA_NODE_PROCESSORS", shares),
                ("KOALA_RENDEZVOUS", address(peers[0].host, port)),
            )
        )
        first_rank += peer.tasks
    return environments


def plain_go(job: JobId, peers: Sequence[Peer], port: int | None = None) -> tuple[Go, ...]:
    """What each component of a plain job is told: the ``KOALA_`` variables and nothing else."""
    check_peers(peers)
    chosen = rendezvous_port(job) if port is None else port
    return tuple(Go(environment=environment) for environment in common_environment(job, peers, chosen))
