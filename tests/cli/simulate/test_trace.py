"""``koala simulate --trace``: what it prints, which engine runs, and how it reports bad input."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala

# Four jobs for 4 processors: 1 and 2 fill them, 3 waits for both to end, 4 could pass 3 without delaying it.
ROWS = ((1, 0, 100, 2, 100), (2, 0, 50, 2, 60), (3, 10, 20, 4, 20), (4, 20, 30, 2, 40))
TRACE = "; MaxProcs: 4\n" + "".join(
    f"{job} {submit} -1 {run} {size} -1 -1 {size} {estimate} -1 1 1 1 -1 -1 -1 -1 -1\n"
    for job, submit, run, size, estimate in ROWS
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["simulate", *arguments])


def figures(*arguments: str) -> dict[str, Any]:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    metrics: dict[str, Any] = json.loads(result.stdout)
    return metrics


@pytest.fixture
def trace(tmp_path: Path) -> str:
    path = tmp_path / "four.swf"
    path.write_text(TRACE)
    return str(path)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A busy workload of 1,500 jobs, some larger than 20 processors."""
    path = tmp_path_factory.mktemp("drawn") / "drawn.swf.gz"
    options = ("--jobs", "1500", "--seed", "4", "--interarrival", "30", "--run", "200", "--sizes", "1-24")
    arguments = ["trace", "generate", "poisson", *options, "--nodes", "80", "--out", str(path)]
    result = CliRunner().invoke(koala, arguments)
    assert result.exit_code == 0, result.output
    return str(path)


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


@pytest.mark.parametrize(
    ("policy", "waits"),
    # Under fcfs job 4 stands behind 3; first fit lets it pass at 50; so does EASY, since it ends before 100.
    [("fcfs", (0, 0, 90, 100)), ("first-fit", (0, 0, 90, 30)), ("easy", (0, 0, 90, 30)), ("EASY", (0, 0, 90, 30))],
)
def test_a_discipline_gives_the_waits_worked_out_by_hand(trace: str, policy: str, waits: tuple[int, ...]) -> None:
    metrics = figures("--trace", trace, "--grid", "1x4", "--policy", policy)
    runs = [row[2] for row in ROWS]
    assert metrics["mean_wait_s"] == pytest.approx(sum(waits) / 4)
    assert metrics["mean_turnaround_s"] == pytest.approx((sum(waits) + sum(runs)) / 4)
    assert metrics["wait_s"]["max"] == max(waits)
    bounded = [max(1.0, (wait + ran) / max(ran, 10)) for wait, ran in zip(waits, runs, strict=True)]
    assert metrics["bounded_slowdown"]["mean"] == pytest.approx(sum(bounded) / 4)
    last = max(row[1] + wait + row[2] for row, wait in zip(ROWS, waits, strict=True))
    assert metrics["makespan_s"] == last
    work = sum(row[2] * row[3] for row in ROWS)
    assert metrics["utilisation"]["total"] == pytest.approx(work / (4 * last))
    assert (metrics["jobs"], metrics["engine"], metrics["policy"]) == (4, "kernel", policy.casefold())
    assert metrics["jobs_per_s"] > 0
    assert metrics["too_large"] == {"jobs": 0, "first": [], "processors_max": 4}


def test_the_median_and_the_95th_percentile_are_told(trace: str) -> None:
    metrics = figures("--trace", trace, "--grid", "1x4", "--policy", "fcfs")
    assert metrics["median_wait_s"] == 45.0
    assert metrics["p95_wait_s"] == pytest.approx(98.5)
    assert metrics["median_turnaround_s"] == pytest.approx(105.0)


def test_easy_plans_with_the_users_estimates(tmp_path: Path) -> None:
    # By its estimate job 4 would end after 100 and delay job 3, so it may not pass, although it would have ended.
    path = tmp_path / "late.swf"
    path.write_text(TRACE.replace("4 20 -1 30 2 -1 -1 2 40", "4 20 -1 30 2 -1 -1 2 90"))
    assert figures("--trace", str(path), "--grid", "1x4", "--policy", "easy")["mean_wait_s"] == 190 / 4


def test_the_report_for_people_has_the_same_tables_as_a_workloads(trace: str) -> None:
    result = run("--trace", trace, "--grid", "1x4", "--policy", "fcfs")
    assert result.exit_code == 0, result.output
    for word in (
        "four on 1x4, policy fcfs",
        "4 jobs: 4 done; makespan 150 s",
        "wait",
        "47.5",
        "utilisation",
        "jobs/s",
    ):
        assert word in result.stdout
    assert all(len(line) <= 80 for line in result.stdout.splitlines())


