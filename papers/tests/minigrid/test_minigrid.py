"""The mini-grid study: what is run, that it repeats, one run alone from the command line, and the whole."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.policies.catalogue import Catalogue
from koala.study.frame.figures import house_style
from koala_papers.minigrid.cases import (
    IDEAL,
    MIGRATION_ONLY,
    MiniGridCase,
    MiniGridParameters,
    alone,
    at,
    cases_of,
    chunked,
    mixed,
    selected,
)
from koala_papers.minigrid.runs import asked_case, run_case, threshold_of
from koala_papers.minigrid.study import MiniGridStudy
from minigrid.samples import SEEDS, SMALL, finished, results_of


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["experiment", "run", *arguments])


def single(*arguments: str) -> dict[str, Any]:
    done = run("minigrid", "--jobs-per-cluster", "200", "--json", *arguments)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    return found


# ---------------------------------------------------------------------------------------- what is run


def test_every_seed_has_each_case_once_and_later_seeds_have_fewer() -> None:
    parameters = MiniGridParameters()
    by_seed = [cases_of(parameters, number) for number in range(8)]
    for cases in by_seed:
        assert len(cases) == len(set(cases))
    for earlier, later in pairwise(by_seed):
        assert set(later) <= set(earlier)
    assert {at("A1", bsbw) for bsbw in parameters.bsbw} <= set(by_seed[-1])
    assert {at("B2", bsbw, 0.6) for bsbw in (200.0, 400.0, 600.0, 800.0, 900.0)} <= set(by_seed[0])
    assert {at("B4", 300.0, lslt) for lslt in parameters.lslt} <= set(by_seed[0])
    assert {at(chunked(0.8), 300.0, lslt) for lslt in parameters.lslt} <= set(by_seed[2])


def test_every_policy_of_the_study_is_one_that_the_catalogue_knows() -> None:
    for case in cases_of(MiniGridParameters(), 0):
        found = Catalogue.builtin().find(case.name)
        assert found.module is not None
        assert case.lslt is None or found.module.threshold == case.lslt


# -------------------------------------------------------------------------------------------- one run


def test_the_same_case_and_seed_give_the_same_numbers_and_another_seed_others() -> None:
    case = at("B3(chunk=0.85)", 800.0)
    assert run_case(case, 200, 1) == run_case(case, 200, 1)
    assert run_case(case, 200, 1)["mean_turnaround_s"] != run_case(case, 200, 2)["mean_turnaround_s"]


def test_bandwidths_and_wirings_matter_to_those_who_co_allocate_and_to_nobody_else() -> None:
    def turnaround(case: MiniGridCase) -> float:
        found: float = run_case(case, 500, 1)["mean_turnaround_s"]
        return found

    assert turnaround(at("Initial", 800.0, None)) > turnaround(at("Initial", 200.0, None))
    for policy in ("Ideal", "Migration-Only"):
        assert turnaround(at(policy, 800.0, None)) == turnaround(at(policy, 200.0, None)) == turnaround(alone(policy))
    assert turnaround(mixed("B1")) != turnaround(at("B1", 200.0))
    assert turnaround(selected("B1", 800.0, wiring="islands")) != turnaround(selected("B1", 800.0))
    assert turnaround(selected("B1", 500.0, pattern="ring")) != turnaround(selected("B1", 500.0))


def test_a_run_tells_means_over_all_jobs() -> None:
    numbers = run_case(at("B1", 800.0), 500, 3)
    assert numbers["jobs"] == 2000
    quarters = numbers["quarters_turnaround_s"]
    assert sum(quarters) / 4 == pytest.approx(numbers["mean_turnaround_s"])
    assert 0.0 < numbers["mean_wait_s"] < numbers["mean_turnaround_s"]
    assert 0.0 < numbers["coallocated_share"] < 1.0
    assert numbers["mean_stretch"] > 1.0
    assert run_case(alone("Migration-Only"), 500, 3)["mean_stretch"] == 1.0
    assert run_case(at("A1", 800.0, 0.6), 500, 3)["saturation"] <= 0.6


# ------------------------------------------------------------------------- one run, from the command line


def test_one_run_prints_its_numbers_as_json() -> None:
    found = single("--policy", "B1", "--bsbw", "300", "--lslt", "1.0", "--seed", "7")
    assert {"mean_turnaround_s", "mean_wait_s", "coallocated_share", "jobs_per_s", "mean_stretch"} <= set(found)
    assert (found["policy"], found["bsbw"], found["lslt"], found["jobs"], found["seed"]) == (
        "B1(lslt=1)",
        300.0,
        1.0,
        800,
        7,
    )
    assert found["mean_turnaround_s"] == run_case(at("B1", 300.0), 200, 7)["mean_turnaround_s"]
    assert found["jobs_per_s"] > 0


def test_one_run_is_a_table_without_json() -> None:
    done = run("minigrid", "--policy", "Ideal", "--jobs-per-cluster", "50")
    assert done.exit_code == 0, done.output
    assert "mean_turnaround_s" in done.stdout
    assert "{" not in done.stdout


def test_parameters_of_policies_mixed_bandwidths_and_any_spelling_are_understood() -> None:
    assert single("--policy", "b3(0.8)", "--lslt", "0.9")["policy"] == "B3(chunk=0.8, lslt=0.9)"
    assert single("--policy", "B3(chunk=0.8, lslt=0.9)")["lslt"] == 0.9
    assert single("--policy", "Migration Only", "--lslt", "1")["lslt"] is None
    assert single("--policy", "A1", "--bsbw", "200-900")["bsbw"] == "200-900"
    assert threshold_of(asked_case("A2", None, 300.0, 300.0)) != 1.0  # its own, and said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["minigrid", "--bsbw", "300"], "minigrid: a single run needs --policy; give it too"),
        (["minigrid", "--policy", "B9"], "B9"),
        (["minigrid", "--policy", "WF"], "WF is not made for links; there are"),
        (["minigrid", "--policy", "B3(chunk=2)"], "'2' is no value for chunk"),
        (["minigrid", "--policy", "B1", "--lslt", "0"], "'0' is no value for lslt"),
        (["minigrid", "--policy", "B1", "--lslt", "much"], "parameter lslt: 'much' will not do"),
        (["minigrid", "--policy", "B1(lslt=0.8)", "--lslt", "0.9"], "give it once"),
        (["minigrid", "--policy", "B1", "--bsbw", "900-200"], "parameter bsbw: '900-200' will not do"),
        (["minigrid", "--policy", "B1", "--bsbw", "nan"], "parameter bsbw: 'nan' will not do"),
        (["minigrid", "--policy", "B1", "--bsbw", "-5"], "parameter bsbw: '-5' will not do"),
        (["minigrid", "--policy", "B1", "--jobs-per-cluster", "0"], "parameter jobs_per_cluster: '0' will not do"),
        (["minigrid", "--policy", "B1", "--out", "x"], "--out: --policy asks for one run alone"),
        (["minigrid", "--policy", "B1", "--quick"], "--quick: --policy asks for one run alone"),
        (["koala2006", "--policy", "B1", "--out", "x"], "koala2006 has no runs to ask for one by one, so --policy"),
        (["koala2006", "--lslt", "1", "--bsbw", "3"], "so --bsbw and --lslt cannot be used with it"),
    ],
)
def test_wrong_use_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------- the whole


def test_the_study_runs_from_end_to_end(tmp_path: Path) -> None:
    settings = [
        f"--set={name}={json.dumps(value)}"
        for name, value in msgspec.to_builtins(SMALL).items()
        if name not in ("lslt_seeds", "pattern_seeds", "surface_seeds")
    ]
    done = run(
        "minigrid",
        "--out",
        str(tmp_path),
        "--jobs",
        "1",
        "--repetitions",
        "2",
        "--set=lslt_seeds=1",
        "--set=pattern_seeds=1",
        *settings,
    )
    assert done.exit_code == 0, done.output
    assert "Runs are shorter than the paper's 1,600,000 jobs" in " ".join(done.stdout.split())
    report = json.loads((tmp_path / "report.json").read_text())
    assert [claim["id"] for claim in report["claims"] if "-" not in claim["id"]] == [
        *(f"C{number}" for number in range(14, 22)),
        *("M1", "M2", "M3", "M4"),
    ]
    assert next(claim for claim in report["claims"] if claim["id"] == "C17")["leaning"] == "holds"
    pictures = {path.stem for path in tmp_path.glob("*.png")}
    assert {f"figure-{number:02}" for number in (5, *range(7, 19))} <= pictures
    assert {"mixed", "patterns", "islands", "chunks", "link-demand", "own-turnaround", "own-difference"} <= pictures


def test_a_single_run_may_have_another_number_of_clusters() -> None:
    done = run("minigrid", "--policy", "A2", "--clusters", "2", "--jobs-per-cluster", "50", "--json")
    assert done.exit_code == 0, done.output
    numbers = json.loads(done.stdout)
    assert (numbers["clusters"], numbers["jobs"]) == (2, 100)


def test_figures_that_were_not_run_are_left_out() -> None:
    parameters = msgspec.structs.replace(SMALL, lslt_seeds=0, pattern_seeds=0, surface_seeds=0)
    conclusion = MiniGridStudy().conclude(parameters, results_of(parameters=parameters))
    assert {picture.name for picture in conclusion.figures} == {"figure-05", "figure-13", "figure-14", "chunks"}
    without = msgspec.structs.replace(SMALL, pattern_seeds=0)
    names = {picture.name for picture in MiniGridStudy().conclude(without, results_of(parameters=without)).figures}
    assert "patterns" not in names
    assert {"mixed", "islands", "link-demand"} <= names
    with house_style():
        for picture in conclusion.figures:
            picture.draw()


def test_further_seeds_run_what_undecided_claims_rest_on_and_nothing_else() -> None:
    study = MiniGridStudy()
    first = results_of()
    claims = {claim.id: claim for claim in study.conclude(SMALL, first).claims}
    worst = [at(chunked(chunk), bsbw) for chunk in SMALL.chunks for bsbw in SMALL.bsbw]
    assert claims["C14"].rests_on == {alone(IDEAL), alone(MIGRATION_ONLY)}
    assert claims["C21-worst"].rests_on == set(worst)
    done = [each.unit for each in first]
    both = [claims["C14"], claims["C21-worst"]]
    units = study.more_units(SMALL, 1, done, range(SEEDS, SEEDS + 2), both)
    added = [(msgspec.convert(unit.work["case"], MiniGridCase), unit.work["seed"]) for unit in units[len(done) :]]
    assert units[: len(done)] == done
    bounds = [alone(IDEAL), alone(MIGRATION_ONLY)]
    assert sorted(added) == sorted((case, 1 + number) for case in (*bounds, *worst) for number in (SEEDS, SEEDS + 1))
    mixed_ones = study.more_units(SMALL, 1, done, range(SEEDS, SEEDS + 2), [claims["M1"]])[len(done) :]
    ours = [unit.work["seed"] for unit in mixed_ones if unit.work["case"] == mixed("A2", None).as_work()]
    assert ours == list(range(SMALL.lslt_seeds + 1, SEEDS + 3))
    assert study.more_units(SMALL, 1, done, range(SEEDS, SEEDS + 2), []) == done
    further = study.conclude(SMALL, [*first, *(finished(unit) for unit in units[len(done) :])])
    by_seeds = {claim.id: claim.evidence["seeds"] for claim in further.claims}
    assert (by_seeds["C14"], by_seeds["C21-worst"], by_seeds["C20"]) == (SEEDS + 2, SEEDS + 2, SEEDS)
    assert [claim.id for claim in further.claims if claim.verdict != "holds"] == []


@pytest.mark.parametrize("name", ["C20", "M1"])
def test_whatever_has_further_seeds_the_figures_are_drawn(name: str) -> None:
    study = MiniGridStudy()
    first = results_of()
    (claim,) = [claim for claim in study.conclude(SMALL, first).claims if claim.id == name]
    done = [each.unit for each in first]
    units = study.more_units(SMALL, 1, done, range(SEEDS, SEEDS + 2), [claim])
    further = study.conclude(SMALL, [*first, *map(finished, units[len(done) :])])
    wanted = ("figure-05", "figure-13", "own-turnaround", "own-difference")
    drawn = [picture for picture in further.figures if picture.name in wanted]
    assert len(drawn) == len(wanted)
    with house_style():
        for picture in drawn:
            picture.draw()


def test_every_case_is_in_the_report_with_its_interval() -> None:
    conclusion = MiniGridStudy().conclude(SMALL, results_of())
    assert len(conclusion.results["cases"]) == len(cases_of(SMALL, 0))
    found = next(each for each in conclusion.results["cases"] if each["policy"] == "A2" and each["wiring"] == "star")
    assert found["mean_turnaround_s"]["n"] == SMALL.lslt_seeds
    assert conclusion.results["runs"] == sum(len(cases_of(SMALL, number)) for number in range(SEEDS))
    assert conclusion.results["own"]["B5"]["mixed"]["high"] < 0
