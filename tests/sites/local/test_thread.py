"""An embedded site does slow work in a thread of its own: the event loop goes on, and order and promises hold."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from koala.model.messages import ComponentAccepted, ComponentEnded, Outcome
from koala.sites.local import directory
from tests.support.live_sites import launch, opened
from tests.support.watched_sites import WAIT_S


class SlowDisk:
    """Every sync of a file waits until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.gate = threading.Event()
        self.in_time = True
        self._sync = os.fsync
        monkeypatch.setattr(directory.os, "fsync", self._slow)  # type: ignore[attr-defined]

    def _slow(self, descriptor: int) -> None:
        self.reached.set()
        self.in_time &= self.gate.wait(WAIT_S)
        self._sync(descriptor)

    async def is_reached(self) -> None:
        async with asyncio.timeout(WAIT_S):
            while not self.reached.is_set():
                await asyncio.sleep(0.01)


def test_the_event_loop_goes_on_while_the_disk_is_slow_and_calls_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            await one.start(launch("1.0"))
            disk = SlowDisk(monkeypatch)
            calls = [
                asyncio.create_task(call)
                for call in (
                    one.start(launch("1.1")),
                    one.site.abort("1.1"),
                    one.site.ask(["1.1"]),
                    one.start(launch("1.1")),
                )
            ]
            await disk.is_reached()
            assert not any(call.done() for call in calls)
            assert not one.told(ComponentAccepted, "1.1"), "nothing is told that is not on disk"
            disk.gate.set()
            await asyncio.gather(*calls)
            assert disk.in_time, "the event loop could not open the gate in time"
            mine = [event for event in one.events if getattr(event, "token", "") == "1.1"]
            assert [type(event) for event in mine] == [
                ComponentAccepted,
                ComponentEnded,
                ComponentEnded,
                ComponentEnded,
            ]
            await one.site.abort("1.0")
            await one.ended("1.0")

    asyncio.run(scenario())


def test_a_call_that_its_caller_gave_up_is_over_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            disk = SlowDisk(monkeypatch)
            given_up = asyncio.create_task(one.start(launch("1.1")))
            await disk.is_reached()
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            assert given_up.cancelled()
            question = asyncio.create_task(one.site.ask(["1.1"]))
            disk.gate.set()
            await question
            assert [type(event) for event in one.told(ComponentAccepted, "1.1")] == [ComponentAccepted] * 2
            await one.site.abort("1.1")
            assert (await one.ended("1.1")).outcome is Outcome.ABORTED

    asyncio.run(scenario())


def test_a_site_that_is_closed_has_finished_what_it_was_doing_and_tells_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with opened(tmp_path / "a", processors=1) as one:
            disk = SlowDisk(monkeypatch)
            start = asyncio.create_task(one.start(launch("1.1")))
            await disk.is_reached()
            closing = asyncio.create_task(one.site.close())
            await asyncio.sleep(0)
            assert not closing.done()
            disk.gate.set()
            await closing
            assert start.done()
            told = list(one.events)
            assert [type(event) for event in told] == [ComponentAccepted]
        async with opened(tmp_path / "a", processors=1) as two:
            await two.ready("1.1")
            await two.site.abort("1.1")
            await two.ended("1.1")
            assert one.events == told

    asyncio.run(scenario())
