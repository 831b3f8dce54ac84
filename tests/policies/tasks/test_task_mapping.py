"""Jobs of tasks: where WASE puts them on idle processors, what refuses them, and what the sites are as LANs."""

from __future__ import annotations

import math

import pytest

from koala.mapping.site_lans import WAN_DEFAULT, NodePowers, dendrogram_of
from koala.model.api import Refusal
from koala.model.dendrogram import MACHINES_MAX, InvalidDendrogramError, Machine
from koala.model.grid import NODE_POWER, Grid, LinkGroup, Network, Site
from koala.model.request import Component, Flexibility, Placement, Request
from koala.model.task_graph import TaskGraph
from koala.policies.interface import (
    View,
    compile_demand,
    demand_key,
    place_on,
    refuse,
    replace_one,
    to_placement,
    try_place,
)
from tests.support.policy_worlds import BUILTIN

# Two groups of three that exchange much inside, and one thin edge between them.
TWO_GROUPS = TaskGraph.of(
    dict.fromkeys("abcdef", 1.0),
    [("a", "b", 9.0), ("b", "c", 9.0), ("d", "e", 9.0), ("e", "f", 9.0), ("c", "d", 1.0)],
    800.0,
)


def job(
    graph: TaskGraph = TWO_GROUPS,
    *,
    clusters: tuple[tuple[int, ...], ...] = (),
    home: str | None = None,
    policy: str | None = None,
) -> Request:
    return Request(
        components=(Component(processors=len(graph.names)),),
        flexible=Flexibility(),
        tasks=graph,
        task_clusters=clusters,
        home=home,
        policy=policy,
    )


def asked(request: Request, view: View, *, default: str = "WF") -> Placement | Refusal:
    demand = compile_demand(request, BUILTIN.choose(request, default), view.index)
    spots = try_place(demand, view)
    return refuse(demand, view.idle, view) if spots is None else to_placement(demand, spots, view)


def places(request: Request, view: View, *, default: str = "WF") -> list[tuple[str, str]]:
    """By component its site and its tasks, whose names are letters."""
    placement = asked(request, view, default=default)
    assert isinstance(placement, Placement), placement
    assert all(len(each.tasks) == each.processors for each in placement.components)
    return [(each.site, "".join(each.tasks)) for each in placement.components]


def grid_of(*sites: Site, network: Network | None = None) -> Grid:
    return Grid(sites=sites, network=network)


def sites_of(*processors: int) -> View:
    return View.from_grid(grid_of(*(Site(name=f"C{n}", processors=each) for n, each in enumerate(processors, 1))))


def test_each_cluster_is_a_component_where_no_site_takes_both() -> None:
    assert places(job(), sites_of(3, 4)) == [("C1", "abc"), ("C2", "def")]


def test_one_site_that_has_room_takes_all_tasks_in_one_component() -> None:
    assert places(job(), sites_of(6, 6)) == [("C1", "abcdef")]


def test_the_search_begins_at_home() -> None:
    assert places(job(home="C2"), sites_of(6, 6)) == [("C2", "abcdef")]


def test_a_task_has_a_processor_for_itself_however_little_it_needs() -> None:
    light = TaskGraph.of(dict.fromkeys("abcdef", 1.0), [], 1.0)
    assert sorted(len(tasks) for _, tasks in places(job(light), sites_of(2, 2, 2))) == [2, 2, 2]
    assert isinstance(asked(job(light), sites_of(2, 3)), Refusal)


def test_clusters_by_hand_are_kept_together() -> None:
    by_hand = ((0, 2, 4), (1, 3, 5))
    assert places(job(clusters=by_hand), sites_of(3, 3)) == [("C1", "ace"), ("C2", "bdf")]


def test_tasks_go_where_the_power_is() -> None:
    weak = Site(name="weak", processors=8, node_power=500)
    strong = Site(name="strong", processors=8, nodes=tuple(Machine(name=f"n{n}", power=2000) for n in range(7)))
    view = View.from_grid(grid_of(weak, strong))
    assert places(job(), view) == [("strong", "abcdef")]


def test_of_a_site_in_use_only_what_it_surely_has_is_counted_on() -> None:
    """With one of two processors idle it may be the slow one that is left."""
    mixed = Site(
        name="mixed", processors=2, nodes=(Machine(name="fast", power=2000), Machine(name="slow", power=100))
    )
    one = job(TaskGraph.of({"a": 1.0}, [], 1000.0))
    view = View.from_grid(grid_of(mixed))
    assert places(one, view) == [("mixed", "a")]
    view.idle = [1]
    refusal = asked(one, view)
    assert isinstance(refusal, Refusal)
    assert "the best that any LAN offers is a mean of 100, in mixed" in refusal.reason
    assert not refusal.permanent


def test_too_little_power_everywhere_is_permanent() -> None:
    heavy = job(TaskGraph.of({"a": 2.0}, [], 1000.0))
    refusal = asked(heavy, sites_of(4, 4))
    assert isinstance(refusal, Refusal)
    assert refusal.policy == "WASE"
    assert refusal.permanent
    assert "1000 are missing" in refusal.reason
    assert "lower mcr" in refusal.cure


def test_too_few_processors_are_refused_by_number() -> None:
    view = sites_of(4, 4)
    view.idle = [2, 3]
    refusal = asked(job(), view)
    assert isinstance(refusal, Refusal)
    assert refusal.reason.startswith("1 of 6 processors found no place")
    assert not refusal.permanent


