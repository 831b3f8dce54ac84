"""How a lab is, site by site, as its batch systems tell."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import msgspec

from koala.lab.grid_engine import cell as grid_engine
from koala.lab.lab import Lab
from koala.lab.plan import SitePlan
from koala.lab.slurm import cluster as slurm
from koala.model.grid import SiteKind
from koala.sites import processes as shell


class SiteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One site. ``up`` if its controller answers; ``dead`` names the daemons of it that have died.

    ``jobs`` wait or run; None where nobody answers. ``address`` is where other sites reach it.
    """

    name: str
    kind: SiteKind
    batch_system: str
    up: bool
    dead: tuple[str, ...]
    processors: int
    jobs: int | None
    address: str
    work_directory: str
    file_server: str | None


class LabStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A lab. ``dead`` names the daemons that have died and are not of one site. ``up`` if all of it can be used,
    ``gone`` if none of its daemons lives."""

    directory: str
    grid_file: str
    up: bool
    complete: bool
    gone: bool
    dead: tuple[str, ...]
    sites: tuple[SiteStatus, ...]


def status(lab: Lab) -> LabStatus:
    """Asks every site at once."""
    with ThreadPoolExecutor(max_workers=len(lab.plan.sites)) as pool:
        sites = tuple(pool.map(lambda site: _site(lab, site), lab.plan.sites))
    dead = _dead(lab, None)
    return LabStatus(
        directory=str(lab.plan.directory),
        grid_file=str(lab.grid_file),
        up=lab.record.complete and not dead and all(site.up and not site.dead for site in sites),
        complete=lab.record.complete,
        gone=not any(shell.is_alive(each.process) for each in lab.record.daemons),
        dead=dead,
        sites=sites,
    )


def _site(lab: Lab, site: SitePlan) -> SiteStatus:
    system = slurm if site.kind is SiteKind.SLURM else grid_engine
    # Nobody answers for a controller that is dead, and its clients would wait.
    dead = _dead(lab, site.name)
    jobs = system.jobs(site) if system.controller(site) not in dead else None
    return SiteStatus(
        name=site.name,
        kind=site.kind,
        batch_system=system.version(site),
        up=jobs is not None,
        dead=dead,
        processors=site.processors,
        jobs=jobs,
        address=site.address,
        work_directory=str(site.work),
        file_server=site.file_server if lab.plan.options.gridftp else None,
    )


def _dead(lab: Lab, site: str | None) -> tuple[str, ...]:
    daemons = [each for each in lab.record.daemons if each.site == site]
    return tuple(each.name for each in daemons if not shell.is_alive(each.process))
