"""Beyond the paper: clusters kept whole, far LANs, links that carry, scarce machines, and tasks that are spawned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.mapping.placing import scarce_machines, whole_clusters
from koala.mapping.placing.catalogue import InvalidMappingError, MappingOptions, map_tasks
from koala.mapping.placing.closest_first import SearchOrders
from koala.mapping.placing.power_left import Placing, PowerLeft, Spot
from koala.mapping.placing.soft_bandwidth import LinkLoads, WantsBandwidth, bandwidth_measured
from koala.mapping.placing.spawning import left_by, map_spawned
from koala.mapping.placing.whole_clusters import Lenient, map_whole
from koala.mapping.result import NoPlace, TaskMapping, measured
from koala.model.dendrogram import Dendrogram, Man, Wan
from koala.model.task_graph import InvalidTaskGraphError, TaskGraph
from tests.support.naive_mapping import clustered, graphs, grids, lan, one_man, tasks

Clustered = tuple[TaskGraph, tuple[tuple[int, ...], ...]]
BEYOND = ("wase-whole", "wase-far", "wase-soft", "wase-all")


def mapped(answer: TaskMapping | NoPlace) -> TaskMapping:
    assert isinstance(answer, TaskMapping), answer
    return answer


def lans_of(grid: Dendrogram, answer: TaskMapping) -> list[str]:
    return [grid.flat.levels[0].names[grid.flat.machine_lan[machine]] for machine in answer.machines]


# ------------------------------------------------------------------------------------------------- whole


def test_a_lan_that_is_suitable_on_average_only_does_not_divide_a_cluster() -> None:
    """a is suitable by its mean and holds two tasks of three; b holds all."""
    graph, grid = tasks(4, 4, 4), one_man(lan("a", 8), lan("b", 8, 4))
    assert lans_of(grid, mapped(map_tasks(graph, [(0, 1, 2)], grid))) == ["a", "a", "b"]
    assert lans_of(grid, mapped(map_tasks(graph, [(0, 1, 2)], grid, "wase-whole"))) == ["b", "b", "b"]


def test_a_lan_that_is_unsuitable_on_average_may_take_a_cluster() -> None:
    """Needs 1 and 9 have mean 5 and deviation 4; the machines' mean is 5.5."""
    graph, grid = tasks(1, 9), one_man(lan("a", 10, 1))
    assert isinstance(map_tasks(graph, [(0, 1)], grid), NoPlace)
    assert lans_of(grid, mapped(map_tasks(graph, [(0, 1)], grid, "wase-whole"))) == ["a", "a"]


def test_a_cluster_is_packed_tightly_where_loosely_does_not_keep_it_whole() -> None:
    """The best machine first leaves 1 and 2 for the task of 3; the tightest first leaves it just that."""
    graph, grid = tasks(6, 4, 3), one_man(lan("a", 7, 6))
    answer = mapped(map_tasks(graph, [(0, 1, 2)], grid, "wase-whole"))
    assert answer.by_name(graph, grid) == {"t0": "a1", "t1": "a0", "t2": "a0"}
    assert not answer.scarce


def test_a_cluster_that_no_lan_takes_goes_where_most_of_it_fits_and_the_rest_near() -> None:
    """c takes two of three, more than the user's LAN; the third goes to the other LAN of that MAN."""
    home = Man(name="home", lans=(lan("a", 5), lan("b", 4)))
    away = Man(name="away", uplink_mbit_s=10, lans=(lan("c", 5, 5), lan("d", 5)))
    grid = Dendrogram(wans=(Wan(name="w", mans=(home, away)),), user_lan="a")
    graph = tasks(5, 5, 5)
    answer = mapped(map_tasks(graph, [(0, 1, 2)], grid, "wase-whole"))
    assert sorted(lans_of(grid, answer)) == ["c", "c", "d"]
    assert measured(answer, graph, grid).distances == (2, 1, 0, 0)


@given(clustered(), grids())
def test_nobody_fails_where_greedy_finds_places(work: Clustered, grid: Dendrogram) -> None:
    graph, clusters = work
    if isinstance(map_tasks(graph, clusters, grid, "greedy"), TaskMapping):
        for method in BEYOND:
            mapped(map_tasks(graph, clusters, grid, method))


