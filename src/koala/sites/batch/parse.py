"""Parsers for what the scripts of ``koala.sites.batch.scripts.directory`` print about components."""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Sequence

import msgspec

from koala.model.grid import BatchSettings
from koala.model.launch import ADDRESSES, NODES, READY, NodeShare, is_node_name
from koala.model.messages import ENDED_NODES_MAX, Token
from koala.sites.batch.scripts.runner import ScriptResult
from koala.sites.component import NOT_MEASURED, Usage, stderr_line, usage
from koala.sites.component_directory import (
    MAILS_MAX,
    AbortRecord,
    RecordedComponent,
    is_token,
    parse_abort,
    parse_component,
)
from koala.sites.shell_script import OutputSection

_log = logging.getLogger(__name__)


class ComponentStatus(msgspec.Struct, kw_only=True):
    """The visible state of one component. ``exit_words`` is the end that its script recorded, ``abort`` the content
    of an abort on record, ``nodes`` the nodes that it ran on, once its end is recorded, ``stderr_line`` the last line
    on its standard error, if it failed, and ``usage`` what its application has used."""

    lost: bool = False
    ready: bool = False
    abort: AbortRecord | None = None
    exit_words: list[str] | None = None
    mail: list[str] = msgspec.field(default_factory=list)
    nodes: list[str] = msgspec.field(default_factory=list)
    stderr_line: str = ""
    usage: Usage = NOT_MEASURED


def parse_statuses(text: str, tokens: Sequence[Token]) -> dict[Token, ComponentStatus]:
    """Parse the output of ``directory.inspect``. Lines about anything else are ignored."""
    statuses = {token: ComponentStatus() for token in tokens}
    for line in text.split("\n"):
        match line.split(" "):
            case [token, *rest] if token in statuses:
                _add(statuses[token], rest)
    return statuses


def _add(status: ComponentStatus, words: list[str]) -> None:
    match words:
        case ["lost"]:
            status.lost = True
        case ["ready"]:
            status.ready = True
        case ["abort", *rest]:
            status.abort = parse_abort(" ".join(rest))
        case ["exit", *rest]:
            status.exit_words = " ".join(rest).split()
        case ["node", name] if is_node_name(name) and len(status.nodes) < ENDED_NODES_MAX:
            status.nodes.append(name)
        case ["stderr", *rest]:
            status.stderr_line = stderr_line(" ".join(rest))
        case ["usage", *rest]:
            status.usage = usage(" ".join(rest))
        case ["mail", name] if len(status.mail) < MAILS_MAX:
            status.mail.append(name)


def parse_found(sections: Sequence[OutputSection]) -> list[RecordedComponent]:
    """Parse the sections of ``directory.show`` and ``directory.open_work_directory``, in their order."""
    found: list[tuple[Token, dict[str, bytes]]] = []
    for section in sections:
        match section.words:
            case ["component", token]:
                found.append((token, {}))
            case [name] if found:
                found[-1][1][name] = section.body
    return [parse_component(token, files) for token, files in found if is_token(token)]


def parse_nodes(site: str, done: ScriptResult, settings: BatchSettings, processors: int) -> tuple[NodeShare, ...]:
    """Parse the output of ``directory.nodes``; empty until the component is ready.

    A script that reports no nodes has one, with all ``processors``.
    """
    ready, listed, told = done.section(READY), done.section(NODES), done.section(ADDRESSES)
    if ready is None:
        return ()
    shares = [] if listed is None else shares_of(listed.text)
    if not shares:
        shares = [NodeShare(ready.text.strip() or "localhost", max(1, processors))]
    addresses = [] if told is None else told.text.split()
    first = NodeShare(reached_at(site, settings, shares[0].name, addresses), shares[0].processors)
    return (first, *shares[1:])


def shares_of(text: str) -> list[NodeShare]:
    """Parse a component's nodes as its script wrote them, a name and a number of processors on each line."""
    shares = []
    for line in text.splitlines():
        match line.split():
            case [name, number] if number.isascii() and number.isdigit() and len(number) < 10:
                shares.append(NodeShare(name, int(number)))
    return shares


def reached_at(site: str, settings: BatchSettings, name: str, addresses: list[str]) -> str:
    """Return the name or address by which other sites reach a node that has these addresses."""
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
