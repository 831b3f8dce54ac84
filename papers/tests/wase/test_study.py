"""The mapping study: what a seed has, that all methods meet the same, and that parameters are checked."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
import pytest

from koala.mapping.placing.catalogue import map_tasks
from koala.mapping.result import NoPlace, measured
from koala.model.dendrogram import Dendrogram, Machine
from koala.study.frame.experiment import FinishedUnit, ParameterError, Unit, parameters_from
from koala_papers.catalogue import find
from koala_papers.wase.bound import run_bound
from koala_papers.wase.claims import change_by_grid
from koala_papers.wase.data import WaseData
from koala_papers.wase.parameters import WaseParameters
from koala_papers.wase.spawning import ANYWHERE, NEAR, begun, part_of, spawned_mappings
from koala_papers.wase.study import WaseStudy
from koala_papers.wase.trials import (
    FAR,
    GREEDY,
    GREEDY_SCAN,
    MEASURES,
    METHODS,
    SOFT,
    WASE,
    WHOLE,
    clustered,
    graph_of,
    groups_of,
    run_trials,
    trials_of,
    with_mcr,
)
from koala_papers.wase.worlds import grid_of

SMALL = WaseParameters(
    tasks=(8,),
    graphs=1,
    mcr=(25.0, 100.0),
    machines=(32,),
    machines_per_lan=(4, 16),
    clustering="local-search",
    bound_s=0.5,
)


@cache
def small_trials() -> dict[str, Any]:
    """A unit, run once for all who look at it."""
    return run_trials(SMALL, 3, 8, 0)


def without_times(result: dict[str, Any]) -> dict[str, Any]:
    """All that depends on nothing but the unit."""
    return {
        "impossible": result["impossible"],
        "methods": {
            (bands, name): {measure: values for measure, values in measures.items() if measure != "cpu_s"}
            for bands, table in result["bands"].items()
            for name, measures in table["methods"].items()
        },
    }


def test_it_is_in_the_catalogue_and_a_seed_is_the_papers_3600_trials() -> None:
    study = find("wase")
    parameters = parameters_from(study, {})
    assert isinstance(parameters, WaseParameters)
    assert (parameters.applications, parameters.grids) == (240, 15)
    units = study.units(parameters, 1, 1)
    graphs = [unit for unit in units if unit.work["kind"] == "trials"]
    assert len(graphs) * len(trials_of(parameters)) == 3600
    assert len({unit.identity("wase") for unit in units}) == len(units)


def test_the_best_is_looked_for_under_fewer_seeds_and_for_small_graphs_only() -> None:
    units = WaseStudy().units(WaseParameters(bound_seeds=2), 5, 3)
    bounds = [(unit.work["seed"], unit.work["tasks"]) for unit in units if unit.work["kind"] == "bound"]
    assert bounds == [(seed, tasks) for seed in (5, 6) for tasks in (8, 16, 32)]


def test_units_are_the_same_after_a_round_trip_so_that_a_run_can_go_on() -> None:
    for unit in WaseStudy().units(SMALL, 1, 2):
        assert msgspec.json.decode(msgspec.json.encode(unit.work)) == unit.work


def test_a_unit_is_another_only_when_something_changes_that_its_result_depends_on() -> None:
    def identities(kind: str, **changes: Any) -> list[str]:
        units = WaseStudy().units(msgspec.structs.replace(SMALL, **changes), 1, 1)
        return [unit.identity("wase") for unit in units if unit.work["kind"] == kind]

    assert identities("trials", bound_s=9.0) == identities("trials")
    assert identities("trials", graphs=2)[:1] == identities("trials")
    assert identities("trials", affinity_wanted=3.0) != identities("trials")
    assert identities("bound", affinity_wanted=3.0) == identities("bound")
    assert identities("bound", bound_s=9.0) != identities("bound")
    assert identities("bound", load=(0.0, 0.2)) != identities("bound")
    assert identities("trials", topology="nested") != identities("trials")
    assert identities("trials", affinity_seeds=3) == identities("trials")
    assert identities("affinity", affinity_seeds=3) == identities("affinity")[:3]
    assert identities("affinity", bound_s=9.0) == identities("affinity")
    assert identities("affinity", graphs=2) != identities("affinity")


def test_a_unit_gives_the_same_numbers_each_time_and_in_json() -> None:
    study = WaseStudy()
    unit = study.units(SMALL, 3, 1)[1]
    first, second = (msgspec.json.decode(msgspec.json.encode(study.run(unit))) for _ in range(2))
    assert without_times(first) == without_times(second)
    count = len(trials_of(SMALL))
    assert len(first["impossible"]) == count
    assert all(
        len(values) == count
        for table in first["bands"].values()
        for method in table["methods"].values()
        for values in method.values()
    )


@pytest.mark.parametrize("bands", ["each", "mean"])
def test_the_numbers_of_a_trial_are_those_of_mapping_that_application_by_hand(bands: str) -> None:
    found = small_trials()["bands"][bands]["methods"][WASE]
    graph = graph_of(SMALL, 3, 8, 0)
    mapped = 0
    groups = [group.found.clusters for group in groups_of(graph, SMALL)[bands]]
    for number, trial in enumerate(trials_of(SMALL)):
        application = with_mcr(graph, trial.mcr)
        grid = grid_of(SMALL, 3, (trial.machines, trial.machines_per_lan), (8, 0))
        answer = map_tasks(application, groups[trial.cluster_size], grid, WASE)
        if isinstance(answer, NoPlace):
            assert all(found[measure][number] is None for measure in MEASURES)
            continue
        mapped += 1
        by_hand = measured(answer, application, grid)
        assert found["lan_hit"][number] == pytest.approx(by_hand.lan_hit_ratio, abs=1e-6)
        assert found["affinity_min"][number] == pytest.approx(by_hand.affinity_min, abs=1e-6)
        assert found["inter_lan"][number] == pytest.approx(by_hand.inter_lan_share, abs=1e-6)
        assert found["tasks_in_man"][number] == pytest.approx(by_hand.distances[1] / 8, abs=1e-6)
        assert found["cpu_s"][number] > 0
    assert mapped > 0


def test_the_first_reading_tries_every_method_and_the_other_those_of_the_paper() -> None:
    tables = small_trials()["bands"]
    assert set(tables["each"]["methods"]) == {*METHODS, NEAR, ANYWHERE}
    assert set(tables["mean"]["methods"]) == {WASE, GREEDY, GREEDY_SCAN}


def test_with_limits_of_each_cluster_none_is_larger_and_of_the_mean_some_are() -> None:
    graph = graph_of(SMALL, 3, 32, 0)
    groups = groups_of(graph, SMALL)
    for (low, high), each, by_mean in zip(SMALL.cluster_sizes, groups["each"], groups["mean"], strict=True):
        assert all(low <= len(tasks) <= high for tasks in each.found.clusters)
        assert each.reached
        assert low <= by_mean.found.mean_size <= high
    assert max(map(len, groups["mean"][2].found.clusters)) > 9


def test_the_affinity_under_more_seeds_is_that_of_the_trials_under_the_same_seed() -> None:
    parameters = msgspec.structs.replace(SMALL, machines=(32, 64), graphs=2, affinity_seeds=1)
    study = WaseStudy()
    units = study.units(parameters, 3, 1)
    finished = [FinishedUnit(unit, study.run(unit)) for unit in units if unit.work["kind"] in ("trials", "affinity")]
    finished.append(FinishedUnit(units[0], {"rows": [], "varied": []}))
    data = WaseData(parameters, finished)
    by_trials = change_by_grid(data, WASE, 8)
    assert by_trials is not None
    assert data.affinity_changes == {8: {3: pytest.approx(by_trials.mean, abs=1e-3)}}


def test_grids_of_tiers_have_their_sizes_and_change_with_the_graph_that_is_mapped() -> None:
    one, same, later = (grid_of(SMALL, 1, (32, 4), graph) for graph in ((8, 0), (8, 0), (8, 1)))
    assert one == same
    assert one != later
    assert one.machine_count == 32
    assert [machine.power for machine in machines_of(one)] == [machine.power for machine in machines_of(later)]
    nested = grid_of(msgspec.structs.replace(SMALL, topology="nested"), 1, (32, 4), (8, 0))
    assert [len(man.lans) for man in nested.wans[0].mans] == [4, 4]
    sizes = {len(grid_of(SMALL, seed, (128, 4), (8, 0)).wans[0].mans[0].lans) for seed in range(12)}
    assert sizes == {2, 4, 8}


def machines_of(grid: Dendrogram) -> list[Machine]:
    return [machine for wan in grid.wans for man in wan.mans for lan in man.lans for machine in lan.machines]


def test_nobody_maps_what_cannot_be_mapped_and_both_greedy_ones_agree() -> None:
    result = run_trials(msgspec.structs.replace(SMALL, mcr=(25.0, 100.0, 130.0)), 2, 8, 0)
    assert any(result["impossible"])
    for table in result["bands"].values():
        for name, measures in table["methods"].items():
            for impossible, hit in zip(result["impossible"], measures["lan_hit"], strict=True):
                assert not impossible or hit is None, name
        assert table["methods"][GREEDY]["lan_hit"] == table["methods"][GREEDY_SCAN]["lan_hit"]


def test_all_applications_of_a_graph_differ_in_nothing_but_what_they_should() -> None:
    one, other = graph_of(SMALL, 1, 8, 0), graph_of(SMALL, 1, 8, 1)
    assert one != other
    assert graph_of(SMALL, 2, 8, 0) != one
    assert with_mcr(one, 75.0).rcr == one.rcr
    assert grid_of(SMALL, 1, (32, 4), (8, 0)) != grid_of(SMALL, 2, (32, 4), (8, 0))


def test_the_bound_is_never_passed_by_any_method() -> None:
    rows = run_bound(SMALL, 1, 8)["rows"]
    assert len(rows) == 3 * 2 * 2
    assert {row["lan_hit"]["status"] for row in rows} & {"optimal"}
    for row in rows:
        if row["lan_hit"]["bound"] is None:
            assert row["lan_hit"]["methods"] == {}
            continue
        assert max(row["lan_hit"]["methods"].values()) <= row["lan_hit"]["bound"] + 1e-6
        assert min(row["inter_lan"]["methods"].values()) >= row["inter_lan"]["bound"] - 1e-6
        assert row["lan_hit"]["value"] >= max(row["lan_hit"]["methods"].values())


def test_tasks_that_come_later_leave_the_others_where_they_are() -> None:
    graph = with_mcr(graph_of(SMALL, 4, 16, 0), 25.0)
    found = clustered(graph, SMALL, (4.0, 6.0)).found
    running = begun(graph, found, 0.25)
    assert running.tasks == 12
    assert sorted(task for tasks in running.clusters for task in tasks) == list(range(12))
    limited = running.within(graph, (4.0, 6.0))
    assert all(4 <= len(tasks) <= 6 for tasks in limited.clusters)
    grid = grid_of(SMALL, 4, (64, 8), (16, 0))
    before = map_tasks(part_of(graph, range(12)), running.clusters, grid, WHOLE)
    assert not isinstance(before, NoPlace)
    mappings = spawned_mappings(graph, found.clusters, running, grid)
    for name in (NEAR, ANYWHERE):
        mapping = mappings[name]
        assert mapping is not None
        assert mapping.machines[:12] == before.machines
        assert len(mapping.machines) == 16


def test_a_part_of_a_graph_keeps_the_edges_inside_it() -> None:
    graph = graph_of(SMALL, 1, 8, 0)
    part = part_of(graph, range(2, 6))
    assert part.names == graph.names[2:6]
    assert [(one + 2, other + 2, rqoc) for one, other, rqoc in part.edges] == [
        edge for edge in graph.edges if 2 <= edge[0] < 6 and 2 <= edge[1] < 6
    ]


def test_methods_that_want_something_are_told_how_much() -> None:
    study = WaseParameters(
        machines=(128,),
        machines_per_lan=(4,),
        mcr=(50.0,),
        cluster_sizes=((1.0, 3.0),),
        clustering="local-search",
        bands=("each",),
    )
    plain, eager = (
        run_trials(msgspec.structs.replace(study, affinity_wanted=wanted, mbit_s_per_rqoc=mbit_s), 1, 32, 0)
        for wanted, mbit_s in ((1.0, 1e-6), (3.0, 100.0))
    )

    def mean(result: dict[str, Any], method: str, measure: str) -> float:
        values: list[float] = [
            value for value in result["bands"]["each"]["methods"][method][measure] if value is not None
        ]
        return sum(values) / len(values)

    assert mean(eager, FAR, "affinity_min") > mean(plain, FAR, "affinity_min")
    assert mean(plain, SOFT, "carried") == pytest.approx(1.0)
    assert mean(eager, SOFT, "carried") < 1.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clustering": "magic"}, "parameter clustering: there is no 'magic'"),
        ({"tasks": "[16, 8]"}, "parameter tasks: .16, 8. will not do"),
        ({"machines": "[]"}, "parameter machines"),
        ({"cluster_sizes": "[[3, 1]]"}, "3 to 1 is no range"),
        ({"load": "[0.5, 0.1]"}, "parameter load"),
        ({"topology": "flat"}, "parameter topology: there is no 'flat'; there are tiers, nested"),
        ({"bands": '["median"]'}, "parameter bands"),
        ({"bands": '["each", "each"]'}, "write each, mean or both"),
        ({"lans_per_man": "[]"}, "parameter lans_per_man"),
    ],
)
def test_parameters_that_make_no_study_are_refused_by_name(settings: dict[str, str], message: str) -> None:
    study = WaseStudy()
    with pytest.raises(ParameterError, match=message):
        study.units(parameters_from(study, settings), 1, 2)


def test_a_first_look_is_a_small_part_of_the_study() -> None:
    study = WaseStudy()
    quick = parameters_from(study, {}, quick=True)
    assert quick.applications * quick.grids < 300
    assert isinstance(study.units(quick, 1, 2)[0], Unit)
