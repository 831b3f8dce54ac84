"""A refusal tells the truth: its numbers are those of the sites, and its cures cure."""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from koala.model.api import Refusal
from koala.model.request import Component, InputFile, Request
from koala.policies.interface import Demand, FileAt, View, place_on, refuse, try_place
from koala.policies.refusals.cure import CURE_STEPS_MAX
from koala.policies.refusals.refusal import SPLITS_EXPLAINED_MAX
from tests.support.policy_worlds import components, demand_for, flexible, policy_names, requests, view_of

MORE = re.compile(r"(\d+) more idle processors? on (C\d+)")
ANYWHERE = re.compile(r"(\d+) more idle processors? anywhere")


def refusal_of(request: Request, policy: str, view: View) -> Refusal:
    demand = demand_for(request, policy, view)
    assert try_place(demand, view) is None
    return refuse(demand, view.idle, view)


def test_one_processor_is_told_as_one() -> None:
    refusal = refusal_of(components(1), "CM", view_of(0, 0, limit=(4, 4)))
    assert "found no site with 1 idle processor left; the most is 0" in refusal.reason


def test_a_component_that_fits_nowhere_is_named_with_what_each_site_lacks() -> None:
    refusal = refusal_of(components(24), "CM", view_of(18, 15, 12, limit=(40, 40, 40)))
    assert "a component of 24 processors" in refusal.reason
    assert "18, on C1" in refusal.reason
    assert refusal.component == 0
    assert [(short.site, short.wanted, short.idle, short.missing) for short in refusal.shortages] == [
        ("C1", 24, 18, 6),
        ("C2", 24, 15, 9),
        ("C3", 24, 12, 12),
    ]
    assert refusal.shortages[1].cure == "9 more idle processors on C2"
    assert refusal.cure == "6 more idle processors on C1, or a request with smaller components"
    assert not refusal.permanent


def test_what_the_job_takes_itself_counts_in_what_a_site_would_need() -> None:
    refusal = refusal_of(components(8, 8, 8), "CM", view_of(10, 9, 3, limit=(20, 20, 20)))
    assert refusal.component == 2
    assert [(short.wanted, short.missing) for short in refusal.shortages] == [(16, 6), (16, 7), (8, 5)]
    assert refusal.cure.startswith("5 more idle processors on C3")


def test_a_total_lacks_so_many_processors_anywhere() -> None:
    refusal = refusal_of(flexible(50), "FCM", view_of(18, 15, 12, limit=(40, 40, 40)))
    assert refusal.cure == "5 more idle processors anywhere"
    assert refusal.component is None
    assert "5 of 50 processors" in refusal.reason


def test_a_bounded_total_says_what_bounds_it() -> None:
    refusal = refusal_of(flexible(20, component_min=8, components_max=2), "FCM", view_of(9, 9, 9, limit=(30, 30, 30)))
    assert "at most 2 parts of 8 or more" in refusal.reason
    assert MORE.search(refusal.cure)


def test_one_part_is_spoken_of_in_the_singular() -> None:
    refusal = refusal_of(flexible(20, components_max=1), "FCM", view_of(9, 9, 9, limit=(30, 30, 30)))
    assert "found no place in at most 1 part;" in refusal.reason


@pytest.mark.parametrize(
    ("request_", "bounds"),
    [
        (flexible(20, components_max=2), "a components_max of 3"),
        (flexible(20, component_min=8), "a component_min of 6"),
        (flexible(20, component_min=8, components_max=2), "a component_min of 6 and a components_max of 3"),
        (flexible(14, component_min=8, components_max=2), "a component_min of 7"),
    ],
)
@pytest.mark.parametrize("limit", [(30, 30, 30), (7, 7, 7)])
def test_bounds_that_would_let_a_total_be_placed_now_are_the_cure(
    request_: Request, bounds: str, limit: tuple[int, ...]
) -> None:
    refusal = refusal_of(request_, "FCM", view_of(7, 7, 7, limit=limit))
    assert refusal.permanent == (limit == (7, 7, 7))
    assert refusal.cure.startswith(f"ask for {bounds}, since within" if refusal.permanent else f"{bounds}, or ")


