"""CM where the user fixed the sites of some components: those sites are used already, and the others join them."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from koala.model.request import Component, Request
from koala.policies.interface import Spots, try_place
from koala.policies.koala.cluster_minimization import cluster_minimization, cluster_minimization_beside, sites_added
from tests.support.policy_worlds import demand_for, idle_lists, size_lists, view_of


def beside(idle: list[int], sizes: list[int], combined: list[int]) -> tuple[int, list[int]]:
    left, chosen = list(idle), [-1] * len(sizes)
    answer = cluster_minimization_beside(idle, sizes, combined, left, chosen)
    if answer < 0:
        expected = list(idle)
        for site, size in zip(chosen, sizes, strict=True):
            expected[site] -= size
        assert left == expected
        assert min(left) >= 0
    return answer, chosen


def fixed(*wanted: tuple[int, str | None]) -> Request:
    return Request(components=tuple(Component(processors=size, site=site) for size, site in wanted))


def test_a_component_joins_the_fixed_one_though_another_site_has_more_idle() -> None:
    view = view_of(18, 15, 12)
    request = fixed((4, "C3"), (8, None))
    assert try_place(demand_for(request, "CM", view), view) == Spots((2, 2), (4, 8))
    assert try_place(demand_for(request, "FCM", view), view) == Spots((2, 2), (4, 8))
    assert try_place(demand_for(request, "NCM", view), view) == Spots((2, 2), (4, 8))
    assert try_place(demand_for(request, "WF", view), view) == Spots((2, 0), (4, 8))


def test_of_several_sites_with_fixed_components_the_most_idle_comes_first() -> None:
    view = view_of(18, 15, 12)
    request = fixed((4, "C3"), (4, "C2"), (8, None), (8, None), (8, None))
    # 11 are left on C2 and 8 on C3: one component each, and the third needs another site.
    assert try_place(demand_for(request, "CM", view), view) == Spots((2, 1, 1, 2, 0), (4, 4, 8, 8, 8))


def test_where_a_component_does_not_fit_beside_the_fixed_one_the_most_idle_site_takes_it() -> None:
    view = view_of(18, 15, 12)
    assert try_place(demand_for(fixed((8, "C3"), (8, None)), "CM", view), view) == Spots((2, 0), (8, 8))


def test_the_plain_order_is_taken_where_the_fixed_sites_first_would_combine_more() -> None:
    # The fixed site first takes 9 and leaves 3, which nobody can use; the plain order packs the other two on it.
    assert beside([8, 13, 12], [9, 8, 4, 4], [0, 0, 1]) == (-1, [1, 2, 1, 2])


def test_the_plain_order_is_taken_where_the_fixed_sites_first_find_no_place() -> None:
    assert beside([12, 1, 8], [6, 6, 4, 3], [0, 0, 1]) == (-1, [0, 0, 2, 2])


@given(idle_lists, size_lists, st.data())
def test_what_plain_cm_places_is_placed_on_no_more_sites(
    idle: list[int], sizes: list[int], data: st.DataObject
) -> None:
    combined = data.draw(st.lists(st.integers(0, 1), min_size=len(idle), max_size=len(idle)))
    plain = [-1] * len(sizes)
    failed = cluster_minimization(idle, sizes, list(idle), plain)
    answer, chosen = beside(idle, sizes, combined)
    if failed < 0:
        assert answer < 0
        assert sites_added(chosen, combined) <= sites_added(plain, combined)
    if not any(combined):
        assert (answer, chosen) == (failed, plain)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 6), st.integers(1, 4), st.data())
def test_components_of_equal_size_combine_the_fewest_sites_that_any_placement_does(
    idle: list[int], size: int, count: int, data: st.DataObject
) -> None:
    combined = data.draw(st.lists(st.integers(0, 1), min_size=len(idle), max_size=len(idle)))
    fitting = [
        sites_added(sites, combined)
        for sites in itertools.product(range(len(idle)), repeat=count)
        if all(sites.count(site) * size <= here for site, here in enumerate(idle))
    ]
    answer, chosen = beside(idle, [size] * count, combined)
    assert (answer < 0) == bool(fitting)
    if fitting:
        assert sites_added(chosen, combined) == min(fitting)
