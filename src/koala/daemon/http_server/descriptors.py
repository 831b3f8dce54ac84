"""The file descriptors of the process: raises their limit, and divides them.

Everything that the daemon does takes descriptors: its store, the commands and files of its sites, its callers. The
division separates callers from all else, and the owner at the socket from other callers, so that no number of
connections keeps the daemon from its work or its owner from the daemon.
"""

from __future__ import annotations

import resource

import msgspec

from koala.daemon.api.limits import CONNECTIONS_MAX, OWNER_CONNECTIONS_MAX
from koala.daemon.options import StartError

# More are useless here, and a program that is started with millions of them may look at each.
DESCRIPTORS_MAX = 65_536
# With fewer there is no room for a store, a site and a caller at the same time.
DESCRIPTORS_MIN = 128


class DescriptorShares(msgspec.Struct, frozen=True, kw_only=True):
    """How many connections are held at the address, and how many at the socket. The rest of the descriptors, three in
    eight or more, is for the store and the sites."""

    connections: int
    owner_connections: int


def raise_limit() -> int:
    """Raise the limit as far as the process is allowed, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= allowed:
        return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return allowed


def share_out(descriptors: int) -> DescriptorShares:
    """Divide this many descriptors. Raises ``StartError`` if they are too few to work with."""
    if descriptors < DESCRIPTORS_MIN:
        raise StartError(
            f"the daemon may open only {descriptors} files at a time, and needs {DESCRIPTORS_MIN} (DESCRIPTORS_MIN); "
            "raise the limit with `ulimit -n`, or LimitNOFILE in a service"
        )
    return DescriptorShares(
        connections=min(CONNECTIONS_MAX, descriptors // 2),
        owner_connections=min(OWNER_CONNECTIONS_MAX, descriptors // 8),
    )