def test_when_machines_are_scarce_the_others_are_thought_of() -> None:
    """The pair would take the machine that only t2 needs; with a plan for t2 it goes to b."""
    graph, grid = tasks(5, 5, 9), one_man(lan("a", 10), lan("b", 5, 5))
    answer = mapped(map_tasks(graph, [(0, 1), (2,)], grid, "wase-whole"))
    assert answer.scarce
    assert lans_of(grid, answer) == ["b", "b", "a"]
    assert measured(answer, graph, grid).lan_hit_ratio == 1


def test_a_scarce_cluster_keeps_together_what_the_others_allow() -> None:
    """Nobody takes all three; t3 needs a0 alone, so that the three share b and c."""
    graph, grid = tasks(5, 5, 5, 10), one_man(lan("a", 10), lan("b", 5, 5), lan("c", 5))
    answer = mapped(map_tasks(graph, [(0, 1, 2), (3,)], grid, "wase-whole"))
    assert answer.scarce
    assert sorted(lans_of(grid, answer)[:3]) == ["b", "b", "c"]


def test_a_failure_names_the_method_and_the_task() -> None:
    answer = map_tasks(tasks(5, 20), [(0, 1)], one_man(lan("a", 10)), "wase-all")
    assert isinstance(answer, NoPlace)
    assert (answer.method, answer.task, answer.wanted) == ("wase-all", "t1", 20)


def test_the_search_weighs_so_many_lans_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, grid = tasks(3, 3), one_man(lan("a", 4, 2), lan("b", 4, 2), lan("c", 6))
    assert lans_of(grid, mapped(map_tasks(graph, [(0, 1)], grid, "wase-whole"))) == ["c", "c"]
    monkeypatch.setattr(whole_clusters, "LANS_WEIGHED_MAX", 2)
    assert sorted(lans_of(grid, mapped(map_tasks(graph, [(0, 1)], grid, "wase-whole")))) == ["a", "b"]


def test_a_scarce_cluster_tries_so_many_lans_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """t2 and t3 need a and b, which would take the pair; c takes it if it is tried. Else it goes as planned."""
    graph = tasks(5, 5, 9, 9)
    grid = one_man(lan("a", 10), lan("b", 10), lan("c", 7, 7), lan("d", 5), lan("e", 5))
    clusters = [(0, 1), (2,), (3,)]
    assert lans_of(grid, mapped(map_tasks(graph, clusters, grid, "wase-whole"))) == ["c", "c", "a", "b"]
    monkeypatch.setattr(scarce_machines, "SCARCE_TRIES_MAX", 2)
    assert lans_of(grid, mapped(map_tasks(graph, clusters, grid, "wase-whole"))) == ["d", "e", "a", "b"]


# --------------------------------------------------------------------------------------------------- far


def test_the_search_goes_farther_for_the_affinity_that_is_wanted() -> None:
    graph, grid = tasks(4), one_man(lan("a", 5), lan("b", 7), lan("c", 9), lan("d", 40))
    assert lans_of(grid, mapped(map_tasks(graph, [(0,)], grid, "wase-whole"))) == ["a"]
    assert lans_of(grid, mapped(map_tasks(graph, [(0,)], grid, "wase-far"))) == ["c"]


def test_where_nobody_gives_the_affinity_wanted_the_best_is_taken() -> None:
    graph, grid = tasks(4), one_man(lan("a", 5), lan("b", 7), lan("c", 6))
    assert lans_of(grid, mapped(map_tasks(graph, [(0,)], grid, "wase-far"))) == ["b"]


@given(graphs(), grids(), st.sampled_from([1.0, 2.0, 8.0]))
def test_one_cluster_has_no_less_affinity_by_going_farther(graph: TaskGraph, grid: Dendrogram, wanted: float) -> None:
    clusters = [tuple(range(len(graph.names)))]
    near = map_tasks(graph, clusters, grid, "wase-whole")
    far = map_tasks(graph, clusters, grid, "wase-far", options=MappingOptions(affinity_wanted=wanted))
    if isinstance(near, NoPlace) or measured(near, graph, grid).whole_share < 1 or near.scarce:
        return
    least = min(mapped(far).affinities)
    assert least >= min(near.affinities) or least >= wanted


# -------------------------------------------------------------------------------------------------- soft


