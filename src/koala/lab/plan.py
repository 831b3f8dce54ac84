"""Where everything of a lab is: directories, ports, addresses and namespaces, worked out from its options alone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from koala.lab.errors import LabError
from koala.lab.options import KINDS, PORTS_PER_SITE, SITE_NAMES, LabOptions, LabSystem

LOOPBACK = "127.0.0.1"
# Addresses of sites in namespaces are 10.77.N.x.
WIDE_AREA = "10.77"
WIDE_AREA_DEVICE = "wan0"
# The kernel takes 107 bytes for the path of a socket. The longest one in a lab is of a step of a job at a node.
DIRECTORY_BYTES_MAX = 107 - len("/spool/alpha64/alpha64_1234567.4294967294")


class SitePlan(msgspec.Struct, frozen=True, kw_only=True):
    """One site of a lab. ``number`` is its place among all sites that a lab can have, from 1 on.

    ``address`` is where its controller listens and where other sites reach it; ``port`` is the controller's, and the
    nodes' follow. In a namespace the nodes have addresses of their own.
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
        """What its file server serves, and all may use."""
        return self.work / "gridftp"

    @property
    def file_server(self) -> str:
        """Where its file server serves them."""
        return f"ftp://{self.address}:{self.file_server_port}{self.files}"

    @property
    def through(self) -> tuple[str, ...]:
        """The words in front of every command for this site."""
        return () if self.namespace is None else ("ip", "netns", "exec", self.namespace)


class LabPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A whole lab. ``user`` runs it and its jobs; ``host`` is what this machine calls itself, and ``loopback`` the
    address of its loopback that this name stands for, None if it stands for another."""

    options: LabOptions
    user: str
    host: str
    loopback: str | None
    sites: tuple[SitePlan, ...]

    @property
    def directory(self) -> Path:
        """Everything that is made is below it."""
        return self.options.directory

    @property
    def munge(self) -> Path:
        """The lab's own munged: its key, its socket and its log."""
        return self.directory / "munge"

    @property
    def munge_socket(self) -> Path:
        """Where the Slurm clusters and their users reach it."""
        return self.munge / "socket"

    @property
    def spool(self) -> Path:
        """Where the nodes of Slurm clusters keep their jobs; near the top, since sockets have short paths."""
        return self.directory / "spool"

    @property
    def daemons(self) -> Path:
        """A directory for every daemon: its script and what it printed."""
        return self.directory / "daemons"

    @property
    def grid_file(self) -> Path:
        """What ``koala up --grid`` takes."""
        return self.directory / "grid.yaml"

    def site(self, name: str) -> SitePlan:
        """One of its sites."""
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
    """The lab that options ask for. LabError where its directory has a path that is too long."""
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
            f"--directory {options.directory}: batch systems take no blanks and no signs in paths; choose another"
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
