"""Programs that a measurement starts end with it. The grids it brings up are tested with the papers' live studies."""

from __future__ import annotations

import os
import time
from pathlib import Path

from koala.study.live import run_script

PATIENCE_S = 120.0
# Twice as long as anybody waits for it here.
SLEEP_S = 2 * PATIENCE_S


def ends(pid: int) -> bool:
    """True if the process is gone in time."""
    ends_at = time.monotonic() + PATIENCE_S
    while time.monotonic() < ends_at:
        try:
            if (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_a_script_that_ends_by_itself_says_what_it_said(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo measured")
    assert run_script(tmp_path, "script", "log", os.environ, PATIENCE_S)
    assert (tmp_path / "log").read_text() == "measured\n"


def test_a_script_that_takes_too_long_is_ended_with_what_left_its_session(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(f"setsid sleep {SLEEP_S} & echo $! $$ >pids; wait")
    assert not run_script(tmp_path, "script", "log", os.environ, 1.0)
    assert all(ends(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_what_a_script_leaves_behind_is_ended(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(f"setsid sleep {SLEEP_S} & echo $! >pid")
    assert run_script(tmp_path, "script", "log", os.environ, PATIENCE_S)
    assert ends(int((tmp_path / "pid").read_text()))
