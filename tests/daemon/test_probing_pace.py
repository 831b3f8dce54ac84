"""How often the daemon asks a site under a batch system: often only while a job waits for processors, or may soon."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koala.core.lifecycle import State
from koala.daemon import probing
from koala.daemon.desk import Desk
from koala.daemon.probing import Prober
from koala.messages import SiteReported
from koala.sites import Site


class CountingSite:
    """It answers always the same."""

    name = "a"

    def __init__(self) -> None:
        self.asked = 0

    async def probe(self) -> SiteReported:
        self.asked += 1
        return SiteReported(at=0.0, site="a", processors=4, others=0)


class PaperDesk:
    """A desk with the books of a scheduler for which some jobs wait, one runs, and another is in a state."""

    def __init__(self, state: State, **queues: list[str]) -> None:
        belief = SimpleNamespace(processors=4, others=0)
        waiting: dict[str, Any] = {"high": [], "low": [], "claiming": [], **queues}
        jobs = {1: SimpleNamespace(state=State.RUNNING), 2: SimpleNamespace(state=state)}
        ledger = SimpleNamespace(jobs=jobs, index={"a": 0}, sites=SimpleNamespace(sites=[belief]), **waiting)
        self.scheduler = SimpleNamespace(ledger=ledger)

    def now(self) -> float:
        return 0.0

    def answered(self, site: str, who: str) -> None:
        """Nobody wants to know."""


@pytest.mark.parametrize(
    ("state", "queues", "under_batch_system", "is_asked_often"),
    [
        (State.RUNNING, {}, True, False),
        (State.RUNNING, {"high": ["a job"]}, True, True),
        (State.RUNNING, {"low": ["a job"]}, True, True),
        (State.RUNNING, {"claiming": ["a job"]}, True, True),
        (State.STARTING, {}, True, True),
        (State.RELEASING, {}, True, True),
        (State.RUNNING, {}, False, True),
    ],
)
def test_a_batch_system_is_left_in_peace_while_jobs_only_run(
    monkeypatch: pytest.MonkeyPatch,
    state: State,
    queues: dict[str, list[str]],
    under_batch_system: bool,
    is_asked_often: bool,
) -> None:
    slept_s = 0.0

    async def sleep(wait_s: float) -> None:
        nonlocal slept_s
        slept_s += wait_s
        if slept_s > 3_600:
            raise asyncio.CancelledError

    site = CountingSite()
    names = ("a",) if under_batch_system else ()
    prober = Prober(cast(Desk, PaperDesk(state, **queues)), {"a": cast(Site, site)}, names)
    monkeypatch.setattr(asyncio, "sleep", sleep)

    async def scenario() -> None:
        with pytest.raises(asyncio.CancelledError):
            await prober._keep_asking(cast(Site, site))

    asyncio.run(scenario())
    expected = 3_600 / (probing.PROBE_S if is_asked_often else probing.PROBE_IDLE_S)
    assert site.asked == pytest.approx(expected, abs=2)
