"""The places of a lab: directories, ports, addresses and namespaces, computed from its options alone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from koala.lab.errors import LabError
from koala.lab.options import KINDS, PORTS_PER_SITE, SITE_NAMES, LabOptions, LabSystem

LOOPBACK = "127.0.0.1"
# Addresses of sites in namespaces are 10.77.N.x.
WIDE_AREA = "10.77"
WIDE_AREA_DEVICE = "wan0"
# The kernel allows 107 bytes for the path of a socket. The longest one in a lab belongs to a job step at a node.
DIRECTORY_BYTES_MAX = 107 - len("/spool/alpha64/alpha64_1234567.4294967294")


class SitePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One site of a lab. ``number`` is its place among all possible sites of a lab, from 1 on.

    Its controller listens at ``address``, where other sites reach it; ``port`` is the controller's, and the nodes'
    ports follow. In a namespace the nodes have addresses of their own.
    """

    name: str
    kind: LabSystem
    number: int
    directory: Path
    processors: int
    port: int
    file_server_port: int
    namespace: str | None
    address: str
    node_addresses: tuple[str, ...]

    @property
    def work(self) -> Path:
        """The directory that a grid file names."""
        return self.directory / "work"

    @property
    def files(self) -> Path:
        """The directory of its file server, which all may use."""
        return self.work / "gridftp"

    @property
    def file_server(self) -> str:
        """The URL of its file server."""
        return f"ftp://{self.address}:{self.file_server_port}{self.files}"

    @property
    def through(self) -> tuple[str, ...]:
        """The words in front of every command for this site."""
        return () if self.namespace is None else ("ip", "netns", "exec", self.namespace)


class LabPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole lab. ``user`` runs it and its jobs. ``host`` is this machine's name, and ``loopback`` is the address of
    that name if it is on the loopback, else None."""

    options: LabOptions
    user: str
    host: str
    loopback: str | None
    sites: tuple[SitePlan, ...]

    @property
    def directory(self) -> Path:
        """The directory that contains everything."""
        return self.options.directory

    @property
    def munge(self) -> Path:
        """The directory of the lab's own munged: its key, its socket and its log."""
        return self.directory / "munge"

    @property
    def munge_socket(self) -> Path:
        """The socket of munged for the Slurm clusters and their users."""
        return self.munge / "socket"

    @property
    def spool(self) -> Path:
        """The directory where Slurm's nodes keep their jobs; near the top, because paths of sockets are short."""
        return self.directory / "spool"

    @property
    def daemons(self) -> Path:
        """The directory with a directory for every daemon: its script and its output."""
        return self.directory / "daemons"

    @property
    def grid_file(self) -> Path:
        """The grid file for ``koala up --grid``."""
        return self.directory / "grid.yaml"

    def site(self, name: str) -> SitePlan:
        """Return one of its sites. Raises LabError if it has no such site."""
        for site in self.sites:
            if site.name == name:
                return site
        names = ", ".join(site.name for site in self.sites)
        raise LabError(f"there is no site {name!r} in this lab; it has {names}")

    @property
    def has_slurm(self) -> bool:
        """Whether munged is needed."""
        return any(site.kind is LabSystem.SLURM for site in self.sites)


def plan_lab(options: LabOptions, user: str, host: str, host_address: str | None) -> LabPlan:
    """Return the plan for these options. Raises LabError if the directory's path is too long."""
    loopback = host_address if host_address is not None and host_address.startswith("127.") else None
    sites = tuple(_site(options, name, loopback or LOOPBACK) for name in options.sites)
    plan = LabPlan(options=options, user=user, host=host, loopback=loopback, sites=sites)
    excess = len(bytes(options.directory)) - DIRECTORY_BYTES_MAX
    if excess > 0:
        raise LabError(
            f"--directory {options.directory}: the path is too long for the sockets in it, by {excess} bytes; "
            "choose one with a shorter path"
        )
    if set(str(options.directory)) & set(" \t\n\"'\\#;%,=*?[]$`"):
        raise LabError(
            f"--directory {options.directory}: batch systems accept no blanks or special characters in paths; "
            "choose another"
        )
    return plan


def _site(options: LabOptions, name: str, loopback: str) -> SitePlan:
    place = SITE_NAMES.index(name)
    nodes = options.nodes if KINDS[name] is LabSystem.SLURM else 0
    addresses = [loopback] * (nodes + 1)
    if options.wan is not None:
        addresses = [f"{WIDE_AREA}.{place + 1}.{last}" for last in range(1, nodes + 2)]
    return SitePlan(
        name=name,
        kind=KINDS[name],
        number=place + 1,
        directory=options.directory / name,
        processors=options.processors(name),
        port=options.first_port + place * PORTS_PER_SITE,
        file_server_port=options.first_port + len(KINDS) * PORTS_PER_SITE + place,
        namespace=None if options.wan is None else f"koala-{options.first_port}-{name}",
        address=addresses[0],
        node_addresses=tuple(addresses[1:]),
    )
