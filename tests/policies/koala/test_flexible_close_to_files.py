"""FCF: a total is divided so that its input arrives soonest, within the bounds, all or nothing."""

from __future__ import annotations

import itertools
from math import inf
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koala.model.grid import Grid, Link, Links, PairLink, Site, StoredFile
from koala.model.request import Component, Flexibility, InputFile, InputMode, Request
from koala.policies.interface import Spots, View, place_on, refuse, transfer_s, try_place
from koala.policies.koala.flexible_close_to_files import fewest_parts, flexible_close_to_files, room_within
from koala.policies.koala.flexible_cluster_minimization import flexible_cluster_minimization
from koala.policies.transfer_estimates import division_times_s
from tests.support.compiled_policies import compiled_policy
from tests.support.policy_worlds import demand_for, grids, idle_lists, view_of

GB = 10**9
FILES = ("alpha", "beta")
Times = list[float]


def divided(
    idle: list[int], total: int, fixed_s: Times, each_s: Times, least: int = 1, most: int = 99
) -> tuple[int, list[int]]:
    parts = [-7] * len(idle)
    return flexible_close_to_files(idle, total, least, most, fixed_s, each_s, parts), parts


def last_s(parts: list[int] | tuple[int, ...], fixed_s: Times, each_s: Times) -> float:
    """When the last part has its input."""
    times = zip(parts, fixed_s, each_s, strict=True)
    return max((fixed + each * part for part, fixed, each in times if part), default=0.0)


# ------------------------------------------------------------------------------------- worked examples


def test_a_site_that_holds_the_input_takes_what_it_can() -> None:
    assert divided([18, 15, 12], 12, [5.0, 5.0, 0.0], [1.0, 1.0, 0.0]) == (0, [0, 0, 12])


def test_chunks_are_spread_so_that_the_last_one_arrives_as_early_as_can_be() -> None:
    # 8 on the third, which holds the file; 16 over two links of which the second is three times as fast.
    assert divided([30, 30, 8], 24, [0.0, 0.0, 0.0], [3.0, 1.0, 0.0]) == (0, [4, 12, 8])


def test_whole_files_are_brought_to_the_fewest_sites_that_have_them_in_the_least_time() -> None:
    assert divided([18, 15, 12], 24, [90.0, 50.0, 50.0], [0.0] * 3) == (0, [0, 15, 9])
    assert divided([18, 15, 12], 24, [50.0, 50.0, 50.0], [0.0] * 3) == (0, [18, 6, 0])
    assert divided([18, 15, 12], 30, [90.0, 50.0, 50.0], [0.0] * 3) == (0, [18, 12, 0])


def test_a_part_is_never_below_the_minimum() -> None:
    assert divided([18, 15, 12], 20, [0.0] * 3, [0.0] * 3, least=4) == (0, [16, 4, 0])
    assert divided([10, 10, 4], 12, [0.0] * 3, [1.0, 1.0, 0.0], least=4) == (0, [4, 4, 4])


def test_more_parts_than_allowed_are_not_made_though_the_input_would_come_sooner() -> None:
    assert divided([30, 30, 30], 24, [0.0] * 3, [1.0] * 3) == (0, [8, 8, 8])
    assert divided([30, 30, 30], 24, [0.0] * 3, [1.0] * 3, most=2) == (0, [12, 12, 0])
    assert divided([30, 30, 30], 24, [0.0] * 3, [1.0, 2.0, 3.0], most=1) == (0, [24, 0, 0])


def test_a_site_that_can_not_be_reached_has_no_part() -> None:
    assert divided([18, 15, 12], 24, [inf, 9.0, 9.0], [0.0] * 3) == (0, [0, 15, 9])
    assert divided([18, 15, 12], 28, [inf, 9.0, 9.0], [0.0] * 3)[0] == 1


# ------------------------------------------------------------------------------------- properties


def times_of(data: st.DataObject, sites: int) -> tuple[Times, Times]:
    fixed = st.lists(st.sampled_from([0.0, 0.0, 0.3, 2.0, 7.0, inf]), min_size=sites, max_size=sites)
    each = st.lists(st.sampled_from([0.0, 0.1, 0.7, 1.0, 1.0, 3.0]), min_size=sites, max_size=sites)
    return data.draw(fixed), data.draw(each)


@given(idle_lists, st.integers(1, 90), st.data())
def test_without_files_it_is_flexible_cluster_minimization(idle: list[int], total: int, data: st.DataObject) -> None:
    least, most = data.draw(st.integers(1, 9)), data.draw(st.integers(1, 6))
    parts = [0] * len(idle)
    answer = flexible_cluster_minimization(idle, total, least, most, parts)
    found, by_files = divided(idle, total, [0.0] * len(idle), [0.0] * len(idle), least, most)
    assert found == answer
    assert answer > 0 or by_files == parts


