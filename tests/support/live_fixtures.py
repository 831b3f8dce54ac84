"""Every test here ends all processes that it started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_sites import left_no_process


@pytest.fixture(autouse=True)
def no_process_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    left_no_process(tmp_path)
