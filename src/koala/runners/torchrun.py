"""The torchrun runner: the variables with which ``torchrun`` and ``torch.distributed`` find each other.

Each node of each component is a node of torchrun, and the component's script starts the application on every one. The
``PET_`` variables are torchrun's own defaults for its options, so that ``torchrun train.py`` needs no options at all;
the others serve programs that start their own workers.
"""

from __future__ import annotations

from collections.abc import Sequence

from koala.model.launch import Go, Peer
from koala.model.request import JobId
from koala.runners.plain import address, check_peers, common_environment, rendezvous_port, tasks_of_nodes

# For the script of a component with several nodes: the number of workers of each, separated by ','.
WORKERS = "KOALA_TORCHRUN_WORKERS"


def torchrun_go(job: JobId, peers: Sequence[Peer], port: int | None = None) -> tuple[Go, ...]:
    """Return the ``Go`` of each component of a torchrun job. The first component's host is the master.

    ``NODE_RANK`` and ``NPROC_PER_NODE`` are those of the component's first node; the script counts on from there. A
    node without workers is not a node of torchrun.
    """
    check_peers(peers)
    chosen = rendezvous_port(job) if port is None else port
    common = common_environment(job, peers, chosen)
    tasks = [tasks_of_nodes(peer) for peer in peers]
    used = [sum(1 for workers in each if workers > 0) for each in tasks]
    shared = _shared(job, peers[0].host, chosen, nodes=sum(used), world=sum(peer.tasks for peer in peers))
    return tuple(
        Go(environment=common[place] + shared + _own(first_rank=sum(used[:place]), workers=tasks[place]))
        for place in range(len(peers))
    )


def _shared(job: JobId, master: str, port: int, *, nodes: int, world: int) -> tuple[tuple[str, str], ...]:
    return (
        ("MASTER_ADDR", master),
        ("MASTER_PORT", str(port)),
        ("NNODES", str(nodes)),
        ("WORLD_SIZE", str(world)),
        ("RDZV_ID", f"koala-{job}"),
        ("RDZV_ENDPOINT", address(master, port)),
        ("PET_NNODES", str(nodes)),
        ("PET_MASTER_ADDR", master),
        ("PET_MASTER_PORT", str(port)),
        ("PET_RDZV_ID", f"koala-{job}"),
        ("PET_RDZV_ENDPOINT", address(master, port)),
    )


def _own(*, first_rank: int, workers: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    rank, processes = str(first_rank), str(workers[0])
    variables = (
        ("NODE_RANK", rank),
        ("NPROC_PER_NODE", processes),
        ("PET_NODE_RANK", rank),
        ("PET_NPROC_PER_NODE", processes),
    )
    return variables if len(workers) == 1 else (*variables, (WORKERS, ",".join(map(str, workers))))
