"""The floors of the house, and imports that are quick."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What --help has no business loading; a verb loads what it needs when it is called.
HEAVY = (
    "numpy",
    "numba",
    "pydantic",
    "yaml",
    "rich",
    "httpx",
    "fastapi",
    "sqlalchemy",
    "scipy",
    "matplotlib",
)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter, so that nothing is loaded yet."""
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)


def loaded_after(code: str) -> set[str]:
    """The heavy libraries that this code has loaded."""
    report = f"; import json, sys; print('\\n' + json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = run_python(code + report)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("contracts", ["pyproject.toml", "papers/pyproject.toml"])
def test_every_room_imports_only_from_the_floors_below_it_and_the_papers_what_is_public(contracts: str) -> None:
    done = run_python(
        "import sys; from importlinter.cli import lint_imports; "
        f"sys.exit(lint_imports(config_filename={contracts!r}, no_cache=True))"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_help_loads_no_heavy_library() -> None:
    assert loaded_after("from koala.cli import koala; koala(['--help'], standalone_mode=False)") == set()


def test_the_core_needs_none_of_them_either() -> None:
    assert loaded_after("import koala.core") == set()