def test_where_no_links_carry_it_all_the_lan_is_taken_where_least_goes_uncarried() -> None:
    """Of 20 Mbit/s the uplink of b carries 15, and that of the user's MAN 10 to anywhere else."""
    home = Man(name="m", uplink_mbit_s=10, lans=(lan("a", 6), lan("b", 5, uplink_mbit_s=15)))
    away = Man(name="n", uplink_mbit_s=30, lans=(lan("c", 5),))
    grid = Dendrogram(wans=(Wan(name="w", mans=(home, away)),), user_lan="a")
    graph = tasks(6, 5, edges=[(0, 1, 20)])
    answer = mapped(map_tasks(graph, [(0,), (1,)], grid, "wase-soft"))
    assert lans_of(grid, answer) == ["a", "b"]
    measures = bandwidth_measured(answer, graph, grid, 1.0)
    assert (measures.carried_share, measures.overloaded_links) == (0.75, 1)
    assert bandwidth_measured(answer, graph, grid, 0.5).overloaded_links == 0


def test_a_closer_lan_with_a_link_that_is_used_up_is_passed() -> None:
    """t1 fills what b's uplink has; t2, which talks to t0 too, goes past b to c."""
    grid = one_man(lan("a", 9), lan("b", 8, 6, uplink_mbit_s=10), lan("c", 6, uplink_mbit_s=9))
    graph = tasks(9, 8, 6, edges=[(0, 1, 6), (0, 2, 6)])
    clusters = [(0,), (1,), (2,)]
    assert lans_of(grid, mapped(map_tasks(graph, clusters, grid, "wase-whole"))) == ["a", "b", "b"]
    answer = mapped(map_tasks(graph, clusters, grid, "wase-soft"))
    assert lans_of(grid, answer) == ["a", "b", "c"]
    assert bandwidth_measured(answer, graph, grid, 1.0).carried_share == 1


def test_tasks_in_one_lan_load_no_link() -> None:
    grid = one_man(lan("a", 9, 9, uplink_mbit_s=0.001), lan("b", 9))
    graph = tasks(9, 9, edges=[(0, 1, 1000)])
    answer = mapped(map_tasks(graph, [(0, 1)], grid, "wase-soft"))
    measures = bandwidth_measured(answer, graph, grid, 1.0)
    assert (measures.carried_share, measures.overloaded_links) == (1, 0)


class NaiveBandwidth(Lenient):
    """The same wish, reckoned anew for every LAN over every edge."""

    def __init__(self, mbit_s_per_rqoc: float) -> None:
        self._mbit_s_per_rqoc = mbit_s_per_rqoc
        self._tasks: Sequence[int] = ()

    def begin(self, placing: Placing, tasks: Sequence[int]) -> None:
        self._tasks = tasks

    def least_lack(self, placing: Placing, lan: int, enough: float) -> float:
        return self.lack(placing, lan, [])

    def lack(self, placing: Placing, lan: int, spots: Sequence[Spot]) -> float:
        flat = placing.left.flat
        loads, more = LinkLoads(flat), LinkLoads(flat)
        total = 0.0
        where = [flat.machine_lan[machine] if machine >= 0 else -1 for machine in placing.machines]
        for one, other, rqoc in placing.graph.edges:
            mbit_s = rqoc * self._mbit_s_per_rqoc
            if where[one] >= 0 and where[other] >= 0:
                loads.add(where[one], where[other], mbit_s)
            partner = max(where[one], where[other])
            if partner >= 0 and (one in self._tasks) != (other in self._tasks):
                total += mbit_s
                more.add(lan, partner, mbit_s)
        uncarried = [
            mbit_s - max(0.0, loads.capacity_mbit_s(link) - loads.mbit_s.get(link, 0.0))
            for link, mbit_s in more.mbit_s.items()
        ]
        return max(0.0, *uncarried) / total if uncarried else 0.0


@given(clustered(), grids(), st.sampled_from([0.5, 1.0]))
def test_the_judge_of_links_passes_over_no_lan_that_is_better(
    drawn: Clustered, grid: Dendrogram, mbit_s_per_rqoc: float
) -> None:
    graph, clusters = drawn
    found = []
    for judge in (WantsBandwidth(graph, grid.flat, mbit_s_per_rqoc), NaiveBandwidth(mbit_s_per_rqoc)):
        placing = Placing(graph, clusters, PowerLeft(grid.flat))
        orders = SearchOrders(grid.flat)
        answer = map_whole(placing, orders, grid.flat.lan_of_name(grid.user_lan), judge, "wase-soft")
        found.append((answer, placing.machines, placing.homes))
    assert found[0] == found[1]


