"""NCM and NFCM: the links decide where they differ, and where they are alike these are CM and FCM."""

from __future__ import annotations

import itertools
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.grid import Grid, Link, Links, PairLink, Site
from koala.model.request import Component, Request
from koala.policies.interface import Spots, View, refuse, try_place
from koala.policies.koala.cluster_minimization import cluster_minimization, cluster_minimization_beside
from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.koala.near_sites import ANCHORS_MAX, NEARER_LOOKS_MAX, NEARER_SETS_MAX
from koala.policies.koala.network_cluster_minimization import network_cluster_minimization
from koala.policies.koala.network_flexible_cluster_minimization import network_flexible_cluster_minimization
from koala.policies.koala.slowness import REFERENCE_BYTES_PER_S, REFERENCE_LATENCY_S, link_slowness
from tests.support.compiled_policies import compiled_policy
from tests.support.policy_worlds import components, demand_for, flexible, idle_lists, requests, size_lists

Rows = list[list[float]]


def rows_of(sites: int, slow: dict[tuple[int, int], float], default: float = 1.0) -> Rows:
    """A slowness for every link, the same in both directions; 0 between a site and itself."""
    return [
        [0.0 if one == other else slow.get((min(one, other), max(one, other)), default) for other in range(sites)]
        for one in range(sites)
    ]


def packed(idle: list[int], sizes: list[int], slowness: Rows, combined: list[int] | None = None) -> tuple[int, Any]:
    left, chosen = list(idle), [-1] * len(sizes)
    marks = [0] * len(idle) if combined is None else combined
    answer = network_cluster_minimization(idle, sizes, slowness, marks, left, chosen)
    if answer == -1:
        expected = list(idle)
        for site, size in zip(chosen, sizes, strict=True):
            expected[site] -= size
        assert left == expected
        assert min(left) >= 0
    return answer, chosen


def divided(idle: list[int], total: int, slowness: Any, least: int = 1, most: int = 99) -> tuple[int, list[int]]:
    parts = [-7] * len(idle)
    return network_flexible_cluster_minimization(idle, total, least, most, slowness, parts), parts


def cost(sites: set[int], slowness: Rows) -> float:
    worst = max((slowness[one][other] for one, other in itertools.combinations(sites, 2)), default=0.0)
    return (len(sites) - 1) * worst


@st.composite
def link_rows(draw: st.DrawFn, sites: int) -> Rows:
    values = st.sampled_from([0.1, 0.5, 1.0, 1.0, 2.0, 4.0, 10.0])
    return rows_of(sites, {pair: draw(values) for pair in itertools.combinations(range(sites), 2)})


# ------------------------------------------------------------------------------------- worked examples

# Two islands: sites 0 and 2, sites 1 and 3; between the islands a link is ten times as slow.
ISLANDS = rows_of(4, {(0, 2): 1.0, (1, 3): 1.0}, default=10.0)


def test_components_stay_on_the_island_that_can_hold_them() -> None:
    idle, sizes = [20, 18, 10, 14], [10, 10, 10]
    assert packed(idle, sizes, rows_of(4, {}))[1] == [0, 0, 1]
    assert packed(idle, sizes, ISLANDS)[1] == [0, 0, 2]


def test_a_total_stays_on_the_island_that_can_hold_it() -> None:
    idle = [20, 18, 10, 14]
    assert divided(idle, 30, rows_of(4, {})) == (0, [20, 10, 0, 0])
    assert divided(idle, 30, ISLANDS) == (0, [20, 0, 10, 0])
    assert divided(idle, 32, ISLANDS) == (0, [0, 18, 0, 14])


def test_a_little_slower_link_is_better_than_one_more_cluster() -> None:
    slowness = rows_of(4, {(0, 1): 1.8})
    assert divided([20, 10, 6, 5], 30, slowness) == (0, [20, 10, 0, 0])
    slowness = rows_of(4, {(0, 1): 2.2})
    assert divided([20, 10, 6, 5], 30, slowness) == (0, [20, 0, 6, 4])


def test_a_job_that_fits_on_no_island_goes_where_cluster_minimization_puts_it() -> None:
    idle = [20, 18, 10, 14]
    assert divided(idle, 50, ISLANDS) == (0, [20, 18, 0, 12])
    assert packed(idle, [10, 10, 10, 10, 10], ISLANDS) == (-1, [0, 0, 1, 3, 2])


