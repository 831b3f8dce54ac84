"""``koala simulate``: what it prints and writes, and how it reports bad input."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala

GRID = """
sites: {a: {processors: 10}, b: {processors: 10}}
scheduler: {scan_interval_s: 0}
"""
WORKLOAD = """
jobs:
  - {at_s: 0, execution_s: 100, per_extra_cluster: 0.3, job: {name: wide, components: [{processors: 10, count: 2}]}}
  - {at_s: 30, execution_s: 50, job: {name: late, processors: 4}}
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["simulate", *arguments])


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    grid, workload = tmp_path / "grid.yaml", tmp_path / "workload.yaml"
    grid.write_text(GRID)
    workload.write_text(WORKLOAD)
    return str(grid), str(workload)


def test_json_is_one_document_with_all_metrics(files: tuple[str, str]) -> None:
    result = run("--grid", files[0], "--workload", files[1], "--json")
    assert result.exit_code == 0, result.output
    metrics: dict[str, Any] = json.loads(result.stdout)
    assert metrics["outcomes"] == {"done": 2}
    assert metrics["response_s"]["mean"] == 140.0
    assert metrics["policy"] == "WF"
    assert len(metrics["log_sha256"]) == 64


def test_the_tables_for_people_show_times_clusters_and_utilisation(files: tuple[str, str]) -> None:
    result = run("--grid", files[0], "--workload", files[1])
    assert result.exit_code == 0, result.output
    for word in (
        "2 jobs: 2 done",
        "response",
        "140.0",
        "p95",
        "clusters combined: mean 1.50",
        "utilisation",
        "77.8%",
    ):
        assert word in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    assert not result.stderr


def test_the_table_of_jobs_and_the_log_are_written_where_asked(files: tuple[str, str], tmp_path: Path) -> None:
    table, log = tmp_path / "jobs.csv", tmp_path / "run.log"
    result = run("--grid", files[0], "--workload", files[1], "--json", "--jobs-csv", str(table), "--log", str(log))
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [(row["name"], row["response_s"]) for row in rows] == [("wide", "130.0"), ("late", "150.0")]
    assert hashlib.sha256(log.read_bytes()).hexdigest() == json.loads(result.stdout)["log_sha256"]


@pytest.mark.parametrize("policy", ["WF", "CM", "FCM", "CF"])
def test_every_policy_runs_the_shipped_examples_by_name(policy: str) -> None:
    workload = "koala2006-w2-flexible" if policy == "FCM" else "koala2006-w2"
    result = run("--grid", "das2", "--workload", workload, "--policy", policy, "--seed", "7", "--json")
    assert result.exit_code == 0, result.output
    metrics = json.loads(result.stdout)
    assert metrics["outcomes"] == {"done": 200}
    assert metrics["policy"] == policy
    assert 0.14 <= metrics["utilisation"]["others"] <= 0.21


def test_the_experiment_with_files_and_a_flaky_cluster_completes() -> None:
    result = run("--grid", "das2-2005", "--workload", "koala2005", "--json")
    assert result.exit_code == 0, result.output
    metrics = json.loads(result.stdout)
    assert metrics["outcomes"] == {"done": 500}
    assert metrics["failures"] > 0


@pytest.mark.parametrize(("grid", "workload"), [("minigrid", "hello"), ("two-continents", "three-users")])
def test_the_other_examples_run_too(grid: str, workload: str) -> None:
    result = run("--grid", grid, "--workload", workload, "--json")
    assert result.exit_code == 0, result.output
    assert set(json.loads(result.stdout)["outcomes"]) == {"done"}


def test_the_same_seed_prints_the_same(files: tuple[str, str]) -> None:
    arguments = ("--grid", "das2", "--workload", "koala2006-w1", "--json", "--seed")
    printed = run(*arguments, "3").stdout
    assert printed == run(*arguments, "3").stdout
    assert printed != run(*arguments, "4").stdout


def test_a_policy_of_ones_own_places_the_jobs(files: tuple[str, str], tmp_path: Path) -> None:
    policy = tmp_path / "mine.py"
    policy.write_text(
        "from koala.policies import policy\n\n"
        "@policy('LAST', summary='each component on the last site that fits')\n"
        "def last(idle, sizes, left, chosen):\n"
        "    for number in range(len(sizes)):\n"
        "        for site in range(len(idle) - 1, -1, -1):\n"
        "            if left[site] >= sizes[number]:\n"
        "                left[site] -= sizes[number]\n"
        "                chosen[number] = site\n"
        "                break\n"
        "        else:\n"
        "            return number\n"
        "    return -1\n"
    )
    table = tmp_path / "jobs.csv"
    result = run(
        "--grid",
        files[0],
        "--workload",
        files[1],
        "--policy-file",
        str(policy),
        "--policy",
        "LAST",
        "--jobs-csv",
        str(table),
    )
    assert result.exit_code == 0, result.output
    assert [row["sites"] for row in csv.DictReader(io.StringIO(table.read_text()))] == ["b+a", "b"]


def test_jobs_that_cannot_finish_are_listed_with_the_reason(files: tuple[str, str], tmp_path: Path) -> None:
    big = tmp_path / "big.yaml"
    big.write_text("jobs: [{at_s: 0, execution_s: 1, job: {name: huge, processors: 99}}]")
    result = run("--grid", files[0], "--workload", str(big))
    assert result.exit_code == 0, result.output
    assert "1 unfinished" in result.stdout
    assert "huge" in result.stdout
    assert "99 processors" in " ".join(result.stdout.split())


