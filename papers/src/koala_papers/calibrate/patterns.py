"""The cost of a solver's pattern of messages by counting alone: points of the largest block, exchanges, bytes, waits.

The solvers' own decomposition determines the neighbours. Nothing here is measured.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from koala.examples.applications.decomposition import Block

BYTES_PER_POINT = 8
# A message carries one number in addition to its points: the time at which it was sent.
_STAMP_BYTES = 8
# The number of exchanges between neighbours in one iteration.
EXCHANGES = {"laplace": 2, "heat": 1, "poisson": 2}
# The interval in iterations at which Laplace and Poisson test convergence: a message to the first cluster, and back.
ASKED_ITERATIONS = {"laplace": 20, "poisson": 20}
_ASKING_MESSAGES = 2
# Heat's master distributes the plate, and collects it.
_DEALINGS = 2
# More than a run visits in the search for the size of a matrix.
_PATTERNS_KEPT = 4_096


class CommunicationPattern(NamedTuple):
    """Counts of one application, size and division over clusters.

    - ``workers``: the processes that own points; ``points_most``: the points of the largest owner;
    - ``inside_bytes``, ``across_bytes``: the largest message of an exchange between neighbours in a cluster, and
      between clusters; 0 if there is none;
    - ``link_bytes``: the largest total that all processes of a cluster send to other clusters in one exchange;
    - ``dealt_inside_bytes``, ``dealt_across_bytes``, ``dealt_link_bytes``: what the master distributes at the start,
      and collects at the end: the largest message each way, and the total that leaves its cluster.
    """

    workers: int
    points_most: int
    inside_bytes: int
    across_bytes: int
    link_bytes: int
    dealt_inside_bytes: int = 0
    dealt_across_bytes: int = 0
    dealt_link_bytes: int = 0


@lru_cache(maxsize=_PATTERNS_KEPT)
def pattern_of(application: str, size: int, clusters: tuple[int, ...]) -> CommunicationPattern:
    """Return the counts for ``size`` x ``size`` points on these clusters."""
    from koala.examples.applications.clusters import ProcessClusters
    from koala.examples.applications.decomposition import borders

    blocks = _blocks(application, size, clusters)
    grouping = ProcessClusters(clusters)
    cluster_of = [grouping.cluster_of(rank) for rank in range(len(blocks))]
    inside = across = 0
    link = [0] * len(clusters)
    for rank in range(len(blocks)):
        for border in borders(blocks, rank):
            rows, columns = border.own
            sent = (rows.stop - rows.start) * (columns.stop - columns.start) * BYTES_PER_POINT + _STAMP_BYTES
            if cluster_of[rank] == cluster_of[border.neighbour]:
                inside = max(inside, sent)
            else:
                across = max(across, sent)
                link[cluster_of[rank]] += sent
    counted = CommunicationPattern(
        workers=sum(block.points > 0 for block in blocks),
        points_most=max(block.points for block in blocks),
        inside_bytes=inside,
        across_bytes=across,
        link_bytes=max(link),
    )
    return _with_dealing(counted, blocks, cluster_of) if application == "heat" and len(blocks) > 1 else counted


def _blocks(application: str, size: int, clusters: tuple[int, ...]) -> list[Block]:
    from koala.examples.applications.decomposition import Block, grid_blocks, most_square, row_blocks, strip_blocks

    processes = sum(clusters)
    if application == "laplace":
        return grid_blocks(size, *most_square(processes))
    if application == "poisson":
        return strip_blocks(size, clusters)
    parts = row_blocks(size, max(1, processes - 1))
    return parts if processes == 1 else [Block(0, 0, 0, 0), *parts]


def _with_dealing(counted: CommunicationPattern, blocks: list[Block], cluster_of: list[int]) -> CommunicationPattern:
    """Return the counts with what Heat's master, the first process, distributes and collects."""
    sent = {rank: block.points * BYTES_PER_POINT + _STAMP_BYTES for rank, block in enumerate(blocks) if rank > 0}
    across = [size for rank, size in sent.items() if cluster_of[rank] != cluster_of[0]]
    inside = [size for rank, size in sent.items() if cluster_of[rank] == cluster_of[0]]
    return counted._replace(
        dealt_inside_bytes=max(inside, default=0),
        dealt_across_bytes=max(across, default=0),
        dealt_link_bytes=sum(across),
    )


def wait_s(
    application: str,
    pattern: CommunicationPattern,
    iterations: int,
    latency_s: float,
    bytes_per_s: float,
    *,
    shared: bool,
) -> float:
    """Return how long a run waits for other clusters, by counting: sequential waits add up, all others are
    concurrent.

    With ``shared`` all messages of a cluster use one link, one after the other, as they did between the clusters of
    the DAS-2. Without, each has the full bandwidth, as in the emulation.
    """
    total_s = 0.0
    if pattern.across_bytes:
        exchanged = pattern.link_bytes if shared else pattern.across_bytes
        total_s += iterations * EXCHANGES[application] * (latency_s + exchanged / bytes_per_s)
        if application in ASKED_ITERATIONS:
            asked = iterations // ASKED_ITERATIONS[application]
            total_s += asked * _ASKING_MESSAGES * (latency_s + (BYTES_PER_POINT + _STAMP_BYTES) / bytes_per_s)
    if pattern.dealt_across_bytes:
        dealt = pattern.dealt_link_bytes if shared else pattern.dealt_across_bytes
        total_s += _DEALINGS * (latency_s + dealt / bytes_per_s)
    return total_s
