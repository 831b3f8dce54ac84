"""The nodes of each site as the core believes them: the free nodes of its report, without what is committed since.

A pool is made when a job with shaped tasks needs it, and kept until something changes at the site. Jobs of plain
tasks never need one, and cost nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from koala.core.life.job import Job
from koala.core.state.site_belief import SiteBelief
from koala.model.grid import Site
from koala.model.messages import Token
from koala.model.nodes import NodeClass, NodePool, NodeSize, TaskShape
from koala.model.request import JobId
from koala.policies.interface import described_pool

PLAIN = TaskShape()


class BelievedPools:
    """The pools of all sites. See ``koala.policies.view.SitePools``."""

    def __init__(self, sites: Sequence[SiteBelief], described: Sequence[Site], *, hold_placed: bool) -> None:
        self._sites = sites
        self._described = [described_pool(site) for site in described]
        self._hold_placed = hold_placed
        self._whole: list[tuple[Sequence[NodeClass], NodePool] | None] = [None] * len(sites)  # with their nodes
        self._told: list[_Told | None] = [None] * len(sites)
        self.changes = 0  # see ``changed``
        self.placed: Iterable[Job] = ()  # jobs with places that are not all claimed
        self.jobs: Mapping[JobId, Job] = {}  # all jobs

    def changed(self, site: int) -> None:
        """Note that something of the site may be different."""
        self._sites[site].pool = None
        self.changes += 1

    def free(self, site: int) -> NodePool | None:
        """Return what is believed to be free now, neither claimed nor kept for a job."""
        belief = self._sites[site]
        if belief.pool is None:
            belief.pool = self._made(site, None)
        return belief.pool

    def whole(self, site: int) -> NodePool | None:
        """Return all nodes of the site, as if nobody held anything."""
        nodes = self._sites[site].nodes
        if not nodes:
            return self._described[site]
        known = self._whole[site]
        if known is None or known[0] is not nodes:
            known = self._whole[site] = nodes, NodePool.whole(nodes)
        return known[1]

    def for_job(self, site: int, job: Job) -> NodePool | None:
        """Return what a placed job may claim; the caller may change it.

        It includes what is kept for the job and, if the job claims early and stands in the site's queue behind other
        users, what these hold.
        """
        return self._made(site, job)

    def without(self, site: int, tokens: Collection[Token], job: Job | None = None) -> NodePool | None:
        """Return what would be free without these components of ours, as far as their nodes are known.

        For a job, it includes what is kept for it.
        """
        return self._made(site, job, tokens)

    def _made(self, site: int, job: Job | None, gone: Collection[Token] = ()) -> NodePool | None:
        belief = self._sites[site]
        behind = job is not None and job.claims_early
        if belief.nodes:
            told = self._told[site]
            if told is None or told.nodes is not belief.nodes:
                told = self._told[site] = _Told(belief.nodes)
            pool = _free_nodes(belief, told, gone, behind=behind)
        else:
            described = self._described[site]
            if described is None:
                return None
            pool = described.copy()
            pool.take(PLAIN, 0 if behind else max(0, belief.others))
        for claim in belief.claims.values():
            if claim.token not in belief.shown and claim.token not in gone:
                take_off(pool, claim.job.request.shape_of(claim.component), claim.processors)
        for other in sorted(self.placed, key=lambda each: each.id):
            if other is not job:
                self._take_kept(pool, other, site)
        return pool

    def _take_kept(self, pool: NodePool, job: Job, site: int) -> None:
        """Take what the job has not claimed at the site: what is being freed there for it, or was promised to it."""
        if job.placement is None:
            return
        placed = job.placed
        for component, (where, size) in enumerate(zip(placed.spots.sites, placed.spots.sizes, strict=True)):
            kept = component in job.earmarks or self._hold_placed
            if where == site and placed.claims[component] is None and kept:
                take_off(pool, job.request.shape_of(component), size)  # as much of it as is free


def take_off(pool: NodePool, shape: TaskShape | None, processors: int) -> None:
    """Take what the tasks of a component of this size hold."""
    shape = shape or PLAIN
    pool.take(shape, processors // shape.processors)


def held_tokens(nodes: Iterable[NodeClass]) -> set[Token]:
    """Return the components whose nodes are known."""
    return {token for each in nodes for token, _ in each.held}


def left_of(each: NodeClass, others_left: bool, stays: Callable[[Token], bool]) -> NodeSize:
    """Return what is free of a node without our components that do not stay, and optionally without other users."""
    left = each.whole if others_left else each.free
    for token, share in each.held:
        if stays(token) is others_left:
            left = left.minus(share) if others_left else left.plus(share)
    return left


class _Told:
    """The values derived from a report of nodes, computed once."""

    __slots__ = ("free", "nodes", "tokens")

    def __init__(self, nodes: Sequence[NodeClass]) -> None:
        self.nodes = nodes
        self.free = NodePool.free(nodes)
        self.tokens = held_tokens(nodes)


def _free_nodes(belief: SiteBelief, told: _Told, gone: Collection[Token], *, behind: bool) -> NodePool:
    """Return the nodes without what has ended since the report, or is assumed gone, where its share is known."""
    nodes, claims, tokens = belief.nodes, belief.claims, told.tokens
    if not behind and not gone and tokens <= claims.keys():
        return told.free.copy()
    one = len(nodes) == 1 and nodes[0].count == 1 and len(nodes[0].whole.gpus) <= 1
    if one and not tokens and not behind:
        return NodePool.of([(_freed(nodes[0], belief, gone), nodes[0].features, 1)])
    others_left = behind and tokens.issuperset(belief.shown)

    def stays(token: Token) -> bool:
        return token in claims and token not in gone

    return NodePool.of((left_of(each, others_left, stays), each.features, each.count) for each in nodes)


def _freed(node: NodeClass, belief: SiteBelief, gone: Collection[Token]) -> NodeSize:
    """Free the resources of these components, all of which are on the site's only node."""
    free = node.free
    for token in gone:
        claim = belief.claims.get(token)
        if claim is not None and token in belief.shown:
            shape = claim.job.request.shape_of(claim.component) or PLAIN
            tasks = claim.processors // shape.processors
            gpus = tuple([(kind, tasks * shape.gpus) for kind, _ in free.gpus])
            free = free.plus(NodeSize(claim.processors, tasks * shape.memory_bytes, gpus))
    return free
