"""What a test leaves at a daemon that several share is told with the name of that test."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import live_daemon
from tests.support.live_daemon import Daemon


class _HoldsOn:
    """A client of a daemon whose site lets go of nothing."""

    def each_job(self) -> list[Any]:
        return [SimpleNamespace(id=7, name="sweep", state="running")]

    def sites(self) -> list[Any]:
        return [SimpleNamespace(ours=2)]

    def cancel(self, job: int) -> None:
        assert job == 7


def test_what_does_not_go_at_the_end_of_a_daemon_is_told_with_the_test_that_used_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = Daemon(tmp_path, tmp_path / "state", "embedded", (), {}, ())
    daemon.client.close()
    daemon._client = _HoldsOn()  # type: ignore[assignment]
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "test_of_another_file (teardown)")
    assert daemon.client is not None
    monkeypatch.setattr(live_daemon, "WAIT_S", 0.0)
    monkeypatch.setattr(live_daemon.until, "__defaults__", (0.0,))
    with pytest.raises(AssertionError, match=r"test_what_does_not_go.* left: job 7 \(sweep\) was running"):
        daemon._cancel_all()
