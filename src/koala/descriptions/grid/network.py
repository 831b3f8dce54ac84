"""The ``network`` part of a grid file: its form, its checks, and the way to the values of ``koala.model.grid``."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Annotated

from pydantic import Field

from koala.descriptions.errors import shown
from koala.descriptions.fields import Capacity, Description, Name
from koala.descriptions.yaml.problems import nearest
from koala.model.grid import NETWORK_GROUPS_MAX, NETWORK_LINKS_MAX, ROUTES_MAX, LinkGroup, Network, Route

# (where below ``network``, what is wrong, what to write)
Finding = tuple[tuple[str | int, ...], str, str]


class LinkGroupText(Description):
    """Sites behind one uplink."""

    name: Name = Field(description="a name for the group, which other groups may have as a member")
    uplink_mbit_s: Capacity | None = Field(
        default=None, description="the capacity of the link between the group and the rest; null is unlimited"
    )
    members: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        description="the sites and groups in it; each is in one group at most"
    )


class RouteText(Description):
    """Named links between two sites."""

    between: tuple[Name, Name] = Field(description="the two sites, such as [vu, delft]; both directions are alike")
    over: Annotated[tuple[Name, ...], Field(min_length=1)] = Field(
        description="the named links that their traffic crosses, beside the uplinks of the sites and their groups"
    )


class NetworkText(Description):
    """Links that communicating jobs share, and by which they slow each other down."""

    uplink_mbit_s: Capacity | None = Field(
        default=None,
        description="the capacity of the link of every site that names none of its own; null is unlimited",
    )
    groups: Annotated[tuple[LinkGroupText, ...], Field(max_length=NETWORK_GROUPS_MAX)] = Field(
        default=(), description="sites behind a shared uplink; groups may be members of groups"
    )
    links: Annotated[dict[Name, Capacity], Field(max_length=NETWORK_LINKS_MAX)] = Field(
        default={}, description="further links by name, each with its capacity in megabits per second"
    )
    routes: Annotated[tuple[RouteText, ...], Field(max_length=ROUTES_MAX)] = Field(
        default=(), description="which of these links lie between which sites"
    )

    def network(self) -> Network:
        """Return the network as a value of ``koala.model.grid``."""
        return Network(
            uplink_mbit_s=self.uplink_mbit_s,
            groups=tuple(LinkGroup(**group.model_dump()) for group in self.groups),
            links=tuple(self.links.items()),
            routes=tuple(Route(**route.model_dump()) for route in self.routes),
        )

    def findings(self, sites: Collection[str]) -> Iterator[Finding]:
        """Yield contradictions, and names that the grid does not have."""
        yield from self._groups(sites)
        yield from self._routes(sites)

    def _groups(self, sites: Collection[str]) -> Iterator[Finding]:
        names = [group.name for group in self.groups]
        group_of: dict[str, str] = {}
        for index, group in enumerate(self.groups):
            path = ("groups", index)
            if group.name in sites:
                yield (*path, "name"), f"{shown(group.name)} is also the name of a site", "give it another name"
            elif group.name in names[:index]:
                yield (*path, "name"), f"there are two groups {shown(group.name)}", "give one another name"
            for place, member in enumerate(group.members):
                here = (*path, "members", place)
                if member not in sites and member not in names:
                    yield here, f"there is no site or group {shown(member)}", nearest(member, [*sites, *names])
                elif member in group_of:
                    known = group_of[member]
                    yield here, f"{shown(member)} is a member of {known} already", "keep it in one group"
                group_of.setdefault(member, group.name)
        for index, name in enumerate(names):
            if name in _around(name, group_of):
                text = f"the group {shown(name)} is inside itself"
                yield ("groups", index), text, "take it, or the group that holds it, out of one of the groups"

    def _routes(self, sites: Collection[str]) -> Iterator[Finding]:
        seen: dict[frozenset[str], int] = {}
        for index, route in enumerate(self.routes):
            path = ("routes", index)
            for end, site in enumerate(route.between):
                if site not in sites:
                    yield (*path, "between", end), f"there is no site {shown(site)}", nearest(site, list(sites))
            both = frozenset(route.between)
            if len(both) == 1:
                text = f"the route joins {route.between[0]} with itself"
                yield (*path, "between"), text, "name two different sites"
            elif both in seen:
                text = f"the route between {' and '.join(route.between)} is given twice; first as entry"
                yield (*path, "between"), f"{text} {seen[both] + 1}", "keep one of the two"
            seen.setdefault(both, index)
            for place, link in enumerate(route.over):
                here = (*path, "over", place)
                if link not in self.links:
                    yield here, f"there is no link {shown(link)}", nearest(link, list(self.links))
                elif link in route.over[:place]:
                    yield here, f"the link {shown(link)} is named twice", "name each link once"


def _around(name: str, group_of: dict[str, str]) -> list[str]:
    """Return the groups that hold it, from the inside out, each once."""
    around: list[str] = []
    holder = group_of.get(name)
    while holder is not None and holder not in around:
        around.append(holder)
        holder = group_of.get(holder)
    return around
