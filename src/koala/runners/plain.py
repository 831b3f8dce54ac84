"""The plain runner: each component runs the program once, on its first node, and receives the addresses of the
others.

Also the variables that every runner sets, and the number of tasks of each node of a component.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.launch import Go, LaunchError, Peer
from koala.model.request import JobId

# Below the ports that Linux assigns automatically (32768 and up), so that a free port stays free until it is used.
RENDEZVOUS_PORT_FIRST = 20_000
RENDEZVOUS_PORTS = 10_000


def rendezvous_port(job: JobId) -> int:
    """Return a port where the job's components can meet. Jobs that run at the same time rarely share one."""
    return RENDEZVOUS_PORT_FIRST + job % RENDEZVOUS_PORTS


def check_peers(peers: Sequence[Peer]) -> None:
    """Check that the peers are all components of one job, in order."""
    if [peer.part for peer in peers] != list(range(len(peers))) or not peers:
        raise LaunchError("peers", "give every component of the job once, in the order of its parts")


def address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def common_environment(job: JobId, peers: Sequence[Peer], port: int) -> list[tuple[tuple[str, str], ...]]:
    """Return the ``KOALA_`` variables, which every runner gives to every component.

    ``KOALA_NODES`` lists the components separated by ';' and the nodes of each by ','; ``KOALA_NODE_PROCESSORS``
    lists in the same form the component's processors on each node. ``KOALA_FIRST_RANK`` is the number of tasks in the
    components before this one.
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


def tasks_of_nodes(peer: Peer) -> tuple[int, ...]:
    """Return the number of tasks of each node of a component, in the order of the nodes; the sum is its number of
    tasks.

    A node gets as many whole tasks as its processors allow, the first nodes first. Where left-over processors make a
    task only together with those of other nodes, the nodes with most of them get one more task each. The first node
    has at least one task, because the other components meet there.
    """
    shares, per_task = peer.shares, peer.processors_per_task
    tasks: list[int] = []
    rest = peer.tasks
    for share in shares:
        tasks.append(min(rest, share.processors // per_task))
        rest -= tasks[-1]
    # Sorting is stable, so the first of equal nodes is taken; fewer tasks are left than there are nodes.
    by_left_over = sorted(range(len(shares)), key=lambda node: tasks[node] * per_task - shares[node].processors)
    for node in by_left_over[:rest]:
        tasks[node] += 1
    if tasks[0] == 0:
        fullest = max(range(len(tasks)), key=lambda node: tasks[node])
        tasks[fullest] -= 1
        tasks[0] = 1
    return tuple(tasks)


def plain_go(job: JobId, peers: Sequence[Peer], port: int | None = None) -> tuple[Go, ...]:
    """Return the ``Go`` of each component of a plain job: the ``KOALA_`` variables and nothing else."""
    check_peers(peers)
    chosen = rendezvous_port(job) if port is None else port
    return tuple(Go(environment=environment) for environment in common_environment(job, peers, chosen))
