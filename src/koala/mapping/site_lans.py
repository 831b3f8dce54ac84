"""Sites as LANs: the scheduler's grid as the mapping of tasks sees it.

A site is a LAN and each of its processors a machine. The regions and wide areas around it are those that it names, or
else the network groups that it belongs to. Idle processors are not considered here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import msgspec

from koala.model.dendrogram import MACHINES_MAX, Dendrogram, InvalidDendrogramError, Lan, Machine, Man, Wan
from koala.model.grid import NODE_POWER, Grid, LinkGroup, Site

# Sites are in one region, or in one wide area, if the one-way latency between them is at most this.
MAN_LATENCY_S_MAX = 0.002
WAN_LATENCY_S_MAX = 0.020
# The wide area of sites that name none and are not in nested groups.
WAN_DEFAULT = "grid"


def dendrogram_of(grid: Grid) -> Dendrogram:
    """Return the grid with all its machines, seen from its first site.

    Nodes that a site names are the first of its processors; the others are called ``site/1``, ``site/2`` and so on.
    Raises ``InvalidDendrogramError`` for more than MACHINES_MAX processors.
    """
    processors = sum(site.processors for site in grid.sites)
    if processors > MACHINES_MAX:
        raise InvalidDendrogramError(
            "processors",
            f"{processors} in all are more machines than {MACHINES_MAX} (MACHINES_MAX); name fewer sites",
        )
    return arranged(grid, _machines)


def arranged(grid: Grid, machines_of: Callable[[Site], tuple[Machine, ...]]) -> Dendrogram:
    """Return the sites in their regions and wide areas, with these machines each; the order of the sites stays."""
    around = _groups_around(grid)
    uplinks = {} if grid.network is None else {each.name: each.uplink_mbit_s for each in grid.network.groups}
    wans: dict[str, dict[str, list[Site]]] = {}
    for site in grid.sites:
        man, wan = _region(site, around[site.name])
        wans.setdefault(wan, {}).setdefault(man, []).append(site)

    def man_of(name: str, sites: list[Site]) -> Man:
        lans = tuple(
            Lan(name=site.name, machines=machines_of(site), uplink_mbit_s=_site_uplink(grid, site)) for site in sites
        )
        # A site that is a region of its own has only one uplink.
        alone = len(sites) == 1 and sites[0].name == name
        return Man(name=name, lans=lans, uplink_mbit_s=lans[0].uplink_mbit_s if alone else _mbit_s(uplinks.get(name)))

    return Dendrogram(
        wans=tuple(
            Wan(
                name=name,
                mans=tuple(man_of(man, sites) for man, sites in mans.items()),
                uplink_mbit_s=_mbit_s(uplinks.get(name)),
            )
            for name, mans in wans.items()
        ),
        user_lan=grid.sites[0].name,
    )


def _machines(site: Site) -> tuple[Machine, ...]:
    others = range(1, site.processors - len(site.nodes) + 1)
    return site.nodes + tuple(
        Machine(name=f"{site.name}/{number}", power=site.node_power, load=site.node_load) for number in others
    )


def region_of(grid: Grid, index: int) -> tuple[str, str, float]:
    """Return the MAN and the WAN of a site, and the bandwidth of its uplink in Mbit/s, infinite if nothing limits
    it."""
    site = grid.sites[index]
    man, wan = _region(site, _groups_around(grid)[site.name])
    return man, wan, _site_uplink(grid, site)


def _region(site: Site, groups: list[str]) -> tuple[str, str]:
    """Return the MAN and the WAN of a site: named, or the innermost and the outermost of the groups around it."""
    man = site.man or (groups[0] if groups else site.name)
    wan = site.wan or (groups[-1] if len(groups) > 1 else WAN_DEFAULT)
    return man, wan


def _groups_around(grid: Grid) -> dict[str, list[str]]:
    """Return for each site the groups that contain it, from the inside out."""
    groups: tuple[LinkGroup, ...] = () if grid.network is None else grid.network.groups
    holder = {member: group.name for group in groups for member in group.members}
    around: dict[str, list[str]] = {}
    for site in grid.sites:
        around[site.name] = []
        name = site.name
        while name in holder:
            name = holder[name]
            around[site.name].append(name)
    return around


def _site_uplink(grid: Grid, site: Site) -> float:
    if site.uplink_mbit_s is not None:
        return site.uplink_mbit_s
    return _mbit_s(None if grid.network is None else grid.network.uplink_mbit_s)


def _mbit_s(mbit_s: float | None) -> float:
    return math.inf if mbit_s is None else mbit_s


class MachineClass(NamedTuple):
    """Processors of a site that are alike: their number, their nominal power in MFlop/s, and the fraction that others
    use."""

    processors: int
    power: float
    load: float


def machines_of(site: Site, measured: Sequence[MachineClass]) -> list[MachineClass]:
    """Return the machines of a site by class: from the grid file, and from measurements where it sets nothing."""
    if site.nodes or not measured:
        named = [MachineClass(1, node.power, node.load) for node in site.nodes]
        rest = site.processors - len(site.nodes)
        return [*named, MachineClass(rest, site.node_power, site.node_load)] if rest > 0 else named
    says_power, says_load = site.node_power != NODE_POWER, site.node_load != 0
    found, left = [], site.processors
    for each in measured:
        count = min(each.processors, left)
        if count > 0:
            power = site.node_power if says_power else each.power
            found.append(MachineClass(count, power, site.node_load if says_load else each.load))
            left -= count
    last = found[-1]  # processors that were not measured count as the last class
    return [*found[:-1], last._replace(processors=last.processors + left)]


def seen_grid(
    grid: Grid, latency_s: Mapping[tuple[int, int], float], bytes_per_s: Mapping[tuple[int, int], float]
) -> Grid:
    """Return the grid with measured regions, wide areas and uplinks where it names none. Sites with low latency
    between them are in one region or wide area, which is named after its first site; the uplink of a site is the
    highest rate measured from it or to it. Keys are pairs of site indices; one direction is enough."""
    around = _groups_around(grid)
    free = [index for index, site in enumerate(grid.sites) if not around[site.name]]
    mans = _near(free, latency_s, MAN_LATENCY_S_MAX)
    wans = _near(free, latency_s, WAN_LATENCY_S_MAX)
    timed = {index for pair in latency_s for index in pair}
    sites = []
    for index, site in enumerate(grid.sites):
        man, wan, uplink = site.man, site.wan, site.uplink_mbit_s
        if index in mans and index in timed:
            man = man or grid.sites[mans[index]].name
            wan = wan or grid.sites[wans[index]].name
        if uplink is None and (grid.network is None or grid.network.uplink_mbit_s is None):
            rates = [rate for pair, rate in bytes_per_s.items() if index in pair]
            uplink = max(rates) * 8 / 1e6 if rates else None
        sites.append(msgspec.structs.replace(site, man=man, wan=wan, uplink_mbit_s=uplink))
    return msgspec.structs.replace(grid, sites=tuple(sites))


def _near(sites: Sequence[int], latency_s: Mapping[tuple[int, int], float], most_s: float) -> dict[int, int]:
    """Return for each site the first of the sites that low latencies connect it with."""
    first = {site: site for site in sites}
    for (one, other), measured_s in sorted(latency_s.items()):
        if measured_s <= most_s and one in first and other in first:
            joined = sorted((first[one], first[other]))
            first = {site: joined[0] if head == joined[1] else head for site, head in first.items()}
    return first


class NodePowers:
    """The current powers of a site's processors, the least first, at a cost that does not grow with their number."""

    def __init__(self, site: Site, measured: Sequence[MachineClass] = ()) -> None:
        counts: dict[float, int] = {}
        for processors, power, load in machines_of(site, measured):
            current = power * (1 - load)
            counts[current] = counts.get(current, 0) + processors
        self._powers = sorted(counts)
        self._ends = list(accumulate(counts[power] for power in self._powers))

    def best_of_weakest(self, idle: int, count: int) -> list[float]:
        """Return the ``count`` most powerful of the ``idle`` least powerful processors, the most powerful first.

        A site's batch system chooses the processors that it gives; these it can always give.
        """
        position = min(idle, self._ends[-1])
        wanted = min(count, position)
        run = bisect_right(self._ends, position - 1)
        found: list[float] = []
        while len(found) < wanted:
            first = self._ends[run - 1] if run else 0
            found += [self._powers[run]] * min(wanted - len(found), position - first)
            position = first
            run -= 1
        return found