def test_the_grids_policy_gives_way_unless_it_maps_tasks() -> None:
    request = job()
    assert BUILTIN.choose(request, "WF").name == "WASE"
    assert BUILTIN.choose(request, "FCM").name == "WASE"
    assert BUILTIN.choose(request, "WASE-whole").name == "WASE-whole"
    assert BUILTIN.choose(job(policy="FCM"), "WF").name == "FCM"


def test_a_policy_that_knows_no_tasks_is_dealt_them_cluster_by_cluster() -> None:
    assert places(job(clusters=((0, 2, 4), (1, 3, 5)), policy="FCM"), sites_of(3, 3)) == [
        ("C1", "ace"),
        ("C2", "bdf"),
    ]


def test_wase_places_jobs_without_tasks_as_fcm_does() -> None:
    total = Request(components=(Component(processors=5),), flexible=Flexibility(), policy="WASE")
    placement = asked(total, sites_of(2, 4))
    assert isinstance(placement, Placement)
    assert [(each.site, each.processors, each.tasks) for each in placement.components] == [
        ("C2", 4, ()),
        ("C1", 1, ()),
    ]
    sizes = Request(components=(Component(processors=3), Component(processors=2)), policy="WASE")
    assert isinstance(asked(sizes, sites_of(2, 4)), Placement)


def test_wase_whole_finds_a_cluster_the_site_that_takes_it_whole() -> None:
    """The closest site is suitable on average and has room for one task of the three."""
    three = TaskGraph.of(dict.fromkeys("abc", 1.0), [("a", "b", 1.0), ("b", "c", 1.0)], 500.0)
    together = ((0, 1, 2),)
    assert places(job(three, clusters=together), sites_of(1, 3)) == [("C1", "a"), ("C2", "bc")]
    assert places(job(three, clusters=together, policy="WASE-whole"), sites_of(1, 3)) == [("C2", "abc")]


def test_jobs_of_other_tasks_are_other_demands() -> None:
    heavier = TaskGraph(names=TWO_GROUPS.names, rcr=TWO_GROUPS.rcr, edges=TWO_GROUPS.edges, mcr=900.0)
    keys = {demand_key(each, "WASE") for each in (job(), job(heavier), job(clusters=((0, 1, 2, 3, 4, 5),)))}
    assert len(keys) == 3
    assert demand_key(job(), "WASE") in keys


def test_a_component_of_tasks_is_not_moved_to_another_site() -> None:
    view = sites_of(3, 3, 9)
    demand = compile_demand(job(), BUILTIN.find("WASE"), view.index)
    spots = place_on(demand, [3, 3, 0], view)
    assert spots is not None
    assert replace_one(demand, spots, 0, [0, 0, 9], math.inf, view) == -1


def test_less_idle_is_never_taken_to_be_worse() -> None:
    """So that the queue tries a waiting job of tasks again whatever has changed."""
    view = sites_of(3, 3)
    assert not compile_demand(job(), BUILTIN.find("WASE"), view.index).steady


# ------------------------------------------------------------------------------------------- sites as LANs


def test_sites_name_their_regions_or_are_in_those_of_the_network() -> None:
    network = Network(
        uplink_mbit_s=1000.0,
        groups=(
            LinkGroup(name="coast", members=("delft", "leiden"), uplink_mbit_s=500.0),
            LinkGroup(name="holland", members=("coast",), uplink_mbit_s=300.0),
        ),
    )
    tree = dendrogram_of(
        grid_of(
            Site(name="delft", processors=2, uplink_mbit_s=50.0),
            Site(name="alone", processors=1),
            Site(name="leiden", processors=1),
            Site(name="pisa1", processors=1, man="pisa", wan="italy"),
            network=network,
        )
    )
    shape = {
        (wan.name, wan.uplink_mbit_s): {
            (man.name, man.uplink_mbit_s): [(lan.name, lan.uplink_mbit_s) for lan in man.lans] for man in wan.mans
        }
        for wan in tree.wans
    }
    assert shape == {
        ("holland", 300.0): {("coast", 500.0): [("delft", 50.0), ("leiden", 1000.0)]},
        (WAN_DEFAULT, math.inf): {("alone", 1000.0): [("alone", 1000.0)]},
        ("italy", math.inf): {("pisa", math.inf): [("pisa1", 1000.0)]},
    }
    assert tree.user_lan == "delft"


def test_processors_without_a_node_are_alike() -> None:
    nodes = (Machine(name="n1", power=800, load=0.5),)
    tree = dendrogram_of(
        grid_of(Site(name="a", processors=3, nodes=nodes), Site(name="b", processors=1, node_load=0.1))
    )
    assert tree.flat.machine_names == ["n1", "a/1", "a/2", "b/1"]
    assert tree.flat.power == pytest.approx([400, NODE_POWER, NODE_POWER, 0.9 * NODE_POWER])


def test_a_grid_of_too_many_processors_is_refused_before_they_are_listed() -> None:
    with pytest.raises(InvalidDendrogramError, match="MACHINES_MAX"):
        dendrogram_of(grid_of(Site(name="a", processors=MACHINES_MAX + 1)))


@pytest.mark.parametrize(
    ("idle", "count", "expected"),
    [(0, 3, []), (1, 3, [100.0]), (2, 3, [200.0, 100.0]), (4, 3, [500.0, 500.0, 200.0]), (9, 2, [900.0, 500.0])],
)
def test_the_best_of_the_weakest_processors_are_counted_on(idle: int, count: int, expected: list[float]) -> None:
    nodes = tuple(Machine(name=f"n{power}", power=power) for power in (900, 100, 200))
    assert (
        NodePowers(Site(name="a", processors=5, nodes=nodes, node_power=500.0)).best_of_weakest(idle, count)
        == expected
    )
