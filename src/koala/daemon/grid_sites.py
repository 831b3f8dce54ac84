"""The sites of a grid as the daemon uses them: each kind is made from its description, with its file area."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Protocol

from koala.daemon.offload import in_own_thread
from koala.files import AreaDirectory, FileArea, FileMover, Host, LocalArea, RemoteArea
from koala.files.transfer.route import has_local_files
from koala.model.errors import InvalidError
from koala.model.grid import Grid, Links, SchedulerParameters, Site, SiteKind
from koala.model.launch import WORK
from koala.model.messages import Token
from koala.model.outputs import CollectLimits
from koala.model.request import SiteName
from koala.policies.view import BYTES_PER_S_PER_MBIT_S
from koala.sites import LiveSite
from koala.sites.batch.site import BatchSite
from koala.sites.batch.systems import system_of
from koala.sites.component_directory import COMPONENTS
from koala.sites.local.site import LocalSite
from koala.sites.protocol import Clock, Deliver, Emit, Found
from koala.sites.remote_shell import SSH_CONFIG_VARIABLE, SSH_VARIABLES, RemoteShell, named_ssh_config


class SiteMaker(Protocol):
    """Makes a site from its description, below the daemon's directory ``root``."""

    def __call__(
        self,
        description: Site,
        root: Path,
        *,
        emit: Emit,
        on_mail: Deliver,
        clock: Clock,
        on_found: Found | None = None,
    ) -> LiveSite: ...


def check_kinds(grid: Grid) -> None:
    """Raise ``InvalidError`` for the first site of a kind that cannot run live."""
    for site in grid.sites:
        if site.kind == SiteKind.SIMULATED:
            raise InvalidError(
                f"site {site.name} is of the kind {site.kind}: it exists only in simulations; write 'kind: local' "
                "for processors of this machine, or the kind of its batch system"
            )


def check_ssh(grid: Grid) -> None:
    """Raise ``InvalidError`` if sites are reached by ssh and the ssh configuration cannot be read."""
    config = named_ssh_config()
    if config is None or not any(site.batch is not None and site.batch.ssh is not None for site in grid.sites):
        return
    try:
        config.open("rb").close()
    except OSError as error:
        raise InvalidError(
            f"{SSH_CONFIG_VARIABLE}: {config}: {error.strerror}; name a file in the form of ~/.ssh/config, or unset "
            "it to have that one used"
        ) from None


def site_root(root: Path, name: SiteName) -> Path:
    """Return the directory of an embedded site."""
    return root / "sites" / name


def maker_for(scheduler: SchedulerParameters) -> SiteMaker:
    """Return the maker of sites for a grid with these parameters."""
    return partial(make_site, barrier_timeout_s=scheduler.barrier_timeout_s)


def make_site(
    description: Site,
    root: Path,
    *,
    emit: Emit,
    on_mail: Deliver,
    clock: Clock,
    on_found: Found | None = None,
    barrier_timeout_s: float = SchedulerParameters().barrier_timeout_s,
) -> LiveSite:
    """The site that a description stands for; ``check_kinds`` has passed."""
    if description.kind == SiteKind.LOCAL:
        return LocalSite(
            description.name,
            site_root(root, description.name),
            description.processors,
            emit=emit,
            on_mail=on_mail,
            on_found=on_found,
            clock=clock,
            node=description.node_classes[0] if description.node_classes else None,
        )
    settings = description.batch
    assert settings is not None, "a site under a batch system says how it is reached"
    return BatchSite(
        description.name,
        settings,
        system_of(description),
        description.processors,
        owner=owner_of(root, description.name),
        emit=emit,
        on_mail=on_mail,
        on_found=on_found,
        clock=clock,
        barrier_timeout_s=barrier_timeout_s,
    )


def owner_of(root: Path, name: SiteName) -> str:
    """Return the name by which a work directory distinguishes this daemon's site, across restarts, from all others:
    two sites that share a directory would take each other's components for their own."""
    return f"{platform.node()}:{root.resolve()} site {name}"


def workspace_of(site: Site, root: Path, token: Token) -> str:
    """Return the directory in which a component started at a site."""
    home = str(site_root(root, site.name)) if site.batch is None else site.batch.work_directory.rstrip("/")
    return f"{home}/{COMPONENTS}/{token}/{WORK}"


def make_areas(grid: Grid, root: Path) -> dict[SiteName, FileArea]:
    """Return the file area of each site: ``files`` in its work directory, or in an embedded site's own directory."""
    here, limits = this_machine(), grid.scheduler.collect_limits
    return {site.name: _make_area(site, root, here, limits) for site in grid.sites}


def _make_area(site: Site, root: Path, here: Host, limits: CollectLimits) -> FileArea:
    settings = site.batch
    if settings is None or has_local_files(site):
        path = site_root(root, site.name) if settings is None else Path(settings.work_directory).expanduser()
        return LocalArea(AreaDirectory(site.name, path / "files"), here, in_own_thread, limits=limits)
    commands = RemoteShell(ssh=settings.ssh, through=settings.through, environment=dict(settings.environment))
    return RemoteArea(site.name, Host(commands, settings), f"{settings.work_directory}/files", limits=limits)


def make_mover(grid: Grid, areas: Mapping[SiteName, FileArea], root: Path, *, clock: Clock) -> FileMover:
    """Return the mover of files between the sites of a grid."""
    return FileMover(grid.sites, areas, this_machine(), root / "relays", clock=clock)


def this_machine() -> Host:
    """Return the daemon's machine, with the environment in which its ssh finds the user's keys."""
    return Host(RemoteShell(environment={name: os.environ[name] for name in SSH_VARIABLES if name in os.environ}))


class GridLinks:
    """The bandwidths between sites, as the grid gives them. Its latencies are for estimates: real transfers take real
    time."""

    def __init__(self, links: Links) -> None:
        self._default = links.default
        self._pairs = {frozenset(pair.between): pair for pair in links.pairs}

    def rate_bytes_s(self, source: SiteName, target: SiteName) -> float | None:
        """Return the bandwidth between two sites; None within one site, where nothing limits it."""
        if source == target:
            return None
        link = self._pairs.get(frozenset((source, target)), self._default)
        return link.bandwidth_mbit_s * BYTES_PER_S_PER_MBIT_S