def test_a_fixed_component_draws_the_others_near() -> None:
    """Site 1 is the most idle, but a component is fixed on site 0, and site 2 is near that one."""
    assert packed([2, 18, 10, 14], [9], rows_of(4, {}), [1, 0, 0, 0])[1] == [1]
    assert packed([2, 18, 10, 14], [9], ISLANDS, [1, 0, 0, 0])[1] == [2]


def test_a_link_that_moves_nothing_is_combined_only_where_nothing_else_fits() -> None:
    broken = rows_of(3, {(0, 1): float("inf"), (1, 2): float("inf")})
    assert divided([10, 9, 5], 15, broken) == (0, [10, 0, 5])
    assert divided([10, 9, 5], 19, broken) == (0, [10, 9, 0])


# ------------------------------------------------------------------------------------- properties


@given(idle_lists, size_lists, st.sampled_from([0.0, 0.3, 1.0, 7.5]))
def test_with_equal_links_components_go_exactly_where_cluster_minimization_puts_them(
    idle: list[int], sizes: list[int], slowness: float
) -> None:
    chosen = [-1] * len(sizes)
    answer = cluster_minimization(idle, sizes, list(idle), chosen)
    assert packed(idle, sizes, rows_of(len(idle), {}, slowness)) == (answer, chosen)


@given(idle_lists, size_lists, st.data())
def test_with_equal_links_that_holds_beside_fixed_components_too(
    idle: list[int], sizes: list[int], data: st.DataObject
) -> None:
    combined = data.draw(st.lists(st.integers(0, 1), min_size=len(idle), max_size=len(idle)))
    chosen = [-1] * len(sizes)
    answer = cluster_minimization_beside(idle, sizes, combined, list(idle), chosen)
    assert packed(idle, sizes, rows_of(len(idle), {}, 3.0), combined) == (answer, chosen)


@given(idle_lists, st.integers(1, 90), st.integers(1, 12), st.integers(1, 6), st.sampled_from([0.0, 0.3, 1.0, 7.5]))
def test_with_equal_links_a_total_is_divided_exactly_as_flexible_cluster_minimization_does(
    idle: list[int], total: int, least: int, most: int, slowness: float
) -> None:
    parts = [0] * len(idle)
    answer = flexible_cluster_minimization(idle, total, least, most, parts)
    assert divided(idle, total, rows_of(len(idle), {}, slowness), least, most) == (answer, parts)


@given(st.data(), st.sampled_from([("NCM", "CM"), ("NFCM", "FCM")]))
def test_on_a_grid_of_equal_links_requests_of_every_kind_are_answered_and_refused_alike(
    data: st.DataObject, pair: tuple[str, str]
) -> None:
    sizes = data.draw(st.lists(st.integers(0, 30), min_size=1, max_size=5))
    sites = tuple(Site(name=f"C{number}", processors=size) for number, size in enumerate(sizes, 1))
    link = Link(bandwidth_mbit_s=data.draw(st.sampled_from([10.0, 1000.0])), latency_s=0.07)
    view = View.from_grid(Grid(sites=sites, links=Links(default=link)))
    request = data.draw(requests(len(sites)))
    aware, plain = (demand_for(request, name, view) for name in pair)
    assert try_place(aware, view) == try_place(plain, view)
    if try_place(plain, view) is None:
        told, known = refuse(aware, view.idle, view), refuse(plain, view.idle, view)
        # A cure may be to have the total divided, each by its own kind.
        assert told.cure.replace("NFCM", "FCM") == known.cure
        assert (told.reason, told.permanent) == (known.reason, known.permanent)


@given(idle_lists, size_lists, st.data())
def test_components_are_never_expected_to_run_longer_than_where_cluster_minimization_puts_them(
    idle: list[int], sizes: list[int], data: st.DataObject
) -> None:
    slowness = data.draw(link_rows(len(idle)))
    chosen = [-1] * len(sizes)
    plain = cluster_minimization(idle, sizes, list(idle), chosen)
    answer, aware = packed(idle, sizes, slowness)
    assert answer == plain
    if answer == -1:
        assert cost(set(aware), slowness) <= cost(set(chosen), slowness)


@given(idle_lists, st.integers(1, 90), st.data())
def test_a_total_is_never_expected_to_run_longer_than_divided_by_flexible_cluster_minimization(
    idle: list[int], total: int, data: st.DataObject
) -> None:
    slowness = data.draw(link_rows(len(idle)))
    least, most = data.draw(st.integers(1, min(total, 12))), data.draw(st.integers(1, 6))
    parts = [0] * len(idle)
    plain = flexible_cluster_minimization(idle, total, least, most, parts)
    unplaced, aware = divided(idle, total, slowness, least, most)
    assert unplaced == plain
    if unplaced == 0:
        used = {site for site, part in enumerate(aware) if part}
        assert sum(aware) == total
        assert len(used) <= most
        assert all(least <= aware[site] <= idle[site] for site in used)
        assert cost(used, slowness) <= cost({site for site, part in enumerate(parts) if part}, slowness)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=5), st.integers(1, 90), st.integers(2, 6))
