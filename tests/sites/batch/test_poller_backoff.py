"""How often a batch system is listed while components live: ever more rarely while nothing changes, briskly again
after something was done, and evenly at first while an end is to be confirmed.

The clock moves only by what is waited, so that nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from koala.model.launch import Go
from koala.model.messages import Outcome
from koala.sites.backoff import Backoff
from koala.sites.batch import components, poller, submit
from koala.sites.batch.timings import BatchTimings
from tests.support.paper_batch import ONLY_AT_THE_SITE, PaperSite, eventually

MINUTE_S = 60.0
USUAL = BatchTimings()
# Listings as usual; files are waited for at the site.
TIMINGS = msgspec.structs.replace(ONLY_AT_THE_SITE, calm_first_s=USUAL.calm_first_s, calm_most_s=USUAL.calm_most_s)


class MovedClock:
    """Stands in for the event loop's clock and for waiting by it: time passes at once, up to ``until_s``. Only
    listings are waited for so, since polls of files wait at the site."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.moved_s = 0.0
        self.until_s = 0.0
        self.wait_s = 0.0  # the newest wait that was asked for
        self.is_through = False
        for module in (submit, components, poller):
            monkeypatch.setattr(module, "now_s", lambda: 1_000.0 + self.moved_s)
        monkeypatch.setattr(poller, "_first", self._first)

    async def _first(self, event: asyncio.Event, wait_s: float | None) -> bool:
        if wait_s is None:
            return await event.wait()
        self.wait_s = wait_s
        while self.moved_s + wait_s > self.until_s and not event.is_set():
            self.is_through = True
            await asyncio.sleep(0.005)
        if event.is_set():
            return True
        self.moved_s += wait_s
        return False

    async def listings(self, one: PaperSite, seconds: float) -> int:
        """How many listings there are in the next seconds."""
        before = one.site.calls["listing"]
        self.until_s += seconds
        self.is_through = False
        await eventually(lambda: self.is_through)
        return one.site.calls["listing"] - before


def test_a_batch_system_where_nothing_changes_is_listed_ever_more_rarely(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedClock(monkeypatch)

    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=TIMINGS) as one:
            await one.begin("1.1")
            await one.site.release("1.1", Go())
            first, *_, last = [await clock.listings(one, MINUTE_S) for _ in range(6)]
            assert last == MINUTE_S / USUAL.calm_most_s
            assert last < first < MINUTE_S / USUAL.calm_first_s
            await one.site.ask(["1.1"])
            assert await clock.listings(one, MINUTE_S) >= first, "something was done there, so something may change"
            assert await clock.listings(one, MINUTE_S) == last

    asyncio.run(scenario())


def test_an_end_is_confirmed_evenly_at_first_and_ever_more_rarely_where_the_batch_system_does_not_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = MovedClock(monkeypatch)

    async def scenario() -> None:
        async with PaperSite(tmp_path, timings=TIMINGS) as one:
            await one.begin("1.1")
            await one.site.release("1.1", Go())
            await eventually(lambda: clock.wait_s == USUAL.calm_first_s)
            one.write("1.1", "exit", "exited 0\n")
            await eventually(lambda: clock.wait_s <= USUAL.confirm_first_s)
            even_s = (USUAL.confirm_steady + 0.5) * USUAL.confirm_first_s
            assert await clock.listings(one, even_s) == USUAL.confirm_steady
            *_, last = [await clock.listings(one, MINUTE_S) for _ in range(4)]
            assert last == MINUTE_S / USUAL.confirm_most_s
            one.batch.set("1.1", "over", "itself")
            clock.until_s += USUAL.confirm_most_s
            assert (await one.ended("1.1")).outcome is Outcome.DONE

    asyncio.run(scenario())


def listed_at_s(backoff: Backoff, until_s: float) -> list[float]:
    """When listings are made, from the first one on, to the one that comes at this time or later."""
    times = [0.0]
    while times[-1] < until_s:
        backoff.grow()
        times.append(times[-1] + backoff.wait_s)
    return times


@pytest.mark.parametrize("lets_go_s", [0.7, 1.0, 1.3, 1.6, 1.9])
def test_an_end_is_seen_soon_after_grid_engine_shows_the_job_no_more_and_takes_few_listings(lets_go_s: float) -> None:
    times = listed_at_s(Backoff(USUAL.confirm_first_s, USUAL.confirm_most_s, steady=USUAL.confirm_steady), lets_go_s)
    assert times[-1] - lets_go_s < 0.4
    assert len(times) <= 8


def test_waits_are_alike_at_first_then_grow_to_the_longest_and_begin_again() -> None:
    backoff = Backoff(1.0, 3.0, 2.0, steady=2)

    def waits() -> list[float]:
        found = []
        for _ in range(6):
            found.append(backoff.wait_s)
            backoff.grow()
        return found

    assert waits() == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert waits() == [1.0, 1.0, 1.0, 2.0, 3.0, 3.0]
