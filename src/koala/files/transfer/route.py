"""The route of a file's bytes from one site to another: a pure function of the two descriptions.

``koala.files.transfer.local_piece`` (copy) and ``koala.files.transfer.methods`` (the others) perform the routes.
"""

from __future__ import annotations

import enum

from koala.model.grid import Site


class TransferRoute(enum.StrEnum):
    """How bytes get from one site to another, or to another place at the same site."""

    COPY = "copy"  # this machine sees both file areas, and copies
    WITHIN = "within"  # a piece of a file is cut at the site that has it, which this machine does not see
    GRIDFTP = "gridftp"  # from file server to file server, on the orders of a client
    SSH = "ssh"  # rsync, run at the target if that reaches the source, or else through this machine
    RELAY = "relay"  # in one stream through this machine, which alone reaches both


def has_local_files(site: Site) -> bool:
    """Return True if this machine sees the site's files: at embedded sites, and at batch systems that it uses
    itself."""
    return site.is_here


def route_between(source: Site, target: Site) -> TransferRoute:
    """Return the route from one site to another. The first of these rules that applies:

    - inside one site nothing leaves it: COPY where this machine sees it, or else WITHIN;
    - GRIDFTP where both have a file server, because an operator who describes one wants it used;
    - COPY where this machine sees both;
    - RELAY where one of them is reached only through a command (``through``);
    - SSH everywhere else.
    """
    if source.name == target.name:
        return TransferRoute.COPY if has_local_files(target) else TransferRoute.WITHIN
    if source.file_server is not None and target.file_server is not None:
        return TransferRoute.GRIDFTP
    if has_local_files(source) and has_local_files(target):
        return TransferRoute.COPY
    if any(site.batch is not None and site.batch.through for site in (source, target)):
        return TransferRoute.RELAY
    return TransferRoute.SSH