def test_on_two_islands_no_division_is_expected_to_run_shorter(idle: list[int], total: int, factor: int) -> None:
    """Brute force over all sets of sites: on islands, growing a set from each of its sites finds the best one."""
    sites = len(idle)
    half = sites // 2
    across = {pair: float(factor) for pair in itertools.combinations(range(sites), 2) if pair[0] < half <= pair[1]}
    slowness = rows_of(sites, across)
    unplaced, parts = divided(idle, total, slowness)
    assert unplaced == max(0, total - sum(idle))
    if unplaced == 0:
        best = min(
            cost(set(some), slowness)
            for count in range(1, sites + 1)
            for some in itertools.combinations(range(sites), count)
            if sum(idle[site] for site in some) >= total
        )
        assert cost({site for site, part in enumerate(parts) if part}, slowness) == best


# ------------------------------------------------------------------------------------- limits


@pytest.mark.parametrize(("far", "found"), [(ANCHORS_MAX - 1, True), (ANCHORS_MAX, False)])
def test_sets_are_grown_from_so_many_of_the_most_idle_sites(far: int, found: bool) -> None:
    """All links are slow but the one between the two least idle sites, which could hold the job together."""
    idle = [20] * far + [12, 10]
    near = (far, far + 1)
    unplaced, parts = divided(idle, 22, rows_of(len(idle), {near: 1.0}, 10.0))
    assert unplaced == 0
    assert ({site for site, part in enumerate(parts) if part} == set(near)) == found


@pytest.mark.parametrize(("partners", "found"), [(NEARER_SETS_MAX + 1, True), (NEARER_SETS_MAX + 2, False)])
def test_so_many_ever_nearer_sets_are_tried_from_each_site(partners: int, found: bool) -> None:
    """Each partner of the first site is a little nearer than the one before, and a little less idle."""
    idle = [100, *range(50, 50 - partners, -1)]
    slow = {(0, partner): 100.0 - partner for partner in range(1, partners + 1)}
    unplaced, parts = divided(idle, 101, rows_of(len(idle), slow, 1000.0))
    assert unplaced == 0
    assert (parts[partners] > 0) == found


