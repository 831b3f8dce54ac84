"""In which order a site's commands are performed when some of them cannot be: what waits holds up nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from koala.model.launch import Launch
from koala.model.messages import CancelAsked, Token
from koala.sites import LiveSite, LocalSite, NotNowError
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
        async with open_engine(root, local_grid((4,)), site_maker=picky) as world:
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
