"""Every test here ends all processes that it started."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_sites import all_gone, processes_of


@pytest.fixture(autouse=True)
def no_process_is_left(tmp_path: Path) -> Iterator[None]:
    yield
    gone = all_gone(tmp_path)
    for pid in processes_of(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert gone, "the test left processes behind"