def test_bounds_that_an_idle_grid_would_need_are_the_cure_of_a_total_that_never_fits() -> None:
    refusal = refusal_of(flexible(20, components_max=2), "FCM", view_of(0, 7, 7, limit=(7, 7, 7)))
    assert refusal.permanent
    assert refusal.cure.startswith("ask for a components_max of 3, since within")


@given(st.lists(st.integers(1, 12), min_size=2, max_size=5), st.data())
def test_every_bound_named_as_a_cure_places_the_total(idle: list[int], data: st.DataObject) -> None:
    total = data.draw(st.integers(2, sum(idle)))
    given_min, given_max = data.draw(st.integers(1, total)), data.draw(st.integers(1, len(idle)))
    view = view_of(*idle)
    demand = demand_for(flexible(total, given_min, given_max), "FCM", view)
    if try_place(demand, view) is not None:
        return
    cure = refuse(demand, idle, view).cure
    least, most = re.search(r"component_min of (\d+)", cure), re.search(r"components_max of (\d+)", cure)
    assert least or most
    wider = flexible(total, int(least[1]) if least else given_min, int(most[1]) if most else given_max)
    assert place_on(demand_for(wider, "FCM", view), idle, view) is not None


def test_a_fixed_component_speaks_of_its_own_site_only() -> None:
    request = Request(components=(Component(processors=10, site="C2"), Component(processors=1)))
    refusal = refusal_of(request, "WF", view_of(50, 8, limit=(50, 12)))
    assert [short.site for short in refusal.shortages] == ["C2"]
    assert refusal.cure == "2 more idle processors on C2"
    assert "must run on C2" in refusal.reason


def test_a_fixed_component_larger_than_its_site_is_told_so() -> None:
    request = Request(components=(Component(processors=10, site="C2"),))
    refusal = refusal_of(request, "WF", view_of(50, 8))
    assert refusal.permanent
    assert "8 processors that C2 offers" in refusal.cure


def test_a_component_larger_than_every_site_is_told_the_largest() -> None:
    refusal = refusal_of(components(24), "WF", view_of(18, 15, 12))
    assert refusal.permanent
    assert "no site ever offers more than 18" in refusal.cure
    assert refusal.shortages[0].cure == "none: C1 never offers more than 18"


def test_components_too_large_together_and_a_total_too_large_are_permanent() -> None:
    assert refusal_of(components(8, 8, 8, 8, 8), "WF", view_of(18, 15, 12)).permanent
    total = refusal_of(flexible(46), "FCM", view_of(18, 15, 12))
    assert total.permanent
    assert "the 45 processors" in total.cure


@pytest.mark.parametrize("policy", ["WF", "CM", "CF", "FCM"])
def test_a_missing_file_is_named_and_may_yet_come(policy: str) -> None:
    request = Request(
        components=(Component(processors=1), Component(processors=1, input_files=(InputFile(name="f"),)))
    )
    refusal = refusal_of(request, policy, view_of(5, 5))
    assert "'f'" in refusal.reason
    assert "register a replica of 'f'" in refusal.cure
    assert refusal.component == 1
    assert not refusal.permanent


def test_a_file_that_can_be_brought_to_no_fitting_site_is_the_reason() -> None:
    view = view_of(5, 5)
    view.idle[1] = 0
    view.files["f"] = FileAt(1000, (1,))
    view.bytes_per_s[1][0] = 0.0
    request = Request(components=(Component(processors=2, input_files=(InputFile(name="f"),)),))
    refusal = refusal_of(request, "CF", view)
    assert refusal.shortages[0].cure == "none: no replica of its input files can be brought to C1"
    assert refusal.cure.startswith("2 more idle processors on C2")