class CountedRow(list[float]):
    """A row of slowness that counts how often anything looks at it."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        CountedRow.looks += 1
        return super().__getitem__(index)


@pytest.mark.parametrize("sites", [100, 300])
def test_the_search_on_hundreds_of_sites_ends_early(sites: int) -> None:
    """Links are a little slower the farther apart two sites are: every set has a nearer one."""
    CountedRow.looks = 0
    idle = [20 + site % 7 for site in range(sites)]
    slowness = [CountedRow(1.0 + abs(one - other) / sites for other in range(sites)) for one in range(sites)]
    unplaced, parts = divided(idle, sum(idle) // 2, slowness, most=sites)
    assert (unplaced, sum(parts)) == (0, sum(idle) // 2)
    # What is over the limit is one round: growing one set, and the cost of two answers.
    assert CountedRow.looks <= NEARER_LOOKS_MAX + 2 * sites * sites
    CountedRow.looks = 0
    sizes = [2] * sites
    chosen = [-1] * sites
    assert network_cluster_minimization(idle, sizes, slowness, [0] * sites, list(idle), chosen) == -1
    assert CountedRow.looks <= NEARER_LOOKS_MAX + 2 * sites * sites


# ------------------------------------------------------------------------------------- on a grid


def test_the_reference_link_has_a_slowness_of_exactly_one_whatever_the_shares() -> None:
    for bandwidth_share, latency_share in ((0.0, 0.0), (0.3, 0.7), (1.0, 0.0), (0.1, 0.2)):
        assert link_slowness(REFERENCE_BYTES_PER_S, REFERENCE_LATENCY_S, bandwidth_share, latency_share) == 1.0


def test_slowness_goes_with_latency_and_with_one_over_bandwidth() -> None:
    assert link_slowness(REFERENCE_BYTES_PER_S / 4, REFERENCE_LATENCY_S, 0.5, 0.5) == pytest.approx(2.5)
    assert link_slowness(REFERENCE_BYTES_PER_S, REFERENCE_LATENCY_S * 4, 0.5, 0.5) == pytest.approx(2.5)
    assert link_slowness(REFERENCE_BYTES_PER_S / 4, REFERENCE_LATENCY_S * 4, 0.0, 0.0) == 1.0
    assert link_slowness(0.0, REFERENCE_LATENCY_S, 0.5, 0.5) == float("inf")
    assert link_slowness(0.0, REFERENCE_LATENCY_S, 0.0, 1.0) == 1.0
    assert link_slowness(1e30, 0.0, 0.7, 0.3) == pytest.approx(0.0)


def islands_view() -> View:
    """A1 and A2 near each other, B1 and B2 too; between the islands a narrow and long link."""
    near = {"bandwidth_mbit_s": 1000.0, "latency_s": 0.001}
    return View.from_grid(
        Grid(
            sites=tuple(
                Site(name=name, processors=size) for name, size in (("A1", 20), ("B1", 18), ("A2", 10), ("B2", 9))
            ),
            links=Links(
                default=Link(bandwidth_mbit_s=20.0, latency_s=0.05),
                pairs=(PairLink(between=("A1", "A2"), **near), PairLink(between=("B1", "B2"), **near)),
            ),
        )
    )


def test_requests_of_every_kind_are_placed_by_the_links_of_the_grid() -> None:
    view = islands_view()
    assert try_place(demand_for(flexible(30), "NFCM", view), view) == Spots((0, 2), (20, 10))
    assert try_place(demand_for(flexible(30), "FCM", view), view) == Spots((0, 1), (20, 10))
    assert try_place(demand_for(components(10, 10, 10), "NCM", view), view) == Spots((0, 0, 2), (10, 10, 10))
    assert try_place(demand_for(components(10, 10, 10), "NFCM", view), view) == Spots((0, 0, 2), (10, 10, 10))
    split = flexible(30, splits=((30,), (15, 15), (20, 10)))
    assert try_place(demand_for(split, "NFCM", view), view) == Spots((0, 1), (15, 15))
    fixed = Request(components=(Component(processors=10, site="B2"), Component(processors=9, site="B2")))
    assert try_place(demand_for(fixed, "NCM", view), view) is None
    beside = Request(components=(Component(processors=9, site="B2"), Component(processors=9)))
    assert try_place(demand_for(beside, "CM", view), view) == Spots((3, 0), (9, 9))
    assert try_place(demand_for(beside, "NCM", view), view) == Spots((3, 1), (9, 9))


def test_what_is_learned_of_a_link_counts_from_the_next_try_on() -> None:
    view = islands_view()
    demand = demand_for(flexible(30), "NFCM", view)
    assert try_place(demand, view) == Spots((0, 2), (20, 10))
    view.bytes_per_s.set(0, 2, 1.0)
    assert try_place(demand, view) == Spots((0, 1), (20, 10))


# ------------------------------------------------------------------------------------- compiled


COMPILED = {name: compiled_policy(name) for name in ("NCM", "NFCM")}


def whole(values: Any) -> Any:
    return numpy.array(values, dtype=numpy.int64)


@settings(deadline=None)
@given(idle=idle_lists, sizes=size_lists, data=st.data())
def test_compiled_network_cluster_minimization_chooses_as_python_does(
    idle: list[int], sizes: list[int], data: st.DataObject
) -> None:
    slowness = data.draw(link_rows(len(idle)))
    combined = data.draw(st.lists(st.integers(0, 1), min_size=len(idle), max_size=len(idle)))
    left, chosen = list(idle), [-1] * len(sizes)
    answer = network_cluster_minimization(idle, sizes, slowness, combined, left, chosen)
    fast_left, fast_chosen = whole(idle), whole([-1] * len(sizes))
    rows = numpy.array(slowness)
    assert COMPILED["NCM"](whole(idle), whole(sizes), rows, whole(combined), fast_left, fast_chosen) == answer
    assert (fast_left.tolist(), fast_chosen.tolist()) == (left, chosen)


@settings(deadline=None)
@given(idle=idle_lists, total=st.integers(1, 80), least=st.integers(1, 12), most=st.integers(1, 6), data=st.data())
def test_compiled_network_flexible_cluster_minimization_divides_as_python_does(
    idle: list[int], total: int, least: int, most: int, data: st.DataObject
) -> None:
    slowness = data.draw(link_rows(len(idle)))
    answer, parts = divided(idle, total, slowness, least, most)
    fast_parts = whole([-7] * len(idle))
    assert COMPILED["NFCM"](whole(idle), total, least, most, numpy.array(slowness), fast_parts) == answer
    assert fast_parts.tolist() == parts
