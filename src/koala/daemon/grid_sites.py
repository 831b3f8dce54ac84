"""The sites of a grid as the daemon uses them: each kind made from its description, with its file area beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from koala.daemon.errors import InvalidError
from koala.files import Area
from koala.grid import Grid, Links, SiteKind
from koala.grid import Site as SiteDescription
from koala.model import SiteName
from koala.policies.view import BYTES_PER_S_PER_MBIT_S
from koala.sites import LocalSite, Site
from koala.sites.site import Clock, Deliver, Emit

_ADVICE = {
    SiteKind.SIMULATED: "it exists only in simulations; write 'kind: local' for processors of this machine",
    SiteKind.SLURM: "components run only on this machine so far; write 'kind: local', or take the site out",
    SiteKind.GRID_ENGINE: "components run only on this machine so far; write 'kind: local', or take the site out",
}


class SiteMaker(Protocol):
    """Makes a site of its description, below the daemon's directory ``root``."""

    def __call__(
        self, description: SiteDescription, root: Path, *, emit: Emit, on_mail: Deliver, clock: Clock
    ) -> Site: ...


def check_kinds(grid: Grid) -> None:
    """Raises ``InvalidError`` for the first site of a kind that cannot run live."""
    for site in grid.sites:
        if site.kind is not SiteKind.LOCAL:
            raise InvalidError(f"site {site.name} is of the kind {site.kind}: {_ADVICE[site.kind]}")


def site_root(root: Path, name: SiteName) -> Path:
    """Where an embedded site lives."""
    return root / "sites" / name


def make_site(description: SiteDescription, root: Path, *, emit: Emit, on_mail: Deliver, clock: Clock) -> Site:
    """The site that a description stands for; ``check_kinds`` has passed."""
    assert description.kind is SiteKind.LOCAL, "only such kinds pass the check"
    return LocalSite(
        description.name,
        site_root(root, description.name),
        description.processors,
        emit=emit,
        on_mail=on_mail,
        clock=clock,
    )


def make_areas(grid: Grid, root: Path) -> dict[SiteName, Area]:
    """The file area of each site."""
    return {site.name: Area(site.name, site_root(root, site.name) / "files") for site in grid.sites}


class LinkBook:
    """How fast and how far apart sites are, as the grid says."""

    def __init__(self, links: Links) -> None:
        self._default = links.default
        self._pairs = {frozenset(pair.between): pair for pair in links.pairs}

    def rate_bytes_s(self, source: SiteName, target: SiteName) -> float | None:
        """What flows between two sites; None inside one, where nothing holds it up."""
        if source == target:
            return None
        link = self._pairs.get(frozenset((source, target)), self._default)
        return link.bandwidth_mbit_s * BYTES_PER_S_PER_MBIT_S

    def latency_s(self, source: SiteName, target: SiteName) -> float:
        """How long the first byte takes."""
        return 0.0 if source == target else self._pairs.get(frozenset((source, target)), self._default).latency_s
