"""The batch systems that Koala supports, a line each."""

from __future__ import annotations

from koala.model.grid import Site
from koala.sites.batch.grid_engine import GRID_ENGINE
from koala.sites.batch.kind import BatchKind
from koala.sites.batch.slurm import SLURM
from koala.sites.batch.system import BatchSystem

SYSTEMS: dict[str, BatchKind] = {
    SLURM.name: SLURM,
    GRID_ENGINE.name: GRID_ENGINE,
}


def system_of(site: Site) -> BatchSystem:
    """Return the batch system of a site, with its settings."""
    assert site.batch is not None, "a site under a batch system"
    return SYSTEMS[site.kind].parts().system(site.batch)


def titles() -> str:
    """Return the names of all batch systems in a sentence, such as "Slurm or Grid Engine"."""
    return " or ".join(each.title for each in SYSTEMS.values())


def kind_lines() -> str:
    """Return what to write as the kind of a site under a batch system."""
    return " or ".join(f"'kind: {name}'" for name in SYSTEMS)


def launchers() -> tuple[str, ...]:
    """Return the programs that start processes over the nodes of a job, each in one batch system alone."""
    return tuple(each.launcher for each in SYSTEMS.values())


def programs_of(kind: str) -> tuple[str, ...]:
    """Return the programs that jobs find at every site of a kind."""
    return SYSTEMS[kind].programs if kind in SYSTEMS else ()
