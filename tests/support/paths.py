"""The places of the project's parts, and how a program that a test starts finds the tests' own packages."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
RECORDED = ROOT / "tests" / "sites" / "batch" / "recorded"


def child_environment() -> dict[str, str]:
    """Return this process's environment, with which a child imports ``tests.support`` too."""
    others = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *([others] if others else [])])}