def test_the_nearest_split_is_explained() -> None:
    request = flexible(24, splits=((24,), (13, 11), (8, 8, 8)))
    refusal = refusal_of(request, "CM", view_of(12, 10, 2, limit=(30, 30, 30)))
    assert "none of the 3 splits fits; nearest is 13+11" in refusal.reason
    assert "2 more idle processors" in refusal.cure or "1 more idle processor on" in refusal.cure


def test_no_more_splits_are_explained_than_the_limit() -> None:
    far = tuple((100 - part, part) for part in range(1, SPLITS_EXPLAINED_MAX + 1))
    near = (*far, (50, 50))
    view = view_of(49, 50, limit=(200, 200))
    assert "nearest is 84+16" in refusal_of(flexible(100, splits=near), "CM", view).reason
    assert "nearest is 50+50" in refusal_of(flexible(100, splits=near[1:]), "CM", view).reason


def test_a_cure_that_takes_more_steps_than_the_limit_is_not_spelled_out() -> None:
    def cure(steps: int) -> str:
        fixed = tuple(Component(processors=1, site=f"C{number}") for number in range(1, steps + 1))
        return refusal_of(Request(components=fixed), "WF", view_of(*[0] * steps, limit=(1,) * steps)).cure

    assert cure(CURE_STEPS_MAX - 1).count(" more idle processor on ") == CURE_STEPS_MAX - 1
    assert cure(CURE_STEPS_MAX) == "more idle processors on several sites at once; with all sites idle it fits"


def test_a_world_that_has_changed_since_the_try_is_said_to_have_changed() -> None:
    view = view_of(5)
    for request, policy in ((components(3), "WF"), (flexible(3), "FCM")):
        refusal = refuse(demand_for(request, policy, view), view.idle, view)
        assert "is there now" in refusal.reason


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=5), policy_names, st.data())
def test_every_refusal_is_true(sizes: list[tuple[int, int]], policy: str, data: st.DataObject) -> None:
    idle = [min(pair) for pair in sizes]
    view = view_of(*idle, limit=tuple(max(pair) for pair in sizes))
    demand = demand_for(data.draw(requests(len(sizes))), policy, view)
    assume(try_place(demand, view) is None)
    refusal = refuse(demand, idle, view)
    assert refusal.policy == policy
    assert refusal.permanent == (place_on(demand, view.limit, view) is None)
    for short in refusal.shortages:
        assert short.idle == idle[view.index[short.site]]
        assert short.missing == short.wanted - short.idle > 0
    if not refusal.permanent:
        assert_cure_cures(refusal, idle, view, demand)


def assert_cure_cures(refusal: Refusal, idle: list[int], view: View, demand: Demand) -> None:
    anywhere = ANYWHERE.search(refusal.cure)
    grown = [[*idle] for _ in idle] if anywhere else [[*idle]]
    if anywhere:
        for site, one in enumerate(grown):
            one[site] += int(anywhere[1])
    else:
        growth = MORE.findall(refusal.cure)
        if not growth:
            grown = [view.limit]
        for more, name in growth:
            grown[0][view.index[name]] += int(more)
            assert grown[0][view.index[name]] <= view.limit[view.index[name]]
    for one in grown:
        assert place_on(demand, one, view) is not None


def test_a_total_that_is_taken_for_one_component_is_told_of_the_policy_that_divides_it() -> None:
    now = refusal_of(flexible(24), "WF", view_of(18, 15, limit=(40, 40)))
    assert now.cure.startswith("let the policy FCM divide the total: that would place it now; or 6 more idle")
    later = refusal_of(flexible(24), "CF", view_of(9, 9, limit=(18, 18)))
    assert later.permanent
    assert later.cure == "let the policy FCF divide the total over several sites"
    never = refusal_of(flexible(24), "WF", view_of(9, 9, limit=(9, 9)))
    assert never.cure == "ask for smaller components, since no site ever offers more than 9 processors"


def test_components_are_counted_from_0_as_everywhere() -> None:
    refusal = refusal_of(Request(components=(Component(processors=1), Component(processors=9))), "WF", view_of(8))
    assert refusal.component == 1
    assert refusal.reason.startswith("component 1 (9 processors)")
