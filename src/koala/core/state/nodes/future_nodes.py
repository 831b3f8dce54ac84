"""Which nodes come free, and when: the nodes of each site at any future time, as far as it is known.

At a site that reports the holders of its nodes (``NodeClass.held``), the nodes at time t are those free now and the
shares of every hold that is due to end by t. The shares of other users come free together, when the last of their
holds is due.

At a site that reports only what is free, all nodes count as whole, and every hold that ends after t is a loose task.
The processors of other users come free hold by hold; their memory and GPUs when the last hold is due.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Mapping, Sequence

from koala.core.life.job import Job
from koala.core.state.availability import Availability, Hold, SiteProfile
from koala.core.state.nodes.guaranteed_places import BYTE, GPU, KnownNodes, LooseTasks, NodesAtTime
from koala.core.state.nodes.pools import PLAIN, BelievedPools, held_tokens, left_of
from koala.core.state.site_belief import SiteBelief
from koala.model.nodes import UNTOLD, NodeClass, NodePool, NodeSize, TaskShape
from koala.model.request import JobId


class FutureNodes:
    """The nodes of all sites at future times, by these availability profiles; kept while nothing changes."""

    def __init__(self, availability: Availability, sites: Sequence[SiteBelief], pools: BelievedPools) -> None:
        self._availability = availability
        self._sites = sites
        self._pools = pools
        self._lines: list[_SiteLine | None] = [None] * len(sites)

    def at(self, site: int, time: float) -> NodesAtTime | None:
        """Return the nodes at that time; None if the site does not report them."""
        line = self._line(site)
        return None if line is None else line.at(max(time, self._availability.now))

    def begin_now(self, site: int) -> KnownNodes:
        """Return the nodes that may have room for tasks that begin now, at a site that reports its nodes."""
        line = self._line(site)
        assert line is not None
        return line.begin_now(self._availability.now)

    def _line(self, site: int) -> _SiteLine | None:
        self._availability.steps()  # profiles are in order after that
        profile, belief = self._availability.profiles[site], self._sites[site]
        line = self._lines[site]
        if line is None or not line.is_of(belief, profile):
            whole = self._pools.whole(site)
            line = None
            if whole is not None:
                line = _SiteLine(site, belief, profile, whole, self._pools.jobs, self._availability.now)
            self._lines[site] = line
        return line


class _SiteLine:
    """One site: the holders of its nodes, and until when."""

    __slots__ = (
        "_at",
        "_begun",
        "_belief",
        "_classes",
        "_holds",
        "_jobs",
        "_known",
        "_nodes",
        "_others_until",
        "_overs",
        "_shares",
        "_shown",
        "_site",
        "_tells",
        "_times",
        "_whole",
    )

    def __init__(
        self,
        site: int,
        belief: SiteBelief,
        profile: SiteProfile,
        whole: NodePool,
        jobs: Mapping[JobId, Job],
        now: float,
    ) -> None:
        self._site, self._belief, self._jobs = site, belief, jobs
        self._nodes, self._shown, self._times = belief.nodes, belief.shown, profile.times
        self._holds: list[Hold] = profile.in_order()
        self._begun = bisect_right(self._times, now)  # at most this many were over when the last tasks began
        others = [index for index, hold in enumerate(self._holds) if not isinstance(hold[3], str | int)]
        self._others_until = others[-1] if others else -1
        self._tells = bool(belief.nodes) and held_tokens(belief.nodes).issuperset(belief.shown)
        self._classes = belief.nodes
        if not self._tells:
            self._classes = tuple([NodeClass(count, size, size, names) for size, names, count in whole])
        self._whole = self._rows([each.whole for each in self._classes])
        self._shares: dict[Hashable, list[tuple[int, NodeSize]]] = {}  # by token: its share of each class of nodes
        for row, each in enumerate(self._classes):
            for token, share in each.held:
                self._shares.setdefault(token, []).append((row, share))
        self._overs = [0]
        self._known: dict[int, KnownNodes] = {0: self._at_first()} if self._tells else {}
        self._at: dict[int, NodesAtTime] = {}

    def is_of(self, belief: SiteBelief, profile: SiteProfile) -> bool:
        """Return True if nothing has changed since this was made."""
        return (
            self._times is profile.times
            and self._nodes is belief.nodes
            and self._shown is belief.shown
            and self._belief is belief
        )

    def at(self, time: float) -> NodesAtTime:
        over = bisect_right(self._times, time)
        found = self._at.get(over)
        if found is None:
            found = self._at[over] = self._made(over)
        return found

    def _made(self, over: int) -> NodesAtTime:
        if self._tells:
            return NodesAtTime(self._known_at(over), self._loose(over, shown=False), self._whole)
        # What is free now is no measure: a plan would lose it once any job starts, even if only until then.
        return NodesAtTime(self._whole, [*self._others(over), *self._loose(over, shown=True)])

    def begin_now(self, now: float) -> KnownNodes:
        return self._known_at(bisect_right(self._times, now)) if self._tells else self._whole

    # ------------------------------------------------------------------------------------- known nodes

    def _known_at(self, over: int) -> KnownNodes:
        """Return what is free once this many holds are over, apart from loose tasks.

        That is what was free before, and what came free since.
        """
        known = self._known.get(over)
        if known is None:
            before = self._overs[bisect_left(self._overs, over) - 1]
            known = self._known[over] = self._later(self._known[before], before, over)
            insort(self._overs, over)
        return known

    def _later(self, known: KnownNodes, before: int, over: int) -> KnownNodes:
        free = list(known.free)
        changed: dict[int, None] = {}
        for hold in self._holds[before:over]:
            for row, share in self._shares.get(hold[3], ()):
                free[row] = free[row].plus(share)
                changed[row] = None
        if before <= self._others_until < over:
            for row, each in enumerate(self._classes):
                share = each.whole.minus(each.free)
                for _, ours in each.held:
                    share = share.minus(ours)
                free[row] = free[row].plus(share)
                changed[row] = None
        return known.changed(free, tuple(changed)) if changed else known

    def _at_first(self) -> KnownNodes:
        """Return what is free apart from known holders; what has ended since the report is free."""
        alive = {hold[3] for hold in self._holds}
        return self._rows([left_of(each, False, alive.__contains__) for each in self._classes])

    def _rows(self, free: Sequence[NodeSize]) -> KnownNodes:
        features = [each.features for each in self._classes]
        return KnownNodes(free, features, [each.count for each in self._classes])

    # ------------------------------------------------------------------------------------- loose tasks

    def _loose(self, over: int, *, shown: bool) -> list[LooseTasks]:
        """Return our tasks that are there beyond this many ends and on unknown nodes.

        ``shown``: also those that the site's report shows.
        """
        found = []
        for hold in self._holds[over:]:
            for shape, count in self._tasks_of(hold, shown=shown):
                found.append(LooseTasks(shape, count, self._begin_of(hold, shape, count)))
        return found

    def _begin_of(self, hold: Hold, shape: TaskShape, tasks: int) -> KnownNodes:
        """Return what a claim began where nodes had room after the report, if there is room for it.

        An early claim may stand in the site's queue, and begins anywhere, as does what is promised.
        """
        claim = self._belief.claims.get(hold[3]) if isinstance(hold[3], str) else None
        if not self._tells or claim is None or claim.job.claims_early:
            return self._whole
        known = self._known_at(self._begun)
        return known if known.places(shape) >= tasks else self._whole

    def _tasks_of(self, hold: Hold, *, shown: bool) -> list[tuple[TaskShape, int]]:
        key = hold[3]
        if isinstance(key, str):
            claim = self._belief.claims.get(key)
            if claim is None or (not shown and key in self._shown):
                return []
            shape = claim.job.request.shape_of(claim.component) or PLAIN
            return [(shape, claim.processors // shape.processors)]
        job = self._jobs.get(key) if isinstance(key, int) else None
        if job is None or job.placement is None:
            return []
        tasks = []
        placed = job.placed
        for component, (where, size) in enumerate(zip(placed.spots.sites, placed.spots.sizes, strict=True)):
            if where == self._site and placed.claims[component] is None:
                shape = job.request.shape_of(component) or PLAIN
                tasks.append((shape, size // shape.processors))
        return tasks

    def _others(self, over: int) -> list[LooseTasks]:
        """Return the holds of others at a site that does not report its holders.

        These are the processors of others that are not due by then, and all their memory and GPUs, as it is unknown
        which of them holds these.
        """
        processors = sum(hold[2] for hold in self._holds[over:] if not isinstance(hold[3], str | int))
        if not processors:
            return []
        gpus, memory_bytes = self._held_by_others()
        found = ((PLAIN, processors), (GPU, gpus), (BYTE, memory_bytes))
        return [LooseTasks(shape, count, self._whole) for shape, count in found if count]

    def _held_by_others(self) -> tuple[int, int]:
        gpus = memory_bytes = 0
        for each in self._nodes:
            gpus += each.count * (each.whole.gpus_of() - each.free.gpus_of())
            if each.whole.memory_bytes != UNTOLD:
                memory_bytes += each.count * (each.whole.memory_bytes - each.free.memory_bytes)
        for token in self._shown:
            claim = self._belief.claims.get(token)
            shape = None if claim is None else claim.job.request.shape_of(claim.component)
            if claim is not None and shape is not None:
                tasks = claim.processors // shape.processors
                gpus -= tasks * shape.gpus
                memory_bytes -= tasks * shape.memory_bytes
        return max(0, gpus), max(0, memory_bytes)
