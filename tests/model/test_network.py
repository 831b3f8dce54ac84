"""Link demands, shares and stretched times: the paper's worked example, and what must hold whatever the jobs are."""

from __future__ import annotations

from itertools import permutations
from math import isqrt, prod
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.network import (
    ALL_TO_ALL,
    CUBE,
    MASTER_WORKER,
    RING,
    SILENT,
    UNLIMITED_BIT_S,
    add_shared_crossings,
    bisection_factor,
    capacity_bit_s,
    crossing,
    cube_crossing,
    cube_side,
    demand_bit_s,
    fill_shares,
    pair_crossing,
    per_processor_bit_s,
    stretch,
    work_left_s,
)
from koala.model.request import CUBE_DIMENSIONS_MAX
from koala.simulator.kernels.compiling import compiled
from tests.support.work import steps

PATTERNS = (ALL_TO_ALL, RING, CUBE, MASTER_WORKER, SILENT)

patterns = st.sampled_from(PATTERNS)
dimensions = st.integers(1, 4)
part_lists = st.lists(st.integers(0, 9), min_size=2, max_size=5).filter(lambda parts: sum(parts) > 1)


# ---------------------------------------------------------------------------------------------- demand


def test_six_nodes_on_three_clusters_send_nine_of_fifteen_messages_from_the_first() -> None:
    """Figure 1: 3, 2 and 1 nodes; each of 6 nodes talks to 5 others, 3 * 3 pairs leave the first cluster."""
    parts = [3, 2, 1]
    pairs = [(one, other) for one in range(6) for other in range(one + 1, 6)]
    clusters = [0, 0, 0, 1, 1, 2]
    leaving = [pair for pair in pairs if (clusters[pair[0]] == 0) != (clusters[pair[1]] == 0)]
    assert (len(leaving), len(pairs)) == (9, 15)
    # Each node spreads its bandwidth over 5 partners, so that 9 pairs carry 9/5 of it: 3 * PPBW * 3/5.
    assert crossing(ALL_TO_ALL, 2, parts, 6, 0) == len(leaving) / 5 == pytest.approx(3 * (3 / 5))
    assert crossing(ALL_TO_ALL, 2, parts, 6, 1) == 2 * 4 / 5
    assert crossing(ALL_TO_ALL, 2, parts, 6, 2) == 1.0


def test_a_job_on_one_site_loads_nothing() -> None:
    for pattern in PATTERNS:
        assert crossing(pattern, 2, [0, 7, 0], 7, 1) == crossing(pattern, 2, [0, 7, 0], 7, 0) == 0.0


def torus_edges(total: int, dims: int) -> dict[int, list[int]]:
    """The neighbours of every rank, one mention for each of the two directions, written from coordinates."""
    sides: list[int] = []
    remaining = total
    for dimension in range(dims):
        sides.append(cube_side(remaining, dims - dimension))
        remaining //= sides[-1]
    neighbours: dict[int, list[int]] = {rank: [] for rank in range(total)}
    for rank in range(total):
        place, coordinates = rank, []
        for side in sides:
            coordinates.append(place % side)
            place //= side
        for dimension, side in enumerate(sides):
            for near in {(coordinates[dimension] + 1) % side, (coordinates[dimension] - 1) % side}:
                if near != coordinates[dimension]:
                    there = [*coordinates[:dimension], near, *coordinates[dimension + 1 :]]
                    scale, index = 1, 0
                    for coordinate, length in zip(there, sides, strict=True):
                        index += coordinate * scale
                        scale *= length
                    neighbours[rank].append(index)
    return neighbours


def partners(pattern: int, dims: int, total: int) -> dict[int, dict[int, float]]:
    """What each rank sends to each other one, of a bandwidth of 1, message by message."""
    if pattern == ALL_TO_ALL:
        return {one: {other: 1 / (total - 1) for other in range(total) if other != one} for one in range(total)}
    if pattern == RING:
        if total == 2:
            return {0: {1: 1.0}, 1: {0: 1.0}}
        return {one: {(one + 1) % total: 0.5, (one - 1) % total: 0.5} for one in range(total)}
    if pattern == CUBE:
        return {rank: {near: 1 / len(nears) for near in nears} for rank, nears in torus_edges(total, dims).items()}
    if pattern == MASTER_WORKER:
        return {rank: {0: 1.0} for rank in range(1, total)}
    return {}


