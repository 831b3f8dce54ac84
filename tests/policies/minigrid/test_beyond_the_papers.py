"""A2 and B5: what they divide and refuse, by hand and against a search of all divisions."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.network import ALL_TO_ALL, CUBE, MASTER_WORKER, RING, SILENT, UNLIMITED_BIT_S
from koala.policies.minigrid.case import PlacementCase
from koala.policies.minigrid.reserve import (
    RESERVE_KNOWN,
    RESERVING_THRESHOLD,
    believed_pattern,
    divide_with_reserve,
    reserved_room_bit_s,
    reserving,
)
from koala.policies.minigrid.satisfy import part_demand_bit_s

GBIT_S = 1_000_000_000


def divide(
    idle: list[int],
    total: int,
    demand: list[int],
    capacity: list[int],
    bit_s: float,
    threshold: float,
    reserve: float,
) -> list[int] | None:
    parts = [7] * len(idle)
    case = PlacementCase(total, demand, capacity, bit_s, threshold, [0] * len(idle))
    unplaced = divide_with_reserve(case, bit_s, reserve, idle, parts)
    assert unplaced in (0, total)
    return None if unplaced else parts


def is_allowed(
    parts: tuple[int, ...] | list[int],
    total: int,
    demand: list[int],
    capacity: list[int],
    bit_s: float,
    threshold: float,
    reserve: float,
) -> bool:
    return all(
        part == 0
        or part_demand_bit_s(total, part, bit_s)
        <= reserved_room_bit_s(demand[site], capacity[site], threshold, reserve)
        for site, part in enumerate(parts)
    )


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[int], int, list[int], list[int], float]:
    """Few sites and a job that none of them holds whole; links from idle to overfull, some without a limit."""
    sites = draw(st.integers(1, 4))
    idle = draw(st.lists(st.integers(0, 9), min_size=sites, max_size=sites))
    total = draw(st.integers(max(2, max(idle) + 1), max(2, max(idle) + 1, min(14, sum(idle) + 2))))
    demand = draw(st.lists(st.integers(0, 130), min_size=sites, max_size=sites))
    capacity = draw(st.lists(st.sampled_from([50, 100, 100, UNLIMITED_BIT_S]), min_size=sites, max_size=sites))
    return idle, total, demand, capacity, draw(st.sampled_from([0.0, 1.0, 7.5, 20.0, 60.0]))


def test_the_largest_part_goes_first_and_the_rest_to_the_tightest_site() -> None:
    # 30 processors of the first site, and of the sites for the other 10 the one that leaves no large hole unused.
    parts = divide([30, 15, 12, 5], 40, [0] * 4, [GBIT_S] * 4, 1e6, 1.1, RESERVE_KNOWN)
    assert parts == [30, 0, 10, 0]


def test_equally_tight_sites_go_by_the_saturation_of_their_links() -> None:
    parts = divide([30, 12, 12], 40, [0, 500_000_000, 0], [GBIT_S] * 3, 1e6, 1.1, RESERVE_KNOWN)
    assert parts == [30, 0, 10]


def test_a_job_that_sends_much_must_leave_its_reserve_and_one_that_sends_little_fills_the_link() -> None:
    # Of 20 processors 10 and 10: each link is sent 100/19 of what a processor sends. The limit is 1000 Mbit/s.
    idle, demand, capacity = [10, 10], [500_000_000] * 2, [GBIT_S] * 2
    half_mbit_s = 19 / 100 * 1e6
    assert divide(idle, 20, demand, capacity, 400 * half_mbit_s, 1.0, 0.0) == [10, 10]
    assert divide(idle, 20, demand, capacity, 400 * half_mbit_s, 1.0, 0.3) is None  # 500 + 1.3 * 400 > 1000
    assert divide(idle, 20, demand, capacity, 380 * half_mbit_s, 1.0, 0.3) == [10, 10]  # 500 + 1.3 * 380 < 1000
    nearly_full = [960_000_000] * 2
    assert divide(idle, 20, nearly_full, capacity, 30 * half_mbit_s, 1.0, 0.3) == [10, 10]


def test_a_link_without_room_allows_a_part_that_leaves_little_to_others() -> None:
    # Nothing near the halves fits the links, but 18 + 2 does: 18 * 2 / 19 of 100 Mbit/s are 189 Mbit/s.
    assert divide([18, 6], 20, [800_000_000] * 2, [GBIT_S] * 2, 1e8, 1.1, RESERVE_KNOWN) == [18, 2]
    assert divide([14, 6], 20, [800_000_000] * 2, [GBIT_S] * 2, 1e8, 1.1, RESERVE_KNOWN) is None


def test_busy_links_are_avoided_where_the_same_parts_fit_elsewhere() -> None:
    parts = divide([30, 30, 20], 40, [400_000_000, 0, 0], [GBIT_S] * 3, 1e6, 1.1, RESERVE_KNOWN)
    assert parts == [0, 30, 10]


def test_before_anything_was_seen_a_job_goes_where_there_is_room_in_the_largest_parts() -> None:
    parts = [0] * 3
    case = PlacementCase(40, [2 * GBIT_S] * 3, [GBIT_S] * 3, 0.0, 1.1, [0] * 3)
    assert reserving(case, True, [5, 30, 12], parts) == 0
    assert parts == [0, 30, 10]


def test_a_believed_bandwidth_is_given_more_reserve_than_a_known_one() -> None:
    own_bit_s = 400 * 19 / 100 * 1e6
    case = PlacementCase(20, [500_000_000] * 2, [GBIT_S] * 2, own_bit_s, RESERVING_THRESHOLD, [0, 0])
    parts = [0, 0]
    assert reserving(case, False, [10, 10], parts) == 0  # 500 + 1.3 * 400 <= 1100
    assert parts == [10, 10]
    assert reserving(case, True, [10, 10], parts) == 20  # 500 + 1.6 * 400 > 1100
    assert parts == [0, 0]


@settings(deadline=None)
@given(world=worlds(), threshold=st.sampled_from([0.6, 1.0, 1.1]), reserve=st.sampled_from([0.0, 0.3, 0.6]))
def test_a_division_is_found_exactly_where_there_is_one_and_it_is_allowed(
    world: tuple[list[int], int, list[int], list[int], float], threshold: float, reserve: float
) -> None:
    idle, total, demand, capacity, bit_s = world
    parts = divide(idle, total, demand, capacity, bit_s, threshold, reserve)
    exists = any(
        sum(choice) == total and is_allowed(choice, total, demand, capacity, bit_s, threshold, reserve)
        for choice in product(*(range(free + 1) for free in idle))
    )
    assert (parts is not None) == exists
    if parts is not None:
        assert sum(parts) == total
        assert all(0 <= part <= free for part, free in zip(parts, idle, strict=True))
        assert is_allowed(parts, total, demand, capacity, bit_s, threshold, reserve)


@settings(deadline=None)
@given(world=worlds(), data=st.data())
def test_a_refused_job_stays_refused_with_less_idle_and_more_demand(
    world: tuple[list[int], int, list[int], list[int], float], data: st.DataObject
) -> None:
    idle, total, demand, capacity, bit_s = world
    fewer = [data.draw(st.integers(0, free)) for free in idle]
    more = [load + data.draw(st.integers(0, 40)) for load in demand]
    if divide(fewer, total, more, capacity, bit_s, 1.1, 0.3) is not None:
        assert divide(idle, total, demand, capacity, bit_s, 1.1, 0.3) is not None


# ------------------------------------------------------------------------- patterns of communication


def test_a_ring_goes_to_few_sites_since_each_part_sends_the_same() -> None:
    # Every part of a ring sends what one processor does, so that two large parts take less than three.
    case = PlacementCase(30, [0] * 3, [GBIT_S] * 3, 500e6, RESERVING_THRESHOLD, [0] * 3, pattern=RING)
    parts = [0] * 3
    assert reserving(case, False, [10, 15, 20], parts) == 0
    assert sum(part > 0 for part in parts) == 2


def test_a_master_is_on_the_site_with_the_largest_part() -> None:
    # With the master on the small part, all thirty of the large one would send over both links.
    case = PlacementCase(40, [0] * 3, [GBIT_S] * 3, 40e6, RESERVING_THRESHOLD, [0] * 3, pattern=MASTER_WORKER)
    parts = [0] * 3
    assert reserving(case, False, [12, 30, 12], parts) == 0
    assert parts == [0, 30, 10]


def test_a_master_without_room_for_its_workers_is_refused() -> None:
    case = PlacementCase(40, [0] * 2, [GBIT_S] * 2, 100e6, RESERVING_THRESHOLD, [0] * 2, pattern=MASTER_WORKER)
    parts = [0] * 2
    assert reserving(case, False, [20, 20], parts) == 40
    assert parts == [0, 0]


def test_who_says_nothing_is_believed_to_talk_to_all() -> None:
    assert believed_pattern(SILENT) == ALL_TO_ALL
    assert [believed_pattern(each) for each in (ALL_TO_ALL, RING, CUBE, MASTER_WORKER)] == [
        *(ALL_TO_ALL, RING, CUBE, MASTER_WORKER)
    ]
