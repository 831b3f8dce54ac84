"""The world as a placement sees it: idle processors, links and their load, and replicas, by index.

The core keeps one view up to date, ``koala place`` makes one for a single question. Nothing here decides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from koala.model.grid import Grid, Links, Site
from koala.model.nodes import NodeClass, NodePool, NodeSize, TaskShape
from koala.model.request import Licenses
from koala.policies.koala.slowness import (
    ASSUMED_BANDWIDTH_SHARE,
    ASSUMED_LATENCY_SHARE,
    BYTES_PER_S_PER_MBIT_S,
    link_slowness,
)
from koala.policies.tasks.wase import SiteLans
from koala.policies.units import PROCESSORS, Units
from koala.policies.wiring import Wiring, compile_wiring, star

__all__ = [
    "BYTES_PER_S_PER_MBIT_S",
    "SHARED",
    "FileAt",
    "LicensePools",
    "LinkRows",
    "SitePools",
    "SlownessRows",
    "TaskPool",
    "View",
    "described_pool",
    "licenses_in_words",
    "quota_processors",
]

# The scheduler needs the same few quotas at every event; the decimal arithmetic is done once for each.
QUOTAS_REMEMBERED_MAX = 4_096
# The numbers of places are remembered for at most this many shapes of tasks.
SHAPES_KNOWN_MAX = 1_000
# The index of the pools that all sites share: behind those of the sites.
SHARED = -1
_NOWHERE: Mapping[int, object] = {}


@lru_cache(maxsize=QUOTAS_REMEMBERED_MAX)
def quota_processors(processors: int, quota: float) -> int:
    """Return floor(quota * processors), on the quota as written: 0.29 of 100 processors is 29, not 28.

    >>> from koala.simulator import quota_processors
    >>> quota_processors(100, 0.75)
    75
    """
    return int(Decimal(repr(float(quota))) * processors)


class TaskPool(Protocol):
    """Room for tasks on nodes, from which tasks take their part: a ``NodePool``, or what is guaranteed to
    be free later."""

    def places(self, shape: TaskShape) -> int:
        """Return for how many tasks of the shape there is room."""

    def take(self, shape: TaskShape, tasks: int) -> int:
        """Give room to this many tasks; return how many found none."""

    def copy(self) -> TaskPool:
        """Return an equal, independent pool."""


class SitePools(Protocol):
    """The nodes of each site, for tasks of more than a processor; None for a site that does not report them.

    ``changes`` differs once anything has changed.
    """

    changes: int

    def free(self, site: int) -> TaskPool | None:
        """Return what nobody holds now, not to be changed."""

    def whole(self, site: int) -> NodePool | None:
        """Return all nodes, as if nobody held anything, not to be changed."""


class GridPools:
    """The nodes as in the grid file, all idle."""

    changes = 0

    def __init__(self, grid: Grid) -> None:
        self._pools = [described_pool(site) for site in grid.sites]

    def free(self, site: int) -> NodePool | None:
        """See ``SitePools``."""
        return self._pools[site]

    def whole(self, site: int) -> NodePool | None:
        """See ``SitePools``."""
        return self._pools[site]


def described_pool(site: Site) -> NodePool | None:
    """Return the nodes that the grid file gives the site: a single one without GPUs if it gives none.

    None under a batch system, which reports its nodes itself.
    """
    if site.batch is not None:
        return None
    one = NodeSize(site.processors)
    return NodePool.whole(site.node_classes or (NodeClass(1, one, one),))


class NoPools:
    """No site reports its nodes."""

    changes = 0

    def free(self, site: int) -> NodePool | None:
        """See ``SitePools``."""

    def whole(self, site: int) -> NodePool | None:
        """See ``SitePools``."""


class FileAt:
    """A file's size, and the indexes of the sites that hold a replica of it."""

    __slots__ = ("holders", "size_bytes")

    def __init__(self, size_bytes: int, holders: tuple[int, ...]) -> None:
        self.size_bytes = size_bytes
        self.holders = holders


