"""From requests to places: what try_place promises for every policy, structure of request and grid."""

from __future__ import annotations

from collections import Counter
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.model.grid import SITES_MAX, Grid, Link, Links, PairLink, Site, StoredFile
from koala.model.request import Component, Flexibility, InputFile, InputMode, Request
from koala.policies import MissingFileError, UnknownSiteError
from koala.policies.interface import (
    FileAt,
    Spots,
    View,
    compile_demand,
    demand_key,
    inputs,
    place_on,
    quota_processors,
    replace_one,
    to_placement,
    transfer_s,
    try_place,
)
from tests.support.policy_worlds import (
    BUILTIN,
    components,
    demand_for,
    flexible,
    grids,
    policy_names,
    requests,
    view_of,
)

FILES = ("alpha", "beta")
GB = 10**9


def spots_of(request: Request, policy: str, view: View) -> Spots | None:
    return try_place(demand_for(request, policy, view), view)


# ------------------------------------------------------------------------------------- worked examples


def test_the_same_three_components_go_apart_under_worst_fit_and_together_under_cluster_minimization() -> None:
    view = view_of(18, 15, 12)
    assert spots_of(components(8, 8, 8), "WF", view) == Spots((0, 1, 2), (8, 8, 8))
    assert spots_of(components(8, 8, 8), "CM", view) == Spots((0, 0, 1), (8, 8, 8))


def test_a_total_of_24_is_divided_by_fcm_and_refused_as_one_component_by_the_others() -> None:
    view = view_of(18, 15, 12)
    assert spots_of(flexible(24), "FCM", view) == Spots((0, 1), (18, 6))
    for policy in ("WF", "CM", "CF"):
        assert spots_of(components(24), policy, view) is None
        assert spots_of(flexible(24), policy, view) is None


def test_the_answer_is_in_the_order_of_the_request_though_the_largest_is_placed_first() -> None:
    assert spots_of(components(2, 9, 4), "CM", view_of(12, 20)) == Spots((1, 1, 1), (2, 9, 4))
    assert spots_of(components(2, 9, 4), "WF", view_of(12, 10)) == Spots((1, 0, 1), (2, 9, 4))


def test_parts_come_in_the_order_in_which_they_were_made() -> None:
    assert spots_of(flexible(24), "FCM", view_of(12, 15, 18)) == Spots((2, 1), (18, 6))


def test_fixed_components_are_deducted_before_the_policy_looks() -> None:
    request = Request(
        components=(Component(processors=3), Component(processors=10, site="C1"), Component(processors=3))
    )
    assert spots_of(request, "CM", view_of(12, 8)) == Spots((1, 0, 1), (3, 10, 3))


def test_a_fixed_component_that_does_not_fit_refuses_the_job_whatever_is_idle_elsewhere() -> None:
    request = Request(components=(Component(processors=10, site="C2"),))
    assert spots_of(request, "WF", view_of(50, 8)) is None


@pytest.mark.parametrize("policy", ["WF", "CM", "CF", "FCM"])
def test_splits_are_tried_in_the_order_of_liking(policy: str) -> None:
    request = flexible(24, splits=((24,), (12, 12), (8, 8, 8)))
    answer = spots_of(request, policy, view_of(18, 15, 12))
    assert answer is not None
    assert answer.sizes == (12, 12)


def test_fcm_places_given_sizes_by_cluster_minimization() -> None:
    view = view_of(18, 15, 12)
    assert spots_of(components(8, 8, 8), "FCM", view) == spots_of(components(8, 8, 8), "CM", view)


def test_an_unknown_site_is_named_with_what_comes_near() -> None:
    with pytest.raises(UnknownSiteError) as caught:
        demand_for(Request(components=(Component(processors=1, site="c2"),)), "WF", view_of(1, 1, 1))
    assert "'c2'" in caught.value.for_user()
    assert "did you mean C2" in caught.value.for_user()


def test_a_view_has_at_least_one_site() -> None:
    with pytest.raises(ValueError, match="at least one site"):
        View.from_grid(Grid(sites=()))


# ------------------------------------------------------------------------------------- the view of a grid


def test_a_quota_is_taken_of_the_number_as_written() -> None:
    assert quota_processors(100, 0.29) == 29
    assert quota_processors(7, 0.5) == 3
    assert quota_processors(64, 1.0) == 64
    view = View.from_grid(Grid(sites=(Site(name="A", processors=100, quota=0.29),)))
    assert (view.idle, view.limit) == ([29], [29])


