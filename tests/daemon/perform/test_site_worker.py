"""In which order a site's commands are performed when some of them cannot be: what waits holds up nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from koala.daemon.perform import site_worker
from koala.daemon.service.principal import owner
from koala.daemon.service.service import Service
from koala.daemon.service.sites.overview import operator_warnings
from koala.model.launch import Launch
from koala.model.messages import CancelAsked, JobQuarantined, RequeueAsked, SiteReported, Token
from koala.sites import LiveSite, NotNowError
from koala.sites.local.site import LocalSite
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, root
from tests.support.troubled_site import TroubledSite, trouble, troubled

__all__ = ["root"]


class PickySite(TroubledSite):
    """Takes no component as long as there is a reason; ``untaken`` are those that came meanwhile. ``named`` are the
    tokens of all starts and aborts, in their order."""

    reason: OSError | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.untaken: list[tuple[Launch, str]] = []
        self.named: list[Token] = []

    async def abort(self, token: Token, **why: Any) -> None:
        self.named.append(token)
        await super().abort(token, **why)

    async def start(self, launch: Launch, script: str) -> None:
        self.named.append(launch.token)
        if self.reason is not None:
            self.untaken.append((launch, script))
            raise self.reason
        await super().start(launch, script)


def picky(description: Any, root: Path, **named: Any) -> LiveSite:
    """Makes such sites where the engine makes embedded ones."""
    return PickySite(description.name, root / "sites" / description.name, description.processors, **named)


def the_site(world: EngineWorld) -> PickySite:
    site = world.engine.site("a")
    assert isinstance(site, PickySite)
    return site


async def one_runs_and_one_is_not_taken(world: EngineWorld, reason: OSError) -> tuple[int, int]:
    runs = await world.submit(a_request("sleep 60", sizes=(1,)))
    await world.in_state(runs, "running")
    the_site(world).reason = reason
    waits = await world.submit(a_request(sizes=(1,)))
    await world.until(lambda: the_site(world).untaken)
    return runs, waits


def test_an_end_passes_a_start_that_fails(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4,), error_threshold=1_000), site_maker=picky) as world:
            runs, fails = await one_runs_and_one_is_not_taken(world, OSError(28, "No space left on device"))
            await world.engine.tell(CancelAsked(at=0.0, job=runs))
            (row,) = await world.ended(runs)
            assert row.state == "cancelled"
            assert world.engine.live_row(fails) is not None
            the_site(world).reason = None
            (row,) = await world.ended(fails)
            assert (row.state, row.runs, row.failures) == ("done", 1, 0)
            await world.all_given_back()

    asyncio.run(scenario())


def test_an_end_goes_before_starts_that_wait(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4,)), site_maker=picky, commands_at_once_max=1) as world:
            site = the_site(world)
            first = await world.submit(a_request("sleep 60", sizes=(1,)))
            await world.in_state(first, "running")
            site.gate.clear()
            others = [await world.submit(a_request(sizes=(1,))) for _ in range(3)]
            for job in others:
                await world.in_state(job, "starting")
            await world.engine.tell(CancelAsked(at=0.0, job=first))
            site.gate.set()
            await world.ended(first, *others)
            token, *rest = (world.store.components(job)[0].token for job in (first, *others))
            assert site.named == [token, rest[0], token, *rest[1:]]

    asyncio.run(scenario())


def test_a_component_for_which_there_is_no_room_is_no_error_of_its_site_and_holds_up_nobody(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4,), error_threshold=1), site_maker=picky) as world:
            site = the_site(world)
            runs, waits = await one_runs_and_one_is_not_taken(world, NotNowError("there are too many jobs"))
            await world.engine.tell(CancelAsked(at=0.0, job=runs))
            await world.ended(runs)
            await world.until(lambda: not world.engine.outbox.commands)
            assert world.engine.silence_of("a") is None
            assert world.engine.scheduler.ledger.sites.sites[0].errors == 0
            # A site that has it gives it to its batch system later, by itself.
            site.reason = None
            ((launch, script),) = site.untaken
            await LocalSite.start(site, launch, script)
            (row,) = await world.ended(waits)
            assert (row.state, row.runs, row.failures) == ("done", 1, 0)
            told = {entry.what for entry in world.store.journal(after=0, limit=1_000)}
            assert "ComponentAccepted" in told
            assert "SiteSilent" not in told
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_site_is_not_asked_about_a_component_whose_start_is_still_to_come(root: Path) -> None:
    """The question would forbid the start. It comes while the start is tried for the first time."""

    async def scenario() -> None:
        grid = local_grid((4,), error_threshold=1_000, answer_timeout_s=0.2)
        async with open_engine(root, grid, site_maker=troubled) as world:
            site = trouble(world, "a")
            site.gate.clear()
            site.starts_to_fail = 1
            job = await world.submit(a_request(sizes=(1,)))
            await world.until(
                lambda: any(entry.what == "AskSite" for entry in world.store.journal(after=0, limit=1_000))
            )
            site.gate.set()
            (row,) = await world.ended(job)
            assert (row.state, row.runs, row.failures) == ("done", 1, 0)
            assert len(world.store.components(job)) == 1

    asyncio.run(scenario())


class SlowToTellSite(TroubledSite):
    """Tells what it holds when it may."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.may_tell = asyncio.Event()
        self.has_told = False

    async def held(self) -> tuple[Token, ...]:
        await self.may_tell.wait()
        told = await super().held()
        self.has_told = True
        return told


