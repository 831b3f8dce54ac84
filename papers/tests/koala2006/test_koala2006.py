"""The experiment of 2006: what it runs is what ``koala simulate`` runs, void runs are repeated, models are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.descriptions.errors import DescriptionError
from koala.model.grid import Grid
from koala.simulator import simulate
from koala.simulator.examples import example_grid, example_workload
from koala.simulator.workloads.generators import workload_from_file
from koala.study.frame.experiment import Unit
from koala.study.frame.measures import varied
from koala_papers.koala2006 import study
from koala_papers.koala2006.study import (
    ATTEMPTS_MAX,
    GRID,
    SUB_SEED_STRIDE,
    AlwaysVoidError,
    Koala2006,
    Koala2006Parameters,
    MissingApplicationError,
)

HALF = """
source: half of the shipped ones
applications:
  laplace: {execution_s: {by_size: {36: 80, 64: 60}}, per_extra_cluster: 0.3}
  heat: {execution_s: {by_size: {36: 110, 64: 85, 72: 80}}, per_extra_cluster: 0.4}
"""


def units(**parameters: Any) -> list[Unit]:
    return Koala2006().units(Koala2006Parameters(**parameters), 1, 3)


def with_users(load: float) -> Grid:
    """The experiment's grid with users who ask for this share of it."""
    grid = example_grid(GRID)
    sites = []
    for site in grid.sites:
        assert site.simulation.background is not None
        background = msgspec.structs.replace(site.simulation.background, user_load=load)
        sites.append(
            msgspec.structs.replace(site, simulation=msgspec.structs.replace(site.simulation, background=background))
        )
    return msgspec.structs.replace(grid, sites=tuple(sites))


def test_each_seed_runs_both_workloads_as_the_paper_has_them() -> None:
    assert [unit.label for unit in units()] == [
        f"{workload}, seed {seed}" for seed in (1, 2, 3) for workload in ("W1", "W2")
    ]
    for unit in units():
        assert unit.work["jobs"] == 200
        gap = example_workload(study.WORKLOADS[unit.work["workload"]]).text.generate[0].interarrival_s
        assert gap.exponential == {"W1": 80, "W2": 40}[unit.work["workload"]]


def test_a_run_is_the_one_that_the_shipped_examples_give() -> None:
    result = Koala2006().run(units()[0])
    assert result["seed_used"] == 1
    for policy, example in (("WF", "koala2006-w1"), ("CM", "koala2006-w1"), ("FCM", "koala2006-w1-flexible")):
        workload = workload_from_file(example_workload(example))
        direct = simulate(example_grid(GRID), workload, policy=policy, seed=1).metrics()
        measured = result["policies"][policy]
        assert measured["log_sha256"] == direct["log_sha256"]
        assert measured["outcomes"] == {"done": 200}
        for name in ("response_s", "wait_s", "queue_s", "overhead_s", "execution_s"):
            assert measured["means"][name] == pytest.approx(direct[name]["mean"])
        assert sum(count for _, count in measured["overhead_by_components"].values()) == 200
        assert sum(count for _, count in measured["execution_by_clusters"].values()) == 200


def test_a_void_run_is_repeated_for_all_policies_under_another_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = with_users(0.25)
    monkeypatch.setattr(study, "example_grid", lambda _name: grid)
    repeated = 0
    for unit in units(jobs=10):
        result = Koala2006().run(unit)
        assert result["seed_used"] == unit.work["seed"] + result["void_runs"] * SUB_SEED_STRIDE
        assert set(result["policies"]) == {"WF", "CM", "FCM"}
        for policy in ("WF", "CM"):
            file = example_workload(study.WORKLOADS[unit.work["workload"]])
            workload = varied(file, jobs=10, request=study.POLICIES[policy])
            assert not simulate(grid, workload, policy=policy, seed=result["seed_used"]).voids
        repeated += result["void_runs"]
    assert repeated > 0


def test_users_who_always_exceed_their_band_end_the_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = with_users(0.6)
    monkeypatch.setattr(study, "example_grid", lambda _name: grid)
    with pytest.raises(AlwaysVoidError) as caught:
        Koala2006().run(units(jobs=3)[0])
    assert f"{ATTEMPTS_MAX} runs in a row were void" in caught.value.for_user()


def test_a_model_file_replaces_the_execution_times(tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    model.write_text(HALF)
    unit = units(jobs=5, model=str(model))[0]
    assert unit.work["applications"]["laplace"]["execution_s"]["by_size"] == {"36": 80.0, "64": 60.0}
    halved, shipped = Koala2006().run(unit), Koala2006().run(units(jobs=5)[0])
    for policy in ("WF", "CM", "FCM"):
        for key, (total_s, count) in halved["policies"][policy]["execution_by_clusters"].items():
            application, processors, clusters = key.split("/")
            model_of = {"laplace": ({36: 80, 64: 60}, 0.3), "heat": ({36: 110, 64: 85, 72: 80}, 0.4)}
            by_size, beta = model_of[application]
            expected_s = by_size[int(processors)] * (1 + beta * (int(clusters) - 1))
            assert total_s / count == pytest.approx(expected_s)
        assert halved["policies"][policy]["log_sha256"] != shipped["policies"][policy]["log_sha256"]


def test_results_of_another_model_are_not_taken_for_those_of_this_one(tmp_path: Path) -> None:
    model = tmp_path / "model.yaml"
    model.write_text(HALF)
    first = units(model=str(model))[0].identity("koala2006")
    assert first != units()[0].identity("koala2006")
    model.write_text(HALF.replace("0.3", "0.2"))
    assert first != units(model=str(model))[0].identity("koala2006")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("applications: {laplace: {execution_s: 5}}", "there is no heat under applications"),
        (HALF.replace(", 72: 80", ""), "heat has no execution time for 72 processors"),
        (HALF.replace("applications", "application"), "applications"),
        ("applications: {}", "applications"),
    ],
)
def test_a_model_that_cannot_serve_is_refused_before_anything_runs(tmp_path: Path, text: str, words: str) -> None:
    model = tmp_path / "model.yaml"
    model.write_text(text)
    with pytest.raises((DescriptionError, MissingApplicationError)) as caught:
        units(model=str(model))
    assert isinstance(caught.value, DescriptionError | MissingApplicationError)
    message = caught.value.for_user()
    assert words in message
    assert str(model) in message
