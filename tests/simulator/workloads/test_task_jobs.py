"""Jobs of tasks in a simulation run like any other, on the sites where WASE put their tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from koala.cli import koala
from koala.descriptions import DescriptionError, read_grid
from koala.descriptions.workload.form import read_workload
from koala.simulator import simulate

GRID = """
sites:
  near: {processors: 4, man: town}
  beside: {processors: 4, man: town}
  far: {processors: 40, man: elsewhere, node_power: 500}
scheduler: {policy: FCM, scan_interval_s: 0}
"""
TASKS = "{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1}"
EDGES = "[[a, b, 9], [b, c, 9], [d, e, 9], [e, f, 9], [c, d, 1]]"
WORKLOAD = f"""
jobs:
  - {{at_s: 0, execution_s: 100, job: {{name: film, mcr: 800, tasks: {TASKS}, edges: {EDGES}}}}}
  - {{at_s: 1, execution_s: 100, job: {{name: sequel, mcr: 800, tasks: {TASKS}, edges: {EDGES}}}}}
  - {{at_s: 2, execution_s: 10, job: {{name: light, mcr: 100, tasks: {TASKS}, edges: {EDGES}}}}}
"""


def test_jobs_of_tasks_run_where_the_power_is_and_wait_for_it(tmp_path: Path) -> None:
    grid, workload, log = tmp_path / "grid.yaml", tmp_path / "workload.yaml", tmp_path / "log.jsonl"
    grid.write_text(GRID, encoding="utf-8")
    workload.write_text(WORKLOAD, encoding="utf-8")
    result = CliRunner().invoke(
        koala, ["simulate", "--grid", str(grid), "--workload", str(workload), "--log", str(log), "--json"]
    )
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["outcomes"] == {"done": 3}
    assert "3 jobs of tasks, mapped by WASE: FCM does not map tasks" in told["notes"]
    lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
    commands = [line["do"] for line in lines if line.get("do", {}).get("command") == "StartComponent"]
    held = [(each["job"], each["site"], " ".join(each["tasks"])) for each in commands]
    # The first leaves two processors in the town, which is no place for clusters of three: the second waits.
    assert held == [
        (1, "near", "a b c d"),
        (1, "beside", "e f"),
        (3, "beside", "a b"),
        (3, "far", "c d e f"),
        (2, "near", "a b c d"),
        (2, "beside", "e f"),
    ]


SPAWNING = f"""
jobs:
  - at_s: 5
    execution_s: 100
    job: {{name: film, mcr: 800, tasks: {TASKS}, edges: {EDGES}}}
    spawns:
      - {{after_s: 40, tasks: {{g: 1}}, edges: [[g, f, 9]]}}
      - {{after_s: 50, tasks: {{h: 1, i: 1, j: 1}}, edges: [[h, g, 1]]}}
      - {{after_s: 500, tasks: {{k: 1}}}}
"""


def test_tasks_are_spawned_into_a_simulated_run_and_take_part_in_what_is_left_of_it() -> None:
    pieces: list[bytes] = []
    workload = read_workload(SPAWNING, "workload.yaml")
    result = simulate(read_grid(GRID, "grid.yaml"), workload, log=pieces.append)
    (row,) = result.rows()
    assert (row.outcome, row.finished) == ("done", 105.0)
    spawns = {"asked": 3, "placed": 1, "refused": 1, "withdrawn": 0, "missed": 1}
    assert result.metrics()["spawns"] == spawns
    lines: list[dict[str, Any]] = [json.loads(line) for line in b"".join(pieces).splitlines()]
    told = [line["do"] for line in lines if line.get("do", {}).get("command") == "TasksSpawned"]
    assert [(each["tasks"], each.get("places")) for each in told] == [
        (["g"], [["beside", 1]]),
        (["h", "i", "j"], None),
    ]
    assert "found no machine" in told[1]["reason"], "the town has one processor left"


@pytest.mark.parametrize(
    ("spawns", "problem"),
    [
        ("[{after_s: 1, tasks: {a: 1}}]", "the job has a task 'a' already"),
        ("[{after_s: 1, tasks: {g: 1}}, {after_s: 2, tasks: {g: 1}}]", "the job has a task 'g' already"),
        ("[{after_s: 1, tasks: {g: 1}, edges: [[g, x, 1]]}]", "there is no task 'x'"),
        ("[{after_s: 1, tasks: {g: 1}, edges: [[a, b, 1]]}]", "joins none of the new tasks"),
    ],
)
def test_spawned_tasks_that_cannot_be_are_told_with_their_place(spawns: str, problem: str) -> None:
    text = f"jobs: [{{at_s: 0, execution_s: 1, job: {{mcr: 1, tasks: {{a: 1, b: 1}}}}, spawns: {spawns}}}]\n"
    with pytest.raises(DescriptionError, match=problem):
        read_workload(text, "workload.yaml")
    with pytest.raises(DescriptionError, match="the job has no tasks"):
        read_workload(text.replace("mcr: 1, tasks: {a: 1, b: 1}", "processors: 2"), "workload.yaml")