@settings(max_examples=40)
@given(patterns, dimensions, part_lists)
def test_what_leaves_a_site_is_the_sum_over_its_processors_of_what_they_send_to_others(
    pattern: int, dims: int, parts: list[int]
) -> None:
    total = sum(parts)
    site_of = [site for site, part in enumerate(parts) for _ in range(part)]
    sent = partners(pattern, dims, total)
    for site in range(len(parts)):
        # A message between a master and a worker loads both ends, whoever sends it.
        expected = sum(
            share
            for one, to in sent.items()
            for other, share in to.items()
            if (site_of[one] == site and site_of[other] != site)
            or (pattern == MASTER_WORKER and site_of[other] == site and site_of[one] != site)
        )
        assert crossing(pattern, dims, parts, total, site) == pytest.approx(expected)


@settings(max_examples=40)
@given(patterns, dimensions, part_lists)
def test_pairs_sum_to_what_leaves_the_site_and_are_the_same_from_both_ends(
    pattern: int, dims: int, parts: list[int]
) -> None:
    total, sites = sum(parts), range(len(parts))
    for one in sites:
        others = [pair_crossing(pattern, dims, parts, total, one, other) for other in sites if other != one]
        assert sum(others) == pytest.approx(crossing(pattern, dims, parts, total, one))
        for other in sites:
            if other != one:
                there = pair_crossing(pattern, dims, parts, total, other, one)
                assert pair_crossing(pattern, dims, parts, total, one, other) == pytest.approx(there)


