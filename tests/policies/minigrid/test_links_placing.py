"""Requests under the meta-scheduler: what of a job and of the links its policies see, and what a refusal says."""

from __future__ import annotations

import re

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from koala.model.api import Refusal
from koala.model.grid import Grid, LinkGroup, Network, Site
from koala.model.network import per_processor_bit_s
from koala.model.request import Communication, Component, Pattern, Request
from koala.policies import Catalogue, PolicyError, UnknownSiteError
from koala.policies.demand import SILENCE, traffic_of
from koala.policies.errors import UnknownHomeError
from koala.policies.interface import (
    Demand,
    Spots,
    View,
    compile_demand,
    demand_key,
    place_on,
    refuse,
    replace_one,
    try_place,
)
from koala.policies.refusals.links import FULL_LINKS_NAMED_MAX
from tests.support.policy_worlds import BUILTIN, components, demand_for, flexible

META = ["Migration-Only", "Initial", "Ideal", "A1", "A2", "B1", "B2", "B3", "B4", "B5"]
BOUNDED = ["Migration-Only", "Initial", "Ideal", "B1", "B2", "B3"]
MBIT = 1_000_000


def linked_view(*idle: int, load: tuple[int, ...] = (), limit: int = 100, network: Network | None = None) -> View:
    """Sites C1, C2, ... with links of 1000 Mbit/s, on which so many Mbit/s are in use."""
    sites = tuple(Site(name=f"C{number}", processors=limit) for number in range(1, len(idle) + 1))
    view = View.from_grid(Grid(sites=sites, network=network or Network(uplink_mbit_s=1000)))
    view.idle = list(idle)
    for link, mbit_s in enumerate(load):
        view.link_demand_bit_s[link] = mbit_s * MBIT
    return view


def talking(request: Request, bisection_mbit_s: float = 300, **more: object) -> Request:
    communication = Communication(bisection_mbit_s=bisection_mbit_s)
    return msgspec.structs.replace(request, communication=communication, **more)


def placed(request: Request, policy: str, view: View) -> dict[str, int] | None:
    spots = try_place(demand_for(request, policy, view), view)
    if spots is None:
        return None
    return {view.names[site]: size for site, size in zip(spots.sites, spots.sizes, strict=True)}


def refusal_of(request: Request, policy: str, view: View) -> Refusal:
    demand = demand_for(request, policy, view)
    assert try_place(demand, view) is None
    return refuse(demand, view.idle, view)


# ------------------------------------------------------------------------------------------------ demands


@pytest.mark.parametrize("policy", META)
def test_home_comes_first_then_the_tightest_site(policy: str) -> None:
    view = linked_view(60, 40, 30)
    assert placed(msgspec.structs.replace(flexible(25), home="C1"), policy, view) == {"C1": 25}
    assert placed(flexible(25), policy, view) == {"C3": 25}


@pytest.mark.parametrize("policy", META)
def test_a_job_of_one_component_stays_whole(policy: str) -> None:
    view = linked_view(60, 40, 30)
    assert placed(msgspec.structs.replace(components(25), home="C2"), policy, view) == {"C2": 25}
    assert placed(components(25), policy, view) == {"C3": 25}
    assert placed(components(61), policy, view) is None


def test_components_of_given_sizes_go_by_cluster_minimization() -> None:
    view = linked_view(10, 20, load=(2000, 2000))
    assert placed(components(8, 8), "B1", view) == placed(components(8, 8), "CM", view)
    listed = flexible(16, splits=((8, 8),))
    assert placed(listed, "A1", view) == placed(listed, "CM", view)
    pinned = Request(components=(Component(processors=4, site="C1"),))
    assert placed(pinned, "B1", view) == {"C1": 4}


def test_an_unknown_home_is_named() -> None:
    view = linked_view(5, 5)
    with pytest.raises(UnknownHomeError) as caught:
        demand_for(msgspec.structs.replace(flexible(3), home="C9"), "WF", view)
    assert isinstance(caught.value, UnknownSiteError)
    assert "the home of the job is 'C9'" in caught.value.for_user()


def test_what_a_policy_sees_of_home_and_communication_is_in_the_key() -> None:
    plain = flexible(10)
    keys = {
        demand_key(request, "B1")
        for request in (
            plain,
            msgspec.structs.replace(plain, home="C1"),
            msgspec.structs.replace(plain, home="C2"),
            talking(plain),
            talking(plain, 400),
            talking(plain, home="C1"),
        )
    }
    assert len(keys) == 6
    assert demand_key(talking(plain), "B1") == demand_key(talking(flexible(10)), "B1")


