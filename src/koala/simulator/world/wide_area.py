"""The effect of the links between the clusters of a co-allocated job on its execution time, independent of other
traffic.

This is for jobs that do not declare how they communicate; those that do share links, in
``koala.simulator.world.contention``. A job over k clusters runs ``T1 * (1 + beta * slowness * (k - 1))``, where
slowness is that of the worst link between two of them: ``koala.policies.koala.slowness`` defines it, with 1 for the
reference link. The links are those of the grid description; neither file transfers nor other jobs slow an execution
down.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

from koala.model.grid import Link, Links, PairLink
from koala.model.request import SiteName
from koala.policies.koala.slowness import BYTES_PER_S_PER_MBIT_S, link_slowness


class WideArea:
    """The wide-area network of a simulated grid, as applications experience it."""

    __slots__ = ("_default", "_pairs")

    def __init__(self, links: Links) -> None:
        self._default = links.default
        self._pairs = {frozenset(pair.between): pair for pair in links.pairs}

    def slowness(self, sites: Iterable[SiteName], bandwidth_share: float, latency_share: float) -> float:
        """Return the slowness of the worst link between two of these different sites, at least two."""
        return max(self._slowness(frozenset(pair), bandwidth_share, latency_share) for pair in combinations(sites, 2))

    def _slowness(self, pair: frozenset[SiteName], bandwidth_share: float, latency_share: float) -> float:
        link: Link | PairLink = self._pairs.get(pair, self._default)
        bytes_per_s = link.bandwidth_mbit_s * BYTES_PER_S_PER_MBIT_S
        return link_slowness(bytes_per_s, link.latency_s, bandwidth_share, latency_share)
