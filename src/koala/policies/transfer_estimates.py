"""Estimates of the transfer of input files to a site: from which replica, how many bytes, how long.

Estimates only: the core orders the transfers, and a driver makes them.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple, TypeAlias

from koala.policies.demand import Demand, FileRead, reads_of
from koala.policies.errors import MissingFileError
from koala.policies.view import View

# (file, chunk, site) -> the arrival time of what is on its way there, in seconds; infinite if nothing is.
UnderWay: TypeAlias = Callable[[str, tuple[int, int] | None, int], float]


class Spots(NamedTuple):
    """Where the components go: the site and the processors of each.

    They are in the order of the request; for a flexible job that was divided, in the order in which the parts were
    made. ``tasks`` are, by component, the indexes of its tasks in a job of tasks.
    """

    sites: tuple[int, ...]
    sizes: tuple[int, ...]
    tasks: tuple[tuple[int, ...], ...] = ()


class Input(NamedTuple):
    """One file that a placed component reads: from which replica, how much of it, and how long that takes.

    ``chunk`` is (offset, size) in bytes, None for the whole file.
    """

    file: str
    source: int
    size_bytes: int
    chunk: tuple[int, int] | None
    transfer_s: float


def inputs(demand: Demand, spots: Spots, part: int, view: View) -> tuple[Input, ...]:
    """Return what component ``part`` reads: for each file the replica with the least time, ties to the lowest index.

    Raises MissingFileError if a file has no replica; a view that has just given these spots has them all.
    """
    site = spots.sites[part]
    found = []
    for read in reads_of(demand, spots.sizes, part):
        source, time_s = nearest_replica(read, site, view)
        if source < 0:
            raise MissingFileError(read.file)
        chunk = chunk_bytes(read, view)
        found.append(
            Input(read.file, source, view.files[read.file].size_bytes if chunk is None else chunk[1], chunk, time_s)
        )
    return tuple(found)


def transfer_s(demand: Demand, spots: Spots, part: int, site: int, view: View) -> float:
    """Return the estimate for component ``part`` if it ran at ``site``; inf if one of its files has no replica.

    ``spots`` gives the sizes of the other components, on which the size of a chunk depends.
    """
    return reading_s(reads_of(demand, spots.sizes, part), site, view)


def staging_s(demand: Demand, spots: Spots, view: View) -> float:
    """Return the estimate for all components at these places; transfers over one link come one after the other.

    inf if a file has no replica.
    """
    by_link: dict[tuple[int, int], dict[tuple[str, tuple[int, int] | None], float]] = {}
    try:
        for part, site in enumerate(spots.sites):
            for needed in inputs(demand, spots, part, view):
                by_link.setdefault((needed.source, site), {})[needed.file, needed.chunk] = needed.transfer_s
    except MissingFileError:
        return inf
    return max((sum(times.values()) for times in by_link.values()), default=0.0)


def reading_s(reads: tuple[FileRead, ...], site: int, view: View, under_way_s: UnderWay | None = None) -> float:
    """Return the time to bring all of these to the site.

    Files from one source come one after the other, over its link; different sources work side by side.
    ``under_way_s`` has what is already on its way there.
    """
    by_source: dict[int, float] = {}
    for read in reads:
        source, time_s = nearest_replica(read, site, view)
        if under_way_s is not None and time_s > 0.0 and source >= 0:
            time_s = min(time_s, under_way_s(read.file, chunk_bytes(read, view), site))
        by_source[source] = by_source.get(source, 0.0) + time_s
    return max(by_source.values(), default=0.0)


def transfer_row_s(
    demand: Demand, sizes: tuple[int, ...], part: int, view: View, under_way_s: UnderWay | None = None
) -> list[float]:
    """Return the estimate for one component at every site."""
    reads = reads_of(demand, sizes, part)
    return [reading_s(reads, site, view, under_way_s) for site in range(len(view.names))]


def division_times_s(demand: Demand, component_min: int, view: View) -> tuple[list[float], list[float]]:
    """Return, for a part of p processors at each site, the time to bring its input as ``fixed + p * per processor``.

    A whole file costs a part of any size the same, a chunk by its share of the processors. The line passes through
    the estimates for the smallest and the largest possible part, and is exact in between if all input comes from one
    replica site; with several it may be somewhat above or below. Both are 0 without files; the fixed part is infinite
    if a file cannot be brought.
    """
    sites = range(len(view.names))
    if not demand.has_files:
        return [0.0] * len(sites), [0.0] * len(sites)
    whole = reads_of(demand, demand.whole, 0)
    least = reads_of(demand, (component_min, demand.total - component_min), 0)
    fixed_s, per_processor_s = [], []
    for site in sites:
        most_s = reading_s(whole, site, view)
        least_s = reading_s(least, site, view)
        each_s = 0.0
        if demand.total > component_min and least_s < most_s < inf:
            each_s = (most_s - least_s) / (demand.total - component_min)
        fixed_s.append(max(0.0, least_s - each_s * component_min))
        per_processor_s.append(each_s)
    return fixed_s, per_processor_s


def nearest_replica(read: FileRead, site: int, view: View) -> tuple[int, float]:
    """Return the holder with the least transfer time to the site, and that time; (-1, inf) if there is none."""
    file = view.files.get(read.file)
    if file is None or not file.holders:
        return -1, inf
    if site in file.holders:
        return site, 0.0
    chunk = chunk_bytes(read, view)
    size_bytes = file.size_bytes if chunk is None else chunk[1]
    best, best_s = -1, inf
    for holder in file.holders:
        time_s = link_s(holder, site, size_bytes, view)
        if best < 0 or time_s < best_s or (time_s == best_s and holder < best):
            best, best_s = holder, time_s
    return best, best_s


def link_s(source: int, target: int, size_bytes: int, view: View) -> float:
    """Return the estimate for this many bytes over one link; infinite over a link that moves nothing."""
    if source == target:
        return 0.0
    bytes_per_s = view.bytes_per_s[source][target]
    return view.latency_s[source][target] + size_bytes / bytes_per_s if bytes_per_s > 0 else inf


def chunk_bytes(read: FileRead, view: View) -> tuple[int, int] | None:
    """Return the component's chunk as (offset, size); the chunks of all components add up to the file exactly."""
    if read.chunk is None:
        return None
    before, own, everyone = read.chunk
    size_bytes = view.files[read.file].size_bytes
    offset = size_bytes * before // everyone
    return offset, size_bytes * (before + own) // everyone - offset


def missing_file(demand: Demand, view: View) -> str | None:
    """Return the first file of the demand without a replica at any site."""
    for name in demand.files:
        file = view.files.get(name)
        if file is None or not file.holders:
            return name
    return None