def test_the_bandwidth_of_a_processor_is_given_or_follows_from_the_bisection() -> None:
    assert traffic_of(None, 10) == SILENCE
    given_one = Communication(per_processor_mbit_s=2.5, pattern=Pattern.RING, share=0.5)
    assert traffic_of(given_one, 10) == (Pattern.RING.number, 2, 2.5e6, 0.5)
    halves = traffic_of(Communication(bisection_mbit_s=300), 10)
    assert halves.per_processor_bit_s == per_processor_bit_s(0, 2, 10, 300e6)


@pytest.mark.parametrize(
    ("policy", "least"), [("Migration-Only", 40), ("B3", 34), ("B3(0.5)", 20), ("B1", 1), ("A1", 1)]
)
def test_a_demand_knows_what_some_site_must_have(policy: str, least: int) -> None:
    assert demand_for(flexible(40), policy, linked_view(1, 1)).least == least
    assert demand_for(components(40), policy, linked_view(1, 1)).least == 40


def test_steady_are_the_modules_that_refuse_for_good_until_something_is_freed() -> None:
    view = linked_view(1, 1)
    index = view.index

    def steady(policy: str, request: Request, shared_links: bool = False) -> bool:
        return compile_demand(request, BUILTIN.find(policy), index, shared_links=shared_links).steady

    assert all(steady(policy, flexible(9)) for policy in META if policy != "B5")
    assert not steady("B5", flexible(9)), "its belief changes"
    assert not steady("B1", flexible(9, component_min=2)), "as FCM"
    assert not any(steady(policy, flexible(9), shared_links=True) for policy in ("A1", "A2", "B1", "B2", "B3", "B4"))
    assert all(steady(policy, flexible(9), shared_links=True) for policy in ("Migration-Only", "Initial", "Ideal"))
    cube = Communication(bisection_mbit_s=1, pattern=Pattern.CUBE)
    assert not steady("A1", msgspec.structs.replace(flexible(9), communication=cube))


# ------------------------------------------------------------------------------------------------ placing


def test_a_full_link_keeps_a_division_away_and_nothing_else() -> None:
    view = linked_view(30, 20, 20, load=(1000, 0, 0))
    assert placed(talking(flexible(35)), "B1", view) == {"C2": 20, "C3": 15}
    assert placed(talking(flexible(30)), "B1", view) == {"C1": 30}
    assert placed(talking(flexible(35)), "Initial", view) == {"C1": 30, "C2": 5}


def test_a1_looks_at_what_the_job_sends() -> None:
    view = linked_view(30, 20, 20, load=(900, 0, 0))
    assert placed(talking(flexible(40), 300), "A1", view) == {"C1": 3, "C2": 20, "C3": 17}
    assert placed(talking(flexible(40), 100), "A1", view) == {"C1": 30, "C2": 10}
    assert placed(flexible(40), "A1", view) == {"C1": 30, "C2": 10}, "a job that says nothing sends nothing"


def test_b5_goes_by_what_was_observed() -> None:
    view = linked_view(30, 20, 20, load=(900, 900, 900))
    silent = flexible(60)
    assert placed(silent, "B5", view) is not None, "nothing was seen yet"
    view.observed_bisection_bit_s = 900e6
    assert placed(silent, "B5", view) is None


def test_b5_never_refuses_for_good_what_only_its_belief_forbids() -> None:
    view = linked_view(30, 20, 20, limit=30)
    view.observed_bisection_bit_s = 9000e6
    refusal = refusal_of(flexible(60), "B5", view)
    assert not refusal.permanent
    assert refusal.cure.startswith("jobs that are seen to send less than the 9000 Mbit/s")
    assert refusal_of(flexible(91), "B5", view).permanent


@pytest.mark.parametrize("policy", BOUNDED)
def test_bounds_on_parts_are_kept(policy: str) -> None:
    view = linked_view(30, 20, 9)
    bounded = flexible(35, component_min=10)
    if policy == "B3":
        policy = "B3(0.5)"
    expected = {"C1": 25, "C2": 10} if policy != "Migration-Only" else None
    assert placed(bounded, policy, view) == expected
    assert placed(flexible(55, components_max=2), policy, view) is None