def test_jobs_that_the_grid_cannot_hold_are_told_and_left_out(trace: str, tmp_path: Path) -> None:
    jobs_csv = tmp_path / "jobs.csv"
    arguments = ("--trace", trace, "--grid", "2x3", "--policy", "first-fit", "--jobs-csv", str(jobs_csv))
    metrics = figures(*arguments)
    assert metrics["jobs"] == 3
    assert metrics["too_large"] == {"jobs": 1, "first": [3], "processors_max": 3}
    rows = table(jobs_csv)
    assert [(row["job"], row["outcome"]) for row in rows] == [
        ("1", "done"),
        ("2", "done"),
        ("4", "done"),
        ("3", "too_large"),
    ]
    assert "too large for the grid, which holds 3 processors of one job: 1 job (3)" in run(*arguments).stdout


def test_a_policy_that_divides_holds_what_the_whole_grid_holds(trace: str) -> None:
    metrics = figures("--trace", trace, "--grid", "2x3", "--policy", "FCM")
    assert metrics["engine"] == "core"
    assert (metrics["jobs"], metrics["too_large"]["jobs"], metrics["outcomes"]) == (4, 0, {"done": 4})
    assert metrics["coallocated_share"] > 0


def test_jobs_that_cannot_be_run_are_told(tmp_path: Path) -> None:
    path = tmp_path / "holes.swf"
    path.write_text(TRACE + "9 30 -1 -1 2 -1 -1 2 -1 -1 0 1 1 -1 -1 -1 -1 -1\n" + TRACE.splitlines()[1] + "\n")
    metrics = figures("--trace", str(path), "--grid", "1x4", "--policy", "fcfs")
    assert metrics["skipped"] == {"jobs": 1, "reasons": [{"reason": "no run time", "jobs": 1, "first": [9]}]}
    assert metrics["reordered"] == 1
    text = run("--trace", str(path), "--grid", "1x4", "--policy", "fcfs").stdout
    assert "not run, for no run time: 1 job (9)" in text
    assert "put in order of submission: 1 job" in text


@pytest.mark.parametrize("policy", ["WF", "CM"])
def test_kernel_and_scheduler_give_the_same_table_of_jobs(drawn: str, tmp_path: Path, policy: str) -> None:
    tables = []
    for engine in ("kernel", "core"):
        path = tmp_path / f"{engine}.csv"
        arguments = ("--trace", drawn, "--grid", "4x20", "--policy", policy, "--jobs-csv", str(path))
        metrics = figures(*arguments, "--engine", engine, "--plan-depth", "0")
        assert (metrics["engine"], metrics["too_large"]["jobs"] > 0) == (engine, True)
        assert metrics["mean_wait_s"] > 1
        tables.append(table(path))
    # The kernel counts no tries and estimates no starts, and nothing is drawn from a seed.
    apart = {"placement_tries", "start_delay_s", "seed"}
    for one, other in zip(*tables, strict=True):
        assert {key: one[key] for key in one if key not in apart} == {
            key: other[key] for key in one if key not in apart
        }


@pytest.mark.parametrize("policy", ["FCM", "WF"])
def test_kernel_and_scheduler_make_the_same_plans(drawn: str, tmp_path: Path, policy: str) -> None:
    tables, means = [], []
    for engine in ("kernel", "core"):
        path = tmp_path / f"{engine}.csv"
        arguments = ("--trace", drawn, "--grid", "4x20", "--policy", policy, "--jobs-csv", str(path))
        metrics = figures(*arguments, "--engine", engine, "--plan-depth", "1")
        assert metrics["engine"] == engine
        means.append((metrics["wait_s"]["mean"], metrics["clusters_combined"]["histogram"], metrics["utilisation"]))
        tables.append(
            [(row["job"], row["started"], row["finished"], set(row["sites"].split("+"))) for row in table(path)]
        )
    assert tables[0] == tables[1]
    assert means[0][0] == pytest.approx(means[1][0])
    assert means[0][1] == means[1][1]
    assert means[0][2]["total"] == pytest.approx(means[1][2]["total"])


def test_plans_by_estimates_are_for_the_scheduler(trace: str) -> None:
    arguments = ("--trace", trace, "--grid", "1x4", "--policy", "WF", "--engine", "kernel", "--estimates", "last-two")
    assert run(*arguments).exit_code == 2