class LinkRows(dict[int, list[float]]):
    """A number for every link, as ``rows[source][target]``; ``set`` changes it.

    ``changes`` counts the changes since the rows were made. A row is made when it is first read: a grid of thousands
    of sites has millions of links, but only those of a few sites are ever read. Deviations from the default in the
    grid file are in ``pairs``, in both directions.
    """

    __slots__ = ("_default", "_pairs", "_sites", "changes")

    def __init__(self, sites: int, default: float, pairs: dict[tuple[int, int], float] | None = None) -> None:
        super().__init__()
        self._sites = sites
        self._default = default
        self._pairs = pairs or {}
        self.changes = 0
        for (source, target), value in self._pairs.items():
            self[source][target] = value

    def __missing__(self, source: int) -> list[float]:
        if not 0 <= source < self._sites:
            raise IndexError(f"no site has the index {source}; there are {self._sites}")
        row = self[source] = [self._default] * self._sites
        return row

    def at(self, source: int, target: int) -> float:
        """Return the value of a link, without making a row for an unused one."""
        row = self.get(source)
        return self._default if row is None else row[target]

    def declared(self, source: int, target: int) -> float:
        """Return the grid file's value of a link, whatever was set since."""
        return self._pairs.get((source, target), self._default)

    def set(self, source: int, target: int, value: float) -> None:
        """Set the value of the link in this direction."""
        self[source][target] = value
        self.changes += 1


class SlownessRows(dict[int, list[float]]):
    """The slowness of every link as a policy believes it, ``rows[one][other]``; 0 between a site and itself.

    Applications communicate in both directions, so the slower one counts, and the value is the same both ways. Each
    row is made when it is first read, from the belief about the links at that time.
    """

    __slots__ = ("_bytes_per_s", "_latency_s")

    def __init__(self, latency_s: LinkRows, bytes_per_s: LinkRows) -> None:
        super().__init__()
        self._latency_s = latency_s
        self._bytes_per_s = bytes_per_s

    def __missing__(self, one: int) -> list[float]:
        bandwidths, latencies = self._bytes_per_s, self._latency_s
        row = self[one] = [
            link_slowness(
                min(bytes_per_s, bandwidths.at(other, one)),
                max(latency_s, latencies.at(other, one)),
                ASSUMED_BANDWIDTH_SHARE,
                ASSUMED_LATENCY_SHARE,
            )
            for other, (bytes_per_s, latency_s) in enumerate(zip(bandwidths[one], latencies[one], strict=True))
        ]
        row[one] = 0.0
        return row


# Who holds licences: a job, and which of its placements, as its last components may leave after its next have come.
Holder: TypeAlias = tuple[int, int]


class Holding(NamedTuple):
    """The holdings of one holder: its licences, and by site what keeps them there, counted by key."""

    wanted: Licenses
    sites: dict[int, dict[Hashable, int]]


class ShortPool(NamedTuple):
    """A pool with too few licences left, of a site or ``SHARED``."""

    name: str
    pool: int
    wanted: int
    left: int
    size: int
    holders: tuple[int, ...]