@pytest.mark.parametrize("policy", [policy for policy in META if policy not in BOUNDED])
def test_policies_that_keep_no_bounds_refuse_them(policy: str) -> None:
    view = linked_view(30, 30)
    refusal = refusal_of(flexible(20, component_min=10), policy, view)
    assert refusal.permanent
    assert "does not keep bounds" in refusal.reason
    assert "B1" in refusal.cure


def test_a_part_of_a_divided_job_is_not_moved_but_a_whole_one_is() -> None:
    view = linked_view(30, 20, 50)
    demand = demand_for(flexible(40), "B1", view)
    assert replace_one(demand, Spots((0, 1), (25, 15)), 1, [30, 0, 50], 0.0, view) == -1
    whole = demand_for(components(15), "B1", view)
    assert replace_one(whole, Spots((1,), (15,)), 0, [30, 0, 50], 0.0, view) == 2


def test_shared_links_are_seen() -> None:
    network = Network(uplink_mbit_s=1000, groups=(LinkGroup(name="west", members=("C1", "C2"), uplink_mbit_s=500),))
    view = linked_view(20, 20, 20, network=network)
    assert placed(talking(flexible(50)), "B1", view) == {"C1": 20, "C2": 20, "C3": 10}
    view.link_demand_bit_s[3] = 500 * MBIT
    assert placed(talking(flexible(50)), "B1", view) is None
    assert placed(talking(flexible(30)), "B1", view) == {"C1": 20, "C2": 10}
    assert "the link west (500 of 500 Mbit/s in use)" in refusal_of(talking(flexible(50)), "B1", view).reason


def test_behind_a_full_shared_link_the_group_that_lacks_least_is_to_grow() -> None:
    groups = (LinkGroup(name="west", members=("C1", "C2"), uplink_mbit_s=500),)
    view = linked_view(60, 20, 64, load=(0, 0, 0, 500), limit=64, network=Network(uplink_mbit_s=1000, groups=groups))
    refusal = refusal_of(talking(flexible(100)), "B1", view)
    assert refusal.cure == "less traffic on the link west, or 20 more idle processors on C2"


LINK_POLICY = """
from koala.policies import Form, policy

@policy("QUIET", form=Form.LINKS)
def quiet(idle, total, component_min, components_max, home, demand, capacity, per_processor_bit_s, parts):
    \"\"\"Only on sites with nothing on their links.\"\"\"
    left = total
    for site in range(len(idle)):
        if demand[site] == 0 and site != home:
            parts[site] = min(idle[site], left)
            left -= parts[site]
    return left{more}
"""


def foreign(more: str = "") -> Catalogue:
    catalogue = Catalogue.builtin()
    catalogue.add_from_source(LINK_POLICY.format(more=more), "mine.py")
    return catalogue


def test_a_users_policy_can_look_at_the_links() -> None:
    view = linked_view(10, 10, 10, load=(0, 5, 0))
    demand = compile_demand(flexible(15), foreign().find("QUIET"), view.index)
    spots = try_place(demand, view)
    assert spots == Spots((0, 2), (10, 5))
    away = compile_demand(msgspec.structs.replace(flexible(15), home="C1"), foreign().find("QUIET"), view.index)
    assert try_place(away, view) is None
    assert not refuse(away, view.idle, view).permanent


def test_a_users_policy_that_places_less_than_it_says_is_told_so() -> None:
    view = linked_view(10, 10, load=(0, 5))
    wrong = foreign(" * 0").find("QUIET")
    with pytest.raises(PolicyError, match="parts of 10 processors in all, for a total of 15"):
        try_place(compile_demand(flexible(15), wrong, view.index), view)


# ----------------------------------------------------------------------------------------------- refusals


def test_a_refusal_names_the_links_that_are_too_full_and_what_is_idle_on_the_others() -> None:
    view = linked_view(30, 20, 10, load=(1200, 1000, 0))
    refusal = refusal_of(talking(flexible(45)), "B1", view)
    assert "35 of 45 processors found no place; 10 are idle on the sites with open links" in refusal.reason
    assert (
        "the link of C1 (1200 of 1000 Mbit/s in use), the link of C2 (1000 of 1000 Mbit/s in use)" in refusal.reason
    )
    assert "less traffic on its link, where 1200 Mbit/s are in use and 1000 allowed" in refusal.shortages[0].cure
    assert not refusal.permanent
    assert "less traffic on the link of C1 and the link of C2" in refusal.cure


def test_the_one_link_that_would_be_enough_is_named() -> None:
    view = linked_view(30, 20, 10, load=(1200, 0, 0))
    assert "less traffic on the link of C1" in refusal_of(talking(flexible(45)), "B1", view).cure


