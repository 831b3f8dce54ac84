"""What a lab needs of this machine before anything is started: programs, free ports, rights."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from koala.lab import gridftp
from koala.lab import programs as commands
from koala.lab.errors import LabError
from koala.lab.grid_engine import cell as grid_engine
from koala.lab.network import namespaces as network
from koala.lab.plan import Plan, SitePlan
from koala.lab.slurm import cluster as slurm
from koala.lab.slurm import munge
from koala.model.grid import SiteKind

_SLURM_PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge")
_GRID_ENGINE_PACKAGES = ("gridengine-master", "gridengine-exec", "gridengine-client")
_GRIDFTP_PACKAGES = ("globus-gridftp-server-progs",)
_NETWORK_PACKAGES = ("iproute2",)


def check(plan: Plan) -> None:
    """LabError that names all programs that are missing, the first port in use, or the right that is wanted."""
    check_programs(plan)
    if plan.options.wan is not None:
        network.check(plan)
    else:
        _check_ports(plan)
    if plan.options.gridftp:
        gridftp.check(plan)


def check_programs(plan: Plan) -> None:
    """LabError that names all programs that are missing, and the packages that have them."""
    missing: list[str] = []
    packages: list[str] = []
    for programs, of_packages in _wanted(plan):
        if programs:
            missing += programs
            packages += of_packages
    if missing:
        raise LabError(
            f"not installed here: {', '.join(missing)}; "
            f"install them with: apt install --no-install-recommends {' '.join(packages)}"
        )


def _wanted(plan: Plan) -> Iterator[tuple[list[str], tuple[str, ...]]]:
    """For every part of the lab, the programs that are missing and the packages that have them."""
    kinds = {site.kind for site in plan.sites}
    if SiteKind.SLURM in kinds:
        yield _missing((*munge.PROGRAMS, *slurm.PROGRAMS)), _SLURM_PACKAGES
    if SiteKind.GRID_ENGINE in kinds:
        yield grid_engine.missing_programs(), _GRID_ENGINE_PACKAGES
    if plan.options.gridftp:
        yield _missing(gridftp.PROGRAMS), _GRIDFTP_PACKAGES
    if plan.options.wan is not None:
        yield _missing(network.PROGRAMS), _NETWORK_PACKAGES


def _missing(programs: tuple[str, ...]) -> list[str]:
    return [program for program in programs if commands.find(program) is None]


def _check_ports(plan: Plan) -> None:
    for site in plan.sites:
        for port in _ports(site, plan):
            if not _is_free(port):
                raise LabError(
                    f"port {port}, for {site.name}, is in use; choose others with --first-port "
                    f"(it is {plan.options.first_port} now)"
                )


def _ports(site: SitePlan, plan: Plan) -> Iterator[int]:
    nodes = plan.options.nodes if site.kind is SiteKind.SLURM else 1
    yield from range(site.port, site.port + nodes + 1)
    if plan.options.gridftp:
        yield site.file_server_port


def _is_free(port: int) -> bool:
    """Whether a server could listen there; the remains of old connections do not matter."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