@given(idle_lists, st.integers(1, 80), st.data())
def test_the_parts_respect_every_bound_and_whatever_fcm_divides_is_divided(
    idle: list[int], total: int, data: st.DataObject
) -> None:
    fixed_s, each_s = times_of(data, len(idle))
    least, most = data.draw(st.integers(1, min(total, 12))), data.draw(st.integers(1, 6))
    unplaced, parts = divided(idle, total, fixed_s, each_s, least, most)
    reachable = [count if fixed < inf else 0 for count, fixed in zip(idle, fixed_s, strict=True)]
    used = [part for part in parts if part]
    assert all(0 <= part <= count for part, count in zip(parts, reachable, strict=True))
    assert len(used) <= most
    assert all(part >= least for part in used)
    if unplaced == 0:
        assert sum(used) == total
    else:
        assert flexible_cluster_minimization(reachable, total, least, most, [0] * len(idle)) > 0


@settings(deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(1, 10), st.data())
def test_no_division_has_its_input_sooner_and_none_as_soon_in_fewer_parts(
    idle: list[int], total: int, data: st.DataObject
) -> None:
    """Brute force over every division."""
    fixed_s, each_s = times_of(data, len(idle))
    least, most = data.draw(st.integers(1, min(total, 4))), data.draw(st.integers(1, 4))
    every = [
        (last_s(parts, fixed_s, each_s), sum(part > 0 for part in parts))
        for parts in itertools.product(*(range(count + 1) for count in idle))
        if sum(parts) == total
        and all(part == 0 or part >= least for part in parts)
        and sum(part > 0 for part in parts) <= most
    ]
    possible = [(time_s, count) for time_s, count in every if time_s < inf]
    unplaced, parts = divided(idle, total, fixed_s, each_s, least, most)
    assert (unplaced == 0) == bool(possible)
    if possible:
        assert (last_s(parts, fixed_s, each_s), sum(part > 0 for part in parts)) == min(possible)


@given(idle_lists, st.integers(1, 60), st.integers(1, 9), st.integers(1, 6), st.data())
def test_more_room_never_makes_a_division_impossible(
    room: list[int], total: int, least: int, most: int, data: st.DataObject
) -> None:
    more = [count + data.draw(st.integers(0, 5)) for count in room]
    if fewest_parts(room, total, least, most):
        assert 0 < fewest_parts(more, total, least, most) <= fewest_parts(room, total, least, most)


@given(st.integers(0, 200), st.floats(0, 1e4), st.floats(1e-6, 1e3), st.integers(0, 200))
def test_the_room_within_the_time_of_a_part_holds_that_part(idle: int, fixed: float, each: float, part: int) -> None:
    room = [0]
    time_s = fixed + each * min(part, idle)
    room_within([idle], [fixed], [each], time_s, room)
    assert min(part, idle) <= room[0] <= idle
    assert fixed + each * room[0] <= time_s


# ------------------------------------------------------------------------------------- on a grid


def reading(total: int, mode: InputMode, **bounds: Any) -> Request:
    read = (InputFile(name="data", mode=mode),)
    return Request(components=(Component(processors=total, input_files=read),), flexible=Flexibility(**bounds))


def filed_view() -> View:
    """A and B are near each other (80 Mbit/s, 1 s), C is far from both (8 Mbit/s, 5 s); data, 1 GB, is at B."""
    return View.from_grid(
        Grid(
            sites=tuple(Site(name=name, processors=size) for name, size in (("A", 20), ("B", 10), ("C", 30))),
            links=Links(
                default=Link(bandwidth_mbit_s=8.0, latency_s=5.0),
                pairs=(PairLink(between=("A", "B"), bandwidth_mbit_s=80.0, latency_s=1.0),),
            ),
            files=(StoredFile(name="data", size_bytes=GB, replicas=("B",)),),
        )
    )


def test_a_chunked_file_is_divided_with_the_total() -> None:
    view = filed_view()
    # All of it fits at the replica: nothing moves.
    assert try_place(demand_for(reading(10, InputMode.CHUNK), "FCF", view), view) == Spots((1,), (10,))
    assert try_place(demand_for(reading(10, InputMode.CHUNK), "FCM", view), view) == Spots((2,), (10,))
    # 10 stay with the file; what goes to A comes ten times as fast as what goes to C.
    demand = demand_for(reading(40, InputMode.CHUNK), "FCF", view)
    spots = try_place(demand, view)
    assert spots == Spots((2, 0, 1), (10, 20, 10))
    assert transfer_s(demand, spots, 0, 2, view) == pytest.approx(5.0 + 1000.0 * 10 / 40)


def test_a_whole_file_goes_to_near_sites_only() -> None:
    view = filed_view()
    spots = try_place(demand_for(reading(24, InputMode.WHOLE), "FCF", view), view)
    assert spots == Spots((0, 1), (20, 4))


