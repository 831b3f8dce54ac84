"""How the tasks of a component are dealt out to its nodes. Where ranks and workers start is decided here alone."""

from __future__ import annotations

from koala.model.launch import Peer


def tasks_of_nodes(peer: Peer) -> tuple[int, ...]:
    """How many tasks each node of a component gets, in the order of the nodes; all of them together are its tasks.

    A node gets the whole tasks that its processors are, the first nodes first. Where processors are left on several
    nodes that are a task only together, the nodes with most of them get one task more each. The first node has at
    least one: the others of the job meet there.
    """
    shares, per_task = peer.shares, peer.processors_per_task
    tasks: list[int] = []
    rest = peer.tasks
    for share in shares:
        tasks.append(min(rest, share.processors // per_task))
        rest -= tasks[-1]
    # Sorting is stable, so that of equal nodes the first is taken; fewer are wanted than there are nodes.
    by_left_over = sorted(range(len(shares)), key=lambda node: tasks[node] * per_task - shares[node].processors)
    for node in by_left_over[:rest]:
        tasks[node] += 1
    if tasks[0] == 0:
        fullest = max(range(len(tasks)), key=lambda node: tasks[node])
        tasks[fullest] -= 1
        tasks[0] = 1
    return tuple(tasks)
