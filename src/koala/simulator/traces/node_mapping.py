"""Maps the nodes of a failure trace to the sites of a grid, and gives their failures and returns in order of time.

A site with the name of a cluster of the trace gets that cluster's nodes; the other sites are filled with the
remaining clusters, in the order of the trace. ``koala.simulator.traces.failures`` reads traces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from koala.model.grid import Grid
from koala.model.request import SiteName
from koala.simulator.traces.failures import FailureTrace, TraceNode


class MappedNode(NamedTuple):
    """A node of the trace as a part of a site; ``processors`` is how many of the site's it stands for."""

    node: TraceNode
    processors: int


class NodeChange(NamedTuple):
    """The nodes of a site, by their places among its nodes, that fail and return at one moment."""

    at_s: float
    site: SiteName
    fail: tuple[int, ...]
    recover: tuple[int, ...]


class SiteFailures:
    """The nodes of a failure trace on the sites of a grid, for ``simulate``.

    A site named like a cluster of the trace gets that cluster's nodes, and the other sites the remaining clusters.
    Processors of a site for which the trace has no node never fail. Time 0 is ``from_s`` after the trace begins; when
    the trace ends every node works.

    >>> from pathlib import Path
    >>> from koala.simulator import SiteFailures, Workload, clusters_in_short, read_failure_trace, simulate
    >>> fails = "0\\t0\\t0\\t1\\tc1/n1\\t1\\t0\\t30\\tNULL\\n"
    >>> works = "1\\t0\\t0\\t1\\tc1/n1\\t0\\t30\\t90\\tNULL\\n"
    >>> _ = Path("event_trace.tab").write_text(fails + works)
    >>> grid = clusters_in_short("1x1")
    >>> failures = SiteFailures(read_failure_trace("event_trace.tab"), grid)
    >>> one_job = Workload.from_arrays([0], [1], [60])
    >>> [(row.failures, row.finished) for row in simulate(grid, one_job, failures=failures).rows()]
    [(1, 150.0)]
    """

    def __init__(self, trace: FailureTrace, grid: Grid, *, from_s: float = 0.0) -> None:
        self.origin_s = trace.begin_s + from_s
        self.by_site: dict[SiteName, tuple[MappedNode, ...]] = nodes_onto_sites(trace.nodes, grid)

    @property
    def nodes(self) -> int:
        """The number of nodes of the trace that stand for processors of the grid."""
        return sum(len(nodes) for nodes in self.by_site.values())

    def changes(self) -> Iterator[NodeChange]:
        """Yield every change from time 0 on, in order of time, then of the sites; one for a site at one moment."""
        streams = (
            self._node_changes(rank, place, mapped.node)
            for rank, nodes in enumerate(self.by_site.values())
            for place, mapped in enumerate(nodes)
        )
        sites = list(self.by_site)
        for (at_s, rank), group in groupby(merge(*streams), key=itemgetter(0, 1)):
            fail: list[int] = []
            recover: list[int] = []
            for _, _, place, fails in group:
                (fail if fails else recover).append(place)
            yield NodeChange(at_s, sites[rank], tuple(fail), tuple(recover))

    def _node_changes(self, rank: int, place: int, node: TraceNode) -> Iterator[tuple[float, int, int, bool]]:
        for index in range(0, len(node.down_s), 2):
            to_s = node.down_s[index + 1] - self.origin_s
            if to_s > 0.0:
                yield max(0.0, node.down_s[index] - self.origin_s), rank, place, True
                yield to_s, rank, place, False


def nodes_onto_sites(nodes: Sequence[TraceNode], grid: Grid) -> dict[SiteName, tuple[MappedNode, ...]]:
    """Return the nodes of each site. No node stands for two sites and no site gets more processors than it has.

    The last node of a site stands for no more processors than are left there; further nodes are not used.
    """
    clusters: dict[str, list[TraceNode]] = {}
    for node in nodes:
        clusters.setdefault(node.cluster, []).append(node)
    named = {site.name: _clusters_named(site.name, clusters) for site in grid.sites}
    taken = {cluster for found in named.values() for cluster in found}
    others = iter([node for cluster, members in clusters.items() if cluster not in taken for node in members])
    by_site: dict[SiteName, tuple[MappedNode, ...]] = {}
    for site in grid.sites:
        own = [node for cluster in named[site.name] for node in clusters[cluster]]
        by_site[site.name] = _fill(site.processors, iter(own) if own else others)
    return by_site


def _fill(processors: int, nodes: Iterator[TraceNode]) -> tuple[MappedNode, ...]:
    filled: list[MappedNode] = []
    while processors > 0 and (node := next(nodes, None)) is not None:
        filled.append(MappedNode(node, min(node.processors, processors)))
        processors -= node.processors
    return tuple(filled)


def _clusters_named(site: SiteName, clusters: Iterable[str]) -> list[str]:
    """Return the clusters that the site's name denotes: ``site1`` is all below ``G1/site1``, ``site1-c2`` one of
    them.

    A name that occurs in two places, such as ``c1`` in ``site1/c1`` and ``site2/c1``, denotes neither.
    """
    wanted = site.casefold().replace("-", "/").split("/")
    found: list[str] = []
    places: set[tuple[str, ...]] = set()
    for cluster in clusters:
        parts = tuple(cluster.casefold().replace("-", "/").split("/"))
        for start in range(len(parts) - len(wanted) + 1):
            if list(parts[start : start + len(wanted)]) == wanted:
                found.append(cluster)
                places.add(parts[:start])
                break
    return found if len(places) == 1 else []
