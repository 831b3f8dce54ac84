"""The sites and the links between them as a small diagram, with running transfers as arrows.

Pure functions from the API's forms to positions in a box of WIDTH by HEIGHT; templates draw them. In a grid that is
too large for a diagram only the sites with running transfers are drawn; the table of links is always complete.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from koala.daemon.dashboard.words import amount, condition, shortened
from koala.model.api import LinkInfo, Overview, SiteInfo, TransferInfo
from koala.model.network import bandwidth_text

WIDTH, HEIGHT = 400, 260
NODES_MAX = 12
LABELLED_LINKS_NODES_MAX = 4
NODE_RADIUS = 22
NAME_CHARACTERS_MAX = 14
_MARGIN_X, _MARGIN_Y = 62, 44
_BEND = 16.0
# Around the nodes: for arrows, and below them for names.
_ROOM_ABOVE, _ROOM_BELOW = 16, 24
_LABEL_AT = 0.4  # not in the middle, where links cross


class DiagramNode(msgspec.Struct, frozen=True, kw_only=True):
    """A site: a circle with its use in it and its name below. ``used`` is the held share, 0 to 1."""

    x: float
    y: float
    name: str
    label: str
    condition: str
    used: float
    told: str


class DiagramLine(msgspec.Struct, frozen=True, kw_only=True):
    """A link. ``label`` is empty if it would not fit: among many links, and under arrows."""

    x1: float
    y1: float
    x2: float
    y2: float
    label_x: float
    label_y: float
    label: str
    told: str


class DiagramArrow(msgspec.Struct, frozen=True, kw_only=True):
    """The running transfers from one site to another together; ``done`` is 0 to 1."""

    path: str
    label_x: float
    label_y: float
    label: str
    done: float
    told: str


class NetworkDiagram(msgspec.Struct, frozen=True, kw_only=True):
    """The diagram, from ``top`` on, ``height`` high. ``left_out`` counts the sites that are not drawn."""

    nodes: tuple[DiagramNode, ...]
    lines: tuple[DiagramLine, ...]
    arrows: tuple[DiagramArrow, ...]
    left_out: int
    top: float
    height: float


def network(overview: Overview) -> NetworkDiagram:
    """Return the grid's diagram."""
    moving = [each for each in overview.transfers if each.ended_at is None]
    sites = _drawn(overview.sites, moving)
    spots = dict(zip((site.name for site in sites), _around(len(sites)), strict=True))
    labelled = len(sites) <= LABELLED_LINKS_NODES_MAX
    by_route: dict[tuple[str, str], list[TransferInfo]] = {}
    for transfer in moving:
        if transfer.source in spots and transfer.target in spots and transfer.source != transfer.target:
            by_route.setdefault((transfer.source, transfer.target), []).append(transfer)
    busy = {frozenset(route) for route in by_route}
    heights = [y for _, y in spots.values()] or [HEIGHT / 2]
    top = max(0.0, min(heights) - NODE_RADIUS - _ROOM_ABOVE)
    return NetworkDiagram(
        nodes=tuple(_node(site, spots[site.name]) for site in sites),
        lines=tuple(
            _line(link, spots, labelled and frozenset(link.between) not in busy)
            for link in overview.links
            if link.between[0] in spots and link.between[1] in spots and link.between[0] != link.between[1]
        ),
        arrows=tuple(_arrow(route, transfers, spots) for route, transfers in by_route.items()),
        left_out=len(overview.sites) - len(sites),
        top=round(top, 1),
        height=round(min(float(HEIGHT), max(heights) + NODE_RADIUS + _ROOM_BELOW) - top, 1),
    )


def _drawn(sites: Sequence[SiteInfo], moving: Sequence[TransferInfo]) -> list[SiteInfo]:
    if len(sites) <= NODES_MAX:
        return list(sites)
    busy = {name for each in moving for name in (each.source, each.target)}
    return [site for site in sites if site.name in busy][:NODES_MAX]


def _around(count: int) -> list[tuple[float, float]]:
    """Return places for ``count`` nodes: one in the middle, two side by side, more on an ellipse from its top on."""
    if count == 1:
        return [(WIDTH / 2, HEIGHT / 2)]
    begin = math.pi if count == 2 else -math.pi / 2
    middle_y = HEIGHT / 2 - 6
    return [
        (
            round(WIDTH / 2 + (WIDTH / 2 - _MARGIN_X) * math.cos(begin + math.tau * number / count), 1),
            round(middle_y + (HEIGHT / 2 - _MARGIN_Y) * math.sin(begin + math.tau * number / count), 1),
        )
        for number in range(count)
    ]


def _node(site: SiteInfo, spot: tuple[float, float]) -> DiagramNode:
    held = site.ours + site.others
    state = condition(site)
    return DiagramNode(
        x=spot[0],
        y=spot[1],
        name=site.name,
        label=shortened(site.name, NAME_CHARACTERS_MAX),
        condition=state,
        used=min(1.0, held / site.processors) if site.processors > 0 else 0.0,
        told=f"{site.name}: {state}, {held} of {site.processors} processors held",
    )


def _line(link: LinkInfo, spots: dict[str, tuple[float, float]], labelled: bool) -> DiagramLine:
    (x1, y1), (x2, y2) = (spots[name] for name in link.between)
    believed = bandwidth_text(link.believed_mbit_s)
    return DiagramLine(
        x1=x1,
        y1=y1,
        x2=x2,
        y2=y2,
        label_x=round(x1 + (x2 - x1) * _LABEL_AT, 1),
        label_y=round(y1 + (y2 - y1) * _LABEL_AT, 1),
        label=believed if labelled else "",
        told=f"{link.between[0]} and {link.between[1]}: {believed} recently, "
        f"{bandwidth_text(link.bandwidth_mbit_s)} in the grid file",
    )


def _arrow(
    route: tuple[str, str], transfers: Sequence[TransferInfo], spots: dict[str, tuple[float, float]]
) -> DiagramArrow:
    """Return a bent arrow from rim to rim; the bend separates the two directions of a link."""
    (x1, y1), (x2, y2) = (spots[name] for name in route)
    length = math.hypot(x2 - x1, y2 - y1) or 1.0
    along = ((x2 - x1) / length, (y2 - y1) / length)
    across = (-along[1] * _BEND, along[0] * _BEND)
    rim = NODE_RADIUS + 5
    begin = (x1 + along[0] * rim + across[0] / 3, y1 + along[1] * rim + across[1] / 3)
    end = (x2 - along[0] * (rim + 3) + across[0] / 3, y2 - along[1] * (rim + 3) + across[1] / 3)
    turn = ((x1 + x2) / 2 + across[0] * 2, (y1 + y2) / 2 + across[1] * 2)
    size = sum(each.size_bytes for each in transfers)
    moved = sum(min(each.brought_bytes, each.size_bytes) for each in transfers)
    done = moved / size if size else 0.0
    files = f"{len(transfers)} files, " if len(transfers) > 1 else ""
    return DiagramArrow(
        path="M{:.1f} {:.1f}Q{:.1f} {:.1f} {:.1f} {:.1f}".format(*begin, *turn, *end),
        label_x=round((x1 + x2) / 2 + across[0] * 1.4, 1),
        label_y=round((y1 + y2) / 2 + across[1] * 1.4, 1),
        label=f"{files}{done:.0%}",
        done=done,
        told=f"{route[0]} to {route[1]}: {files}{amount(moved)} of {amount(size)}",
    )
