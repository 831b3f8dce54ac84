"""Calls about the grid: its sites and the links between them, and operators' commands to them.

A change of a site is on record with its author and reason, and everybody with the right to read sees both.
"""

from __future__ import annotations

import asyncio

from koala.daemon.engine.loop import Engine
from koala.daemon.offload import offload, query
from koala.daemon.service.principal import Principal
from koala.daemon.service.sites.overview import CallerView, OverviewBoard
from koala.daemon.service.sites.site_history import HISTORY_POINTS_MAX, check_stretch, usage_points
from koala.model.api import LinkHistory, NetworkInfo, Overview, Scope, SiteHistory, SiteInfo
from koala.model.errors import ConflictError, InvalidError, NotFoundError, TooManyError
from koala.model.messages import ProbeLink, SiteDrained, SiteLost, SiteResumed
from koala.policies.errors import suggest
from koala.store.rows import RecentlyEnded

# At most this many probes that operators requested may wait for one another.
PROBES_ASKED_MAX = 8


class GridService:
    """The sites and links of a running grid."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._board = OverviewBoard(engine)
        self._probing = asyncio.Lock()
        self._probes_asked = 0

    async def overview(self, who: Principal) -> Overview:
        """Return the whole grid now; the jobs of others only for callers who may see them. Needs ``read``."""
        who.need(Scope.READ)
        owner = None if who.sees_all else who.name
        counts = await self._engine.counts(owner)
        return CallerView(self._engine, who).overview(counts, self._board.lists(owner))

    async def sites(self, who: Principal) -> list[SiteInfo]:
        """Return all sites. Needs ``read``."""
        who.need(Scope.READ)
        return CallerView(self._engine, who).sites()

    async def history(self, who: Principal, site: str, from_at: float, to_at: float) -> SiteHistory:
        """Return who held the site's processors over a period. Needs ``read``."""
        who.need(Scope.READ)
        check_stretch(from_at, to_at)
        self._check_site(site)
        store = self._engine.store
        described = next(each for each in self._engine.grid.sites if each.name == site)
        held = await query(store.held_processors, site, from_at, to_at, HISTORY_POINTS_MAX)
        reports = await query(store.site_reports, site, from_at, to_at, HISTORY_POINTS_MAX)
        points = await offload(
            usage_points, held, reports, processors=described.processors, from_at=from_at, to_at=to_at
        )
        return SiteHistory(site=site, from_at=from_at, to_at=to_at, points=points)

    async def ended_lately(self, who: Principal, from_at: float, site: str | None = None) -> list[RecentlyEnded]:
        """Return ended jobs and elements of arrays that had places at the site, or anywhere; the last first. Needs
        ``read``."""
        who.need(Scope.READ)
        owner = None if who.sees_all else who.name
        return await query(self._engine.store.ended_lately, from_at, site=site, owner=owner)

    async def network(self, who: Principal) -> NetworkInfo:
        """Return what is known of the links between sites. Needs ``read``."""
        who.need(Scope.READ)
        return CallerView(self._engine, who).network()

    async def link(self, who: Principal, source: str, target: str) -> LinkHistory:
        """Return what was measured from one site to another. Needs ``read``."""
        who.need(Scope.READ)
        return self._link(who, source, target)

    def _link(self, who: Principal, source: str, target: str) -> LinkHistory:
        self._check_site(source)
        self._check_site(target)
        if source == target:
            raise InvalidError(f"{source} is both ends: there is no link from a site to itself; name another site")
        return CallerView(self._engine, who).link(source, target)

    async def probe_link(self, who: Principal, source: str, target: str) -> LinkHistory:
        """Measure the link from one site to another now. Needs ``operate``."""
        who.need(Scope.OPERATE)
        before = self._link(who, source, target).link
        if before.not_probed:
            raise ConflictError(f"the link from {source} to {target} is not probed: {before.not_probed}")
        if self._probes_asked >= PROBES_ASKED_MAX:
            raise TooManyError(
                f"{PROBES_ASKED_MAX} requested probes are under way (PROBES_ASKED_MAX); ask again later"
            )
        self._probes_asked += 1
        try:
            async with self._probing:  # two at the same time would measure each other
                await self._engine.tell(await self._engine.prober.probe(ProbeLink(source=source, target=target)))
        finally:
            self._probes_asked -= 1
        return self._link(who, source, target)

    async def drain(self, who: Principal, site: str, *, reason: str = "") -> SiteInfo:
        """Send nothing new to the site. Needs ``operate``."""
        who.need(Scope.OPERATE)
        self._check_site(site)
        await self._engine.tell(who.signed(SiteDrained(at=self._engine.now(), site=site), reason))
        return CallerView(self._engine, who).site(site)

    async def resume(self, who: Principal, site: str, *, reason: str = "") -> SiteInfo:
        """Use the site again and forget its errors. Needs ``operate``."""
        who.need(Scope.OPERATE)
        self._check_site(site)
        await self._engine.tell(who.signed(SiteResumed(at=self._engine.now(), site=site), reason))
        return CallerView(self._engine, who).site(site)

    async def declare_lost(self, who: Principal, site: str, *, force: bool = False, reason: str = "") -> SiteInfo:
        """Stop waiting for the site: its jobs start again elsewhere, and what it still runs counts for nothing. A
        site that answers needs ``force``. Needs ``operate``."""
        who.need(Scope.OPERATE)
        self._check_site(site)
        before = CallerView(self._engine, who).site(site)
        if before.lost:
            raise ConflictError(f"{before.problem}; there is nothing more to declare")
        if before.silent_since is None and not force:
            raise ConflictError(
                f"{site} answers, and may end its jobs itself: it is not declared lost. To send nothing new there, "
                f"and let what runs go on, drain it (koala site drain {site}). To give up what it runs all the same, "
                "force it (--force)"
            )
        await self._engine.tell(who.signed(SiteLost(at=self._engine.now(), site=site), reason))
        return CallerView(self._engine, who).site(site)

    async def probe(self, who: Principal, site: str) -> SiteInfo:
        """Ask the site for its state now. Needs ``operate``."""
        who.need(Scope.OPERATE)
        self._check_site(site)
        await self._engine.probe(site)
        return CallerView(self._engine, who).site(site)

    def _check_site(self, site: str) -> None:
        known = [each.name for each in self._engine.grid.sites]
        if site not in known:
            raise NotFoundError(f"there is no site {site!r}; {suggest(site, known)}")
