"""The study of plans: its worlds are as documented, its runs are measured, and verdicts follow the numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from koala.study.frame.claims import ClaimVerdict
from koala.study.frame.experiment import FinishedUnit, ParameterError, Unit, parameters_from
from koala_papers.catalogue import find
from koala_papers.planning.findings import EASY, PlanningFindings
from koala_papers.planning.study import Planning, PlanningParameters
from koala_papers.planning.worlds import (
    ASKED_MOST,
    DAS2,
    LUBLIN_NODES,
    clusters_of,
    drawn,
    part_of,
    processors_of,
    traces_in,
)

SMALL = PlanningParameters(jobs=40, das2_jobs=10, loads=(0.9,), policies=("FCM", "WF"), depths=("0", "1", "all"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one trace of 50 jobs on 8 processors, the last of which wants 6, and a file that is none."""
    lines = [
        f"{job} {job * 10} 0 100 {6 if job == 50 else 2} -1 -1 -1 200 -1 1 1 1 1 1 1 -1 -1" for job in range(1, 51)
    ]
    (tmp_path / "old.swf").write_text("; MaxProcs: 8\n" + "\n".join(lines) + "\n")
    (tmp_path / "README").write_text("no trace")
    return tmp_path


# ------------------------------------------------------------------------------------- the worlds


def test_a_folder_of_traces_is_named_by_the_user(folder: Path) -> None:
    assert [file.name for file in traces_in(str(folder))] == ["old"]
    assert traces_in("") == []
    with pytest.raises(ParameterError, match="no trace in"):
        traces_in(str(folder.parent))
    with pytest.raises(ParameterError, match="name a folder"):
        traces_in(str(folder / "nowhere"))


def test_each_seed_takes_another_part_of_a_trace(folder: Path) -> None:
    (file,) = traces_in(str(folder))
    assert processors_of(file) == 8
    parts = [part_of(file, 20, seed) for seed in range(3)]
    assert [part.ids[0] for part in parts] == [1, 21, 1]
    assert all(part.submit_s[0] == 0.0 and part.jobs == 20 for part in parts)


@pytest.mark.parametrize("load", [0.6, 0.95])
def test_drawn_jobs_use_the_share_of_the_machine_that_is_asked_for(load: float) -> None:
    trace = drawn(load, 200, seed=3)
    used = (trace.size * trace.run_s).sum() / (LUBLIN_NODES * trace.submit_s[-1])
    assert used == pytest.approx(load)
    asked = trace.requested_s / trace.run_s
    assert 1.0 <= asked.min() <= asked.max() <= ASKED_MOST


def test_the_processors_are_divided_over_equal_clusters() -> None:
    assert [site.processors for site in clusters_of(100, 4).sites] == [25, 25, 25, 25]
    assert [site.processors for site in clusters_of(10, 4).sites] == [3, 3, 3, 1]


# --------------------------------------------------------------------------------------- the runs


def test_fcm_with_one_plan_is_easy_on_one_cluster(folder: Path) -> None:
    """Without start-up times a job that may be divided anyhow finds the same room in four clusters as in one."""
    study = Planning()
    units = study.units(SMALL, seed=1, repetitions=1)
    results = {(unit.work["world"], unit.work["policy"], unit.work["depth"]): study.run(unit) for unit in units}
    easy, planned = results["Lublin 0.9", EASY, ""], results["Lublin 0.9", "FCM", "1"]
    assert planned["figures"] == pytest.approx(easy["figures"])
    assert planned["jobs"] == 40
    assert results[DAS2, "WF", "1"]["jobs"] == 10
    assert (DAS2, EASY, "") not in results


def test_what_is_too_large_for_wf_is_left_out(folder: Path) -> None:
    study = Planning()
    parameters = PlanningParameters(traces=str(folder), jobs=50, loads=(), policies=("FCM", "WF"), depths=("1",))
    units = [unit for unit in study.units(parameters, seed=0, repetitions=1) if unit.work["world"] == "old"]
    runs = {unit.work["policy"]: study.run(unit) for unit in units}
    assert {policy: (run["jobs"], run["too_large"]) for policy, run in runs.items()} == {
        EASY: (50, 0),
        "FCM": (50, 0),
        "WF": (49, 1),
    }


def test_a_first_look_and_wrong_parameters() -> None:
    study = find("planning")
    assert isinstance(study, Planning)
    quick = parameters_from(study, {}, quick=True)
    assert quick.jobs < PlanningParameters().jobs
    for settings, words in (({"depths": '["2", "many"]'}, "many"), ({"policies": '["CM"]'}, "FCM and WF")):
        with pytest.raises(ParameterError, match=words):
            study.units(parameters_from(study, settings), 1, 1)


# ------------------------------------------------------------------------------------- the verdicts


def finished(policy: str, depth: str, seed: int, longest_s: float, slowdown: float) -> FinishedUnit:
    result: dict[str, Any] = {
        "jobs": 10,
        "figures": {
            "mean_wait_s": longest_s / 2,
            "p999_wait_s": longest_s,
            "longest_wait_s": longest_s,
            "bounded_slowdown": slowdown,
        },
        "slowdown_by_class": {"1": slowdown},
        "utilisation": 0.5,
        "wasted_processor_s": 0.0,
        "not_done": 0,
        "too_large": 0,
    }
    return FinishedUnit(Unit(label="", work={"world": "w", "policy": policy, "depth": depth, "seed": seed}), result)


@pytest.mark.parametrize(
    ("longest", "slowdown", "verdicts"),
    [
        (1.0, 1.0, [ClaimVerdict.HOLDS, ClaimVerdict.HOLDS]),
        (1.5, 1.05, [ClaimVerdict.CONTRARY, ClaimVerdict.HOLDS]),
        (0.0, 1.2, [ClaimVerdict.HOLDS, ClaimVerdict.CONTRARY]),
    ],
)
def test_plans_are_judged_by_how_many_times_they_have_what_easy_has(
    longest: float, slowdown: float, verdicts: list[ClaimVerdict]
) -> None:
    results = []
    for seed in range(1, 9):
        results.append(finished(EASY, "", seed, 1_000.0 * seed, 10.0 * seed))
        results.append(finished("FCM", "0", seed, 9_000.0 * seed, 9.0))
        results.append(finished("FCM", "1", seed, longest * 1_000.0 * seed, slowdown * 10.0 * seed))
    findings = PlanningFindings(results)
    claims = findings.claims()
    assert [claim.id for claim in claims] == ["P1", "P2", "P7"]
    assert [claim.verdict for claim in claims[:2]] == verdicts
    assert claims[2].verdict is ClaimVerdict.HOLDS
    assert len(findings.tables()[0].rows) == 3
    assert findings.notes() == ["Every job of every run was done."]
    assert findings.as_json()["worlds"]["w"]["FCM 1"]["jobs"] == 80
