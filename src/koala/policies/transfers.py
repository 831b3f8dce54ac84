"""Estimates of bringing input files to a site: from which replica, how many bytes, how long.

Estimates only: the transfers themselves are commands of the core and the work of a driver.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from koala.policies.demands import Demand, Read, reads_of
from koala.policies.errors import MissingFileError
from koala.policies.view import View


class Spots(NamedTuple):
    """Where the components go: the site and the processors of each.

    In the order of the request; for a flexible job that was divided, in the order in which the parts were made.
    """

    sites: tuple[int, ...]
    sizes: tuple[int, ...]


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
    """What component ``part`` reads: for each file the replica with the least time, ties to the lowest index.

    Raises MissingFileError where a file has no replica; a view that has just given these spots has them all.
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
    """The estimate for component ``part`` if it ran at ``site``: the sum over its files; inf if one has no replica.

    A sum, because all of them arrive through the one link of that site. ``spots`` gives the sizes of the other
    components, on which the size of a chunk depends.
    """
    return reading_s(reads_of(demand, spots.sizes, part), site, view)


def reading_s(reads: tuple[Read, ...], site: int, view: View) -> float:
    """The time to bring all of these to the site."""
    total_s = 0.0
    for read in reads:
        total_s += nearest_replica(read, site, view)[1]
    return total_s


def transfer_row_s(demand: Demand, sizes: tuple[int, ...], part: int, view: View) -> list[float]:
    """The estimate for one component at every site."""
    reads = reads_of(demand, sizes, part)
    return [reading_s(reads, site, view) for site in range(len(view.names))]


def nearest_replica(read: Read, site: int, view: View) -> tuple[int, float]:
    """The holder with the least transfer time to the site, and that time; (-1, inf) where there is none."""
    file = view.files.get(read.file)
    if file is None or not file.holders:
        return -1, inf
    if site in file.holders:
        return site, 0.0
    chunk = chunk_bytes(read, view)
    size_bytes = file.size_bytes if chunk is None else chunk[1]
    best, best_s = -1, inf
    for holder in file.holders:
        bytes_per_s = view.bytes_per_s[holder][site]
        time_s = view.latency_s[holder][site] + size_bytes / bytes_per_s if bytes_per_s > 0 else inf
        if best < 0 or time_s < best_s or (time_s == best_s and holder < best):
            best, best_s = holder, time_s
    return best, best_s


def chunk_bytes(read: Read, view: View) -> tuple[int, int] | None:
    """The component's chunk as (offset, size); the chunks of all components add up to the file exactly."""
    if read.chunk is None:
        return None
    before, own, everyone = read.chunk
    size_bytes = view.files[read.file].size_bytes
    offset = size_bytes * before // everyone
    return offset, size_bytes * (before + own) // everyone - offset


def missing_file(demand: Demand, view: View) -> str | None:
    """The first file of the demand of which no site holds a replica."""
    for name in demand.files:
        file = view.files.get(name)
        if file is None or not file.holders:
            return name
    return None