def slow_to_tell(description: Any, root: Path, **named: Any) -> LiveSite:
    """Makes such sites where the engine makes embedded ones."""
    return SlowToTellSite(description.name, root / "sites" / description.name, description.processors, **named)


def test_what_began_before_a_site_failed_does_not_end_its_silence(root: Path) -> None:
    """The question with which the engine begins is answered when a start has failed meanwhile."""

    async def scenario() -> None:
        async with open_engine(root, local_grid((4,), error_threshold=1_000), site_maker=slow_to_tell) as world:
            site = world.engine.site("a")
            assert isinstance(site, SlowToTellSite)
            site.starts_to_fail = 1_000_000
            job = await world.submit(a_request(sizes=(1,)))
            await world.until(lambda: world.engine.silence_of("a"))
            site.may_tell.set()
            await world.until(lambda: site.has_told)
            assert world.engine.silence_of("a") is not None
            site.starts_to_fail = 0
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 1)
            assert world.engine.silence_of("a") is None
            await world.all_given_back()

    asyncio.run(scenario())


class SickSite(TroubledSite):
    """Our own code raises in the calls that are named. Starts that hang never return."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sick: set[str] = set()
        self.hangs = False
        self.running = self.running_most = 0

    def _ail(self, call: str) -> None:
        if call in self.sick:
            raise TypeError("an error of ours")

    async def start(self, launch: Launch, script: str) -> None:
        self._ail("start")
        self.running += 1
        self.running_most = max(self.running, self.running_most)
        try:
            if self.hangs:
                await asyncio.Event().wait()
            await super().start(launch, script)
        finally:
            self.running -= 1

    async def abort(self, token: Token, **why: Any) -> None:
        self._ail("abort")
        await super().abort(token, **why)

    async def release(self, token: Token, go: Any) -> None:
        self._ail("release")
        await super().release(token, go)

    async def probe(self) -> SiteReported:
        self._ail("probe")
        return await super().probe()


def sick(description: Any, root: Path, **named: Any) -> LiveSite:
    """Makes such sites where the engine makes embedded ones."""
    return SickSite(description.name, root / "sites" / description.name, description.processors, **named)


def sick_site(world: EngineWorld) -> SickSite:
    site = world.engine.site("a")
    assert isinstance(site, SickSite)
    return site


def trusted(world: EngineWorld) -> bool:
    """The site was never silent and has no error."""
    told = {entry.what for entry in world.store.journal(after=0, limit=1_000)}
    errors = world.engine.scheduler.ledger.sites.sites[0].errors
    return errors == 0 and world.engine.silence_of("a") is None and "SiteSilent" not in told


def test_starts_that_hang_hold_up_neither_other_starts_nor_ends(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((8,)), site_maker=sick, commands_at_once_max=3) as world:
            site = sick_site(world)
            runs = await world.submit(a_request("sleep 60", sizes=(1,)))
            await world.in_state(runs, "running")
            site.hangs = True
            hanging = [await world.submit(a_request(sizes=(1,))) for _ in range(2)]
            await world.until(lambda: site.running == 2)
            site.hangs = False
            (row,) = await world.ended(await world.submit(a_request(sizes=(1,))))
            assert row.state == "done"
            await world.engine.tell(CancelAsked(at=0.0, job=runs))
            await world.ended(runs)
            await world.until(lambda: world.store.components(runs)[0].ended_at is not None)
            assert [world.engine.live_row(job) is not None for job in hanging] == [True, True]
            assert site.running_most <= 3
            for job in hanging:
                await world.engine.tell(CancelAsked(at=0.0, job=job))

    asyncio.run(scenario())


def test_as_many_starts_that_hang_as_there_may_be_do_not_hold_up_an_end(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((8,)), site_maker=sick, commands_at_once_max=2) as world:
            site = sick_site(world)
            runs = await world.submit(a_request("sleep 60", sizes=(1,)))
            await world.in_state(runs, "running")
            site.hangs = True
            hanging = [await world.submit(a_request(sizes=(1,))) for _ in range(3)]
            await world.until(lambda: site.running == 2)
            await world.engine.tell(CancelAsked(at=0.0, job=runs))
            await world.until(lambda: world.store.components(runs)[0].ended_at is not None)
            assert site.running == 2
            site.hangs = False
            for job in hanging:
                await world.engine.tell(CancelAsked(at=0.0, job=job))

    asyncio.run(scenario())


def test_commands_that_fail_together_are_one_failure_of_their_site(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All rest for as long as after one: the site may be back in a moment."""
    waits_s: list[float] = []
    begin = site_worker._Waits.begin

    def noted(waits: site_worker._Waits) -> None:
        waits_s.append(waits._backoff.wait_s)
        begin(waits)

    monkeypatch.setattr(site_worker._Waits, "begin", noted)

    async def scenario() -> None:
        async with open_engine(root, local_grid((8,)), site_maker=sick) as world:
            site = sick_site(world)
            site.gate.clear()
            jobs = [await world.submit(a_request(sizes=(1,))) for _ in range(8)]
            await world.until(lambda: site.running == 8)
            site.starts_to_fail = 8
            site.gate.set()
            assert [row.state for row in await world.ended(*jobs)] == ["done"] * 8
            assert len(waits_s) > 8
            # Were each a failure of its own, it would double seven times. Failures that a slow machine tells too late
            # to be together may double it.
            assert max(waits_s) <= 8 * waits_s[0]

    asyncio.run(scenario())


