"""The torchrun runner: the variables by which ``torchrun`` and ``torch.distributed`` find each other.

Each component is a node of torchrun. The ``PET_`` variables are torchrun's own defaults for its options, so that
``torchrun train.py`` needs no options at all; the others serve programs that start their own workers.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.launching import Go, Peer
from koala.model import JobId
from koala.runners.plain import address, check_peers, common_environment, rendezvous_port


def torchrun_go(job: JobId, peers: Sequence[Peer], port: int | None = None) -> tuple[Go, ...]:
    """What each component of a torchrun job is told. The first component's host is the master."""
    check_peers(peers)
    chosen = rendezvous_port(job) if port is None else port
    common = common_environment(job, peers, chosen)
    world = sum(peer.tasks for peer in peers)
    return tuple(
        Go(environment=common[place] + _variables(job, peer, peers, chosen, world))
        for place, peer in enumerate(peers)
    )


def _variables(job: JobId, peer: Peer, peers: Sequence[Peer], port: int, world: int) -> tuple[tuple[str, str], ...]:
    master = peers[0].host
    nodes, rank, processes = str(len(peers)), str(peer.part), str(peer.tasks)
    return (
        ("MASTER_ADDR", master),
        ("MASTER_PORT", str(port)),
        ("NNODES", nodes),
        ("NODE_RANK", rank),
        ("NPROC_PER_NODE", processes),
        ("WORLD_SIZE", str(world)),
        ("RDZV_ID", f"koala-{job}"),
        ("RDZV_ENDPOINT", address(master, port)),
        ("PET_NNODES", nodes),
        ("PET_NODE_RANK", rank),
        ("PET_NPROC_PER_NODE", processes),
        ("PET_MASTER_ADDR", master),
        ("PET_MASTER_PORT", str(port)),
        ("PET_RDZV_ID", f"koala-{job}"),
        ("PET_RDZV_ENDPOINT", address(master, port)),
    )
