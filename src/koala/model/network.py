"""Links that co-allocated jobs share: what each job demands of them, what it is granted, and how long it then takes.

Plain functions over numbers that run as Python and compile with numba unchanged; words for such numbers come last.
Bandwidths are whole bits per second, so that sums are exact and the order of the jobs never matters. Every site has a
link of its own to the rest of the grid, which has the index of the site; with no others this is a star. Links that
several sites share come behind them, with a list for every pair of sites of those between the two. How a grid file
says it is in ``koala.model.grid``.
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence
from math import inf

BIT_S_PER_MBIT_S = 1_000_000
# Numbers for people have so many digits, and the unit in which they are neither tiny nor huge.
_DIGITS = 3
_RATES = ("bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")
_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
# The capacity of a link that never slows anybody down.
UNLIMITED_BIT_S = 2**62

# Who talks to whom in a job. Ranks go to the parts of a job in blocks, in the order of the sites, and every processor
# spreads its bandwidth equally over its partners.
ALL_TO_ALL = 0
RING = 1
CUBE = 2  # a k-ary n-cube: the neighbours in a torus of so many dimensions
MASTER_WORKER = 3  # every worker with the first processor only
SILENT = 4


def capacity_bit_s(mbit_s: float | None) -> int:
    """The capacity of a link in whole bits per second, 1 or more; None, and what is as much as that, is unlimited."""
    if mbit_s is None or mbit_s * BIT_S_PER_MBIT_S >= UNLIMITED_BIT_S:
        return UNLIMITED_BIT_S
    return max(1, int(mbit_s * BIT_S_PER_MBIT_S + 0.5))


# ---------------------------------------------------------------------------------------------- demand


def cube_side(total: int, dimensions: int) -> int:
    """How long the first side of a torus is, whose sides multiply to ``total`` and are as equal as its factors allow.

    The sides of the others are found by asking again with ``total`` divided by this one and a dimension less.
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
    """How many ranks before this one have the last place of a side, whose next neighbour is the first."""
    over = rank % (side * stride) - (side - 1) * stride
    return rank // (side * stride) * stride + max(0, over)


def neighbours_between(side: int, stride: int, first: int, end: int, there: int, there_end: int) -> int:
    """How many ranks from ``first`` to ``end`` have their next neighbour along a side in another stretch of ranks.

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
    """Traffic between two parts (with ``other`` below 0: all others) of a job whose ranks form a torus.

    A part is a stretch of ranks, so neighbours are counted stretch by stretch: the time does not grow with the parts.
    """
    first = 0
    for site in range(one):
        first += parts[site]
    end = first + parts[one]
    # What goes to all others is what does not stay.
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
            # Within one part, as many have their next neighbour there as have the one before.
            crossings += there_of_one if other < 0 else neighbours_between(side, stride, there, there_end, first, end)
        stride *= side
    if degree == 0:
        return 0.0
    if other < 0:
        crossings = degree * parts[one] - crossings
    return crossings / degree


def ring_crossing(parts: Sequence[int], total: int, one: int, other: int) -> float:
    """Traffic between two parts of a job whose ranks form a ring: half a processor's bandwidth where they meet."""
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
    """The site of rank 0."""
    site = 0
    while parts[site] == 0:
        site += 1
    return site


def crossing(pattern: int, dimensions: int, parts: Sequence[int], total: int, site: int) -> float:
    """What leaves a site, as a multiple of the bandwidth of one processor; 0 where the whole job is on one site."""
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
    """What goes between two different sites, as a multiple of the bandwidth of one processor.

    Summed over all others it is what leaves the one.
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
    """The bandwidth over the middle of a job, cut into halves, as a multiple of the bandwidth of one processor."""
    if total < 2:
        return 0.0
    halves = (total - total // 2, total // 2)  # a list would be memory of its own, which kernels do without
    return crossing(pattern, dimensions, halves, total, 0)


def per_processor_bit_s(pattern: int, dimensions: int, total: int, bisection_bit_s: float) -> float:
    """The bandwidth of one processor that gives a job of this size this bisection bandwidth; 0 for a silent one."""
    factor = bisection_factor(pattern, dimensions, total)
    return bisection_bit_s / factor if factor > 0.0 else 0.0


def demand_bit_s(per_processor: float, crossed: float) -> int:
    """A demand in whole bits per second."""
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
    """Whether more is demanded of a link than it has. Only such links slow anybody down, and only who is on them."""
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
    """What every job is granted of what it demands, by progressive filling: ``ratio[job]`` in (0, 1].

    ``jobs[:count]`` are those with a demand; job ``j`` demands ``span_bit_s[j][p]`` of link ``span_links[j][p]`` for
    ``p`` below ``spans[j]``. The jobs of the most saturated link are granted what it can give each of them, on all
    their links; what they take is subtracted everywhere, and so on until no link is saturated among those left, who
    run at full speed. A link of which no more is demanded than it has is never saturated, whatever is subtracted.
    Capacities are 1 or more. ``wanted``, ``taken`` and ``left`` are scratch room, one place a link.
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
            # Python would compare a whole number with another kind exactly, and compiled code does not.
            wanted_bit_s = float(wanted[link])
            if wanted_bit_s > left[link] and (worst < 0 or left[link] / wanted_bit_s < least):
                worst = link
                least = left[link] / wanted_bit_s
        # Each round can grant no less than the one before; only the rounding of what is left could say otherwise.
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
    """How much longer than at full speed a job takes, of which ``share`` is communication, when it gets ``ratio``."""
    return 1.0 + share * (1.0 / ratio - 1.0)


def work_left_s(work_s: float, elapsed_s: float, stretched: float) -> float:
    """What is left, in seconds at full speed, after a time during which the job was stretched by this factor.

    Computation and communication go on in proportion to what is left of each.
    """
    return max(0.0, work_s - elapsed_s / stretched)


# ----------------------------------------------------------------------------------------------- words


def bandwidth_text(mbit_s: float) -> str:
    """A bandwidth: ``16 bit/s``, ``37.2 Mbit/s``, ``2.5 Gbit/s``."""
    value = mbit_s * 1e6
    for unit in _RATES[:-1]:
        if value < 999.5:
            return f"{_three_digits(value)} {unit}"
        value /= 1_000.0
    return f"{_three_digits(value)} {_RATES[-1]}"


def latency_text(seconds: float) -> str:
    """A latency: ``50 µs``, ``12.5 ms``, ``1.2 s``."""
    for scale, unit in _TIMES:
        if seconds >= 0.9995 * scale:
            return f"{_three_digits(seconds / scale)} {unit}"
    return f"{_three_digits(seconds * 1e6)} µs" if seconds > 0.0 else "0 ms"


def _three_digits(value: float) -> str:
    """No exponent, and no zeros behind the point."""
    whole = len(f"{value:.0f}")
    text = f"{value:.{max(0, _DIGITS - whole)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