def test_no_more_commands_than_the_limit_are_performed_at_a_time(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((8,)), site_maker=sick, commands_at_once_max=2) as world:
            site = sick_site(world)
            site.gate.clear()
            jobs = [await world.submit(a_request(sizes=(1,))) for _ in range(6)]
            await world.until(lambda: site.running == 2)
            site.gate.set()
            assert [row.state for row in await world.ended(*jobs)] == ["done"] * 6
            assert site.running_most == 2

    asyncio.run(scenario())


def test_a_start_that_our_own_code_raises_on_sets_its_job_aside_and_the_site_keeps_its_trust(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4,), error_threshold=1), site_maker=sick) as world:
            sick_site(world).sick = {"start"}
            job = await world.submit(a_request(sizes=(1,)))
            row = await world.in_state(job, "quarantined")
            assert "TypeError('an error of ours')" in row.reason
            assert "start of component" in row.reason
            await world.all_given_back()
            sick_site(world).sick = set()
            assert (await world.run(a_request(sizes=(4,)))).state == "done"
            assert trusted(world)
            await world.engine.tell(RequeueAsked(at=0.0, job=job))
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 1)

    asyncio.run(scenario())


def test_a_barrier_that_our_own_code_cannot_open_sets_its_job_aside(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4,), error_threshold=1), site_maker=sick) as world:
            sick_site(world).sick = {"release"}
            row = await world.in_state(await world.submit(a_request(sizes=(1,))), "quarantined")
            assert "at the opening of its barrier" in row.reason
            await world.all_given_back()
            assert trusted(world)

    asyncio.run(scenario())


def test_an_abort_that_our_own_code_raises_on_is_told_and_repeated_and_nothing_counts_as_idle(root: Path) -> None:
    """Its processors count until the component is gone; the others of the site go on."""

    async def scenario() -> None:
        grid = local_grid((4,), error_threshold=1, answer_timeout_s=5.0)
        async with open_engine(root, grid, site_maker=sick) as world:
            site = sick_site(world)
            job = await world.submit(a_request("sleep 600", sizes=(2,)))
            await world.in_state(job, "running")
            site.sick = {"abort", "probe"}
            await world.engine.tell(JobQuarantined(at=0.0, job=job, reason="a defect"))
            await world.until(lambda: any("abort of component" in each for each in world.engine.defects_of("a")))
            await world.until(lambda: any("question for its state" in each for each in world.engine.defects_of("a")))
            told = await Service(world.engine).explain(owner("anna"), job)
            assert "abort of component 1.1: an error inside Koala (TypeError: an error of ours)" in told.meaning
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            assert (await world.run(a_request(sizes=(2,)))).state == "done"
            assert world.engine.scheduler.ledger.sites.sites[0].ours == 2
            (warning, *_) = operator_warnings(world.engine)
            assert warning.startswith("a: ")
            assert trusted(world)
            site.sick = set()
            await world.all_given_back()
            await world.until(lambda: not world.engine.defects_of("a"))
            assert trusted(world)

    asyncio.run(scenario())


def test_aborts_of_one_component_that_our_own_code_raises_on_leave_nothing_in_the_outbox(root: Path) -> None:
    """The core repeats the first before it is set aside."""

    async def scenario() -> None:
        async with open_engine(root, local_grid((4,), answer_timeout_s=0.2), site_maker=sick) as world:
            site = sick_site(world)
            job = await world.submit(a_request("sleep 600", sizes=(2,)))
            await world.in_state(job, "running")
            site.sick = {"abort"}
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            await world.until(lambda: len(world.engine.outbox) >= 2)
            await asyncio.sleep(2.0)  # longer than the tries of both take
            site.sick = set()
            await world.until(lambda: world.store.components(job)[0].ended_at is not None)
            await world.until(lambda: len(world.engine.outbox) == 0)

    asyncio.run(scenario())
