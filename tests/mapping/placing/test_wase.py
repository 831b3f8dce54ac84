"""Step 2 of WASE: worked examples, the twin that is written word by word, and what holds for every mapping."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.mapping.placing.catalogue import METHODS, InvalidMappingError, MappingOptions, map_tasks
from koala.mapping.placing.power_left import PowerLeft
from koala.mapping.placing.suitability import offered_power, suitability, wanted_power
from koala.mapping.result import NoPlace, TaskMapping, measured
from koala.model.dendrogram import Dendrogram, InvalidDendrogramError, Man, Wan
from koala.model.task_graph import QUANTITY_MAX, QUANTITY_MIN, TaskGraph
from tests.support.naive_mapping import clustered, grids, lan, naive_wase, one_man, tasks

Clustered = tuple[TaskGraph, tuple[tuple[int, ...], ...]]


def mapped(answer: TaskMapping | NoPlace) -> TaskMapping:
    assert isinstance(answer, TaskMapping), answer
    return answer


def refused(answer: TaskMapping | NoPlace) -> NoPlace:
    assert isinstance(answer, NoPlace), answer
    return answer


def by_name(graph: TaskGraph, grid: Dendrogram, answer: TaskMapping | NoPlace) -> dict[str, str]:
    return mapped(answer).by_name(graph, grid)


# ------------------------------------------------------------------------------------------- suitability


def test_suitability_is_the_mean_of_the_best_machines_over_mean_and_deviation() -> None:
    """Needs 2, 4, 4, 4, 5, 5, 7, 9 have mean 5 and deviation 2; the best 8 machines are all 4."""
    needs = (2, 4, 4, 4, 5, 5, 7, 9)
    assert wanted_power(needs) == 7
    assert offered_power((4, 12, 8, 4), 8) == 7
    assert suitability((4, 12, 8, 4), needs) == 1
    assert offered_power((4, 12, 8, 4), 2) == 10


def test_a_machine_with_nothing_left_is_no_machine() -> None:
    assert offered_power((0, 6), 2) == 6
    assert offered_power((0,), 1) == 0
    assert offered_power((), 1) == 0


def test_a_mean_is_never_above_the_best_machine() -> None:
    assert offered_power((0.1, 0.1, 0.1), 3) == 0.1


# --------------------------------------------------------------------------------------- worked examples


def test_tasks_go_by_need_onto_the_machine_of_highest_affinity() -> None:
    """t1 (5) takes a0 (10, then 5), t2 (4) takes a1 (8, then 4), t0 (3) takes a0 (5, then 2)."""
    graph, grid = tasks(3, 5, 4), one_man(lan("a", 10, 8))
    answer = mapped(map_tasks(graph, [(0, 1, 2)], grid))
    assert answer.by_name(graph, grid) == {"t0": "a0", "t1": "a0", "t2": "a1"}
    assert answer.affinities == (5 / 3, 10 / 5, 8 / 4)


def test_the_largest_and_the_smallest_numbers_there_can_be_are_mapped() -> None:
    """No sum, square or quotient of them overflows or vanishes."""
    largest, smallest = TaskGraph.of({"a": QUANTITY_MAX}, [], QUANTITY_MAX), TaskGraph.of({"a": 1e-9}, [], 1e-9)
    grid = one_man(lan("a", QUANTITY_MAX, QUANTITY_MIN))
    told = refused(map_tasks(largest, [(0,)], grid))
    assert 0 < told.missing < math.inf
    assert math.isfinite(mapped(map_tasks(smallest, [(0,)], grid)).affinities[0])


def test_ties_go_to_the_machine_and_the_task_with_the_lower_index() -> None:
    graph, grid = tasks(3, 3), one_man(lan("a", 8, 8))
    assert by_name(graph, grid, map_tasks(graph, [(0, 1)], grid)) == {"t0": "a0", "t1": "a1"}


def test_clusters_that_need_most_come_first() -> None:
    """The pair needs 10 and takes a; the single task of 9 finds a's machine too small by then."""
    graph, grid = tasks(9, 5, 5), one_man(lan("a", 10), lan("b", 9))
    answer = mapped(map_tasks(graph, [(0,), (1, 2)], grid))
    assert answer.by_name(graph, grid) == {"t0": "b0", "t1": "a0", "t2": "a0"}
    assert answer.homes == (1, 0)


