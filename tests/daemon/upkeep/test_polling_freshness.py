"""A new job finds the sites as they are, also where they are asked rarely: what ``SitePoller.freshen`` does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import cast

import pytest

from koala.daemon.engine.interface import EngineInterface
from koala.daemon.upkeep import polling
from koala.daemon.upkeep.polling import PROBE_S, SitePoller
from koala.model.messages import AnyEvent, SiteReported
from koala.sites import LiveSite

LONG_AGO_S = 2 * PROBE_S


class SomeSite:
    """Others hold three of its processors; it is asked at will, and may not answer for a while or at all."""

    name = "a"

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.is_gone = False

    async def probe(self) -> SiteReported:
        self.asked += 1
        await self.answers.wait()
        if self.is_gone:
            raise OSError("nobody is there")
        return SiteReported(at=0.0, site="a", processors=4, others=3)


class PaperDesk:
    """A desk whose scheduler believes that nobody else uses the site; what it hears is kept."""

    def __init__(self) -> None:
        belief = SimpleNamespace(processors=4, others=0)
        self.scheduler = SimpleNamespace(
            ledger=SimpleNamespace(index={"a": 0}, sites=SimpleNamespace(sites=[belief]))
        )
        self.heard: list[AnyEvent] = []
        self.time = 1_000.0

    def now(self) -> float:
        return self.time

    def report(self, event: AnyEvent) -> None:
        self.heard.append(event)

    def silent(self, site: str, who: str, reason: str) -> None:
        """Nobody wants to know."""

    def answered(self, site: str, who: str) -> None:
        """Nobody wants to know."""


Scenario = Callable[[SomeSite, PaperDesk, SitePoller], Awaitable[None]]


def play(scenario: Scenario, *, under_batch_system: bool = True) -> None:
    async def scene() -> None:
        site, desk = SomeSite(), PaperDesk()
        names = ("a",) if under_batch_system else ()
        prober = SitePoller(cast(EngineInterface, desk), {"a": cast(LiveSite, site)}, names)
        await scenario(site, desk, prober)
        await prober.stop()

    asyncio.run(scene())


def test_a_site_of_which_nothing_was_heard_lately_is_asked_and_the_core_hears_of_it() -> None:
    async def scenario(site: SomeSite, desk: PaperDesk, prober: SitePoller) -> None:
        await prober.freshen()
        assert [getattr(event, "others", None) for event in desk.heard] == [3]
        await prober.freshen()
        assert site.asked == 1  # what was heard is young enough
        desk.time += LONG_AGO_S
        await prober.freshen()
        assert site.asked == 2

    play(scenario)


def test_jobs_that_come_at_once_ask_once() -> None:
    async def scenario(site: SomeSite, _: PaperDesk, prober: SitePoller) -> None:
        await asyncio.gather(*(prober.freshen() for _ in range(5)))
        assert site.asked == 1

    play(scenario)


def test_a_silent_site_keeps_no_job_waiting() -> None:
    async def scenario(site: SomeSite, desk: PaperDesk, prober: SitePoller) -> None:
        site.is_gone = True
        await prober.freshen()
        assert desk.heard == []
        await prober.freshen()
        assert site.asked == 1

    play(scenario)


def test_a_slow_site_is_waited_for_only_so_long_and_heard_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polling, "FRESHEN_S", 0.01)

    async def scenario(site: SomeSite, desk: PaperDesk, prober: SitePoller) -> None:
        site.answers.clear()
        await prober.freshen()
        assert desk.heard == []
        site.answers.set()
        async with asyncio.timeout(10):
            while not desk.heard:
                await asyncio.sleep(0.001)

    play(scenario)


def test_an_embedded_site_is_not_asked() -> None:
    async def scenario(site: SomeSite, _: PaperDesk, prober: SitePoller) -> None:
        await prober.freshen()
        assert site.asked == 0

    play(scenario, under_batch_system=False)
