"""Routes about the grid and its sites."""

from __future__ import annotations

from koala.daemon.api.callers import Who
from koala.daemon.api.errors import declared
from koala.daemon.api.parameters import Force, Moment, Reason, SitePath, The, routes_about
from koala.descriptions.errors import shown
from koala.model.api import LinkHistory, NetworkInfo, Overview, SiteHistory, SiteInfo
from koala.model.errors import InvalidError, NotFoundError

router = routes_about("grid")


@router.get("/grid", summary="The whole grid now", responses=declared())
async def get_grid(who: Who, service: The) -> Overview:
    """Return sites, links, transfers, queues and the running jobs; the jobs of others only for callers who may see
    them."""
    return await service.grid.overview(who)


@router.get("/network", summary="The links between sites", responses=declared())
async def get_network(who: Who, service: The) -> NetworkInfo:
    """Return what is believed of the bandwidth and latency from each site to each other one, and why."""
    return await service.grid.network(who)


@router.get("/network/{source}/{target}", summary="What was measured from a site to another", responses=declared())
async def get_link(who: Who, service: The, source: SitePath, target: SitePath) -> LinkHistory:
    """Return one direction of a link, with its last measurements."""
    return await service.grid.link(who, source, target)


@router.post("/network/{source}/{target}/probe", summary="Measure a link now", responses=declared(409))
async def probe_link(who: Who, service: The, source: SitePath, target: SitePath) -> LinkHistory:
    """Measure the link from a site to another, and wait for the result; ``probe_failure`` explains a failure."""
    return await service.grid.probe_link(who, source, target)


@router.get("/sites", summary="All sites", responses=declared())
async def list_sites(who: Who, service: The) -> list[SiteInfo]:
    """Return what Koala knows of each site, in the order of the grid file."""
    return await service.grid.sites(who)


@router.get("/sites/{site}", summary="One site", responses=declared())
async def get_site(who: Who, service: The, site: SitePath) -> SiteInfo:
    """Return what Koala knows of a site."""
    sites = await service.grid.sites(who)
    for found in sites:
        if found.name == site:
            return found
    raise NotFoundError(f"there is no site {shown(site)}; there are {', '.join(each.name for each in sites)}")


@router.get("/sites/{site}/history", summary="A site's use over time", responses=declared())
async def get_history(who: Who, service: The, site: SitePath, from_at: Moment, to_at: Moment) -> SiteHistory:
    """Return who held how many of the site's processors, as steps."""
    if to_at < from_at:
        raise InvalidError(f"to_at is before from_at ({to_at:g} < {from_at:g}); exchange them")
    return await service.grid.history(who, site, from_at, to_at)


@router.post("/sites/{site}/drain", summary="Send nothing new to a site", responses=declared(409))
async def drain_site(who: Who, service: The, site: SitePath, reason: Reason = "") -> SiteInfo:
    """Send nothing new to the site; what runs there goes on."""
    return await service.grid.drain(who, site, reason=reason)


@router.post("/sites/{site}/resume", summary="Use a site again", responses=declared(409))
async def resume_site(who: Who, service: The, site: SitePath, reason: Reason = "") -> SiteInfo:
    """Use a drained site again, or one with too many errors, which are forgotten."""
    return await service.grid.resume(who, site, reason=reason)


@router.post("/sites/{site}/lost", summary="Declare a site lost", responses=declared(409))
async def declare_site_lost(
    who: Who, service: The, site: SitePath, force: Force = False, reason: Reason = ""
) -> SiteInfo:
    """Stop waiting for the site: its jobs start again elsewhere. What it still runs is fenced: it counts for nothing,
    and is ended before the site is used again, which happens without further calls. A site that answers is
    refused."""
    return await service.grid.declare_lost(who, site, force=force, reason=reason)


@router.post("/sites/{site}/probe", summary="Ask a site for its state now", responses=declared(409))
async def probe_site(who: Who, service: The, site: SitePath) -> SiteInfo:
    """Ask the site itself, and wait for its report."""
    return await service.grid.probe(who, site)
