"""A painted grid, and a browser that visits it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.painted_grid import Served, served

# The first that is installed. The headless shell draws the same pages with half the work, because it has no window.
CHROMIUMS = (Path("/usr/bin/chromium-headless-shell"), Path("/usr/bin/chromium"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """Serve the busy grid behind a server that requires a login."""
    with served(tmp_path) as opened:
        yield opened


def installed_chromium() -> Path:
    """Return the real Chromium of this machine. Without one the test is skipped, and fails in CI."""
    found = next((path for path in CHROMIUMS if path.exists()), None)
    if found is not None:
        return found
    missing = "there is no Chromium to look at pages with: install chromium-headless-shell or chromium"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Open a browser. Its library runs an event loop while it is open, so each module closes its own."""
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=installed_chromium(), args=["--no-sandbox"])
        yield chromium
        chromium.close()
