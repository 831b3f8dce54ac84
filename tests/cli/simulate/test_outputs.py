"""The files that ``koala simulate`` writes: whole or not at all, also when a disk is full or Ctrl-C is pressed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from koala.cli import koala

GRID = "sites: {a: {processors: 10}}"
WORKLOAD = "jobs: [{at_s: 0, execution_s: 100, job: {processors: 4}}]"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(koala, ["simulate", *arguments])


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    grid, workload = tmp_path / "grid.yaml", tmp_path / "workload.yaml"
    grid.write_text(GRID)
    workload.write_text(WORKLOAD)
    return str(grid), str(workload)


def test_an_output_is_never_written_over_an_input_or_another_output(files: tuple[str, str], tmp_path: Path) -> None:
    same = str(tmp_path / "out")
    for arguments, word in (
        (("--log", files[0]), "--grid is the same file"),
        (("--jobs-csv", files[1]), "--workload is the same file"),
        (("--log", same, "--jobs-csv", same), "--log is the same file"),
    ):
        result = run("--grid", files[0], "--workload", files[1], *arguments)
        assert result.exit_code == 2
        assert word in result.stderr
    assert Path(files[0]).read_text() == GRID


def test_outputs_of_a_run_that_fails_are_not_left_behind(files: tuple[str, str], tmp_path: Path) -> None:
    table, log = tmp_path / "jobs.csv", tmp_path / "run.log"
    log.write_text("of an earlier run")
    result = run(
        *("--grid", files[0], "--workload", files[1], "--policy", "nope"),
        *("--jobs-csv", str(table), "--log", str(log)),
    )
    assert result.exit_code == 2
    assert log.read_text() == "of an earlier run"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.yaml", "run.log", "workload.yaml"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("option", ["--log", "--jobs-csv"])
def test_a_full_disk_is_reported_without_a_stack_trace(files: tuple[str, str], option: str) -> None:
    result = run("--grid", files[0], "--workload", files[1], option, "/dev/full")
    assert result.exit_code == 2
    assert f"{option} /dev/full: No space left on device; make room" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
@pytest.mark.parametrize("arguments", [["--help"], ["policies"], ["policies", "--json"]])
def test_a_standard_output_that_is_full_is_reported_without_a_stack_trace(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "koala", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr == "Error: standard output: No space left on device; make room, or choose another place\n"


def test_ctrl_c_reports_what_is_known_and_exits_with_130(
    files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that interrupts its own process stands for a user who presses Ctrl-C in the middle of a run."""
    policy = tmp_path / "mine.py"
    policy.write_text(
        "import os, signal\n"
        "from koala.policies import policy\n\n"
        "asked = []\n\n"
        "@policy('ONCE')\n"
        "def once(idle, sizes, left, chosen):\n"
        "    if not asked:\n"
        "        asked.append(os.kill(os.getpid(), signal.SIGINT))\n"
        "    chosen[0] = 0\n"
        "    return -1 if idle[0] >= sizes[0] else 0\n"
    )
    monkeypatch.setattr("koala.simulator.run.PROGRESS_EVENTS", 1)
    many = tmp_path / "many.yaml"
    many.write_text("jobs: [" + ", ".join("{at_s: 0, execution_s: 5, job: {processors: 2}}" for _ in range(9)) + "]")
    log = tmp_path / "run.log"
    result = run(
        *("--grid", files[0], "--workload", str(many), "--policy-file", str(policy), "--policy", "ONCE"),
        *("--log", str(log)),
    )
    assert result.exit_code == 130, result.output
    assert "incomplete: interrupted at 0 s" in result.stdout
    assert log.read_bytes()
