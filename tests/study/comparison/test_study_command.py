"""``koala study``: what it runs, prints, shows and refuses."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala
from koala.cli.study import command as study_command

STUDY = """\
study: tiny
policies: [WF, CM]
grids: [3x64]
workloads: [{workload: koala2006-w1, jobs: 2}]
metrics: [execution_s]
expectations: [{policy: CM, metric: execution_s, below: WF}]
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["study", *arguments])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(STUDY)
    return tmp_path


def test_a_first_look_is_printed_written_and_shown_again(folder: Path) -> None:
    done = run("run", "tiny.yaml", "--quick", "--jobs", "1")
    assert done.exit_code == 0, done.output
    assert "E1    undecided  CM's mean execution time is lower than WF's." in done.stdout
    assert "report: tiny-first-look/report.html" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert {"report.json", "runs.csv", "differences.csv", "execution-s.png"} <= {
        path.name for path in (folder / "tiny-first-look").iterdir()
    }
    shown = run("show", "tiny-first-look")
    assert shown.exit_code == 0, shown.output
    assert done.stdout.startswith(shown.stdout)
    report = json.loads(run("show", "tiny-first-look", "--json").stdout)
    again = run("run", "tiny.yaml", "--quick", "--jobs", "1", "--json")
    assert json.loads(again.stdout) == report


def test_a_study_is_shown_before_it_is_run(folder: Path) -> None:
    shown = run("show", "tiny.yaml")
    assert "2 policies x 1 grid x 1 workload or trace x 20 to 80 seeds: 40 runs at first" in shown.stdout
    plan = json.loads(run("show", "tiny.yaml", "--json").stdout)
    assert (plan["runs"], plan["runs_max"], plan["baseline"]) == (40, 160, "WF")


def test_the_example_can_be_shown_by_its_name(folder: Path) -> None:
    assert "das2-policies" in run("show", "das2-policies").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "das2-policy"], "did you mean das2-policies?"),
        (["run", "wrong.yaml"], "wrong.yaml:2:"),
        (["run", "tiny.yaml", "--dask", "x", "--jobs", "2"], "with --dask the cluster's workers decide how many"),
        (["show", "."], "there is no report.json in it"),
        (["show", "other"], "it is the report of an experiment and not of a study"),
        (["show", "broken"], "it is no report"),
        (["run", "tiny.yaml", "--out", "other"], "the report of koala2006 is there"),
    ],
)
def test_wrong_use_is_named(folder: Path, arguments: list[str], words: str) -> None:
    (folder / "wrong.yaml").write_text(STUDY.replace("WF, CM", "WF, CM, XM"))
    for name, text in (("other", '{"experiment": "koala2006"}'), ("broken", "{")):
        (folder / name).mkdir()
        (folder / name / "report.json").write_text(text)
    done = run(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert not (folder / "tiny-results").exists()


def test_a_report_beyond_its_limit_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "report.json").write_text("{}")
    monkeypatch.setattr(study_command, "REPORT_BYTES_MAX", 1)
    assert "REPORT_BYTES_MAX" in run("show", ".").stderr


def test_without_the_library_for_parquet_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name))
    done = run("run", "tiny.yaml", "--parquet")
    assert done.exit_code == 2
    assert "pyarrow is not installed" in done.stderr
    assert "pip install 'koala-scheduler[parquet]'" in done.stderr