def test_links_are_the_same_in_both_directions_and_pairs_override_the_default() -> None:
    grid = Grid(
        sites=tuple(Site(name=name, processors=1) for name in "ABC"),
        links=Links(
            default=Link(bandwidth_mbit_s=100.0, latency_s=0.01),
            pairs=(PairLink(between=("C", "A"), bandwidth_mbit_s=8.0, latency_s=0.5),),
        ),
    )
    view = View.from_grid(grid)
    assert view.latency_s[0][2] == view.latency_s[2][0] == 0.5
    assert view.bytes_per_s[0][2] == view.bytes_per_s[2][0] == 1e6
    assert view.latency_s[0][1] == view.latency_s[1][2] == 0.01
    assert view.bytes_per_s[1][2] == 12.5e6


def test_correcting_one_link_leaves_the_others_as_they_were() -> None:
    view = view_of(1, 1, 1)
    before = view.bytes_per_s[2][1]
    view.bytes_per_s[0][1] = 1.0
    assert view.bytes_per_s[2][1] == before


def test_the_largest_grid_has_a_view_that_takes_no_room_for_links_nobody_asks_about() -> None:
    view = View.from_grid(Grid(sites=tuple(Site(name=f"S{number}", processors=1) for number in range(SITES_MAX))))
    assert view.bytes_per_s[SITES_MAX - 1][0] == 12.5e6
    assert len(view.bytes_per_s) == 1
    with pytest.raises(IndexError):
        view.latency_s[SITES_MAX]


# ------------------------------------------------------------------------------------- properties


@given(grids(FILES), policy_names, st.data())
def test_a_placement_is_whole_and_never_takes_more_than_is_idle(grid: Grid, policy: str, data: st.DataObject) -> None:
    request = data.draw(requests(len(grid.sites), FILES))
    view = View.from_grid(grid)
    idle_before = list(view.idle)
    demand = demand_for(request, policy, view)
    spots = try_place(demand, view)
    assert view.idle == idle_before
    if spots is None:
        return
    used: Counter[int] = Counter()
    for site, size in zip(spots.sites, spots.sizes, strict=True):
        assert size >= 1
        used[site] += size
    assert sum(used.values()) == request.processors
    assert all(used[site] <= quota_processors(grid.sites[site].processors, grid.sites[site].quota) for site in used)
    assert max(view.idle) >= demand.least
    assert sum(view.idle) >= demand.total
    assert_answers_the_request(request, spots, policy, view)


def assert_answers_the_request(request: Request, spots: Spots, policy: str, view: View) -> None:
    if request.flexible is None:
        assert spots.sizes == tuple(component.processors for component in request.components)
        for component, site in zip(request.components, spots.sites, strict=True):
            assert component.site in (None, view.names[site])
    elif request.flexible.splits:
        assert spots.sizes in request.flexible.splits
    elif BUILTIN.find(policy).form.divides:
        assert len(set(spots.sites)) == len(spots.sites)
        assert min(spots.sizes) >= request.flexible.component_min
        assert len(spots.sizes) <= (request.flexible.components_max or len(view.names))
    else:
        assert spots.sizes == (request.processors,)


@given(grids(FILES), policy_names, st.data())
def test_the_quick_answers_of_try_place_are_those_of_the_policy(grid: Grid, policy: str, data: st.DataObject) -> None:
    request = data.draw(requests(len(grid.sites), FILES))
    view = View.from_grid(grid)
    demand = demand_for(request, policy, view)
    assert try_place(demand, view) == place_on(demand, view.idle, view)


@given(grids(FILES), policy_names, st.data())
def test_a_placement_says_what_the_spots_say(grid: Grid, policy: str, data: st.DataObject) -> None:
    request = data.draw(requests(len(grid.sites), FILES))
    view = View.from_grid(grid)
    demand = demand_for(request, policy, view)
    spots = try_place(demand, view)
    if spots is None:
        return
    placement = to_placement(demand, spots, view)
    assert placement.policy == policy
    assert [component.index for component in placement.components] == list(range(len(spots.sites)))
    assert [component.site for component in placement.components] == [view.names[site] for site in spots.sites]
    assert [component.processors for component in placement.components] == list(spots.sizes)
    for part, component in enumerate(placement.components):
        reads = request.components[part if request.flexible is None else 0].input_files
        assert [source.name for source in component.sources] == [file.name for file in reads]
        by_source: dict[str, float] = {}
        for source in component.sources:
            by_source[source.site] = by_source.get(source.site, 0.0) + source.transfer_s
        expected_s = transfer_s(demand, spots, part, spots.sites[part], view)
        assert max(by_source.values(), default=0.0) == expected_s


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 10**12), st.booleans())
def test_the_chunks_of_a_file_lie_end_to_end_and_are_the_whole_file(
    sizes: list[int], size_bytes: int, divided: bool
) -> None:
    read = (InputFile(name="alpha", mode=InputMode.CHUNK),)
    if divided:
        total = Component(processors=sum(sizes), input_files=read)
        request = Request(components=(total,), flexible=Flexibility(splits=(tuple(sizes),)))
    else:
        request = Request(components=tuple(Component(processors=size, input_files=read) for size in sizes))
    view = view_of(1000)
    view.files["alpha"] = FileAt(size_bytes, (0,))
    demand = demand_for(request, "CF", view)
    spots = try_place(demand, view)
    assert spots is not None
    end = 0
    for part in range(len(sizes)):
        (read_by_part,) = inputs(demand, spots, part, view)
        assert read_by_part.chunk is not None
        offset, length = read_by_part.chunk
        assert offset == end
        assert abs(length - size_bytes * sizes[part] / sum(sizes)) <= 1
        assert read_by_part.size_bytes == length
        end += length
    assert end == size_bytes