def test_what_does_not_fit_into_the_suitable_lan_goes_to_the_best_connected_brother() -> None:
    """a offers a mean of 8 for 4 and is suitable, but holds two tasks of 4 only; c has the better link."""
    grid = one_man(lan("a", 8), lan("b", 8, uplink_mbit_s=10), lan("c", 8, uplink_mbit_s=100))
    graph = tasks(4, 4, 4, edges=[(0, 1, 1), (1, 2, 3)])
    answer = mapped(map_tasks(graph, [(0, 1, 2)], grid))
    assert answer.by_name(graph, grid) == {"t0": "a0", "t1": "a0", "t2": "c0"}
    measures = measured(answer, graph, grid)
    assert measures.lan_hit_ratio == pytest.approx(2 / 3)
    assert measures.distances == (2, 1, 0, 0)
    assert measures.inter_lan_share == 0.75
    assert (measures.affinity_mean, measures.affinity_min, measures.whole_share) == ((2 + 1 + 2) / 3, 1, 0)


def far_man() -> Dendrogram:
    """The home MAN has one machine; the other has a LAN with a good link and one with good machines."""
    near = Man(name="near", lans=(lan("a", 8),))
    far = Man(name="far", lans=(lan("b", 5, uplink_mbit_s=100), lan("c", 9, uplink_mbit_s=10)))
    return Dendrogram(wans=(Wan(name="w", mans=(near, far)),), user_lan="a")


def test_the_machines_of_another_man_are_one_pool_or_one_lan_after_the_other() -> None:
    graph, grid = tasks(4, 4, 4), far_man()
    assert by_name(graph, grid, map_tasks(graph, [(0, 1, 2)], grid))["t2"] == "c0"
    options = MappingOptions(lan_by_lan=True)
    assert by_name(graph, grid, map_tasks(graph, [(0, 1, 2)], grid, options=options))["t2"] == "b0"


def test_a_user_may_sit_elsewhere_than_the_grid_says() -> None:
    graph, grid = tasks(4), far_man()
    assert by_name(graph, grid, map_tasks(graph, [(0,)], grid, user_lan="c")) == {"t0": "c0"}
    with pytest.raises(InvalidDendrogramError, match="no LAN 'z'"):
        map_tasks(graph, [(0,)], grid, user_lan="z")


# ------------------------------------------------------------------------------------------------ errors


def test_a_cluster_without_a_suitable_lan_says_what_was_missing() -> None:
    """Needs 6 and 10 have mean 8 and deviation 2; the best LAN offers a mean of 9."""
    answer = refused(map_tasks(tasks(6, 10), [(0, 1)], one_man(lan("a", 12, 4), lan("b", 11, 7))))
    assert (answer.cluster, answer.task) == (("t0", "t1"), None)
    assert (answer.wanted, answer.offered, answer.where) == (10, 9, "b")
    assert answer.for_user() == (
        "the cluster of t0, t1 found no suitable LAN: it asks for machines of 10 MFlop/s (mean and standard "
        "deviation of its tasks), and the best that any LAN offers is a mean of 9, in b; 1 are missing; "
        "lower mcr, give the grid more power or try another method"
    )


def test_a_task_without_a_machine_says_what_was_missing() -> None:
    """a is suitable for three tasks of 6 by its mean, and holds two; nobody has 6 left for the third."""
    answer = refused(map_tasks(tasks(6, 6, 6), [(0, 1, 2)], one_man(lan("a", 9, 8), lan("b", 5))))
    assert (answer.task, answer.wanted, answer.offered, answer.where) == ("t2", 6, 5, "b0")
    assert "task t2 found no machine: it needs 6 MFlop/s, and the most that any has left is 5" in answer.for_user()
    assert answer.missing == 1


def test_a_grid_without_machines_says_so() -> None:
    answer = refused(map_tasks(tasks(*[1] * 7), [range(7)], one_man(lan("a"))))
    assert answer.for_user().startswith(
        "the cluster of t0, t1, t2, t3, t4 and 2 more found no suitable LAN: the grid has no machine with power left"
    )


@pytest.mark.parametrize(
    ("clusters", "message"),
    [
        ([(0,)], "task t1 is in no cluster"),
        ([(0, 1), (1,)], "task t1 is in two clusters"),
        ([(0, 1), ()], "a cluster has no task"),
        ([(0, 1, 2)], "there is no task 2"),
    ],
)
def test_clusters_of_another_application_are_refused(clusters: list[tuple[int, ...]], message: str) -> None:
    with pytest.raises(InvalidMappingError) as caught:
        map_tasks(tasks(1, 1), clusters, one_man(lan("a", 5)))
    assert message in caught.value.for_user()


def test_a_method_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(InvalidMappingError, match="no method of mapping 'best'; there are: wase, greedy"):
        map_tasks(tasks(1), [(0,)], one_man(lan("a", 5)), "best")