def test_a_void_run_says_so(tmp_path: Path) -> None:
    grid, workload = tmp_path / "g.yaml", tmp_path / "w.yaml"
    grid.write_text(
        "sites: {a: {processors: 50, simulation: {background: {user_load: 0.6, band_low: 0.1, band_high: 0.15}}}}"
    )
    workload.write_text("jobs: [{at_s: 3000, execution_s: 900, job: {processors: 1}}]")
    result = run("--grid", str(grid), "--workload", str(workload))
    assert "void: " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--grid", "das3", "--workload", "hello"), ("das3", "did you mean das2")),
        (("--grid", "das2", "--workload", "nothing-like-it"), ("nothing-like-it", "koala2005")),
        (("--grid", "das2", "--workload", "hello", "--policy", "WFF"), ("WFF", "WF")),
        (("--grid", "das2", "--workload", "hello", "--log", "/no/such/folder/x"), ("/no/such/folder/x",)),
        (("--grid", "das2"), ("--workload",)),
    ],
)
def test_bad_input_is_named_and_exits_with_2(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.output


def test_a_wrong_workload_file_is_reported_with_its_line(files: tuple[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("jobs:\n  - {at_s: soon, job: {processors: 1}}\n")
    result = run("--grid", files[0], "--workload", str(wrong))
    assert result.exit_code == 2
    assert "wrong.yaml:2:12:" in result.stderr


def test_a_workload_that_does_not_fit_the_grid_is_reported(files: tuple[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("files: {f: {size: 1 GB, replicas: [z]}}\n" + WORKLOAD)
    result = run("--grid", files[0], "--workload", str(wrong))
    assert result.exit_code == 2
    assert "replica at z" in result.stderr


def test_a_run_that_is_cut_off_says_so(files: tuple[str, str]) -> None:
    result = run("--grid", files[0], "--workload", files[1], "--until", "20")
    assert result.exit_code == 0, result.output
    assert "incomplete: cut off at 20 s of virtual time, as asked; 1 job not submitted" in result.stdout
    assert "1 job: 1 unfinished" in result.stdout
    metrics = json.loads(run("--grid", files[0], "--workload", files[1], "--until", "20", "--json").stdout)
    assert metrics["complete"] is False
    assert metrics["not_submitted"] == 1


def test_a_policy_that_breaks_stops_the_run_with_its_message(files: tuple[str, str], tmp_path: Path) -> None:
    policy = tmp_path / "bad.py"
    policy.write_text(
        "from koala.policies import policy\n\n@policy('BAD')\ndef bad(idle, sizes, left, chosen):\n    return 99\n"
    )
    result = run("--grid", files[0], "--workload", files[1], "--policy-file", str(policy), "--policy", "BAD")
    assert result.exit_code == 2
    assert "job 1 (wide): the policy 'BAD' (from" in result.stderr
    assert "returned 99" in result.stderr


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ("{name: x, processors: 1, policy: WFF}", ("job 1 (x)", "the policy 'WFF'", "did you mean WF")),
        ("{name: x, components: [{processors: 1, site: aa}]}", ("job 1 (x)", "the site 'aa'", "There are: a, b")),
        (
            "{name: x, processors: 1, input_files: [mash]}",
            ("job 1 (x)", "input file 'mash'", "did you mean mesh"),
        ),
    ],
)
def test_names_that_are_not_there_are_found_before_the_run(
    files: tuple[str, str], tmp_path: Path, job: str, words: tuple[str, ...]
) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "files: {mesh: {size: 1 GB, replicas: [a]}}\n" + f"jobs: [{{at_s: 0, execution_s: 1, job: {job}}}]\n"
    )
    result = run("--grid", files[0], "--workload", str(wrong))
    assert result.exit_code == 2, result.output
    assert all(word in result.stderr for word in words), result.stderr


def test_names_in_a_generator_are_checked_too(files: tuple[str, str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "generate:\n"
        "  - {jobs: 3, interarrival_s: {constant: 1}, execution_s: {constant: 1}, policy: FCN,\n"
        "     mix: [{application: x, sizes: [{processors: 2}]}]}\n"
    )
    result = run("--grid", files[0], "--workload", str(wrong))
    assert result.exit_code == 2, result.output
    assert "wrong.yaml: generator 1 names the policy 'FCN'; did you mean FCM" in result.stderr


def test_the_report_notes_where_the_policy_did_not_fit(files: tuple[str, str]) -> None:
    result = run("--grid", files[0], "--workload", files[1], "--policy", "FCM")
    assert "note: 2 jobs with given sizes: FCM placed them by CM" in result.stdout


def test_failed_jobs_are_grouped_by_their_reason(files: tuple[str, str], tmp_path: Path) -> None:
    short = tmp_path / "short.yaml"
    job = "execution_s: 100, job: {name: slow, processors: 1, walltime: 10}"
    short.write_text(f"jobs: [{{at_s: 0, {job}}}, {{at_s: 50, {job}}}]")
    result = run("--grid", files[0], "--workload", str(short))
    assert result.exit_code == 0, result.output
    assert "failed: 2 jobs, first job 1 (slow): " in " ".join(result.stdout.split())
    (failed,) = json.loads(run("--grid", files[0], "--workload", str(short), "--json").stdout)["failed"]
    assert (failed["jobs"], failed["first"]) == (2, {"job": 1, "name": "slow"})


@pytest.mark.parametrize(("columns", "explained"), [("60", False), ("80", True)])
def test_a_narrow_report_leaves_out_the_explanations(files: tuple[str, str], columns: str, explained: bool) -> None:
    result = CliRunner(env={"COLUMNS": columns}).invoke(
        koala, ["simulate", "--grid", files[0], "--workload", files[1]]
    )
    assert ("from - to" in result.stdout) == explained
    lines = result.stdout.splitlines()
    assert all(len(line) <= int(columns) and line == line.rstrip() for line in lines)
