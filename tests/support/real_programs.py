"""Programs and packages that a user may lack: without one a test is skipped, or fails where the environment variable
CI is set."""

from __future__ import annotations

import importlib.util
import os
import shutil
from typing import NoReturn

import pytest


def real_program(name: str, package: str | None = None) -> str:
    """Return the path of a program that a user may lack; CI installs it, so there its absence is a failure."""
    path = shutil.which(name)
    if path is None:
        _without(f"{name} is not installed; install the Debian package {package or name}")
    return path


def real_extra(name: str) -> None:
    """Continue if the package of an extra of its own name is installed, which CI does."""
    if importlib.util.find_spec(name) is None:
        _without(f"{name} is not installed; install the extra {name}")


def _without(missing: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)