@given(clustered(), grids(), st.sampled_from([0.25, 1.0]))
def test_bandwidth_measures_are_those_of_a_naive_recomputation(
    work: Clustered, grid: Dendrogram, mbit_s_per_rqoc: float
) -> None:
    graph, clusters = work
    answer = map_tasks(graph, clusters, grid, "wase-soft")
    if isinstance(answer, NoPlace):
        return
    uplink: dict[tuple[str, ...], float] = {}
    way: dict[str, list[tuple[str, ...]]] = {}
    for wan in grid.wans:
        uplink[wan.name,] = wan.uplink_mbit_s
        for man in wan.mans:
            uplink[wan.name, man.name] = man.uplink_mbit_s
            for each in man.lans:
                path = (wan.name, man.name, each.name)
                uplink[path] = each.uplink_mbit_s
                for machine in each.machines:
                    way[machine.name] = [path[:depth] for depth in (1, 2, 3)]
    ways = [way[name] for name in answer.by_name(graph, grid).values()]
    crossed = [set(ways[one]) ^ set(ways[other]) for one, other, _ in graph.edges]
    load = dict.fromkeys(uplink, 0.0)
    for (_, _, rqoc), links in zip(graph.edges, crossed, strict=True):
        for link in links:
            load[link] += rqoc * mbit_s_per_rqoc
    carried = sum(
        rqoc * min([1.0, *(uplink[link] / load[link] for link in links)])
        for (_, _, rqoc), links in zip(graph.edges, crossed, strict=True)
    )
    total = sum(rqoc for _, _, rqoc in graph.edges)
    measures = bandwidth_measured(answer, graph, grid, mbit_s_per_rqoc)
    assert measures.carried_share == pytest.approx(carried / total if total else 1)
    assert measures.overloaded_links == sum(load[link] > uplink[link] for link in uplink)


def test_affinity_and_links_can_be_wanted_together() -> None:
    """For t1, a lacks affinity (9 for 5), c bandwidth (10 of 20 Mbit/s), and d, farther than both, nothing."""
    home = Man(name="m", lans=(lan("a", 18), lan("c", 12, uplink_mbit_s=10)))
    grid = Dendrogram(wans=(Wan(name="w", mans=(home, Man(name="n", lans=(lan("d", 12),)))),), user_lan="a")
    graph = tasks(9, 5, edges=[(0, 1, 20)])
    found = {
        method: lans_of(grid, mapped(map_tasks(graph, [(0,), (1,)], grid, method)))
        for method in ("wase-soft", "wase-far", "wase-all")
    }
    assert found == {"wase-soft": ["a", "a"], "wase-far": ["a", "c"], "wase-all": ["a", "d"]}


# ------------------------------------------------------------------------------------------- exclusivity


@given(clustered(), grids())
def test_where_machines_are_exclusive_none_has_two_tasks(work: Clustered, grid: Dendrogram) -> None:
    graph, clusters = work
    for method in ("wase", "greedy", *BEYOND):
        answer = map_tasks(graph, clusters, grid, method, left=PowerLeft(grid.flat, exclusive=True))
        if isinstance(answer, TaskMapping):
            assert len(set(answer.machines)) == len(answer.machines)


# ---------------------------------------------------------------------------------------------- spawning


def test_a_spawned_task_joins_the_cluster_that_it_exchanges_most_with() -> None:
    """s is drawn by 3 + 2 to the cluster in a and by 4 to that in b; u follows s."""
    graph, grid = tasks(6, 5, 4), one_man(lan("a", 6, 5, 3, 2), lan("b", 4, 9))
    running = mapped(map_tasks(graph, [(0, 1), (2,)], grid, "wase-whole"))
    assert lans_of(grid, running) == ["a", "a", "b"]
    more = graph.grown({"s": 3.0, "u": 2.0}, [("s", "t0", 3), ("t1", "s", 2), ("s", "t2", 4), ("u", "s", 1)])
    answer = mapped(map_spawned(more, running, grid))
    assert answer.clusters == ((0, 1, 3, 4), (2,))
    assert answer.by_name(more, grid) == running.by_name(graph, grid) | {"s": "a2", "u": "a3"}


