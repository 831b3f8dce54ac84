"""``koala place``: the answer for people and for programs, the exit codes, and what bad options are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.cli.errors import UserError
from koala.cli.place.options import parse_components, parse_idle
from koala.cli.terminal.refusals import SITES_SHOWN_MAX
from koala.model.grid import SITES_MAX
from koala.model.request import COMPONENTS_MAX, PROCESSORS_MAX

IDLE = "C1=18,C2=15,C3=12"

GRID = """
sites:
  A: {processors: 40, quota: 0.5}
  B: {processors: 16}
scheduler:
  policy: CM
files:
  data: {size: 1 GB, replicas: [B]}
"""
JOB = """
components:
  - {processors: 8, application: {executable: solve}, input_files: [data]}
  - {processors: 8, application: {executable: solve}}
"""


def run(*arguments: str) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(koala, ["place", *arguments])


def answer(*arguments: str, exit_code: int = 0) -> Any:
    result = run(*arguments, "--json")
    assert result.exit_code == exit_code, result.output
    return json.loads(result.stdout)


def places(*arguments: str) -> list[tuple[str, int]]:
    return [(component["site"], component["processors"]) for component in answer(*arguments)["components"]]


@pytest.fixture
def grid(tmp_path: Path) -> str:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID, encoding="utf-8")
    return str(path)


@pytest.fixture
def job(tmp_path: Path) -> str:
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    return str(path)


# ------------------------------------------------------------------------------------- placed and refused


def test_components_go_where_the_policy_says() -> None:
    assert places("--idle", IDLE, "--components", "8,8,8", "--policy", "CM") == [("C1", 8), ("C1", 8), ("C2", 8)]
    assert places("--idle", IDLE, "--components", "8,8,8", "--policy", "wf") == [("C1", 8), ("C2", 8), ("C3", 8)]


def test_the_default_policy_is_worst_fit() -> None:
    assert answer("--idle", IDLE, "--components", "8")["policy"] == "WF"


def test_a_flexible_total_is_divided() -> None:
    placed = answer("--idle", IDLE, "--flexible", "24", "--policy", "FCM")
    assert placed == {
        "policy": "FCM",
        "placed": True,
        "components": [{"site": "C1", "processors": 18}, {"site": "C2", "processors": 6}],
    }


def test_bounds_and_splits_shape_the_division() -> None:
    base = ("--idle", IDLE, "--flexible", "24", "--policy", "FCM")
    assert places(*base, "--component-min", "8") == [("C1", 16), ("C2", 8)]
    assert places(*base, "--splits", "24,12+12") == [("C1", 12), ("C2", 12)]
    assert answer(*base, "--components-max", "1", exit_code=3)["placed"] is False


def test_a_component_can_be_pinned_to_a_site() -> None:
    assert places("--idle", IDLE, "--components", "8@C3,8", "--policy", "CM") == [("C3", 8), ("C1", 8)]


def test_the_table_shows_component_processors_and_site() -> None:
    result = run("--idle", IDLE, "--components", "8,7", "--policy", "CM")
    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()[1:3]] == [["0", "8", "C1"], ["1", "7", "C1"]]
    assert "CM: 15 processors on 1 site" in result.stdout


def test_a_refusal_exits_with_3_and_explains_every_site() -> None:
    result = run("--idle", IDLE, "--components", "24", "--policy", "CM")
    assert result.exit_code == 3
    assert "a component of 24 processors" in result.stdout
    assert "9 more idle processors on C2" in result.stdout
    assert "6 more idle processors on C1, or a request with smaller components" in result.stdout


def test_a_refusal_as_json_is_the_refusal_itself() -> None:
    refused = answer("--idle", IDLE, "--components", "24", "--policy", "CM", exit_code=3)
    assert refused["policy"] == "CM"
    assert refused["placed"] is False
    assert refused["refusal"]["shortages"][0] == {
        "site": "C1",
        "wanted": 24,
        "idle": 18,
        "missing": 6,
        "cure": "6 more idle processors on C1",
        "resource": "processors",
    }
    assert refused["refusal"]["permanent"] is False


def test_a_refusal_by_many_sites_shows_those_that_come_nearest() -> None:
    idle = ",".join(f"S{number}={number}" for number in range(SITES_SHOWN_MAX + 1))
    shown = run("--idle", idle, "--components", "99").stdout
    assert "and 1 site more" in shown
    assert "more idle processors on S1\n" in shown.replace(" \n", "\n")
    assert "more idle processors on S0" not in shown
    assert (
        len(answer("--idle", idle, "--components", "99", exit_code=3)["refusal"]["shortages"]) == SITES_SHOWN_MAX + 1
    )


def test_a_users_policy_can_be_asked(tmp_path: Path) -> None:
    path = tmp_path / "last.py"
    path.write_text(
        "from koala.policies import policy\n"
        "@policy('LAST')\n"
        "def last(idle, sizes, left, chosen):\n"
        "    for component in range(len(sizes)):\n"
        "        chosen[component] = len(idle) - 1\n"
        "    return -1\n",
        encoding="utf-8",
    )
    asked = ("--idle", IDLE, "--policy", "LAST", "--policy-file", str(path), "--components")
    assert places(*asked, "8") == [("C3", 8)]
    result = run(*asked, "8,8")
    assert result.exit_code == 2
    assert "Error: the policy 'LAST'" in result.stderr


# ------------------------------------------------------------------------------------- files


def test_a_job_file_is_placed_on_a_grid_file_by_the_grids_policy(job: str, grid: str) -> None:
    placed = answer(job, "--grid", grid)
    assert placed["policy"] == "CM"
    assert [component["site"] for component in placed["components"]] == ["A", "A"]
    assert placed["components"][0]["sources"][0]["site"] == "B"
    assert "sources" not in placed["components"][1]


def test_idle_overrides_some_sites_of_the_grid(job: str, grid: str) -> None:
    assert places(job, "--grid", grid, "--idle", "A=0") == [("B", 8), ("B", 8)]


def test_the_table_tells_where_files_come_from(job: str, grid: str) -> None:
    assert "data from B" in run(job, "--grid", grid).stdout


def test_a_shortage_that_no_waiting_cures_is_called_so(grid: str) -> None:
    result = run("--grid", grid, "--components", "21")
    assert result.exit_code == 3
    assert "It can never fit" in result.stdout
    assert "A never offers more than 20" in result.stdout


def test_a_file_that_can_not_be_read_is_named(grid: str, tmp_path: Path) -> None:
    missing = run(str(tmp_path / "gone.yaml"), "--grid", grid)
    assert missing.exit_code == 2
    assert "gone.yaml: there is no such file, and no example job of that name" in missing.stderr
    binary = tmp_path / "job.yaml"
    binary.write_bytes(b"\xff\xff")
    assert "not UTF-8" in run(str(binary), "--grid", grid).stderr


def test_clusters_in_short_are_a_grid() -> None:
    answer = json.loads(run("--grid", "2x10", "--flexible", "14", "--policy", "FCM", "--json").stdout)
    assert answer["components"] == [{"site": "c1", "processors": 10}, {"site": "c2", "processors": 4}]


def test_an_example_can_be_named_instead_of_a_file() -> None:
    assert "8 processors on 1 site" in run("laplace", "--grid", "das2").stdout


# ------------------------------------------------------------------------------------- bad options


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--components", "8"), "say what is idle"),
        (("--idle", IDLE), "give a JOB file, or --components"),
        (("--idle", IDLE, "--components", "8", "--flexible", "8"), "one of the three"),
        (("--idle", "C1", "--components", "8"), "'C1' does not name a site; write SITE=PROCESSORS"),
        (("--idle", "C1=x", "--components", "8"), "'x' is not a whole number"),
        (("--idle", "C1=1_0", "--components", "8"), "'1_0' is not a whole number"),
        (("--idle", "C1=-1", "--components", "8"), "-1 is not between 0 and"),
        (("--idle", "C1=1,C1=2", "--components", "8"), "'C1' is given twice"),
        (("--idle", "C1=1,,C2=2", "--components", "8"), "empty piece in 'C1=1,,C2=2'"),
        (("--idle", "=1", "--components", "8"), "'=1' does not name a site"),
        (("--idle", IDLE, "--components", "8,0"), "0 is not between 1 and"),
        (("--idle", IDLE, "--components", "8@"), "names no site after the @"),
        (("--idle", IDLE, "--components", "8@C4"), "'C4', which the grid does not have"),
        (("--idle", IDLE, "--components", "8", "--component-min", "2"), "give it too"),
        (("--idle", IDLE, "--flexible", "0"), "--flexible: 0 is not a number of processors"),
        (("--idle", IDLE, "--flexible", "8", "--component-min", "9"), "--component-min: 9"),
        (("--idle", IDLE, "--flexible", "8", "--splits", "4+3"), "--splits: 4+3 does not divide 8"),
        (("--idle", IDLE, "--flexible", "8", "--splits", "4+x"), "like 18+6,12+12"),
        (("--idle", IDLE, "--flexible", "8", "--splits", "8", "--components-max", "2"), "leave out"),
        (("--idle", IDLE, "--components", "8", "--policy", "MC"), "there is no policy 'MC'"),
    ],
)
def test_a_bad_option_is_named_with_the_form_expected(arguments: tuple[str, ...], told: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert told in result.stderr


def test_a_job_file_and_options_that_describe_one_exclude_each_other(job: str) -> None:
    result = run(job, "--idle", IDLE, "--components", "8")
    assert result.exit_code == 2
    assert "leave out --components" in result.stderr


def test_idle_must_fit_the_grid(grid: str) -> None:
    unknown = run("--grid", grid, "--components", "8", "--idle", "a=3")
    assert "the grid has no site 'a'; did you mean A?" in unknown.stderr
    assert unknown.exit_code == 2
    too_many = run("--grid", grid, "--components", "8", "--idle", "A=21")
    assert "A offers at most 20 processors, not 21" in too_many.stderr
    assert too_many.exit_code == 2


def test_the_options_keep_the_limits_of_grids_and_requests() -> None:
    sites = [f"S{number}=1" for number in range(SITES_MAX)]
    assert len(parse_idle(",".join(sites))) == SITES_MAX
    with pytest.raises(UserError, match="SITES_MAX"):
        parse_idle(",".join([*sites, "more=1"]))
    assert len(parse_components(",".join(["1"] * COMPONENTS_MAX))) == COMPONENTS_MAX
    with pytest.raises(UserError, match="COMPONENTS_MAX"):
        parse_components(",".join(["1"] * (COMPONENTS_MAX + 1)))
    assert parse_idle(f"A={PROCESSORS_MAX}") == {"A": PROCESSORS_MAX}
    with pytest.raises(UserError, match=str(PROCESSORS_MAX)):
        parse_idle(f"A={PROCESSORS_MAX + 1}")


def test_an_empty_policy_name_is_refused() -> None:
    result = CliRunner().invoke(koala, ["place", "--idle", "a=4", "--components", "2", "--policy", ""])
    assert result.exit_code == 2
    assert "--policy" in result.stderr
