"""``koala experiment``: what it lists, prints and writes, how it goes on after Ctrl-C, and its errors."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.frame_samples import Sample

from koala.cli import koala
from koala_papers import catalogue
from koala_papers.command import REPETITIONS_MAX

PATIENCE_S = 120


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["experiment", *arguments])


@pytest.fixture(autouse=True)
def sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """The small experiment, known by its name."""
    monkeypatch.setitem(catalogue.EXPERIMENTS, "sample", (Sample.__module__, Sample.__name__))


def test_the_list_names_every_experiment_with_its_question() -> None:
    listed = run("list")
    assert listed.exit_code == 0, listed.output
    for each in catalogue.experiments():
        assert each.name in listed.stdout
    assert "Is twice a number more than the number?" in listed.stdout
    assert all(len(line) <= 80 for line in listed.stdout.splitlines())


def test_the_list_as_json_has_the_parameters_with_their_defaults() -> None:
    listed: list[dict[str, Any]] = json.loads(run("list", "--json").stdout)
    found = next(each for each in listed if each["name"] == "koala2006")
    assert found["repetitions"] >= 20
    assert found["parameters"]["jobs"] == 200


def test_a_run_prints_the_claims_and_where_the_report_is(tmp_path: Path) -> None:
    done = run("run", "sample", "--out", str(tmp_path / "out"), "--jobs", "1", "--set", "factor=3")
    assert done.exit_code == 0, done.output
    for words in ("S1     holds     It is above zero.", "S2     contrary", "The contrary is shown by", "20 seeds"):
        assert words in done.stdout
    assert f"report: {tmp_path / 'out' / 'report.html'}" in done.stdout
    assert "first look" not in done.stdout
    table = done.stdout.partition("report:")[0]
    assert all(len(line) <= 80 for line in table.splitlines())
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert report["results"]["values"] == [3.0 * seed for seed in range(1, 21)]


def test_json_is_the_report(tmp_path: Path) -> None:
    done = run("run", "sample", "--out", str(tmp_path), "--jobs", "1", "--quick", "--seed", "5", "--json")
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "report.json").read_text())
    assert report["results"]["values"] == [10.0, 12.0, 14.0]
    assert report["parameters"]["rounds"] == 1


def test_a_run_with_few_seeds_says_that_they_are_few(tmp_path: Path) -> None:
    done = run("run", "sample", "--out", str(tmp_path), "--jobs", "1", "--repetitions", "4")
    assert "note: 4 seeds are a first look: claims are judged from at least 20" in done.stdout


def test_a_run_goes_on_while_a_claim_is_undecided_and_says_why_it_stopped(tmp_path: Path) -> None:
    few = ("run", "sample", "--out", str(tmp_path), "--jobs", "1", "--repetitions", "20")
    one = json.loads(run(*few, "--json").stdout)
    assert one["judged"]["looks"] == [{"seeds": 20, "confidence": 0.95}]
    decided = json.loads(run(*few, "--seeds-max", "80", "--json").stdout)
    assert decided["judged"]["stopped"] == "every claim is decided"
    assert decided["judged"]["seeds"] == 20
    assert decided["judged"]["looks_max"] == 3
    assert decided["judged"]["looks"][0]["confidence"] > 0.95


def test_a_seeds_max_below_the_first_look_is_refused(tmp_path: Path) -> None:
    done = run("run", "sample", "--out", str(tmp_path / "out"), "--repetitions", "20", "--seeds-max", "10")
    assert done.exit_code == 2
    assert "--seeds-max 10: the run begins with 20 seeds" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "koala206", "--out", "x"], "koala206: there is no experiment of that name; did you mean koala2006?"),
        (["run", "sample", "--out", "x", "--set", "factor"], "--set factor: there is no value in it"),
        (["run", "sample", "--out", "x", "--set", "a=1", "--set", "a=2"], "--set a=2: a is set twice"),
        (["run", "sample", "--out", "x", "--set", "rounds=many"], "sample, parameter rounds: 'many' will not do"),
        (["run", "koala2006", "--out", "x", "--set", "model=nowhere.yaml"], "nowhere.yaml: No such file"),
        (["run", "sample", "--out", "x", "--repetitions", "1"], "1 is not in the range"),
        (["run", "sample", "--out", "x", "--repetitions", str(REPETITIONS_MAX + 1)], "10001 is not in the range"),
    ],
)
def test_wrong_use_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_the_report_goes_to_one_of_its_name_apart_from_a_first_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for more, folder in (("--repetitions", "3"), "sample-results"), (("--quick",), "sample-first-look"):
        done = run("run", "sample", "--jobs", "1", *more)
        assert done.exit_code == 0, done.output
        assert f"report: {folder}/report.html" in done.stdout
        assert (tmp_path / folder / "report.json").is_file()


def test_the_folder_of_another_experiment_is_refused(tmp_path: Path) -> None:
    assert run("run", "sample", "--out", str(tmp_path), "--jobs", "1", "--quick").exit_code == 0
    done = run("run", "koala2006", "--out", str(tmp_path), "--quick")
    assert done.exit_code == 2
    assert "the report of sample is there" in done.stderr


def test_without_dask_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "distributed" else real(name, *more)
    )
    done = run("run", "sample", "--out", str(tmp_path / "out"), "--dask", "tcp://127.0.0.1:1")
    assert done.exit_code == 2
    assert "koala experiment run: distributed is not installed" in done.stderr
    assert "koala-scheduler[dask]" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_unit_that_fails_is_named_and_the_code_says_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(_self: Sample, unit: object) -> dict[str, Any]:
        raise RuntimeError("no dice")

    monkeypatch.setattr(Sample, "run", fall)
    done = run("run", "sample", "--out", str(tmp_path), "--jobs", "1")
    assert done.exit_code == 1
    assert "sample, seed 1: RuntimeError: no dice; what is finished is kept" in done.stderr


def test_the_papers_experiment_runs_from_end_to_end(tmp_path: Path) -> None:
    done = run("run", "koala2006", "--out", str(tmp_path), "--jobs", "1", "--quick", "--set", "jobs=8")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "report.json").read_text())
    assert [claim["id"] for claim in report["claims"]] == [f"C{number}" for number in range(1, 9)]
    assert report["results"]["workloads"]["W1"]["FCM"]["outcomes"] == {"done": 24}
    pictures = {path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".svg")}
    assert len(pictures) == 16


def test_sigterm_takes_down_what_a_unit_has_set_up_and_no_later_signal_interrupts_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken_down = []

    def ended(_self: Sample, unit: object) -> dict[str, Any]:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(PATIENCE_S)
        finally:
            for again in (signal.SIGHUP, signal.SIGTERM):
                os.kill(os.getpid(), again)
            taken_down.append("a lab")
        return {}

    monkeypatch.setattr(Sample, "run", ended)
    done = run("run", "sample", "--out", str(tmp_path), "--jobs", "1")
    assert done.exit_code == 130
    assert "Interrupted: 0 of" in done.stderr
    assert taken_down == ["a lab"]


@pytest.mark.parametrize("ended_by", ["Ctrl-C", "SIGTERM"])
def test_a_run_that_is_ended_keeps_what_is_finished_and_says_how_to_go_on(tmp_path: Path, ended_by: str) -> None:
    command = [sys.executable, "-m", "koala", "experiment", "run", "koala2006", "--quick", "--out", str(tmp_path)]
    command += ["--jobs", "2", "--repetitions", "200"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, process_group=0)
    deadline = time.monotonic() + PATIENCE_S
    while not list(tmp_path.glob("units/*.json")) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    if ended_by == "SIGTERM":
        process.terminate()  # its workers do not hear it
    else:
        os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    kept = len(list(tmp_path.glob("units/*.json")))
    assert kept > 0
    assert f"Interrupted: {kept} of 400 units finished and kept in {tmp_path / 'units'}" in errors
    assert "give the same command again to go on" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "report.json").exists()
