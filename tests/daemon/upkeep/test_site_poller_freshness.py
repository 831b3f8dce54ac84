"""A new job finds the sites as they are, also where they are asked rarely: what ``SitePoller.freshen`` does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from koala.daemon.perform.interface import Silences, SiteDefects
from koala.daemon.upkeep.site_poller import FRESHEN_S, PROBE_S, SiteActivity, SitePoller
from koala.model.messages import AnyEvent, SiteReported, SiteSilent
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


class HeardEvents:
    """An engine that keeps what it is told."""

    def __init__(self) -> None:
        self.heard: list[AnyEvent] = []
        self.time = 1_000.0

    def now(self) -> float:
        return self.time

    def report(self, event: AnyEvent) -> None:
        self.heard.append(event)

    def settle(self, seq: int) -> None:
        raise AssertionError("a poller settles nothing")


Scenario = Callable[[SomeSite, HeardEvents, SitePoller], Awaitable[None]]


def play(scenario: Scenario, *, under_batch_system: bool = True, freshen_s: float = FRESHEN_S) -> None:
    async def scene() -> None:
        site, engine = SomeSite(), HeardEvents()
        names = ("a",) if under_batch_system else ()
        nothing = SiteActivity(waits=False, claims_at=float("inf"), changes=None)
        sites = {"a": cast(LiveSite, site)}
        poller = SitePoller(
            engine, sites, Silences(engine), SiteDefects(), lambda _: nothing, names, freshen_s=freshen_s
        )
        await scenario(site, engine, poller)
        await poller.stop()

    asyncio.run(scene())


def test_a_site_of_which_nothing_was_heard_lately_is_asked_and_the_core_hears_of_it() -> None:
    async def scenario(site: SomeSite, engine: HeardEvents, poller: SitePoller) -> None:
        await poller.freshen()
        assert [getattr(event, "others", None) for event in engine.heard] == [3]
        await poller.freshen()
        assert site.asked == 1  # what was heard is young enough
        engine.time += LONG_AGO_S
        await poller.freshen()
        assert site.asked == 2

    play(scenario)


def test_jobs_that_come_at_once_ask_once() -> None:
    async def scenario(site: SomeSite, _: HeardEvents, poller: SitePoller) -> None:
        await asyncio.gather(*(poller.freshen() for _ in range(5)))
        assert site.asked == 1

    play(scenario)


def test_a_silent_site_keeps_no_job_waiting() -> None:
    async def scenario(site: SomeSite, engine: HeardEvents, poller: SitePoller) -> None:
        site.is_gone = True
        await poller.freshen()
        assert [type(event) for event in engine.heard] == [SiteSilent]
        await poller.freshen()
        assert site.asked == 1

    play(scenario)


def test_a_slow_site_is_waited_for_only_so_long_and_heard_later() -> None:
    async def scenario(site: SomeSite, engine: HeardEvents, poller: SitePoller) -> None:
        site.answers.clear()
        await poller.freshen()
        assert engine.heard == []
        site.answers.set()
        async with asyncio.timeout(120):
            while not engine.heard:
                await asyncio.sleep(0.001)

    play(scenario, freshen_s=0.01)


def test_an_embedded_site_is_not_asked() -> None:
    async def scenario(site: SomeSite, _: HeardEvents, poller: SitePoller) -> None:
        await poller.freshen()
        assert site.asked == 0

    play(scenario, under_batch_system=False)
