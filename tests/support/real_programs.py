"""Programs that a user may lack: without one a test is skipped, or fails where the environment variable CI is set."""

from __future__ import annotations

import os
import shutil

import pytest


def real_program(name: str, package: str | None = None) -> str:
    """Where a program is that a user may lack; CI installs it, so there its absence is a failure."""
    path = shutil.which(name)
    if path is None:
        missing = f"{name} is not installed; install the Debian package {package or name}"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return path