def test_a_grid_file_runs_in_the_kernel_where_it_is_plain_and_else_in_the_scheduler(
    trace: str, tmp_path: Path
) -> None:
    plain, timed = tmp_path / "plain.yaml", tmp_path / "timed.yaml"
    plain.write_text("sites: {a: {processors: 4}}\nscheduler: {order: fcfs, scan_interval_s: 0, plan_depth: 0}\n")
    timed.write_text("sites: {a: {processors: 4}}\nscheduler: {order: fcfs, scan_interval_s: 5, plan_depth: 0}\n")
    assert figures("--trace", trace, "--grid", str(plain))["engine"] == "kernel"
    assert figures("--trace", trace, "--grid", str(timed))["engine"] == "core"
    result = run("--trace", trace, "--grid", str(timed), "--engine", "kernel")
    assert result.exit_code == 2
    assert "a scan interval of 5 s" in result.stderr
    noted = figures("--trace", trace, "--grid", str(timed), "--policy", "fcfs")
    assert noted["engine"] == "kernel"
    assert noted["notes"] == ["fcfs considers only the sizes of the sites, without a scan interval of 5 s"]


def test_an_order_that_the_kernel_does_not_know_runs_in_the_scheduler(trace: str) -> None:
    without_plans = ("--trace", trace, "--grid", "1x4", "--policy", "WF", "--plan-depth", "0")
    assert figures(*without_plans)["engine"] == "kernel"
    assert figures(*without_plans, "--order", "FCFS")["engine"] == "kernel"
    for order in ("sjf", "round-robin"):
        assert figures(*without_plans, "--order", order)["engine"] == "core"
        refused = run(*without_plans, "--order", order, "--engine", "kernel")
        assert refused.exit_code == 2
        assert f"the order {order}" in refused.stderr
        planned = run("--trace", trace, "--grid", "1x4", "--policy", "FCM", "--order", order, "--engine", "kernel")
        assert planned.exit_code == 2
    easy = run(
        "--trace", trace, "--grid", "1x4", "--policy", "FCM", "--order", "easy", "--engine", "kernel", "--json"
    )
    assert json.loads(easy.stdout)["engine"] == "kernel"


def test_an_unknown_order_is_told_with_those_that_there_are(trace: str) -> None:
    result = run("--trace", trace, "--grid", "1x4", "--policy", "WF", "--order", "sfj")
    assert result.exit_code == 2
    assert "there is no order 'sfj'; did you mean sjf?" in result.stderr


def test_one_job_of_each_queue_has_a_plan_unless_the_user_says_otherwise(trace: str) -> None:
    # Job 3 is planned for 100, which job 4 of 40 s does not put off at 50; with 0 the kernel may run it.
    planned = figures("--trace", trace, "--grid", "1x4", "--policy", "WF")
    assert (planned["engine"], planned["wait_s"]["max"]) == ("core", 90.0)
    assert figures("--trace", trace, "--grid", "1x4", "--policy", "WF", "--plan-depth", "0")["engine"] == "kernel"
    refused = run("--trace", trace, "--grid", "1x4", "--policy", "WF", "--engine", "kernel", "--plan-depth", "2")
    assert refused.exit_code == 2
    assert "plans (plan_depth 2)" in refused.stderr
    assert "--plan-depth 0" in refused.stderr
    told = figures("--trace", trace, "--grid", "1x4", "--policy", "easy", "--plan-depth", "8")["notes"]
    assert told == ["easy considers only the sizes of the sites, without plans (plan_depth 8)"]