# ------------------------------------------------------------------------------------- demands


def test_equal_demands_have_equal_keys_whatever_a_policy_can_not_see() -> None:
    one = Request(components=(Component(processors=4, input_files=(InputFile(name="f", path="here"),)),), name="a")
    other = Request(components=(Component(processors=4, input_files=(InputFile(name="f", path="there"),)),), name="b")
    assert demand_key(one, "WF") == demand_key(other, "WF")
    assert hash(demand_key(one, "WF")) == hash(demand_key(other, "WF"))


def test_different_demands_have_different_keys() -> None:
    different = [
        (components(4), "WF"),
        (components(4), "CM"),
        (components(5), "WF"),
        (components(4, 4), "WF"),
        (components(4, 5), "WF"),
        (components(5, 4), "WF"),
        (flexible(4), "WF"),
        (flexible(4, component_min=2), "WF"),
        (flexible(4, components_max=2), "WF"),
        (flexible(4, splits=((2, 2),)), "WF"),
        (Request(components=(Component(processors=4, site="C1"),)), "WF"),
        (Request(components=(Component(processors=4, site="C2"),)), "WF"),
        (Request(components=(Component(processors=4, input_files=(InputFile(name="f"),)),)), "WF"),
        (
            Request(components=(Component(processors=4, input_files=(InputFile(name="f", mode=InputMode.CHUNK),)),)),
            "WF",
        ),
    ]
    keys = {demand_key(request, policy) for request, policy in different}
    assert len(keys) == len(different)


def test_a_demand_carries_the_key_of_its_request() -> None:
    view = view_of(4, 4)
    request = components(3, 1)
    demand = compile_demand(request, BUILTIN.find("cm"), view.index)
    assert demand.key == demand_key(request, "CM")


def test_least_and_total_bound_what_a_demand_needs() -> None:
    view = view_of(1, 1, 1)
    assert (demand_for(components(3, 7, 2), "WF", view).least, demand_for(components(3, 7, 2), "WF", view).total) == (
        7,
        12,
    )
    assert demand_for(flexible(12), "WF", view).least == 12
    assert demand_for(flexible(12, component_min=3), "FCM", view).least == 3
    assert demand_for(flexible(12, splits=((12,), (8, 4), (6, 6))), "FCM", view).least == 6


# ------------------------------------------------------------------------------------- files


def filed_view() -> View:
    """A and B are near each other (80 Mbit/s, 1 s), C is far from both (8 Mbit/s, 5 s); data is at C and B."""
    return View.from_grid(
        Grid(
            sites=tuple(Site(name=name, processors=10) for name in "ABC"),
            links=Links(
                default=Link(bandwidth_mbit_s=8.0, latency_s=5.0),
                pairs=(PairLink(between=("A", "B"), bandwidth_mbit_s=80.0, latency_s=1.0),),
            ),
            files=(StoredFile(name="data", size_bytes=GB, replicas=("C", "B")),),
        )
    )


def reading(*sizes: int, mode: InputMode = InputMode.WHOLE) -> Request:
    read = (InputFile(name="data", mode=mode),)
    return Request(components=tuple(Component(processors=size, input_files=read) for size in sizes))


def test_close_to_files_goes_to_replicas_first_and_then_where_they_arrive_soonest() -> None:
    view = filed_view()
    assert spots_of(reading(6, 6, 6), "CF", view) == Spots((1, 2, 0), (6, 6, 6))


