"""Finds the addresses by which other sites reach the nodes of a found cluster, as far as hosts can tell."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from koala.sites.batch.discovery import FoundCluster

# A wider network holds addresses that have nothing to do with each other.
_PREFIX_LEAST = 8


class NodesReached(NamedTuple):
    """The ``key`` of a site for reaching its nodes, if one can be known, and in words why it is needed. If the names
    of the nodes suffice there is neither."""

    key: tuple[str, str] | None = None
    why: str = ""


def nodes_reached(cluster: FoundCluster, known: Sequence[str | None] | None, *, one_machine: bool) -> NodesReached:
    """Return how other sites reach a cluster's nodes. ``known`` is how each host of a batch system resolves the name
    of the cluster's first node; None if they could not be asked. All clusters may be on ``one_machine``, which
    reaches itself at an address of its own."""
    if not cluster.nodes or known is None:
        return NodesReached()
    addresses = {node.address for node in cluster.nodes}
    is_own = any(address is not None and ipaddress.ip_address(address).is_loopback for address in addresses)
    if all(each is not None and each == cluster.nodes[0].address for each in known) and (one_machine or not is_own):
        return NodesReached()
    why = f"not every host knows its nodes by their names, such as {cluster.nodes[0].name}"
    if is_own and not one_machine:
        return NodesReached(None, "its nodes are known by an address of their own machine")
    seen = [ipaddress.IPv4Address(address) for address in addresses if address is not None]
    if len(seen) < len(addresses):
        return NodesReached(None, why)
    if len(seen) == 1:
        return NodesReached(("host", str(seen[0])), why)
    bits = (int(min(seen)) ^ int(max(seen))).bit_length()
    if is_own or 32 - bits < _PREFIX_LEAST:
        return NodesReached(None, why)
    return NodesReached(("network", str(ipaddress.ip_network((min(seen), 32 - bits), strict=False))), why)