def cube_crossing_rank_by_rank(dims: int, parts: list[int], total: int, one: int, other: int) -> float:
    """The same by looking at every neighbour of every rank, as it was once reckoned."""
    site_of = [site for site, part in enumerate(parts) for _ in range(part)]
    sides: list[int] = []
    for dimension in range(dims):
        sides.append(cube_side(total // prod(sides), dims - dimension))
    degree = sum(min(side - 1, 2) for side in sides)
    crossings = 0
    for rank in range(total):
        stride = 1
        for side in sides:
            place = (rank // stride) % side
            for near in ((place + 1) % side, (place - 1) % side)[: min(side - 1, 2)]:
                there = site_of[rank + (near - place) * stride]
                crossings += site_of[rank] == one and (there == other or (other < 0 and there != one))
            stride *= side
    return crossings / degree if degree else 0.0


@settings(max_examples=60)
@given(
    st.integers(1, CUBE_DIMENSIONS_MAX),
    st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(lambda parts: sum(parts) > 0),
)
def test_neighbours_counted_by_stretches_of_ranks_are_those_counted_one_by_one(dims: int, parts: list[int]) -> None:
    total = sum(parts)
    for one in range(len(parts)):
        for other in range(-1, len(parts)):
            if other != one:
                expected = cube_crossing_rank_by_rank(dims, parts, total, one, other)
                assert cube_crossing(dims, parts, total, one, other) == expected


@pytest.mark.parametrize("dims", range(1, CUBE_DIMENSIONS_MAX + 1))
def test_a_torus_of_the_most_processors_costs_little_more_than_a_small_one(dims: int) -> None:
    """9,999,991 is the largest prime there: its sides are the hardest to find, which takes its square root."""
    few = steps(lambda: bisection_factor(CUBE, dims, 997))
    most = steps(lambda: bisection_factor(CUBE, dims, 9_999_991))
    assert most < few + 6 * isqrt(9_999_991)
    assert bisection_factor(CUBE, 2, 200_000) == 200.0  # 400 pairs in the middle and 400 around, of 4 each


@given(st.integers(2, 200), st.floats(0, 1e12))
def test_the_bisection_bandwidth_of_an_all_to_all_job_is_the_papers(total: int, bisection: float) -> None:
    own = per_processor_bit_s(ALL_TO_ALL, 2, total, bisection)
    factor = total**2 / (4 * (total - 1)) if total % 2 == 0 else (total + 1) / 4
    assert own * factor == pytest.approx(bisection)


def test_a_job_that_sends_nothing_has_no_bandwidth() -> None:
    assert per_processor_bit_s(SILENT, 2, 10, 3e8) == per_processor_bit_s(ALL_TO_ALL, 2, 1, 3e8) == 0.0
    assert bisection_factor(ALL_TO_ALL, 2, 1) == 0.0


def test_demand_is_counted_in_whole_bits() -> None:
    assert [demand_bit_s(1.0, crossed) for crossed in (0.0, 0.49, 0.5, 1.49)] == [0, 0, 1, 1]


def test_a_shared_link_carries_what_goes_between_the_sites_on_its_two_sides() -> None:
    """Sites 0 and 1 are behind link 4, sites 2 and 3 behind link 5; nothing else is shared."""
    sites = 4
    behind = [4, 4, 5, 5]
    first, links = [0], []
    for one in range(sites):
        for other in range(sites):
            if one < other and behind[one] != behind[other]:
                links += [4, 5]
            first.append(len(links))
    parts, total = [3, 2, 1, 4], 10
    for pattern in PATTERNS:
        crossed = [0.0] * 6
        add_shared_crossings(pattern, 2, parts, total, first, links, crossed)
        between = sum(pair_crossing(pattern, 2, parts, total, one, other) for one in (0, 1) for other in (2, 3))
        assert crossed[4] == crossed[5] == pytest.approx(between)
        assert crossed[:4] == [0.0] * 4


# ---------------------------------------------------------------------------------------------- shares


Demands = list[dict[int, int]]


def shares(jobs: Demands, capacity: list[int], order: list[int] | None = None) -> list[float]:
    """What each job is granted; ``jobs[j]`` is its demand by link."""
    links = len(capacity)
    ratio = [-1.0] * len(jobs)
    fill_shares(
        len(jobs),
        list(range(len(jobs))) if order is None else order,
        [len(job) for job in jobs],
        [list(job) for job in jobs],
        [list(job.values()) for job in jobs],
        capacity,
        [0] * links,
        [0] * links,
        [0.0] * links,
        ratio,
    )
    return ratio


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Demands, list[int]]:
    links = draw(st.integers(1, 4))
    capacity = draw(
        st.lists(
            st.one_of(st.integers(1, 1000), st.just(10**9), st.just(UNLIMITED_BIT_S)),
            min_size=links,
            max_size=links,
        )
    )
    job = st.dictionaries(st.integers(0, links - 1), st.one_of(st.integers(1, 50), st.integers(1, 10**9)), min_size=1)
    return draw(st.lists(job, min_size=1, max_size=6)), capacity


def loads(jobs: Demands, ratio: list[float], capacity: list[int]) -> list[float]:
    return [sum(ratio[number] * job.get(link, 0) for number, job in enumerate(jobs)) for link in range(len(capacity))]


@settings(max_examples=40)
@given(worlds())
def test_no_link_carries_more_than_its_capacity(world: tuple[Demands, list[int]]) -> None:
    jobs, capacity = world
    for load, most in zip(loads(jobs, shares(jobs, capacity), capacity), capacity, strict=True):
        assert load <= most * (1 + 1e-9)


@settings(max_examples=40)
@given(worlds())
def test_no_job_is_faster_than_full_speed_or_than_any_of_its_links_alone_allows(
    world: tuple[Demands, list[int]],
) -> None:
    jobs, capacity = world
    for job, ratio in zip(jobs, shares(jobs, capacity), strict=True):
        assert 0 < ratio <= 1
        assert all(ratio * demand <= capacity[link] * (1 + 1e-9) for link, demand in job.items())


@settings(max_examples=40)
@given(worlds())
def test_every_job_runs_at_full_speed_or_crosses_a_full_link_where_nobody_is_granted_more(
    world: tuple[Demands, list[int]],
) -> None:
    """Max-min fairness: nobody could be granted more without taking it from somebody who is granted no more."""
    jobs, capacity = world
    ratio = shares(jobs, capacity)
    load = loads(jobs, ratio, capacity)
    for number, job in enumerate(jobs):
        if ratio[number] == 1.0:
            continue
        assert any(
            load[link] >= capacity[link] * (1 - 1e-9)
            and all(ratio[other] <= ratio[number] * (1 + 1e-9) for other, each in enumerate(jobs) if link in each)
            for link in job
        )


@settings(max_examples=40)
@given(worlds())
def test_the_order_of_the_jobs_changes_no_bit(world: tuple[Demands, list[int]]) -> None:
    jobs, capacity = world
    straight = shares(jobs, capacity)
    for order in list(permutations(range(len(jobs))))[:24]:
        assert shares(jobs, capacity, list(order)) == straight


def test_two_jobs_on_a_link_that_is_twice_too_narrow_get_half_each_on_all_their_links() -> None:
    jobs: Demands = [{0: 600, 1: 600}, {0: 1400, 2: 1400}, {2: 100, 1: 100}]
    assert shares(jobs, [1000, 1000, 1000]) == [0.5, 0.5, 1.0]


def test_what_a_limited_job_leaves_on_its_other_links_is_granted_to_others() -> None:
    # Link 0 halves the first job, so that link 1 has 1000 - 400 for a second one that demands 1200.
    assert shares([{0: 800, 1: 800}, {1: 1200}], [400, 1000]) == [0.5, 0.5]
    assert shares([{0: 800, 1: 800}, {1: 900}], [200, 1000]) == [0.25, 800 / 900]


# ------------------------------------------------------------------------------------------------ time


@settings(max_examples=40)
@given(
    st.floats(1, 1000),
    st.floats(0, 1),
    st.lists(st.tuples(st.floats(0, 50), st.floats(0.05, 1)), min_size=1, max_size=8),
)
def test_times_slide_as_the_papers_residuals_do(
    work_s: float, share: float, changes: list[tuple[float, float]]
) -> None:
    """Equations 5 and 6: elapsed time is split over computation and communication in proportion to what is left of
    each, and what is left of communication is scaled by the ratio of the old grant to the new."""
    computing_s, communicating_s, granted = (1 - share) * work_s, share * work_s, 1.0
    left_s, stretched = work_s, 1.0
    for elapsed_s, ratio in changes:
        residual_s = computing_s + communicating_s
        elapsed_s = min(elapsed_s, residual_s)
        if residual_s > 0:
            computing_s -= elapsed_s * computing_s / residual_s
            communicating_s -= elapsed_s * communicating_s / residual_s
        communicating_s *= granted / ratio
        left_s = work_left_s(left_s, elapsed_s, stretched)
        granted, stretched = ratio, stretch(share, ratio)
        assert left_s * stretched == pytest.approx(computing_s + communicating_s, abs=1e-6)


@settings(max_examples=40)
@given(
    st.floats(1, 1000),
    st.floats(0, 1),
    st.lists(st.tuples(st.floats(0.001, 50), st.floats(0.05, 1)), min_size=1, max_size=8),
)
def test_work_is_conserved(work_s: float, share: float, changes: list[tuple[float, float]]) -> None:
    """The time spent at each speed, divided by the stretch of that speed, adds up to the work."""
    left_s, stretched, done_s = work_s, 1.0, 0.0
    for elapsed_s, ratio in changes:
        elapsed_s = min(elapsed_s, left_s * stretched)
        done_s += elapsed_s / stretched
        left_s = work_left_s(left_s, elapsed_s, stretched)
        stretched = stretch(share, ratio)
    assert done_s + left_s == pytest.approx(work_s)


def test_a_job_that_gets_all_it_wants_is_not_stretched_by_a_bit() -> None:
    assert all(stretch(share, 1.0) == 1.0 for share in (0.0, 0.1, 0.3, 0.7, 1.0))


def test_work_never_falls_below_nothing() -> None:
    assert work_left_s(1.0, 5.0, 2.0) == 0.0


def test_a_link_without_a_limit_slows_nobody_whatever_is_demanded_of_it() -> None:
    assert shares([{0: UNLIMITED_BIT_S, 1: 4}, {0: UNLIMITED_BIT_S}], [UNLIMITED_BIT_S, 2]) == [0.5, 1.0]


def test_a_capacity_is_at_least_a_bit_and_at_most_unlimited() -> None:
    assert [capacity_bit_s(mbit_s) for mbit_s in (1000, 0.5, 1e-9)] == [10**9, 500_000, 1]
    assert [capacity_bit_s(mbit_s) for mbit_s in (None, 1e300)] == [UNLIMITED_BIT_S] * 2


# -------------------------------------------------------------------------------------------- compiled


def whole(values: Any) -> Any:
    return numpy.array(values, dtype=numpy.int64)


@settings(max_examples=40, deadline=None)
@given(patterns, dimensions, part_lists)
def test_compiled_crossings_are_pythons_bit_by_bit(pattern: int, dims: int, parts: list[int]) -> None:
    total = sum(parts)
    for site in range(len(parts)):
        fast = compiled(crossing)(pattern, dims, whole(parts), total, site)
        assert fast == crossing(pattern, dims, parts, total, site)


huge = st.integers(2**53 - 2, 2**53 + 2)


@st.composite
def huge_worlds(draw: st.DrawFn) -> tuple[Demands, list[int]]:
    """Numbers that floats cannot tell apart."""
    capacity = draw(st.lists(huge, min_size=2, max_size=2))
    return draw(st.lists(st.dictionaries(st.integers(0, 1), huge, min_size=1), min_size=1, max_size=3)), capacity


@settings(max_examples=40, deadline=None)
@given(st.one_of(worlds(), huge_worlds()))
def test_compiled_shares_are_pythons_bit_by_bit(world: tuple[Demands, list[int]]) -> None:
    jobs, capacity = world
    links = len(capacity)
    span_links, span_bit_s = whole([[0] * links] * len(jobs)), whole([[0] * links] * len(jobs))
    for number, job in enumerate(jobs):
        span_links[number, : len(job)] = list(job)
        span_bit_s[number, : len(job)] = list(job.values())
    ratio: Any = numpy.zeros(len(jobs))
    left: Any = numpy.zeros(links)
    scratch = whole([0] * links), whole([0] * links), left
    order, spans = whole(range(len(jobs))), whole([len(job) for job in jobs])
    compiled(fill_shares)(len(jobs), order, spans, span_links, span_bit_s, whole(capacity), *scratch, ratio)
    assert ratio.tolist() == shares(jobs, capacity)