def test_a_spawned_task_without_room_at_home_goes_near() -> None:
    graph, grid = tasks(6), one_man(lan("a", 6), lan("b", 9, uplink_mbit_s=1), lan("c", 9))
    running = mapped(map_tasks(graph, [(0,)], grid))
    answer = mapped(map_spawned(graph.grown({"s": 5.0}, [("s", "t0", 1)]), running, grid))
    assert (lans_of(grid, answer), answer.homes) == (["a", "c"], (0,))


def test_spawned_tasks_that_talk_to_nobody_placed_are_clusters_of_their_own() -> None:
    graph, grid = tasks(6), one_man(lan("a", 9), lan("b", 9))
    running = mapped(map_tasks(graph, [(0,)], grid))
    more = graph.grown({"s": 5.0, "u": 4.0, "v": 1.0}, [("s", "u", 1)])
    answer = mapped(map_spawned(more, running, grid))
    assert answer.clusters == ((0,), (1, 2), (3,))
    assert lans_of(grid, answer) == ["a", "b", "b", "a"]


def test_spawned_tasks_are_packed_tightly_where_they_must() -> None:
    """s and u need 10 together, come first and would both take b0, which w alone needs."""
    graph, grid = tasks(6), one_man(lan("a", 6), lan("b", 12, 5, 5))
    running = mapped(map_tasks(graph, [(0,)], grid))
    more = graph.grown({"s": 5.0, "u": 5.0, "w": 9.0}, [("s", "t0", 1), ("u", "t0", 1)])
    answer = mapped(map_spawned(more, running, grid))
    assert answer.scarce
    assert answer.by_name(more, grid) == {"t0": "a0", "s": "b1", "u": "b2", "w": "b0"}


def test_spawned_tasks_without_room_are_refused_by_name() -> None:
    graph, grid = tasks(6), one_man(lan("a", 6), lan("b", 7))
    running = mapped(map_tasks(graph, [(0,)], grid))
    answer = map_spawned(graph.grown({"s": 8.0}, [("s", "t0", 1)]), running, grid)
    assert isinstance(answer, NoPlace)
    assert (answer.task, answer.wanted, answer.offered, answer.where) == ("s", 8, 7, "b0")


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(InvalidTaskGraphError, match="task t0: there is one already"):
        tasks(1).grown({"t0": 1.0}, [])


def test_a_graph_smaller_than_what_runs_is_refused() -> None:
    graph, grid = tasks(1, 1), one_man(lan("a", 9))
    running = mapped(map_tasks(graph, [(0, 1)], grid))
    with pytest.raises(InvalidMappingError, match="2 tasks are placed, and the graph has 1"):
        map_spawned(tasks(1), running, grid)


@given(clustered(), grids(), st.lists(st.integers(1, 5), max_size=5), st.data())
def test_spawning_moves_nothing(work: Clustered, grid: Dendrogram, rcr: list[int], data: st.DataObject) -> None:
    graph, clusters = work
    running = map_tasks(graph, clusters, grid, "wase-whole")
    if isinstance(running, NoPlace):
        return
    spawned = {f"s{number}": float(each) for number, each in enumerate(rcr)}
    names = [*graph.names, *spawned]
    ends = st.tuples(st.sampled_from(list(spawned) or names), st.sampled_from(names))
    drawn = data.draw(st.lists(ends, unique_by=frozenset, max_size=6)) if spawned else []
    edges = [(one, other, float(weight)) for weight, (one, other) in enumerate(drawn, 1) if one != other]
    more = graph.grown(spawned, edges)
    left = left_by(running, graph, grid)
    before = left.power.copy()
    answer = map_spawned(more, running, grid, left=left)
    if isinstance(answer, NoPlace):
        assert left.power == before
        return
    assert answer.machines[: len(running.machines)] == running.machines
    assert answer.affinities[: len(running.machines)] == running.affinities
    assert answer.homes[: len(running.homes)] == running.homes
    for old, new in zip(running.clusters, answer.clusters, strict=False):
        assert new[: len(old)] == old
    assert sorted(task for cluster in answer.clusters for task in cluster) == list(range(len(names)))
    for task in range(len(running.machines), len(names)):
        before[answer.machines[task]] -= more.mcr * more.rcr[task]
    assert min(before) >= 0
    assert left.power == before
