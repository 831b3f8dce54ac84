"""Processes that share the tests of a run: forked from one that has imported them, otherwise as those of xdist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

CONFTEST = "from tests.support.forked_workers import fork_workers as pytest_configure"
# The first test ends its process, and another takes its place.
TESTS = """
import os
import signal

HERE = os.getpid()

def test_ends_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

def test_was_imported_before_it_was_forked():
    assert HERE != os.getpid()

def test_tells_what_differs():
    given = ["a", "b"]
    assert given == ["a", "c"]
"""


def test_they_are_forked_told_of_and_replaced(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "1"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "2 failed, 1 passed in" in run.stdout
    assert "worker 'gw0' crashed while running 'test_it.py::test_ends_its_process'" in run.stdout
    assert "At index 1 diff: 'b' != 'c'" in run.stdout
    assert run.stderr == ""