def test_what_only_the_scheduler_does_makes_it_run(trace: str, tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    assert figures("--trace", trace, "--grid", "1x4", "--policy", "WF", "--log", str(log))["engine"] == "core"
    assert b'"JobSubmitted"' in log.read_bytes()
    cut = figures("--trace", trace, "--grid", "1x4", "--policy", "WF", "--until", "60")
    assert (cut["engine"], cut["complete"]) == ("core", False)


def test_the_scheduler_names_jobs_by_the_ids_of_the_trace(tmp_path: Path) -> None:
    path = tmp_path / "ids.swf"
    path.write_text(TRACE.replace("\n3 10", "\n333 10"))
    jobs_csv = tmp_path / "jobs.csv"
    arguments = ("--trace", str(path), "--grid", "1x4", "--policy", "WF", "--until", "60")
    metrics = figures(*arguments, "--jobs-csv", str(jobs_csv))
    assert [row["job"] for row in table(jobs_csv)] == ["1", "2", "333", "4"]
    assert 333 in [left["job"] for left in metrics["unfinished"]]


def test_a_short_grid_also_serves_a_workload(tmp_path: Path) -> None:
    workload = tmp_path / "w.yaml"
    workload.write_text("jobs: [{at_s: 0, execution_s: 5, job: {processors: 3}}]")
    assert figures("--workload", str(workload), "--grid", "2x3")["outcomes"] == {"done": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--workload", "hello"), ("--workload and --trace",)),
        (("--policy", "first_fit"), ("first_fit", "did you mean first-fit")),
        (
            ("--policy", "FCM", "--engine", "kernel", "--plan-depth", "0"),
            ("--engine kernel", "FCM", "fcfs, first-fit, easy", "FCM with --plan-depth 1"),
        ),
        (("--policy", "easy", "--engine", "core"), ("--policy easy", "--engine core", "WF")),
        (("--policy", "fcfs", "--until", "5"), ("--policy fcfs", "--until")),
        (("--policy", "WF", "--engine", "kernel", "--until", "5"), ("--engine kernel", "--until is given")),
        (("--failures-from", "5"), ("--failures FILE",)),
        (("--policy", "WF", "--until", "nan"), ("--until", "'nan' is not a number")),
        (("--policy", "B3(chunk=2)"), ("'B3(chunk=2)'", "'2' is no value for chunk", "up to 1")),
        (("--policy", "B3(chnk=0.5)"), ("'B3(chnk=0.5)'", "chunk")),
    ],
)
def test_options_that_contradict_each_other_are_refused(
    trace: str, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    result = run("--trace", trace, "--grid", "1x4", *arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--grid", "1x4"), ("--workload WORKLOAD", "--trace FILE")),
        (("--grid", "1x4", "--workload", "hello", "--engine", "core"), ("--engine", "leave it out")),
        (("--grid", "0x4", "--workload", "hello"), ("--grid 0x4", "SITES_MAX")),
        (("--grid", "4x0", "--workload", "hello"), ("--grid 4x0", "PROCESSORS_MAX")),
        (("--grid", "1x9999999999999", "--workload", "hello"), ("--grid 1x9999999999999", "PROCESSORS_MAX")),
        (("--grid", "4x", "--workload", "hello"), ("--grid 4x:", "4x100 is four clusters")),
        (("--grid", "4xa", "--workload", "hello"), ("--grid 4xa:", "4x100 is four clusters")),
        (("--grid", "fourx100", "--workload", "hello"), ("--grid fourx100:", "4x100 is four clusters")),
        (("--grid", "1e3x4", "--workload", "hello"), ("--grid 1e3x4:", "4x100 is four clusters")),
        (("--grid", "4X100", "--workload", "hello"), ("--grid 4X100:", "4x100 is four clusters")),
        (("--grid", "", "--workload", "hello"), ("--grid: it names no grid", "4x100")),
        (("--grid", "fax", "--workload", "hello"), ("fax: there is no such file", "das2")),
        (("--grid", "1x4", "--workload", "hello", "--policy", "Easy"), ("--policy Easy", "--trace FILE")),
        (("--grid", "1x4", "--trace", "/no/such/file.swf"), ("/no/such/file.swf",)),
    ],
)
def test_wrong_use_is_named(arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr


def test_a_policy_that_looks_at_links_says_that_a_trace_sends_nothing(trace: str, tmp_path: Path) -> None:
    grid = tmp_path / "grid.yaml"
    grid.write_text("sites: {A: {processors: 4}}\nnetwork: {uplink_mbit_s: 1000}\nscheduler: {scan_interval_s: 0}\n")
    told = "a trace does not have what its jobs send"
    assert told in figures("--trace", trace, "--grid", str(grid), "--policy", "B1")["notes"][0]
    for other in (("--grid", str(grid), "--policy", "WF"), ("--grid", "1x4", "--policy", "B1")):
        assert figures("--trace", trace, *other, "--engine", "core")["notes"] == []


def test_a_bad_line_is_reported_with_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "bad.swf"
    path.write_text(TRACE + "oops\n")
    result = run("--trace", str(path), "--grid", "1x4")
    assert result.exit_code == 2
    assert f"{path}, line 6: 1 field where SWF has 18" in result.stderr


def test_an_output_does_not_overwrite_the_trace(trace: str) -> None:
    result = run("--trace", trace, "--grid", "1x4", "--html", trace)
    assert result.exit_code == 2
    assert "--trace is the same file" in result.stderr
    assert Path(trace).read_text() == TRACE


def test_without_the_libraries_it_says_which_extra_to_install(trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    really = importlib.util.find_spec

    def find(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "numba" else really(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find)
    result = run("--trace", trace, "--grid", "1x4", "--policy", "easy")
    assert result.exit_code == 2
    assert "numba is not installed; install them with: pip install 'koala-scheduler[kernel]'" in result.stderr
