"""Requirements of a lab on this machine, before anything is started: programs, free ports, rights."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from koala.lab import gridftp, programs
from koala.lab.errors import LabError
from koala.lab.grid_engine import cell
from koala.lab.network import namespaces
from koala.lab.options import LabSystem
from koala.lab.plan import LabPlan, SitePlan
from koala.lab.slurm import cluster, munge

_SLURM_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
_GRID_ENGINE_PACKAGES = ("gridengine-master", "gridengine-exec", "gridengine-client")
_GRIDFTP_PACKAGES = ("globus-gridftp-server-progs",)
_NETWORK_PACKAGES = ("iproute2",)


def check(plan: LabPlan) -> None:
    """Raise LabError that names all missing programs, the first port in use, or the missing right."""
    check_programs(plan)
    if plan.options.wan is not None:
        namespaces.check(plan)
    else:
        _check_ports(plan)
    if plan.options.gridftp:
        gridftp.check(plan)


def check_programs(plan: LabPlan) -> None:
    """Raise LabError that names all missing programs, and the packages that contain them."""
    missing: list[str] = []
    packages: list[str] = []
    for names, of_packages in _wanted(plan):
        if names:
            missing += names
            packages += of_packages
    if missing:
        raise LabError(
            f"not installed here: {', '.join(missing)}; "
            f"install them with: apt install --no-install-recommends {' '.join(packages)}"
        )


def _wanted(plan: LabPlan) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """Yield for every part of the lab the missing programs and the packages that contain them."""
    kinds = {site.kind for site in plan.sites}
    if LabSystem.SLURM in kinds:
        yield _missing((*munge.PROGRAMS, *cluster.PROGRAMS)), _SLURM_PACKAGES
    if LabSystem.GRID_ENGINE in kinds:
        yield cell.missing_programs(), _GRID_ENGINE_PACKAGES
    if plan.options.gridftp:
        yield _missing(gridftp.PROGRAMS), _GRIDFTP_PACKAGES
    if plan.options.wan is not None:
        yield _missing(namespaces.PROGRAMS), _NETWORK_PACKAGES


def _missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if programs.find(name) is None]


def _check_ports(plan: LabPlan) -> None:
    for site in plan.sites:
        for port in _ports(site, plan):
            if not _is_free(port):
                raise LabError(
                    f"port {port}, for {site.name}, is in use; choose others with --first-port "
                    f"(it is {plan.options.first_port} now)"
                )


def _ports(site: SitePlan, plan: LabPlan) -> Iterator[int]:
    nodes = plan.options.nodes if site.kind is LabSystem.SLURM else 1
    yield from range(site.port, site.port + nodes + 1)
    if plan.options.gridftp:
        yield site.file_server_port


def _is_free(port: int) -> bool:
    """Return True if a server could listen there; remains of old connections do not matter."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
