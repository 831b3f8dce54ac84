"""A grid's network in numbers: the capacity of every link, and the shared links between every two sites.

The view of the core and the world of the simulator are built on the same wiring. ``koala.model.network`` defines the
loads of the links and their sharing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from koala.model.grid import Grid, Network
from koala.model.network import UNLIMITED_BIT_S, add_shared_crossings, capacity_bit_s, crossing, demand_bit_s
from koala.policies.minigrid.case import SharedRoutes

# The routes are kept for every pair of sites: a million pairs at this limit.
SHARED_LINK_SITES_MAX = 1_000


class WiringError(ValueError):
    """A network that is too large to keep."""

    def for_user(self) -> str:
        """Return what is too large, and what to do."""
        return str(self)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wiring:
    """The links of a grid: first that of every site, in the order of the sites, then those that sites share.

    - ``names`` and ``capacity_bit_s`` by link; ``UNLIMITED_BIT_S`` if there is no limit;
    - ``route_first`` and ``route_links``: the shared links between two sites, in the form of ``koala.model.network``;
      both are empty for a star, which has none.
    """

    sites: int
    names: tuple[str, ...]
    capacity_bit_s: tuple[int, ...]
    route_first: tuple[int, ...] = ()
    route_links: tuple[int, ...] = ()

    @property
    def is_star(self) -> bool:
        """True if no link is shared by several sites."""
        return not self.route_links

    @property
    def has_limits(self) -> bool:
        """True if any link can slow a job down."""
        return any(capacity < UNLIMITED_BIT_S for capacity in self.capacity_bit_s)

    def routes(self) -> SharedRoutes:
        """Return the shared links for the meta-scheduler, with scratch space of its own."""
        links = len(self.names)
        return SharedRoutes(
            first=self.route_first,
            links=self.route_links,
            crossed=[0.0] * links,
            closed=[0] * links,
            group=[0] * self.sites,
            masked=[0] * self.sites,
        )

    def demands_bit_s(
        self, pattern: int, dimensions: int, parts: Sequence[int], per_processor_bit_s: float
    ) -> list[tuple[int, int]]:
        """Return what a job with these parts demands, as (link, bits per second), without links that it
        does not load.

        ``parts`` holds the processors on every site.
        """
        total = sum(parts)
        crossed = [0.0] * len(self.names)
        for site, part in enumerate(parts):
            if part:
                crossed[site] = crossing(pattern, dimensions, parts, total, site)
        if not self.is_star:
            add_shared_crossings(pattern, dimensions, parts, total, self.route_first, self.route_links, crossed)
        demands = ((link, demand_bit_s(per_processor_bit_s, amount)) for link, amount in enumerate(crossed) if amount)
        return [(link, demand) for link, demand in demands if demand]


def star(names: Sequence[str], capacity_bit_s: Sequence[int] | None = None) -> Wiring:
    """Return sites with only a link of their own each; unlimited unless given."""
    capacities = (UNLIMITED_BIT_S,) * len(names) if capacity_bit_s is None else tuple(capacity_bit_s)
    return Wiring(sites=len(names), names=tuple(names), capacity_bit_s=capacities)


def compile_wiring(grid: Grid) -> Wiring:
    """Return the network of the grid; a grid without one has unlimited links.

    Raises WiringError if links are shared among more sites than are supported.
    """
    names = [site.name for site in grid.sites]
    network = grid.network
    if network is None:
        return star(names)
    uplinks = [
        capacity_bit_s(network.uplink_mbit_s if site.uplink_mbit_s is None else site.uplink_mbit_s)
        for site in grid.sites
    ]
    if not network.groups and not network.routes:
        return star(names, uplinks)
    if len(names) > SHARED_LINK_SITES_MAX:
        raise WiringError(
            f"the network shares links among {len(names)} sites, more than {SHARED_LINK_SITES_MAX} "
            "(SHARED_LINK_SITES_MAX); leave out groups and routes, or divide the grid"
        )
    route_first, route_links = _routes(names, network)
    return Wiring(
        sites=len(names),
        names=(*names, *(group.name for group in network.groups), *(name for name, _ in network.links)),
        capacity_bit_s=(
            *uplinks,
            *(capacity_bit_s(group.uplink_mbit_s) for group in network.groups),
            *(capacity_bit_s(mbit_s) for _, mbit_s in network.links),
        ),
        route_first=route_first,
        route_links=route_links,
    )


def _routes(names: Sequence[str], network: Network) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shared links between every two sites: uplinks of groups that hold only one of them,
    and named links."""
    group_link = {group.name: len(names) + number for number, group in enumerate(network.groups)}
    link_number = {name: len(names) + len(group_link) + number for number, (name, _) in enumerate(network.links)}
    group_of = {member: group.name for group in network.groups for member in group.members}
    above = [frozenset(group_link[group] for group in _groups_above(name, group_of)) for name in names]
    index = {name: site for site, name in enumerate(names)}
    named: dict[tuple[int, int], set[int]] = {}
    for route in network.routes:
        one, other = sorted((index[route.between[0]], index[route.between[1]]))
        named.setdefault((one, other), set()).update(link_number[link] for link in route.over)
    first = [0]
    links: list[int] = []
    for one in range(len(names)):
        for other in range(len(names)):
            if one < other:
                links.extend(sorted((above[one] ^ above[other]) | named.get((one, other), set())))
            first.append(len(links))
    return tuple(first), tuple(links)


def _groups_above(name: str, group_of: Mapping[str, str]) -> Iterator[str]:
    """Yield the groups that hold a site, the innermost first."""
    member = name
    while (group := group_of.get(member)) is not None:
        yield group
        member = group
