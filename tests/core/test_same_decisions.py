"""What the scheduler decides, case by case: a change that is to change no decision changes none of these."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "same_decisions.py"


def test_the_scheduler_decides_as_on_record() -> None:
    """After a change on purpose, which an ADR names: ``same_decisions.py keep tests/core/decisions.jsonl``."""
    check = [sys.executable, str(SCRIPT), "check", str(Path(__file__).with_name("decisions.jsonl"))]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
