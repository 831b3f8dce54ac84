"""Links that co-allocated jobs share: each job's demand, its share, and how much longer it then takes.

Plain functions over numbers that run as Python and compile with numba unchanged; functions that format such numbers
come last. Bandwidths are whole bits per second, so that sums are exact and the order of the jobs never matters. Every
site has a link of its own to the rest of the grid, with the index of the site; with these alone the network is a
star. Links that several sites share come behind them, and every pair of sites has a list of the shared links between
them. ``koala.model.grid`` has the network as a grid file describes it.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from math import inf

BIT_S_PER_MBIT_S = 1_000_000
# Numbers for people have this many digits, in a unit that makes them neither tiny nor huge.
_DIGITS = 3
_RATES = ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
# The capacity of a link that never slows anybody down.
UNLIMITED_BIT_S = 2**62

# The communication patterns of jobs. Ranks go to the parts of a job in blocks, in the order of the sites, and every
# processor spreads its bandwidth equally over its partners.
ALL_TO_ALL = 0
RING = 1
CUBE = 2  # a k-ary n-cube: the neighbours in a torus of n dimensions
MASTER_WORKER = 3  # every worker with the first processor only
SILENT = 4


def capacity_bit_s(mbit_s: float | None) -> int:
    """Return the capacity of a link in whole bits per second, at least 1; unlimited for None and for values that
    large."""
    if mbit_s is None or mbit_s * BIT_S_PER_MBIT_S >= UNLIMITED_BIT_S:
        return UNLIMITED_BIT_S
    return max(1, int(mbit_s * BIT_S_PER_MBIT_S + 0.5))


# ---------------------------------------------------------------------------------------------- demand


def cube_side(total: int, dimensions: int) -> int:
    """Return the first side of a torus whose sides multiply to ``total`` and are as equal as its factors allow.

    The other sides follow from further calls, with ``total`` divided by this side and one dimension less.
    """
    if dimensions <= 1:
        return total
    side = 1
    for divisor in range(1, total + 1):
        if divisor**dimensions > total:
            break
        if total % divisor == 0:
            side = divisor
    return side


def wrapped_before(rank: int, side: int, stride: int) -> int:
    """Count the ranks before this one at the last place of a side, where the next neighbour is the first place."""
    over = rank % (side * stride) - (side - 1) * stride
    return rank // (side * stride) * stride + max(0, over)


def neighbours_between(side: int, stride: int, first: int, end: int, there: int, there_end: int) -> int:
    """Count the ranks from ``first`` to ``end`` whose next neighbour along a side is in another range of ranks.

    Ranks a ``stride`` apart are neighbours along the side; the last place's neighbour is the first.
    """
    found = 0
    low = max(first, there - stride)
    high = min(end, there_end - stride)
    if low < high:
        found += high - low - wrapped_before(high, side, stride) + wrapped_before(low, side, stride)
    back = (side - 1) * stride
    low = max(first, there + back)
    high = min(end, there_end + back)
    if low < high:
        found += wrapped_before(high, side, stride) - wrapped_before(low, side, stride)
    return found


def cube_crossing(dimensions: int, parts: Sequence[int], total: int, one: int, other: int) -> float:
    """Return the traffic between two parts of a job whose ranks form a torus; ``other`` below 0 means all other
    parts.

    A part is a range of ranks, so neighbours are counted range by range: the time does not grow with the parts.
    """
    first = 0
    for site in range(one):
        first += parts[site]
    end = first + parts[one]
    # Everything that does not stay in the part goes to the others.
    target = one if other < 0 else other
    there = 0
    for site in range(target):
        there += parts[site]
    there_end = there + parts[target]
    degree = 0
    crossings = 0
    stride = 1
    remaining = total
    for dimension in range(dimensions):
        side = cube_side(remaining, dimensions - dimension)
        remaining //= side
        if side >= 2:
            there_of_one = neighbours_between(side, stride, first, end, there, there_end)
            degree += 1
            crossings += there_of_one
        if side >= 3:
            degree += 1
            # Within one part, next neighbours and previous neighbours are equal in number.
            crossings += there_of_one if other < 0 else neighbours_between(side, stride, there, there_end, first, end)
        stride *= side
    if degree == 0:
        return 0.0
    if other < 0:
        crossings = degree * parts[one] - crossings
    return crossings / degree


def ring_crossing(parts: Sequence[int], total: int, one: int, other: int) -> float:
    """Return the traffic between two parts of a job whose ranks form a ring: half a processor's bandwidth where they
    meet."""
    if total == 2:
        return 1.0
    sites = len(parts)
    meetings = 0
    after = one
    before = one
    for _ in range(sites):
        after = (after + 1) % sites
        if parts[after] > 0:
            break
    for _ in range(sites):
        before = (before + sites - 1) % sites
        if parts[before] > 0:
            break
    if after == other:
        meetings += 1
    if before == other:
        meetings += 1
    return meetings / 2


def first_part(parts: Sequence[int]) -> int:
    """Return the site of rank 0."""
    site = 0
    while parts[site] == 0:
        site += 1
    return site


def crossing(pattern: int, dimensions: int, parts: Sequence[int], total: int, site: int) -> float:
    """Return the traffic that leaves a site, in multiples of one processor's bandwidth; 0 if the whole job is on one
    site."""
    own = parts[site]
    if own == 0 or own == total:
        return 0.0
    if pattern == ALL_TO_ALL:
        return own * (total - own) / (total - 1)
    if pattern == RING:
        return 1.0
    if pattern == CUBE:
        return cube_crossing(dimensions, parts, total, site, -1)
    if pattern == MASTER_WORKER:
        return float(total - own if first_part(parts) == site else own)
    return 0.0


def pair_crossing(pattern: int, dimensions: int, parts: Sequence[int], total: int, one: int, other: int) -> float:
    """Return the traffic between two different sites, in multiples of one processor's bandwidth.

    The sum over all other sites is the traffic that leaves the first.
    """
    if parts[one] == 0 or parts[other] == 0:
        return 0.0
    if pattern == ALL_TO_ALL:
        return parts[one] * parts[other] / (total - 1)
    if pattern == RING:
        return ring_crossing(parts, total, one, other)
    if pattern == CUBE:
        return cube_crossing(dimensions, parts, total, one, other)
    if pattern == MASTER_WORKER:
        first = first_part(parts)
        if first == one:
            return float(parts[other])
        return float(parts[one]) if first == other else 0.0
    return 0.0


def bisection_factor(pattern: int, dimensions: int, total: int) -> float:
    """Return the bandwidth over the middle of a job, cut into halves, in multiples of one processor's bandwidth."""
    if total < 2:
        return 0.0
    halves = (total - total // 2, total // 2)  # a tuple, because kernels do without the memory of a list
    return crossing(pattern, dimensions, halves, total, 0)


def per_processor_bit_s(pattern: int, dimensions: int, total: int, bisection_bit_s: float) -> float:
    """Return the bandwidth of one processor that gives a job of this size this bisection bandwidth; 0 for a silent
    job."""
    factor = bisection_factor(pattern, dimensions, total)
    return bisection_bit_s / factor if factor > 0.0 else 0.0


def demand_bit_s(per_processor: float, crossed: float) -> int:
    """Return a demand in whole bits per second."""
    return int(per_processor * crossed + 0.5)


def add_shared_crossings(
    pattern: int,
    dimensions: int,
    parts: Sequence[int],
    total: int,
    route_first: Sequence[int],
    route_links: Sequence[int],
    crossed: MutableSequence[float],
) -> None:
    """Add the traffic between every two sites to ``crossed`` of each shared link between them.

    The shared links between ``one`` and a later ``other`` are ``route_links`` from
    ``route_first[one * sites + other]`` up to the next entry of ``route_first``.
    """
    sites = len(parts)
    for one in range(sites):
        if parts[one] == 0:
            continue
        for other in range(one + 1, sites):
            if parts[other] == 0:
                continue
            pair = one * sites + other
            if route_first[pair] == route_first[pair + 1]:
                continue
            traffic = pair_crossing(pattern, dimensions, parts, total, one, other)
            for place in range(route_first[pair], route_first[pair + 1]):
                crossed[route_links[place]] += traffic


# ---------------------------------------------------------------------------------------------- shares


def is_over(demand: int, capacity: int) -> bool:
    """Return True if the demand on a link exceeds its capacity. Only such links slow down jobs, and only the jobs on
    them."""
    return capacity < UNLIMITED_BIT_S and demand > capacity


def fill_shares(
    count: int,
    jobs: Sequence[int],
    spans: Sequence[int],
    span_links: Sequence[Sequence[int]],
    span_bit_s: Sequence[Sequence[int]],
    capacity: Sequence[int],
    wanted: MutableSequence[int],
    taken: MutableSequence[int],
    left: MutableSequence[float],
    ratio: MutableSequence[float],
) -> None:
    """Set ``ratio[job]`` in (0, 1], the share of its demand that each job is granted, by progressive filling.

    ``jobs[:count]`` are the jobs with a demand; job ``j`` demands ``span_bit_s[j][p]`` of link ``span_links[j][p]``
    for ``p`` below ``spans[j]``. The jobs on the most saturated link are granted an equal share of their demands
    there, on all their links; what they take is subtracted everywhere. This repeats until no remaining link is
    saturated; the remaining jobs run at full speed. A link whose demand does not exceed its capacity is never
    saturated, whatever is subtracted. Capacities are 1 or more. ``wanted``, ``taken`` and ``left`` are scratch space,
    one place for each link.
    """
    links = len(capacity)
    for link in range(links):
        wanted[link] = 0
        taken[link] = 0
    for place in range(count):
        job = jobs[place]
        ratio[job] = 0.0
        for span in range(spans[job]):
            wanted[span_links[job][span]] += span_bit_s[job][span]
    for link in range(links):
        left[link] = float(capacity[link]) if is_over(wanted[link], capacity[link]) else inf
    granted = 0.0
    while True:
        worst = -1
        least = 1.0
        for link in range(links):
            # Python would compare an integer with a float exactly, and compiled code does not.
            wanted_bit_s = float(wanted[link])
            if wanted_bit_s > left[link] and (worst < 0 or left[link] / wanted_bit_s < least):
                worst = link
                least = left[link] / wanted_bit_s
        # No round grants less than the one before; only rounding of what is left could suggest it.
        granted = least = max(least, granted)
        for place in range(count):
            job = jobs[place]
            if ratio[job] > 0.0:
                continue
            limited = worst < 0
            for span in range(spans[job]):
                if span_links[job][span] == worst:
                    limited = True
            if not limited:
                continue
            ratio[job] = least
            for span in range(spans[job]):
                link = span_links[job][span]
                taken[link] += span_bit_s[job][span]
                wanted[link] -= span_bit_s[job][span]
        if worst < 0:
            return
        for link in range(links):
            if taken[link] > 0:
                left[link] = max(0.0, left[link] - least * taken[link])
                taken[link] = 0


# ------------------------------------------------------------------------------------------------ time


def stretch(share: float, ratio: float) -> float:
    """Return the factor by which a job takes longer when communication is ``share`` of its time and it gets
    ``ratio``."""
    return 1.0 + share * (1.0 / ratio - 1.0)


def work_left_s(work_s: float, elapsed_s: float, stretched: float) -> float:
    """Return the remaining work, in seconds at full speed, after a time in which the job was stretched by this
    factor.

    Computation and communication progress in proportion to what is left of each.
    """
    return max(0.0, work_s - elapsed_s / stretched)


# ----------------------------------------------------------------------------------------------- words


def bandwidth_text(mbit_s: float) -> str:
    """Format a bandwidth: ``16 bit/s``, ``37.2 Mbit/s``, ``2.5 Gbit/s``."""
    value = mbit_s * 1e6
    for unit in _RATES[:-1]:
        if value < 999.5:
            return f"{_three_digits(value)} {unit}"
        value /= 1_000.0
    return f"{_three_digits(value)} {_RATES[-1]}"


def latency_text(seconds: float) -> str:
    """Format a latency: ``50 µs``, ``12.5 ms``, ``1.2 s``."""
    for scale, unit in _TIMES:
        if seconds >= 0.9995 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds * 1e6)} µs" if seconds > 0.0 else "0 ms"


def _three_digits(value: float) -> str:
    """Format without an exponent, and without zeros behind the point."""
    whole = len(f"{value:.0f}")
    text = f"{value:.{max(0, _DIGITS - whole)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
