"""A1 by closed forms: the same answers as trying every division."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.network import ALL_TO_ALL, CUBE, MASTER_WORKER, RING, SILENT, UNLIMITED_BIT_S, crossing, demand_bit_s
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.open_sites import link_limit_bit_s
from koala.policies.minigrid.satisfy import (
    FEWEST_CLUSTERS,
    INDEX_ORDER,
    LEAST_BANDWIDTH,
    MOST_FREE_ORDER,
    links_hold,
    low_limit,
    part_demand_bit_s,
    satisfying,
)

EXACT_PATTERNS = (ALL_TO_ALL, RING, SILENT)


@st.composite
def instances(draw: st.DrawFn) -> tuple[list[int], int, list[int], list[int], float, float]:
    """Idle processors, a total, demands, capacities, bandwidth and threshold; rooms of every kind, none included."""
    sites = draw(st.integers(1, 4))
    idle = draw(st.lists(st.integers(0, 9), min_size=sites, max_size=sites))
    total = draw(st.integers(1, max(2, sum(idle) + 1)))
    capacity = draw(st.lists(st.sampled_from([100, 1000, 10**9, UNLIMITED_BIT_S]), min_size=sites, max_size=sites))
    demand = [draw(st.integers(0, min(2 * most, 2 * 10**9))) for most in capacity]
    bandwidth = draw(st.one_of(st.just(0.0), st.floats(0.01, 100), st.floats(100, 1e9)))
    return idle, total, demand, capacity, bandwidth, draw(st.sampled_from([0.4, 0.7, 1.0, 1.2]))


def divisions(idle: list[int], total: int) -> Iterator[tuple[int, ...]]:
    """Every way to put the total onto the sites, each site trying its largest part first."""
    if not idle:
        if total == 0:
            yield ()
        return
    for part in range(min(idle[0], total), -1, -1):
        for rest in divisions(idle[1:], total - part):
            yield (part, *rest)


def solutions(
    pattern: int, idle: list[int], total: int, demand: list[int], capacity: list[int], own: float, threshold: float
) -> list[tuple[int, ...]]:
    """Those that load no link beyond the threshold, or load it with nothing."""
    found = []
    for parts in divisions(idle, total):
        added = [demand_bit_s(own, crossing(pattern, 2, parts, total, site)) for site in range(len(idle))]
        if all(
            more == 0 or used + more <= link_limit_bit_s(most, threshold)
            for more, used, most in zip(added, demand, capacity, strict=True)
        ):
            found.append(parts)
    return found


def sent(parts: tuple[int, ...] | list[int]) -> int:
    return -sum(part * part for part in parts)


def used(parts: tuple[int, ...] | list[int]) -> int:
    return sum(part > 0 for part in parts)


def ask(
    choice: int,
    pattern: int,
    idle: list[int],
    total: int,
    demand: list[int],
    capacity: list[int],
    own: float,
    threshold: float,
) -> list[int] | None:
    parts = [7] * len(idle)
    case = PlacementCase(total, demand, capacity, own, threshold, [7] * len(idle), pattern=pattern)
    left = satisfying(case, choice, idle, parts)
    if left:
        assert left == total
        assert parts == [0] * len(idle)
        return None
    return parts


@pytest.mark.parametrize("pattern", EXACT_PATTERNS)
@settings(max_examples=40)
@given(instances())
def test_index_order_is_the_first_solution_when_each_site_tries_its_largest_part_first(
    pattern: int, instance: tuple[list[int], int, list[int], list[int], float, float]
) -> None:
    known = solutions(pattern, *instance)
    answer = ask(INDEX_ORDER, pattern, *instance)
    assert answer == (list(known[0]) if known else None)


@pytest.mark.parametrize("pattern", EXACT_PATTERNS)
@settings(max_examples=40)
@given(instances())
def test_most_free_order_is_the_first_solution_with_the_most_idle_sites_first(
    pattern: int, instance: tuple[list[int], int, list[int], list[int], float, float]
) -> None:
    idle, total, demand, capacity, own, threshold = instance
    order = sorted(range(len(idle)), key=lambda site: -idle[site])
    sorted_first = solutions(
        pattern,
        [idle[site] for site in order],
        total,
        [demand[site] for site in order],
        [capacity[site] for site in order],
        own,
        threshold,
    )
    expected = None
    if sorted_first:
        expected = [sorted_first[0][order.index(site)] for site in range(len(idle))]
    assert ask(MOST_FREE_ORDER, pattern, *instance) == expected


@settings(max_examples=60)
@given(instances())
def test_fewest_clusters_is_a_solution_on_the_fewest_sites_and_of_those_one_that_sends_least(
    instance: tuple[list[int], int, list[int], list[int], float, float],
) -> None:
    known = solutions(ALL_TO_ALL, *instance)
    answer = ask(FEWEST_CLUSTERS, ALL_TO_ALL, *instance)
    if answer is None:
        assert not known
    else:
        assert tuple(answer) in known
        assert (used(answer), sent(answer)) == min((used(parts), sent(parts)) for parts in known)


@settings(max_examples=60)
@given(instances())
def test_least_bandwidth_is_a_solution_that_sends_least_and_of_those_one_on_the_fewest_sites(
    instance: tuple[list[int], int, list[int], list[int], float, float],
) -> None:
    known = solutions(ALL_TO_ALL, *instance)
    answer = ask(LEAST_BANDWIDTH, ALL_TO_ALL, *instance)
    if answer is None:
        assert not known
    else:
        assert tuple(answer) in known
        assert (sent(answer), used(answer)) == min((sent(parts), used(parts)) for parts in known)


@pytest.mark.parametrize("choice", [INDEX_ORDER, MOST_FREE_ORDER, FEWEST_CLUSTERS, LEAST_BANDWIDTH])
@pytest.mark.parametrize("pattern", [CUBE, MASTER_WORKER])
@settings(max_examples=40)
@given(instances())
def test_other_patterns_never_bring_a_link_beyond_the_threshold(
    choice: int, pattern: int, instance: tuple[list[int], int, list[int], list[int], float, float]
) -> None:
    answer = ask(choice, pattern, *instance)
    if answer is not None:
        idle, total, demand, capacity, own, threshold = instance
        assert sum(answer) == total
        assert all(part <= most for part, most in zip(answer, idle, strict=True))
        assert tuple(answer) in solutions(pattern, *instance)
        assert links_hold(PlacementCase(total, demand, capacity, own, threshold, [], pattern=pattern), answer)


@settings(max_examples=80)
@given(st.integers(1, 60), st.floats(0, 1e9), st.one_of(st.integers(0, 1000), st.integers(0, 10**10)))
def test_the_low_limit_says_exactly_which_parts_a_link_has_room_for(total: int, own: float, room: int) -> None:
    low = low_limit(ALL_TO_ALL, total, own, room)
    for part in range(1, total):
        fits = part_demand_bit_s(total, part, own) <= room
        assert fits == (part <= low or part >= total - low)


def test_a_link_that_allows_half_the_job_allows_any_part() -> None:
    """The discriminant is negative: 10 processors of 1 Mbit/s send at most 25/9 Mbit/s."""
    assert low_limit(ALL_TO_ALL, 10, 1e6, 2_777_778) == 10
    assert low_limit(ALL_TO_ALL, 10, 1e6, 2_777_777) == 4


def test_a_full_link_gets_no_part_and_a_job_that_sends_nothing_does_not_care() -> None:
    demand, capacity = [2000, 0, 0], [1000, 1000, 1000]
    assert ask(INDEX_ORDER, ALL_TO_ALL, [9, 6, 6], 12, demand, capacity, 10.0, 1.0) == [0, 6, 6]
    assert ask(INDEX_ORDER, ALL_TO_ALL, [9, 6, 6], 12, demand, capacity, 0.0, 1.0) == [9, 3, 0]
    assert ask(INDEX_ORDER, SILENT, [9, 6, 6], 12, demand, capacity, 10.0, 1.0) == [9, 3, 0]


def test_at_most_one_site_takes_a_large_part() -> None:
    """Links with room for 2 processors or 8 and more of 10."""
    room = part_demand_bit_s(10, 2, 1000.0)
    capacity = [room] * 3
    assert ask(INDEX_ORDER, ALL_TO_ALL, [5, 9, 9], 10, [0] * 3, capacity, 1000.0, 1.0) == [2, 8, 0]
    assert ask(FEWEST_CLUSTERS, ALL_TO_ALL, [5, 8, 9], 10, [0] * 3, capacity, 1000.0, 1.0) == [1, 0, 9]
    assert ask(INDEX_ORDER, ALL_TO_ALL, [7, 7, 7], 10, [0] * 3, capacity, 1000.0, 1.0) is None