def test_a_refused_chunk_says_how_much_of_it_there_is() -> None:
    refusal = refusal_of(flexible(40), "B3", linked_view(33, 20))
    assert refusal.reason == "no site with an open link has 34 idle processors, 85 % of 40; the most is 33"
    assert refusal.cure == "1 more idle processor on C1"


def test_a1_says_which_parts_each_link_has_room_for() -> None:
    view = linked_view(30, 20, load=(990, 0))
    refusal = refusal_of(talking(flexible(40)), "A1", view)
    assert "no division of 40 processors over the 50 that are idle" in refusal.reason
    assert "room for parts of up to 0 or from 40 processors" in refusal.shortages[0].cure
    assert "less traffic on the link of C1" in refusal.cure


def test_what_cannot_be_cured_is_permanent() -> None:
    view = linked_view(10, 10, limit=20)
    assert refusal_of(components(21), "B1", view).permanent
    assert "40 processors that the sites offer" in refusal_of(flexible(41), "B1", view).cure
    wild = refusal_of(talking(flexible(40), 10_000), "A1", view)
    assert wild.permanent
    assert "less bandwidth" in wild.cure
    assert "a smaller chunk" in refusal_of(flexible(30), "B3", view).cure


def test_a_job_that_stays_whole_is_told_who_of_job_and_policy_does_not_divide_it() -> None:
    view = linked_view(10, 10, limit=20)
    whole = "ask for no more than the 20 processors of the largest site"
    policy = "take a policy that divides, such as Initial, since Migration-Only never does"
    assert refusal_of(flexible(30), "Migration-Only", view).cure == f"{whole}, or {policy}"
    assert placed(flexible(30), "Initial", linked_view(20, 20, limit=20)) == {"C1": 20, "C2": 10}
    assert refusal_of(components(30), "Migration-Only", view).cure == f"{whole}, or allow a division and {policy}"
    assert refusal_of(components(30), "B1", view).cure == f"{whole}, or allow a division"
    for wide, name in ((flexible(41), "Migration-Only"), (components(41), "B1")):
        assert refusal_of(wide, name, view).cure == whole, "no division helps"


def test_no_more_full_links_are_named_than_the_limit() -> None:
    full = FULL_LINKS_NAMED_MAX + 2
    view = linked_view(*[5] * full, load=(1000,) * full)
    reason = refusal_of(talking(flexible(6)), "B1", view).reason
    assert reason.count("the link of") == FULL_LINKS_NAMED_MAX
    assert reason.endswith("and 2 more")


MORE = re.compile(r"(\d+) more idle processors? on (C\d+)")
LESS = re.compile(r"the link of (C\d+)")


def cured(demand: Demand, refusal: Refusal, view: View) -> list[bool]:
    """Whether each alternative of a cure helps when it is tried."""
    tried = []
    for way in refusal.cure.split(", or "):
        if "less traffic" in way:
            load = list(view.link_demand_bit_s)
            for name in LESS.findall(way):
                load[view.index[name]] = 0
            tried.append(place_on(demand, view.idle, view.with_link_demand(load)) is not None)
        elif MORE.search(way):
            grown = list(view.idle)
            for count, name in MORE.findall(way):
                grown[view.index[name]] += int(count)
            tried.append(place_on(demand, grown, view) is not None)
    return tried


@pytest.mark.parametrize("policy", META)
@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1300)), min_size=1, max_size=5),
    st.integers(1, 120),
    st.sampled_from([0.0, 100.0, 300.0, 900.0, 5000.0]),
    st.booleans(),
)
def test_every_refusal_under_links_is_true(
    policy: str, sites: list[tuple[int, int]], total: int, bisection: float, divisible: bool
) -> None:
    view = linked_view(*[idle for idle, _ in sites], load=tuple(load for _, load in sites), limit=30)
    view.observed_bisection_bit_s = bisection * MBIT
    demand = demand_for(talking(flexible(total) if divisible else components(total), bisection), policy, view)
    assume(try_place(demand, view) is None)
    refusal = refuse(demand, view.idle, view)
    assert refusal.permanent == (place_on(demand, view.limit, view.unloaded()) is None)
    if not refusal.permanent:
        helped = cured(demand, refusal, view)
        assert all(helped)
        assert helped or "several sites at once" in refusal.cure or "believed of this one" in refusal.cure
    for short in refusal.shortages:
        assert short.idle == view.idle[view.index[short.site]]
        assert short.missing == short.wanted - short.idle > 0