def test_bounds_and_splits_are_obeyed() -> None:
    view = filed_view()
    one = reading(24, InputMode.CHUNK, components_max=1)
    assert try_place(demand_for(one, "FCF", view), view) == Spots((2,), (24,))
    least = reading(22, InputMode.CHUNK, component_min=10)
    assert try_place(demand_for(least, "FCF", view), view) == Spots((0, 1), (12, 10))
    splits = reading(24, InputMode.CHUNK, splits=((12, 12), (14, 10)))
    assert try_place(demand_for(splits, "FCF", view), view) == Spots((0, 2), (12, 12))


def test_a_refusal_names_the_bound_that_would_help_with_the_least_change() -> None:
    view = filed_view()
    view.idle = [10, 10, 10]
    demand = demand_for(reading(20, InputMode.CHUNK, components_max=1), "FCF", view)
    assert try_place(demand, view) is None
    refusal = refuse(demand, view.idle, view)
    assert refusal.cure.startswith("a components_max of 2, or ")
    assert refusal.policy == "FCF"


def test_a_site_to_which_nothing_can_be_brought_is_told_as_such() -> None:
    view = filed_view()
    view.bytes_per_s.set(1, 2, 0.0)
    view.idle = [4, 4, 4]
    demand = demand_for(reading(12, InputMode.CHUNK), "FCF", view)
    assert try_place(demand, view) is None
    refusal = refuse(demand, view.idle, view)
    assert "anywhere" not in refusal.cure
    assert [short.cure for short in refusal.shortages] == [
        "4 more idle processors on A",
        "4 more idle processors on B",
        "none: no replica of its input files can be brought to C",
    ]


@given(grids(FILES), st.data())
def test_what_fcf_refuses_does_not_fit_and_its_parts_never_wait_longer_than_those_of_fcm(
    grid: Grid, data: st.DataObject
) -> None:
    """One file at most, in one mode: then the estimates that FCF divides by are those of the scheduler."""
    view = View.from_grid(grid)
    reads = data.draw(
        st.lists(st.builds(InputFile, name=st.just("alpha"), mode=st.sampled_from(InputMode)), max_size=1)
    )
    total = data.draw(st.integers(1, 60))
    request = Request(
        components=(Component(processors=total, input_files=tuple(reads)),),
        flexible=Flexibility(components_max=data.draw(st.none() | st.integers(1, 5))),
    )
    by_files, by_size = (demand_for(request, name, view) for name in ("FCF", "FCM"))
    near, wide = place_on(by_files, view.idle, view), place_on(by_size, view.idle, view)
    assert (near is None) == (wide is None)
    if near is None or wide is None:
        return
    near_s, wide_s = (
        max(transfer_s(by_files, spots, part, site, view) for part, site in enumerate(spots.sites))
        for spots in (near, wide)
    )
    # The bytes of a chunk are whole numbers, which the line through the estimates rounds over.
    size_bytes = view.files["alpha"].size_bytes if reads else 0
    rounding_s = 2 / min(view.bytes_per_s[0]) if size_bytes else 0.0
    assert near_s <= wide_s + rounding_s + 1e-9


@pytest.mark.parametrize("mode", InputMode)
def test_the_times_that_fcf_divides_by_are_the_estimates_of_the_parts(mode: InputMode) -> None:
    view = filed_view()
    demand = demand_for(reading(40, mode), "FCF", view)
    fixed_s, each_s = division_times_s(demand, 1, view)
    for part in (1, 7, 39):
        spots = Spots((0, 2), (part, 40 - part))
        for site in range(3):
            expected_s = transfer_s(demand, spots, 0, site, view)
            assert fixed_s[site] + each_s[site] * part == pytest.approx(expected_s)


def test_without_files_every_part_is_there_at_once() -> None:
    view = view_of(18, 15, 12)
    request = Request(components=(Component(processors=24),), flexible=Flexibility())
    assert division_times_s(demand_for(request, "FCF", view), 1, view) == ([0.0] * 3, [0.0] * 3)
    assert try_place(demand_for(request, "FCF", view), view) == Spots((0, 1), (18, 6))


# ------------------------------------------------------------------------------------- compiled


COMPILED = compiled_policy("FCF")


@settings(deadline=None)
@given(idle=idle_lists, total=st.integers(1, 80), least=st.integers(1, 12), most=st.integers(1, 6), data=st.data())
def test_compiled_it_divides_as_python_does(
    idle: list[int], total: int, least: int, most: int, data: st.DataObject
) -> None:
    fixed_s, each_s = times_of(data, len(idle))
    answer, parts = divided(idle, total, fixed_s, each_s, least, most)
    fast = numpy.array([-7] * len(idle), dtype=numpy.int64)
    whole = numpy.array(idle, dtype=numpy.int64)
    assert COMPILED(whole, total, least, most, numpy.array(fixed_s), numpy.array(each_s), fast) == answer
    assert fast.tolist() == parts
