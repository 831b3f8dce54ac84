"""``koala replay`` against a daemon: the numbers of a simulation from real jobs, restarts, interrupts, refusals."""

from __future__ import annotations

import csv
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from koala.study.replay import replay
from tests.support.live_cli import Shell
from tests.support.live_daemon import Daemon, running_daemon, until
from tests.support.warm_koala import start_koala

GRID = """
name: two
sites:
  a: {kind: local, processors: 4}
  b: {kind: local, processors: 2}
scheduler: {scan_interval_s: 0, error_threshold: 50, answer_timeout_s: 15, check_interval_s: 5}
"""
WORKLOAD = """
name: mixed
applications:
  short: {execution_s: 4, per_extra_cluster: 1}
generate:
  - jobs: 5
    interarrival_s: 2
    mix: [{application: short, sizes: [{processors: 4, components: [2]}]}]
jobs:
  - at_s: 1
    execution_s: 1
    job: {name: own, application: {script: "echo it runs"}, processors: 1}
  - at_s: 3
    execution_s: 1
    job: {name: large, application: {executable: short}, processors: 5}
"""
SLOW = """
name: slow
generate:
  - jobs: 6
    interarrival_s: 0.01
    execution_s: 300
    mix: [{application: long, sizes: [{processors: 1}]}]
"""
# Number, submission, run time and size.
JOBS_OF_THE_TRACE = ((11, 0, 30, 6), (12, 40, 20, 1), (15, 60, 20, 99), (16, 80, 10, 2), (17, 90, 5, 1))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running_daemon(tmp_path_factory.mktemp("replay"), grid=GRID) as running:
        yield running


@pytest.fixture
def koala(daemon: Daemon) -> Shell:
    return Shell(daemon.server)


def written(directory: Path, text: str, name: str = "jobs.yaml") -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def jobs_of(daemon: Daemon, name: str) -> list[Any]:
    return [job for job in daemon.client.each_job() if job.name == name]


def test_a_workload_gives_the_numbers_of_a_simulation_from_what_really_ran(
    daemon: Daemon, koala: Shell, tmp_path: Path
) -> None:
    workload, out = written(tmp_path, WORKLOAD), tmp_path / "out"
    live = koala.json("replay", workload, "--speed", "10", "--compare", "--out", str(out))
    grid = written(tmp_path, GRID, "grid.yaml")
    simulated = koala.json("simulate", "--grid", grid, "--workload", workload)
    assert simulated.keys() - live.keys() == {"log_sha256"}, "a live run is never the same twice"
    assert live["simulated"]["log_sha256"]
    assert live["outcomes"] == {"done": 6}
    assert live["too_large"] == {"jobs": 1, "first": [3]}
    assert any("slowed down by combining clusters" in note for note in live["notes"])
    # Four seconds at ten times the speed, and no slower on two sites.
    rows = {row["job"]: row for row in table(out / "jobs.csv")}
    slept = [float(row["execution_s"]) for row in rows.values() if row["name"] == "short"]
    assert len(slept) == 5
    assert min(slept) >= 0.4
    for number, row in rows.items():
        detail = daemon.client.job(int(number))
        assert detail.started_at is not None
        assert detail.ended_at is not None
        assert float(row["response_s"]) == pytest.approx(detail.ended_at - detail.submitted_at, abs=1e-5)
        assert float(row["wait_s"]) == pytest.approx(detail.started_at - detail.submitted_at, abs=1e-5)
        assert int(row["placement_tries"]) == detail.placement_tries
    own = next(row["job"] for row in rows.values() if row["name"] == "own")
    assert daemon.client.output(int(own)).text == "it runs\n"
    submissions = table(out / "submissions.csv")
    assert [row["name"] for row in submissions if row["not_submitted"]] == ["3"]
    planned = [float(row["planned_s"]) for row in submissions if row["job"]]
    assert planned == pytest.approx([0.0, 0.1, 0.3, 0.5, 0.7, 0.9])
    assert all(float(row["lag_s"]) >= 0 for row in submissions if row["job"])
    assert live["replay"]["lag_s"]["max"] == pytest.approx(
        max(float(r["lag_s"]) for r in submissions if r["job"]), abs=1e-5
    )
    assert live["replay"]["wasted_processor_s"]["held"] > 0
    assert live["simulated"]["outcomes"] == {"done": 6}
    assert live["compared"]["execution_s"]["simulated"] == pytest.approx((5 * 0.4 + 1.0) / 6)
    assert json.loads((out / "metrics.json").read_text()) == live
    assert "mixed on two, live" in (out / "page.html").read_text()


