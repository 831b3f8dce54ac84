"""Which nodes a component of a batch site has, and at which address the first of them is reached from elsewhere."""

from __future__ import annotations

import ipaddress
import logging

from koala.model.grid import BatchSettings
from koala.model.launch import ADDRESSES, NODES, READY, NodeShare
from koala.sites.batch.scripts.runner import ScriptResult

_log = logging.getLogger(__name__)


def parse_nodes(site: str, done: ScriptResult, settings: BatchSettings, processors: int) -> tuple[NodeShare, ...]:
    """What ``directory.nodes`` brought back; none until the component is ready.

    A script that tells nothing of its nodes has one, with all ``processors``.
    """
    ready, listed, told = done.section(READY), done.section(NODES), done.section(ADDRESSES)
    if ready is None:
        return ()
    shares = [] if listed is None else _shares(listed.text)
    if not shares:
        shares = [NodeShare(ready.text.strip() or "localhost", max(1, processors))]
    addresses = [] if told is None else told.text.split()
    first = NodeShare(_reached_at(site, settings, shares[0].name, addresses), shares[0].processors)
    return (first, *shares[1:])


def _shares(text: str) -> list[NodeShare]:
    shares = []
    for line in text.splitlines():
        match line.split():
            case [name, number] if number.isascii() and number.isdigit() and len(number) < 10:
                shares.append(NodeShare(name, int(number)))
    return shares


def _reached_at(site: str, settings: BatchSettings, name: str, addresses: list[str]) -> str:
    if settings.host is not None:
        return settings.host
    if settings.network is None:
        return name
    network = ipaddress.ip_network(settings.network, strict=False)
    for text in addresses:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        if address.version == network.version and address in network:
            return text
    _log.warning("site %s: node %s has no address in %s, so it is called by its name", site, name, network)
    return name