@pytest.mark.parametrize("number", [0.0, -1.0, math.inf, math.nan])
def test_options_have_ranges(number: float) -> None:
    with pytest.raises(InvalidMappingError, match="affinity_wanted"):
        MappingOptions(affinity_wanted=number)
    with pytest.raises(InvalidMappingError, match="mbit_s_per_rqoc"):
        MappingOptions(mbit_s_per_rqoc=number)


# -------------------------------------------------------------------------------------------- properties


@given(clustered(), grids(), st.booleans())
def test_the_mapping_is_that_of_the_algorithms_word_by_word(
    work: Clustered, grid: Dendrogram, lan_by_lan: bool
) -> None:
    graph, clusters = work
    answer = map_tasks(graph, clusters, grid, options=MappingOptions(lan_by_lan=lan_by_lan))
    naive = naive_wase(graph, clusters, grid, lan_by_lan)
    if naive is None:
        refused(answer)
        return
    assert by_name(graph, grid, answer) == naive[0]
    homes = [grid.flat.levels[0].names[home] for home in mapped(answer).homes]
    assert homes == [naive[1][cluster] for cluster in range(len(clusters))]


@given(clustered(), grids())
def test_all_tasks_are_placed_where_there_is_power_for_them_or_nothing_is(work: Clustered, grid: Dendrogram) -> None:
    graph, clusters = work
    for method in METHODS:
        left = PowerLeft(grid.flat)
        answer = map_tasks(graph, clusters, grid, method, left=left)
        expected = grid.flat.power.copy()
        if isinstance(answer, TaskMapping):
            assert min(answer.affinities) >= 1
            assert min(answer.homes) >= 0
            for task, machine in enumerate(answer.machines):
                expected[machine] -= graph.mcr * graph.rcr[task]
        assert left.power == expected
        assert min(expected) >= 0
        best = [max((expected[each] for each in machines), default=0.0) for machines in grid.flat.levels[0].sons]
        assert left.lan_best == best


@pytest.mark.parametrize("method", METHODS)
def test_an_application_after_another_finds_what_that_has_left(method: str) -> None:
    graph, grid = tasks(6, 6), one_man(lan("a", 8, 8), lan("b", 7, 7))
    left = PowerLeft(grid.flat)
    used = [set(by_name(graph, grid, map_tasks(graph, [(0, 1)], grid, method, left=left)).values()) for _ in range(2)]
    assert sorted(map(sorted, used)) == [["a0", "a1"], ["b0", "b1"]]
    before = left.power.copy()
    refused(map_tasks(graph, [(0, 1)], grid, method, left=left))
    assert left.power == before


@given(clustered())
def test_on_an_ample_grid_every_cluster_is_in_one_lan(work: Clustered) -> None:
    graph, clusters = work
    grid = one_man(*(lan(name, *[1000.0] * 8) for name in "abc"))
    for method in ("wase", "wase-whole", "wase-far", "wase-soft", "wase-all"):
        measures = measured(mapped(map_tasks(graph, clusters, grid, method)), graph, grid)
        assert (measures.lan_hit_ratio, measures.whole_share) == (1, 1)


@given(clustered(), grids())
def test_measures_are_those_of_a_naive_recomputation(work: Clustered, grid: Dendrogram) -> None:
    graph, clusters = work
    answer = map_tasks(graph, clusters, grid)
    if isinstance(answer, NoPlace):
        return
    place = {
        machine.name: (wan.name, man.name, each.name)
        for wan in grid.wans
        for man in wan.mans
        for each in man.lans
        for machine in each.machines
    }
    where = [place[name] for name in answer.by_name(graph, grid).values()]
    home_of = {way[2]: way for way in place.values()}
    homes = [home_of[grid.flat.levels[0].names[home]] for home in answer.homes]
    counts = [0, 0, 0, 0]
    hits = []
    for cluster, home in zip(clusters, homes, strict=True):
        for task in cluster:
            counts[3 - sum(where[task][: depth + 1] == home[: depth + 1] for depth in range(3))] += 1
        hits.append(sum(where[task] == home for task in cluster) / len(cluster))
    measures = measured(answer, graph, grid)
    assert measures.distances == tuple(counts)
    assert measures.lan_hit_ratio == pytest.approx(sum(hits) / len(hits))
    rqoc = {True: 0.0, False: 0.0}
    for one, other, weight in graph.edges:
        rqoc[where[one] == where[other]] += weight
    share = rqoc[False] / (rqoc[False] + rqoc[True]) if graph.edges else 0
    assert measures.inter_lan_share == pytest.approx(share)
    assert measures.affinity_min == min(answer.affinities)