def test_inputs_come_from_the_replica_with_the_least_time_under_every_policy() -> None:
    view = filed_view()
    for policy in ("WF", "CF"):
        demand = demand_for(reading(6, 6, 6), policy, view)
        spots = Spots((0, 1, 2), (6, 6, 6))
        (at_a,), (at_b,), (at_c,) = (inputs(demand, spots, part, view) for part in range(3))
        assert (at_a.source, at_a.transfer_s, at_a.size_bytes, at_a.chunk) == (1, 101.0, GB, None)
        assert (at_b.source, at_b.transfer_s) == (1, 0.0)
        assert (at_c.source, at_c.transfer_s) == (2, 0.0)


def test_equally_near_replicas_are_chosen_by_the_index_of_their_site() -> None:
    view = view_of(5, 5, 5)
    view.files["data"] = FileAt(GB, (2, 1))
    demand = demand_for(reading(1), "WF", view)
    (read,) = inputs(demand, Spots((0,), (1,)), 0, view)
    assert read.source == 1


def test_a_chunk_takes_its_share_of_the_time() -> None:
    view = filed_view()
    demand = demand_for(reading(2, 6, mode=InputMode.CHUNK), "CF", view)
    spots = Spots((0, 0), (2, 6))
    assert transfer_s(demand, spots, 0, 0, view) == pytest.approx(1.0 + 0.25 * 100)
    assert transfer_s(demand, spots, 1, 0, view) == pytest.approx(1.0 + 0.75 * 100)


def test_the_files_of_one_component_share_the_link_so_their_times_add_up() -> None:
    view = filed_view()
    view.files["more"] = FileAt(GB // 10, (1,))
    read = (InputFile(name="data"), InputFile(name="more"))
    demand = demand_for(Request(components=(Component(processors=1, input_files=read),)), "CF", view)
    assert transfer_s(demand, Spots((0,), (1,)), 0, 0, view) == pytest.approx(101.0 + 11.0)


def test_a_file_without_a_replica_keeps_a_job_from_every_site() -> None:
    view = filed_view()
    demand = demand_for(reading(1), "WF", view)
    del view.files["data"]
    assert try_place(demand, view) is None
    assert transfer_s(demand, Spots((0,), (1,)), 0, 0, view) == inf
    with pytest.raises(MissingFileError) as caught:
        inputs(demand, Spots((0,), (1,)), 0, view)
    assert "'data'" in caught.value.for_user()


def test_one_component_moves_to_the_site_that_its_files_reach_in_time() -> None:
    view = filed_view()
    demand = demand_for(reading(6, 6), "CF", view)
    spots = Spots((1, 2), (6, 6))
    assert replace_one(demand, spots, 0, [10, 5, 5], 200.0, view) == 0
    assert replace_one(demand, spots, 0, [10, 5, 5], 100.0, view) == -1
    assert replace_one(demand, spots, 0, [10, 5, 6], 100.0, view) == 2


def test_one_component_without_files_moves_to_the_most_idle_site() -> None:
    view = view_of(10, 10, 10)
    demand = demand_for(components(6, 6), "CM", view)
    assert replace_one(demand, Spots((0, 0), (6, 6)), 1, [4, 7, 9], 0.0, view) == 2


def test_a_component_whose_site_the_user_chose_never_moves() -> None:
    view = view_of(10, 10, 10)
    request = Request(components=(Component(processors=6, site="C2"), Component(processors=6)))
    demand = demand_for(request, "CM", view)
    spots = Spots((1, 0), (6, 6))
    assert replace_one(demand, spots, 0, [10, 5, 10], inf, view) == -1
    assert replace_one(demand, spots, 0, [10, 6, 10], inf, view) == 1


def test_a_part_of_a_divided_total_moves_by_its_own_size() -> None:
    view = view_of(18, 15, 12)
    demand = demand_for(flexible(24), "FCM", view)
    assert replace_one(demand, Spots((0, 1), (18, 6)), 1, [0, 5, 6], inf, view) == 2


@given(st.data())
def test_fewer_idle_processors_never_help_a_steady_demand(data: st.DataObject) -> None:
    grid = data.draw(grids(FILES))
    view = View.from_grid(grid)
    demand = demand_for(data.draw(requests(len(grid.sites), FILES)), data.draw(policy_names), view)
    if not demand.steady:
        return
    more = [data.draw(st.integers(0, limit)) for limit in view.limit]
    less = [data.draw(st.integers(0, idle)) for idle in more]
    view.idle = less
    if try_place(demand, view) is not None:
        view.idle = more
        assert try_place(demand, view) is not None


def test_which_demands_are_steady() -> None:
    view = view_of(6, 2, 2)
    assert demand_for(components(4), "WF", view).steady
    assert demand_for(flexible(9), "FCM", view).steady
    assert not demand_for(flexible(9, component_min=2), "FCM", view).steady
    assert not demand_for(components(4, 4), "CM", view).steady
