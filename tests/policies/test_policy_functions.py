"""The policies as functions over integers, against worked examples, naive twins and brute force."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from math import inf

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from koala.policies.catalogue import CM, WF, Policy
from koala.policies.koala.close_to_files import close_to_files, closest_site
from koala.policies.koala.cluster_minimization import cluster_minimization
from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.koala.worst_fit import worst_fit
from tests.support.policy_worlds import idle_lists, size_lists

times_s = st.sampled_from([0.0, 0.5, 0.5, 2.0, inf])


def placed(policy: Policy, idle: list[int], sizes: list[int]) -> tuple[int, list[int]]:
    left, chosen = list(idle), [-1] * len(sizes)
    return policy.function(idle, sizes, left, chosen), chosen


def divided(idle: list[int], total: int, component_min: int = 1, components_max: int = 99) -> tuple[int, list[int]]:
    parts = [-7] * len(idle)
    return flexible_cluster_minimization(idle, total, component_min, components_max, parts), parts


# ------------------------------------------------------------------------------------- worked examples


def test_worst_fit_spreads_three_equal_components_over_three_sites() -> None:
    assert placed(WF, [18, 15, 12], [8, 8, 8]) == (-1, [0, 1, 2])


def test_cluster_minimization_packs_two_of_three_equal_components_on_the_first_site() -> None:
    assert placed(CM, [18, 15, 12], [8, 8, 8]) == (-1, [0, 0, 1])


@pytest.mark.parametrize("policy", [WF, CM], ids=lambda policy: policy.name)
def test_a_component_larger_than_every_site_is_refused(policy: Policy) -> None:
    assert placed(policy, [18, 15, 12], [24])[0] == 0


def test_flexible_cluster_minimization_fills_the_first_site_and_puts_the_rest_on_the_second() -> None:
    assert divided([18, 15, 12], 24) == (0, [18, 6, 0])


def test_cluster_minimization_may_combine_more_clusters_than_worst_fit() -> None:
    """Its name promises less than it seems: with unequal components the frozen order can waste room.

    CM holds on to the first site for 6 after 7, so that 4 and the 3s are spread; WF happens to pack better.
    """
    _, by_cm = placed(CM, [15, 9, 3], [7, 6, 4, 3, 3])
    _, by_wf = placed(WF, [15, 9, 3], [7, 6, 4, 3, 3])
    assert len(set(by_cm)) == 3
    assert len(set(by_wf)) == 2


def test_a_remainder_below_the_minimum_makes_the_part_before_it_smaller() -> None:
    assert divided([10, 9], 12, component_min=4) == (0, [8, 4])


def test_all_parts_may_have_to_give_up_some_for_the_last_one() -> None:
    assert divided([10, 10, 10], 22, component_min=7) == (0, [8, 7, 7])


def test_a_total_below_so_many_minimums_is_refused() -> None:
    # One site holds 5 of 6, and two parts would be 8 at least.
    assert divided([5, 5], 6, component_min=4)[0] == 1


def test_sites_below_the_minimum_are_passed_over() -> None:
    assert divided([3, 10, 3], 13, component_min=4)[0] == 3


@given(st.lists(st.integers(0, 12), min_size=1, max_size=5), st.integers(1, 40), st.integers(1, 9), st.integers(1, 5))
def test_no_division_within_the_bounds_uses_fewer_sites_and_none_is_missed(
    idle: list[int], total: int, component_min: int, components_max: int
) -> None:
    unplaced, parts = divided(idle, total, component_min, components_max)
    roomy = sorted((count for count in idle if count >= component_min), reverse=True)
    fitting = [
        sites
        for sites in range(1, min(len(roomy), components_max) + 1)
        if sites * component_min <= total <= sum(roomy[:sites])
    ]
    assert (unplaced == 0) == bool(fitting)
    if fitting:
        used = [part for part in parts if part]
        assert (sum(used), len(used)) == (total, min(fitting))
        assert all(component_min <= part for part in used)
        assert all(part <= count for part, count in zip(parts, idle, strict=True))


def test_needing_more_parts_than_allowed_gives_back_what_is_left_at_that_point() -> None:
    assert divided([5, 5, 5], 15, components_max=2)[0] == 5
    assert divided([5, 5, 5], 10, components_max=2) == (0, [5, 5, 0])


# ------------------------------------------------------------------------------------- properties


@given(idle_lists, size_lists)
def test_worst_fit_agrees_with_a_twin_that_sorts_before_each_component(idle: list[int], sizes: list[int]) -> None:
    left, expected, failed = list(idle), [], -1
    for component, size in enumerate(sizes):
        site = sorted(range(len(left)), key=lambda site: (-left[site], site))[0]
        if left[site] < size:
            failed = component
            break
        left[site] -= size
        expected.append(site)
    answer, chosen = placed(WF, idle, sizes)
    assert answer == failed
    assert chosen[: len(expected)] == expected


@given(idle_lists, size_lists)
def test_cluster_minimization_agrees_with_a_twin_that_sorts_the_sites_once(idle: list[int], sizes: list[int]) -> None:
    order = sorted(range(len(idle)), key=lambda site: (-idle[site], site))
    left, expected, failed = list(idle), [], -1
    for component, size in enumerate(sizes):
        fitting = [site for site in order if left[site] >= size]
        if not fitting:
            failed = component
            break
        left[fitting[0]] -= size
        expected.append(fitting[0])
    answer, chosen = placed(CM, idle, sizes)
    assert answer == failed
    assert chosen[: len(expected)] == expected


@given(idle_lists, size_lists, st.data())
def test_close_to_files_agrees_with_a_twin_that_sorts_the_pairs(
    idle: list[int], sizes: list[int], data: st.DataObject
) -> None:
    row = st.lists(times_s, min_size=len(idle), max_size=len(idle))
    rows = data.draw(st.lists(row, min_size=len(sizes), max_size=len(sizes)))
    left, expected, failed = list(idle), [], -1
    for component, size in enumerate(sizes):
        pairs = sorted(
            (rows[component][site], -left[site], site)
            for site in range(len(idle))
            if left[site] >= size and rows[component][site] < inf
        )
        if not pairs:
            failed = component
            break
        left[pairs[0][2]] -= size
        expected.append(pairs[0][2])
    chosen = [-1] * len(sizes)
    assert close_to_files(idle, sizes, rows, list(idle), chosen) == failed
    assert chosen[: len(expected)] == expected


@given(idle_lists, st.integers(1, 20), st.data())
def test_the_closest_site_respects_the_longest_time_allowed(idle: list[int], size: int, data: st.DataObject) -> None:
    row_s = data.draw(st.lists(times_s, min_size=len(idle), max_size=len(idle)))
    longest_s = data.draw(times_s)
    allowed = [
        site for site, time_s in enumerate(row_s) if time_s <= longest_s and time_s < inf and idle[site] >= size
    ]
    expected = min(allowed, key=lambda site: (row_s[site], -idle[site], site), default=-1)
    assert closest_site(idle, size, row_s, longest_s) == expected


@given(idle_lists, size_lists)
def test_what_is_left_is_what_was_idle_less_what_was_placed(idle: list[int], sizes: list[int]) -> None:
    zero_rows = [[0.0] * len(idle)] * len(sizes)
    for ask in (worst_fit, cluster_minimization, close_to_files):
        before, left, chosen = list(idle), list(idle), [-1] * len(sizes)
        extra = (zero_rows,) if ask is close_to_files else ()
        function: Callable[..., int] = ask
        if function(idle, sizes, *extra, left, chosen) == -1:
            for component, site in enumerate(chosen):
                before[site] -= sizes[component]
            assert left == before, ask
            assert min(left) >= 0, ask


@given(idle_lists, st.integers(1, 12), st.integers(1, 6))
def test_cluster_minimization_uses_the_fewest_clusters_for_equal_components(
    idle: list[int], size: int, count: int
) -> None:
    answer, chosen = placed(CM, idle, [size] * count)
    fewest = next(
        (
            number
            for number in range(1, len(idle) + 1)
            if any(
                sum(idle[site] // size for site in some) >= count
                for some in itertools.combinations(range(len(idle)), number)
            )
        ),
        None,
    )
    assert (answer == -1) == (fewest is not None)
    if fewest is not None:
        assert len(set(chosen)) == fewest


@given(idle_lists, st.integers(1, 120))
def test_without_bounds_a_total_is_placed_if_and_only_if_enough_is_idle_and_on_the_fewest_sites(
    idle: list[int], total: int
) -> None:
    unplaced, parts = divided(idle, total)
    assert unplaced == max(0, total - sum(idle))
    if unplaced == 0:
        fewest = next(
            number
            for number in range(1, len(idle) + 1)
            if any(sum(some) >= total for some in itertools.combinations(idle, number))
        )
        assert sum(1 for part in parts if part) == fewest


@given(idle_lists, st.integers(1, 80), st.data())
@example([10, 9], 12, None)
def test_the_parts_of_a_total_respect_every_bound(idle: list[int], total: int, data: st.DataObject | None) -> None:
    component_min = 4 if data is None else data.draw(st.integers(1, total))
    components_max = 2 if data is None else data.draw(st.integers(1, 6))
    unplaced, parts = divided(idle, total, component_min, components_max)
    used = [part for part in parts if part]
    assert 0 <= unplaced <= total
    assert all(component_min <= part for part in used)
    assert all(part <= idle[site] for site, part in enumerate(parts))
    assert len(used) <= components_max
    assert sum(used) == total - unplaced


@given(idle_lists, st.integers(1, 80), st.data())
def test_flexible_cluster_minimization_agrees_with_a_twin_that_sorts_the_sites(
    idle: list[int], total: int, data: st.DataObject
) -> None:
    least, most_parts = data.draw(st.integers(1, min(total, 12))), data.draw(st.integers(1, 6))
    order = sorted((site for site in range(len(idle)) if idle[site] >= least), key=lambda site: (-idle[site], site))
    expected = None
    for count in range(1, min(len(order), most_parts) + 1):
        if expected is None and count * least <= total <= sum(idle[site] for site in order[:count]):
            remaining, expected = total, [0] * len(idle)
            for later, site in enumerate(order[:count]):
                # What the parts to come need at least is left for them.
                expected[site] = min(idle[site], remaining - (count - 1 - later) * least)
                remaining -= expected[site]
    unplaced, parts = divided(idle, total, least, most_parts)
    assert (parts if unplaced == 0 else None) == expected
