"""The map of the claims of 2006: its fields, what each runs, and which setting comes first."""

from __future__ import annotations

import msgspec
import pytest

from koala.descriptions.yaml.text import read_document
from koala.model.grid import BandOver
from koala.study.frame.experiment import FinishedUnit
from koala_papers.koala2006.sensitivity import (
    Sensitivity,
    SensitivityParameters,
    Setting,
    execution_times,
    settings,
)
from koala_papers.koala2006.study import ExecutionModelText, Scheduled, das2_as_read

SMALL = SensitivityParameters(jobs=8, t1_s=(60.0,), beta=(0.15, 0.6), startup=(0.5,))


def test_every_field_runs_both_workloads_under_each_seed() -> None:
    parameters = SensitivityParameters()
    units = Sensitivity().units(parameters, 1, 4)
    assert len(settings(parameters)) == 2 * 2 * 4 * 4
    assert len({unit.identity("koala2006-map") for unit in units}) == len(units) == 64 * 4 * 2


def test_times_fall_with_the_square_root_of_the_processors() -> None:
    heat = execution_times(120.0, 0.15, 0.5)["heat"]
    assert heat["execution_s"]["by_size"] == {"36": 120.0, "64": 90.0, "72": pytest.approx(84.853)}
    assert heat["per_extra_cluster"] == 0.15


def test_whole_nodes_are_half_as_many_and_start_up_is_multiplied() -> None:
    nodes = das2_as_read(Scheduled.NODES, BandOver.GRID, 0.5)
    assert [site.processors for site in nodes.sites] == [67, 20, 26, 28, 19]
    assert (nodes.simulation.startup.base_s, nodes.simulation.startup.per_component_s) == (5.0, 5.0)
    assert sum(site.processors for site in das2_as_read(Scheduled.PROCESSORS, BandOver.SITE, 1.0).sites) == 320


def test_a_small_map_is_drawn_and_its_best_setting_can_be_judged_by_the_experiment() -> None:
    experiment = Sensitivity()
    results = [FinishedUnit(unit, experiment.run(unit)) for unit in experiment.units(SMALL, 5, 2)]
    conclusion = experiment.conclude(SMALL, results)
    assert len(conclusion.results["settings"]) == 4
    assert [claim.id for claim in conclusion.claims] == [f"C{number}" for number in range(1, 9)]
    assert [figure.name for figure in conclusion.figures] == [f"map-c{number}" for number in range(1, 9)]
    assert len(conclusion.figures[0].draw().axes) == 2
    text = conclusion.files["model.yaml"]
    assert isinstance(text, str)
    assert set(read_document(text, "model.yaml", ExecutionModelText).model.applications) == {"laplace", "heat"}
    table = conclusion.tables[0]
    assert len(table.rows) == 4
    assert table.rows[0][0] in {str(setting) for setting in settings(SMALL)}
    msgspec.json.encode(conclusion.results)
    assert str(Setting("nodes", 0.5, 60.0, 0.15)) == "nodes, start-up x 0.5, T1(36) = 60 s, beta = 0.15"
