"""``koala simulate --failures``: failures from a trace, what is said of it, and how bad traces are reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala

GRID = """
sites: {a: {processors: 4}, b: {processors: 4}}
scheduler: {scan_interval_s: 0}
"""
WORKLOAD = """
jobs:
  - {at_s: 0, execution_s: 100, job: {name: wide, components: [{processors: 4, count: 2}]}}
"""
EVENTS = """\
# event_id component_id node_id platform_id node_name event_type event_start_time event_stop_time event_end_reason
0\t0\t0\t5\tG/a/n1\t1\t1000\t1060\tNULL
1\t0\t0\t5\tG/a/n1\t0\t1060\t1090\tNULL
2\t0\t0\t5\tG/a/n1\t1\t1090\t9000\tNULL
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("grid.yaml", GRID), ("workload.yaml", WORKLOAD), ("event_trace.tab", EVENTS)):
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *options: str) -> Result:
    files = ("--grid", str(folder / "grid.yaml"), "--workload", str(folder / "workload.yaml"))
    return CliRunner().invoke(koala, ["simulate", *files, *options])


def metrics(folder: Path, *options: str) -> dict[str, Any]:
    result = run(folder, "--json", *options)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_a_job_broken_by_a_failing_node_runs_again_when_the_node_is_back(folder: Path) -> None:
    found = metrics(folder, "--failures", str(folder / "event_trace.tab"))
    assert found["outcomes"] == {"done": 1}
    assert (found["failures"], found["makespan_s"]) == (1, 190.0)
    assert found["failure_trace"] == {
        "file": "event_trace.tab",
        "events": 3,
        "nodes": 1,
        "nodes_by_site": {"a": 1, "b": 0},
        "from_s": 0.0,
        "span_s": 8000.0,
    }


def test_the_trace_may_begin_later(folder: Path) -> None:
    trace = ("--failures", str(folder / "event_trace.tab"))
    assert metrics(folder, *trace, "--failures-from", "70")["makespan_s"] == 120.0
    assert metrics(folder, *trace, "--failures-from", "90")["makespan_s"] == 100.0
    assert metrics(folder)["makespan_s"] == 100.0
    assert "failure_trace" not in metrics(folder)


def test_people_see_which_nodes_stand_for_which_site(folder: Path) -> None:
    result = run(folder, "--failures", str(folder / "event_trace.tab"))
    assert result.exit_code == 0, result.output
    assert "failures from event_trace.tab: 3 events, 0.1 days; nodes: a 1" in result.stdout


def test_bad_traces_and_options_are_named_with_what_to_do(folder: Path) -> None:
    trace = folder / "event_trace.tab"
    result = run(folder, "--failures", str(folder / "none.tab"))
    assert result.exit_code == 2
    assert "none.tab" in result.stderr
    result = run(folder, "--failures-from", "5")
    assert result.exit_code == 2
    assert "give --failures FILE too" in result.stderr
    result = run(folder, "--failures", str(trace), "--failures-from", "8000")
    assert result.exit_code == 2
    assert "lasts 8000 s; choose an earlier beginning" in result.stderr
    result = run(folder, "--failures", str(trace), "--log", str(trace))
    assert result.exit_code == 2
    assert "--failures is the same file" in result.stderr
    trace.write_text(EVENTS + "3\t0\n")
    result = run(folder, "--failures", str(trace))
    assert result.exit_code == 2
    assert f"{trace}, line 5: 2 columns" in result.stderr