class LicensePools:
    """The pools of floating licences of a grid: their sizes, their holders, and what is left.

    Policies never see them: where too few are left nothing counts as idle. A holder, a job, takes its licences once
    from the pool that all sites share, and once from the pool of each site where it has components.
    """

    __slots__ = ("held", "left", "sizes")

    def __init__(self, sites: Iterable[Licenses], shared: Licenses) -> None:
        self.sizes = [dict(pool) for pool in (*sites, shared)]
        self.left = [dict(pool) for pool in self.sizes]
        self.held: dict[Holder, Holding] = {}

    def unheld(self) -> LicensePools:
        """Return the same pools with all licences free."""
        return LicensePools([tuple(pool.items()) for pool in self.sizes[:SHARED]], tuple(self.sizes[SHARED].items()))

    # ------------------------------------------------------------------------------------------ who holds

    def take(self, holder: Holder, wanted: Licenses, site: int, key: Hashable) -> None:
        """The holder has something at the site, under this key; one key may stand for several things."""
        holding = self.held.setdefault(holder, Holding(wanted, {}))
        if not holding.sites:
            self._count(SHARED, holding.wanted, -1)
        keys = holding.sites.get(site)
        if keys is None:
            keys = holding.sites[site] = {}
            self._count(site, holding.wanted, -1)
        keys[key] = keys.get(key, 0) + 1

    def give(self, holder: Holder, site: int, key: Hashable) -> None:
        """One thing less under this key; with the last at a site its licences come back."""
        holding = self.held[holder]
        keys = holding.sites[site]
        keys[key] -= 1
        if not keys[key]:
            del keys[key]
        if not keys:
            del holding.sites[site]
            self._count(site, holding.wanted, 1)
        if not holding.sites:
            del self.held[holder]
            self._count(SHARED, holding.wanted, 1)

    def _count(self, pool: int, wanted: Licenses, sign: int) -> None:
        left = self.left[pool]
        for name, count in wanted:
            if name in left:
                left[name] += sign * count

    # ------------------------------------------------------------------------------------- what is left

    def lacking(self, wanted: Licenses, holder: Holder | None = None) -> set[int]:
        """The sites with too few left for somebody new there. What a holder has it need not find again."""
        holding = None if holder is None else self.held.get(holder)
        own = _NOWHERE if holding is None else holding.sites
        sites = range(len(self.left) - 1)
        if not own and self._has_too_few(SHARED, wanted):
            return set(sites)
        return {site for site in sites if site not in own and self._has_too_few(site, wanted)}

    def _has_too_few(self, pool: int, wanted: Licenses) -> bool:
        left = self.left[pool]
        return bool(left) and any(left.get(name, count) < count for name, count in wanted)

    def open_to(
        self, wanted: Licenses, processors: Sequence[int], holder: Holder | None = None, *, nothing: int = 0
    ) -> Sequence[int]:
        """Return these processors by site, with ``nothing`` where too few are left."""
        lacking = self.lacking(wanted, holder) if wanted else ()
        return (
            [nothing if site in lacking else here for site, here in enumerate(processors)] if lacking else processors
        )

    def is_overdrawn(self, wanted: Licenses, sites: Iterable[int]) -> bool:
        """Return True if more of these are held at one of the sites than there are."""
        return any(self.left[pool].get(name, 0) < 0 for pool in (*sites, SHARED) for name, _ in wanted)

    def short(self, wanted: Licenses) -> Iterator[ShortPool]:
        """Yield the pools with too few left, the shared ones first."""
        for pool in range(SHARED, len(self.left) - 1):
            for name, count in wanted:
                left = self.left[pool].get(name, count)
                if left < count:
                    yield ShortPool(name, pool, count, left, self.sizes[pool][name], tuple(self.holders(pool, name)))

    def holdings(self, pool: int, name: str) -> Iterator[tuple[int, Holding]]:
        """What each job holds of these, by placement."""
        for (job, _), holding in self.held.items():
            if (pool == SHARED or pool in holding.sites) and any(each == name for each, _ in holding.wanted):
                yield job, holding

    def holders(self, pool: int, name: str) -> list[int]:
        """Return the jobs that hold some of these."""
        return sorted({job for job, _ in self.holdings(pool, name)})

    # ------------------------------------------------------------------------------- what there ever is

    def asked_of(self, site: int, wanted: Licenses) -> Licenses:
        """Return those of the pools of the site."""
        return tuple([each for each in wanted if each[0] in self.sizes[site]])

    def most(self, name: str, site: int) -> int:
        """Return how many licences of that name a holder at the site may ever have."""
        pools = [self.sizes[pool][name] for pool in (site, SHARED) if name in self.sizes[pool]]
        return min(pools, default=0)

    def never(self, wanted: Licenses) -> Iterator[tuple[tuple[int, ...], str]]:
        """The sites where nobody ever holds as many, and what lacks there."""
        if not wanted:
            return
        known = sorted({name for pool in self.sizes for name in pool})
        for name, count in wanted:
            by_most: dict[int, list[int]] = {}
            for site in range(len(self.sizes) - 1):
                if (most := self.most(name, site)) < count:
                    by_most.setdefault(most, []).append(site)
            for most, sites in by_most.items():
                there = f"there {'is' if most == 1 else 'are'} {most}" if most else "there is no such pool"
                others = "" if name in known else f", and the grid file knows {', '.join(known) or 'none'}"
                yield tuple(sites), f"{licenses_in_words(count, name)}: {there}{others}"


def licenses_in_words(count: int, name: str) -> str:
    """Return words such as ``2 licences of ansys``."""
    return f"{count} {'licence' if count == 1 else 'licences'} of {name}"


