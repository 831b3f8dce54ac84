"""The nodes of each site as the core believes them: what the site showed as free, without what is committed since.

A pool is made when a job whose tasks have a shape asks for it, and kept until something changes at the site. Jobs of
plain tasks never ask, and cost nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from koala.core.state.job import Job
from koala.model.grid import Site
from koala.model.nodes import NodeClass, NodePool, TaskShape
from koala.policies.front_door import described_pool

if TYPE_CHECKING:
    from koala.core.state.sites import SiteBelief

PLAIN = TaskShape()


class BelievedPools:
    """The pools of all sites. See ``koala.policies.view.SitePools``."""

    def __init__(self, sites: Sequence[SiteBelief], described: Sequence[Site], *, hold_placed: bool) -> None:
        self._sites = sites
        self._described = [described_pool(site) for site in described]
        self._hold_placed = hold_placed
        self._whole: list[tuple[Sequence[NodeClass], NodePool] | None] = [None] * len(sites)  # with what it is of
        self.placed: Iterable[Job] = ()  # jobs that have places and have not claimed them all

    def free(self, site: int) -> NodePool | None:
        """What is free now, and neither claimed, nor kept for somebody, as far as anybody knows."""
        belief = self._sites[site]
        if belief.pool is None:
            belief.pool = self._made(site, None)
        return belief.pool

    def whole(self, site: int) -> NodePool | None:
        """All nodes of the site, as if nobody held anything."""
        nodes = self._sites[site].nodes
        if not nodes:
            return self._described[site]
        known = self._whole[site]
        if known is None or known[0] is not nodes:
            known = self._whole[site] = nodes, NodePool.whole(nodes)
        return known[1]

    def for_job(self, site: int, job: Job) -> NodePool | None:
        """What a placed job may claim: also what is kept for itself. The caller may change it."""
        return self._made(site, job)

    def _made(self, site: int, job: Job | None) -> NodePool | None:
        belief = self._sites[site]
        if belief.nodes:
            pool = NodePool.free(belief.nodes)
        else:
            described = self._described[site]
            if described is None:
                return None
            pool = described.copy()
            pool.take(PLAIN, max(0, belief.others))
        for claim in belief.claims.values():
            if claim.token not in belief.shown:
                take_off(pool, claim.job.request.shape_of(claim.component), claim.processors)
        if self._hold_placed:
            for other in sorted(self.placed, key=lambda each: each.id):
                if other is not job:
                    _take_promised(pool, other, site)
        pool.take(PLAIN, belief.earmarked - belief.waiters.get(-1 if job is None else job.id, 0))
        return pool


def take_off(pool: NodePool, shape: TaskShape | None, processors: int) -> None:
    """A component of so many processors takes what its tasks hold."""
    shape = shape or PLAIN
    pool.take(shape, processors // shape.processors)


def _take_promised(pool: NodePool, job: Job, site: int) -> None:
    """What the job was promised at the site, and has neither claimed nor waits for as earmarked."""
    if job.spots is None:
        return
    for component, (where, size) in enumerate(zip(job.spots.sites, job.spots.sizes, strict=True)):
        if where == site and job.claims[component] is None and component not in job.earmarks:
            take_off(pool, job.request.shape_of(component), size)
