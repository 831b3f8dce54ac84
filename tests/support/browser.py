"""A painted grid to look at, and the browser that looks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.support.painted_grid import Served, served

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    """The busy grid behind a server that asks who one is."""
    with served(tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The real Chromium. Its library runs an event loop while it is open, so each module closes its own."""
    if not CHROMIUM.exists():
        if os.environ.get("CI"):
            pytest.fail(f"{CHROMIUM} is missing, and CI must try the dashboard in a browser: install chromium")
        pytest.skip(f"{CHROMIUM} is missing: install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()