def test_the_report_is_that_of_a_simulation_and_tells_what_is_special_of_a_live_grid(
    koala: Shell, tmp_path: Path
) -> None:
    lines = koala.lines("replay", written(tmp_path, WORKLOAD), "--speed", "20", "--limit", "4", "--compare")
    text = "\n".join(lines)
    assert lines[0] == "mixed on two, policy WF, seed 1"
    for words in ("from - to", "clusters combined", "utilisation", "on record later than planned: median", "wasted:"):
        assert words in text
    assert "too large for the grid: 1 job (3)" in text
    assert lines[-1].split()[0] == "makespan,"
    assert lines[-1].split()[-1] == "%"


def test_a_trace_keeps_its_ids_and_a_dividing_policy_gets_totals(
    daemon: Daemon, koala: Shell, tmp_path: Path
) -> None:
    lines = [
        f"{number} {at} -1 {run_s} {size} -1 -1 {size} -1 -1 1 -1 -1 -1 -1 -1 -1 -1"
        for number, at, run_s, size in JOBS_OF_THE_TRACE
    ]
    lines.append("18 99 -1 -1 2 -1 -1 2 -1 -1 0 -1 -1 -1 -1 -1 -1 -1")
    trace = written(tmp_path, "\n".join(lines) + "\n", "small.swf")
    arguments = ("replay", trace, "--speed", "100", "--limit", "4", "--policy", "FCM", "--out", str(tmp_path / "out"))
    live = koala.json(*arguments)
    assert (live["trace"], live["engine"], live["policy"]) == ("small", "live", "FCM")
    assert live["outcomes"] == {"done": 3}
    assert live["too_large"] == {"jobs": 1, "first": [15]}
    assert "not run, for no run time: 1 job (18)" in live["notes"]
    assert live["bounded_slowdown"]["mean"] >= 1
    assert live["clusters_combined"]["histogram"]["2"] == 1, "six processors are divided over both sites"
    submissions = table(tmp_path / "out" / "submissions.csv")
    assert [row["name"] for row in submissions] == ["11", "12", "16", "15"]
    assert daemon.client.job(int(submissions[0]["job"])).policy == "FCM"


def test_a_daemon_that_is_killed_meanwhile_loses_no_job_and_runs_none_twice(
    daemon: Daemon, koala: Shell, tmp_path: Path
) -> None:
    text = SLOW.replace("slow", "away").replace("300", "1").replace("0.01", "0.5").replace("long", "away")
    ends: list[Any] = []
    replaying = threading.Thread(target=lambda: ends.append(koala.json("replay", written(tmp_path, text))))
    replaying.start()
    until(lambda: len(jobs_of(daemon, "away")) >= 2, "some jobs are submitted")
    daemon.kill()
    daemon.start()
    replaying.join(120)
    assert ends, "the replay did not end"
    assert sum(ends[0]["outcomes"].values()) == 6
    assert ends[0]["outcomes"].get("done", 0) >= 1
    assert len(jobs_of(daemon, "away")) == 6
    assert ends[0]["replay"]["lag_s"]["max"] > ends[0]["replay"]["lag_s"]["median"]


def interrupted(daemon: Daemon, workload: str, name: str, *options: str) -> dict[str, Any]:
    """A replay in a process of its own that is interrupted when all of its jobs are submitted; its numbers."""
    told = Path(workload).with_name("numbers.json")
    with Path(os.devnull).open("rb") as nothing, told.open("wb") as output:
        process = start_koala(
            ["replay", workload, "--json", *options],
            stdin=nothing.fileno(),
            stdout=output.fileno(),
            stderr=2,
            env={**os.environ, "KOALA_SERVER": daemon.server},
        )
    try:
        until(lambda: len(jobs_of(daemon, name)) == 6, "the jobs are submitted")
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130
    finally:
        process.kill()
    found: dict[str, Any] = json.loads(told.read_text(encoding="utf-8"))
    return found


def test_an_interrupt_cancels_what_was_submitted_and_reports(daemon: Daemon, tmp_path: Path) -> None:
    workload = written(tmp_path, SLOW.replace("long", "cancelled"))
    metrics = interrupted(daemon, workload, "cancelled")
    assert metrics["outcomes"] == {"cancelled": 6}
    assert "interrupted" in metrics["stopped"]
    assert metrics["replay"]["left_behind"] == []
    assert {job.state for job in jobs_of(daemon, "cancelled")} == {"cancelled"}