class View:
    """The sites as a policy sees them; every list is indexed by site, and the owner of the view writes into it.

    - ``idle``: processors that we may take now, quota applied, never negative;
    - ``limit``: the most that could ever be idle for us, floor(quota * processors);
    - ``latency_s[source][target]`` and ``bytes_per_s[source][target]``: what is believed of each link; the core
      corrects them by measurements;
    - ``files``: every file that has a replica, by name;
    - ``wiring``: the links that co-allocated jobs share, with their capacities; ``link_demand_bit_s`` by link: what
      running and placed jobs demand of each now;
    - ``observed_bisection_bit_s``: the mean bisection bandwidth of the jobs that were observed on several sites, 0 if
      there was none: the only information of some policies about a job that has not run yet;
      ``learned_bisection_bit_s``: the same by the name of the jobs, as measured;
    - ``lans``: the sites as jobs of tasks see them, by default all alike;
    - ``pools``: the nodes of the sites, for jobs whose tasks have shapes; with ``whole_nodes`` they count as idle;
    - ``licenses``: the pools of floating licences, and what is left of them now;
    - ``units``: what all the numbers count, in words.
    """

    __slots__ = (
        "_places",
        "_slowness",
        "_slowness_as_of",
        "bytes_per_s",
        "files",
        "idle",
        "index",
        "lans",
        "latency_s",
        "learned_bisection_bit_s",
        "licenses",
        "limit",
        "link_demand_bit_s",
        "names",
        "observed_bisection_bit_s",
        "pools",
        "units",
        "whole_nodes",
        "wiring",
    )

    def __init__(
        self,
        *,
        names: list[str],
        idle: list[int],
        limit: list[int],
        latency_s: LinkRows,
        bytes_per_s: LinkRows,
        files: dict[str, FileAt],
        wiring: Wiring | None = None,
        link_demand_bit_s: list[int] | None = None,
        observed_bisection_bit_s: float = 0.0,
        learned_bisection_bit_s: dict[str, float] | None = None,
        lans: SiteLans | None = None,
        pools: SitePools | None = None,
        licenses: LicensePools | None = None,
        whole_nodes: bool = False,
        units: Units = PROCESSORS,
    ) -> None:
        if not names:
            raise ValueError("a view needs at least one site")
        self.names = names
        self.index = {name: site for site, name in enumerate(names)}
        self.idle = idle
        self.limit = limit
        self.latency_s = latency_s
        self.bytes_per_s = bytes_per_s
        self.files = files
        self.wiring = star(names) if wiring is None else wiring
        self.link_demand_bit_s = [0] * len(self.wiring.names) if link_demand_bit_s is None else link_demand_bit_s
        self.observed_bisection_bit_s = observed_bisection_bit_s
        self.learned_bisection_bit_s = {} if learned_bisection_bit_s is None else learned_bisection_bit_s
        self.lans = SiteLans.alike(names, limit) if lans is None else lans
        self.pools: SitePools = NoPools() if pools is None else pools
        self.licenses = LicensePools([()] * len(names), ()) if licenses is None else licenses
        # By shape: the sources of the places and their state at the time, and the places.
        self._places: dict[TaskShape, tuple[SitePools, tuple[int, bool], Sequence[int], list[int]]] = {}
        self.whole_nodes = whole_nodes
        self.units = units
        self._slowness = SlownessRows(latency_s, bytes_per_s)
        self._slowness_as_of = (latency_s.changes, bytes_per_s.changes)

    @property
    def slowness(self) -> SlownessRows:
        """The slowness of each link for a communicating application, as believed now."""
        as_of = (self.latency_s.changes, self.bytes_per_s.changes)
        if as_of != self._slowness_as_of:
            self._slowness.clear()
            self._slowness_as_of = as_of
        return self._slowness

    def believed_bisection_bit_s(self, application: str) -> float:
        """Return the belief about a job of that name: the measurements of others of the name, or the mean of all."""
        return self.learned_bisection_bit_s.get(application, self.observed_bisection_bit_s)

    @property
    def link_capacity_bit_s(self) -> tuple[int, ...]:
        """The capacity of every link, those of the sites first."""
        return self.wiring.capacity_bit_s

    def pool(self, site: int) -> TaskPool | None:
        """Return the nodes that tasks may have at the site, not to be changed; None if it does not report them."""
        return self.pools.whole(site) if self.whole_nodes else self.pools.free(site)

    def places_known(self, shape: TaskShape, idle: Sequence[int]) -> list[int] | None:
        """Return the places by site for tasks of the shape, if computed from these idle processors and
        the present nodes."""
        known = self._places.get(shape)
        if known is None or known[0] is not self.pools or known[1] != (self.pools.changes, self.whole_nodes):
            return None
        return known[3] if known[2] == idle else None

    def know_places(self, shape: TaskShape, idle: Sequence[int], places: list[int]) -> None:
        """See ``places_known``."""
        if len(self._places) >= SHAPES_KNOWN_MAX:
            self._places.clear()
        self._places[shape] = self.pools, (self.pools.changes, self.whole_nodes), idle, places

    def with_whole_nodes(self) -> View:
        """Return the same view with nobody on any node."""
        if self.whole_nodes or isinstance(self.pools, NoPools):
            return self
        whole = self.with_link_demand(self.link_demand_bit_s)
        whole.whole_nodes = True
        return whole

    def with_pools(self, pools: SitePools) -> View:
        """Return the same view with these nodes."""
        other = self.with_link_demand(self.link_demand_bit_s)
        other.pools = pools
        return other

    def unloaded(self) -> View:
        """Return the same view with nothing on any link, no observed traffic, and no load of others on machines."""
        lans = self.lans.unloaded()
        seen = self.observed_bisection_bit_s or self.learned_bisection_bit_s
        if lans is self.lans and not any(self.link_demand_bit_s) and not seen:
            return self
        unloaded = self.with_link_demand([0] * len(self.link_demand_bit_s))
        unloaded.lans = lans
        unloaded.observed_bisection_bit_s = 0.0
        unloaded.learned_bisection_bit_s = {}
        return unloaded

    def with_link_demand(self, link_demand_bit_s: list[int]) -> View:
        """Return the same view with this demand on the links."""
        return View(
            names=self.names,
            idle=self.idle,
            limit=self.limit,
            latency_s=self.latency_s,
            bytes_per_s=self.bytes_per_s,
            files=self.files,
            wiring=self.wiring,
            link_demand_bit_s=link_demand_bit_s,
            observed_bisection_bit_s=self.observed_bisection_bit_s,
            learned_bisection_bit_s=self.learned_bisection_bit_s,
            lans=self.lans,
            pools=self.pools,
            licenses=self.licenses,
            whole_nodes=self.whole_nodes,
            units=self.units,
        )

    @classmethod
    def from_grid(cls, grid: Grid) -> View:
        """Return the grid with every site wholly idle and no demand on any link, quotas applied, the rest as
        in the file.

        Raises WiringError if its network is too large.
        """
        names = [site.name for site in grid.sites]
        index = {name: site for site, name in enumerate(names)}
        limit = [quota_processors(site.processors, site.quota) for site in grid.sites]
        return cls(
            names=names,
            idle=list(limit),
            limit=limit,
            latency_s=_latency_rows(grid.links, index),
            bytes_per_s=_bandwidth_rows(grid.links, index),
            files={
                file.name: FileAt(file.size_bytes, tuple(sorted({index[name] for name in file.replicas})))
                for file in grid.files
            },
            wiring=compile_wiring(grid),
            lans=SiteLans(grid),
            pools=GridPools(grid),
            licenses=LicensePools([site.licenses for site in grid.sites], grid.licenses),
        )


def _latency_rows(links: Links, index: dict[str, int]) -> LinkRows:
    pairs = {pair.between: pair.latency_s for pair in links.pairs}
    return LinkRows(len(index), links.default.latency_s, _both_ways(pairs, index))


def _bandwidth_rows(links: Links, index: dict[str, int]) -> LinkRows:
    pairs = {pair.between: pair.bandwidth_mbit_s * BYTES_PER_S_PER_MBIT_S for pair in links.pairs}
    return LinkRows(len(index), links.default.bandwidth_mbit_s * BYTES_PER_S_PER_MBIT_S, _both_ways(pairs, index))


def _both_ways(pairs: dict[tuple[str, str], float], index: dict[str, int]) -> dict[tuple[int, int], float]:
    there = {(index[one], index[other]): value for (one, other), value in pairs.items()}
    return there | {(other, one): value for (one, other), value in there.items()}