def test_an_interrupt_leaves_the_jobs_alone_where_that_is_asked_for(daemon: Daemon, tmp_path: Path) -> None:
    workload = written(tmp_path, SLOW.replace("long", "kept"))
    metrics = interrupted(daemon, workload, "kept", "--keep")
    jobs = jobs_of(daemon, "kept")
    assert sorted(metrics["replay"]["left_behind"]) == sorted(job.id for job in jobs)
    assert metrics["outcomes"] == {"unfinished": 6}
    assert not {job.state for job in jobs} & {"cancelled", "failed"}
    for job in jobs:
        daemon.client.cancel(job.id)
    until(lambda: not any(site.ours for site in daemon.client.sites()), "the sites are idle again")


def test_a_job_that_can_never_fit_is_given_up_when_nothing_else_is_left(
    koala: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "QUIET_S", 0.5)
    text = """
jobs:
  - {at_s: 0, execution_s: 0.1, job: {name: fits, application: {executable: x}, processors: 1}}
  - at_s: 0
    execution_s: 0.1
    job: {name: never, application: {executable: x}, components: [{processors: 3}, {processors: 3}]}
"""
    live = koala.json("replay", written(tmp_path, text))
    assert live["outcomes"] == {"done": 1, "unfinished": 1}
    assert live["unfinished"][0]["name"] == "never"
    assert "it can never fit" in live["unfinished"][0]["reason"]


def test_submission_is_held_back_while_too_many_wait(daemon: Daemon, koala: Shell, tmp_path: Path) -> None:
    text = """
name: held
hold_when_waiting: 1
generate:
  - jobs: 4
    interarrival_s: 0.01
    execution_s: 0.5
    mix: [{application: whole, sizes: [{processors: 4}]}]
"""
    live = koala.json("replay", written(tmp_path, text))
    assert live["outcomes"] == {"done": 4}
    jobs = sorted(jobs_of(daemon, "whole"), key=lambda job: int(job.id))
    # One runs and one waits: the third comes only when the second has its place, after the end of the first.
    for first, third in zip(jobs, jobs[2:], strict=False):
        assert third.submitted_at >= first.ended_at


def test_the_program_of_an_application_can_be_given(daemon: Daemon, koala: Shell, tmp_path: Path) -> None:
    job = written(tmp_path, 'application: {script: "echo really"}\nprocessors: 1\n', "real.yaml")
    text = SLOW.replace("long", "modelled")
    koala.json("replay", written(tmp_path, text), "--limit", "1", "--application", f"modelled={job}")
    (found,) = jobs_of(daemon, "modelled")
    assert daemon.client.output(found.id).text == "really\n"


def test_jobs_that_the_daemon_refuses_are_a_failure_only_when_it_refuses_all(koala: Shell, tmp_path: Path) -> None:
    workload = written(tmp_path, SLOW)
    said = koala("replay", workload, "--policy", "Nobody", code=1).stderr
    assert "the daemon takes none of these jobs" in said
    assert "Nobody" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--grid", "das2"], "give --compare too"),
        (["--policy", "easy"], "a discipline is for simulated traces"),
        (["--application", "short"], "write NAME=JOB"),
        (["--speed", "0"], "--speed"),
        (["--speed", "nan"], "--speed"),
        (["--out", "/dev/null/x"], "--out"),
    ],
)
def test_wrong_use_is_refused_before_anything_is_submitted(
    koala: Shell, daemon: Daemon, tmp_path: Path, options: list[str], words: str
) -> None:
    before = daemon.client.overview().last_seq
    assert words in koala("replay", written(tmp_path, WORKLOAD), *options, code=2).stderr
    submitted = [each for each in daemon.client.journal(after=before) if each.what == "JobSubmitted"]
    assert not submitted


def test_a_workload_that_names_a_site_the_grid_does_not_have_is_refused(koala: Shell, tmp_path: Path) -> None:
    text = "jobs: [{at_s: 0, execution_s: 1, job: {components: [{processors: 1, site: elsewhere}]}}]\n"
    assert "elsewhere" in koala("replay", written(tmp_path, text), code=2).stderr


def test_a_workload_of_which_nothing_fits_is_a_failure_that_says_what_is_missing(
    koala: Shell, tmp_path: Path
) -> None:
    jobs = ", ".join(f"{{at_s: 0, execution_s: 1, job: {{processors: {size}}}}}" for size in (900, 800))
    said = koala("replay", written(tmp_path, f"jobs: [{jobs}]\n"), "--out", str(tmp_path / "out"), code=1).stderr
    assert "none of the 2 jobs fits" in said
    assert "the smallest job asks for 800" in said
    assert "koala lab up" in said
