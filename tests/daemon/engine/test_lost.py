"""A site that is cut off with its job, and declared lost: the job runs elsewhere, and what comes back is fenced."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from koala.model.messages import SiteLost
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, root
from tests.support.troubled_site import trouble, troubled

__all__ = ["root"]

FENCED = "1.1"


async def cut_off_and_lost(world: EngineWorld, root: Path) -> int:
    """A job that runs on a and b until the file ``wait`` is gone; a is cut off and declared lost."""
    (root / "wait").touch()
    job = await world.submit(a_request(f"while [ -e {root}/wait ]; do sleep 0.3; done", sizes=(3, 3)))
    await world.in_state(job, "running")
    assert {row.token: row.site for row in world.store.components(job)} == {"1.1": "a", "1.2": "b"}
    trouble(world, "a").cut_off = True
    await world.until(lambda: world.engine.silence_of("a"))
    await world.engine.tell(SiteLost(at=world.engine.now(), site="a"))
    return job


def is_used(world: EngineWorld, site: str) -> bool:
    sites = world.engine.scheduler.ledger.sites
    belief = sites.sites[sites.view.index[site]]
    return not belief.lost and FENCED not in belief.claims  # the job may have come back there


def test_the_job_runs_elsewhere_and_what_the_site_still_runs_is_ended_first_when_it_is_back(root: Path) -> None:
    async def scenario() -> None:
        grid = local_grid((4, 4, 4), error_threshold=100)
        async with open_engine(root, grid, site_maker=troubled, poll_s=0.1) as world:
            job = await cut_off_and_lost(world, root)
            await world.until(
                lambda: (row := world.engine.live_row(job)) and row.state == "running" and row.runs == 2
            )
            assert [row.site for row in world.store.components(job)][2:] == ["b", "c"]
            site = trouble(world, "a")
            assert site.processors_held == 3, "it runs on there"
            site.cut_off = False
            await world.until(lambda: is_used(world, "a"))
            assert site.processors_held == 0
            live = world.engine.live_row(job)
            assert live is not None
            assert (live.state, live.runs) == ("running", 2), "nothing fenced counts"
            (root / "wait").unlink()
            (row,) = await world.ended(job)
            assert (row.state, row.runs, row.failures) == ("done", 2, 0)
            outcomes = {row.token: row.outcome for row in world.store.components(job)}
            assert outcomes == {"1.1": "aborted", "1.2": "aborted", "1.3": "done", "1.4": "done"}
            await world.all_given_back()

    asyncio.run(scenario())


def test_after_a_restart_of_the_daemon_the_fence_comes_before_any_question(root: Path) -> None:
    async def scenario() -> None:
        grid = local_grid((4, 4, 4), error_threshold=100)
        async with open_engine(root, grid, site_maker=troubled, poll_s=0.1) as world:
            job = await cut_off_and_lost(world, root)
        async with open_engine(root, grid, site_maker=troubled, poll_s=0.1) as world:
            await world.until(lambda: is_used(world, "a"))
            called = [what for what, token in trouble(world, "a").called if token == FENCED]
            assert called[0] == "abort"
            (root / "wait").unlink()
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 2)
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_lost_site_leaves_the_grid_and_is_ended_of_what_it_has_should_it_come_back(root: Path) -> None:
    async def scenario() -> None:
        grid = local_grid((4, 4, 4), error_threshold=100)
        async with open_engine(root, grid, site_maker=troubled, poll_s=0.1) as world:
            job = await cut_off_and_lost(world, root)
            await world.until(lambda: (row := world.engine.live_row(job)) and row.runs == 2)
        without = msgspec.structs.replace(grid, sites=grid.sites[1:])
        async with open_engine(root, without, site_maker=troubled, poll_s=0.1) as world:
            (fenced,) = [row for row in world.store.components(job) if row.token == FENCED]
            assert (fenced.outcome, fenced.reason) == ("absent", "its site was lost and has left the grid")
            assert FENCED not in world.engine.scheduler.ledger.claims
        async with open_engine(root, grid, site_maker=troubled, poll_s=0.1) as world:
            site = trouble(world, "a")
            await world.until(lambda: site.processors_held == 0)
            assert ("abort", FENCED) in site.called
            (root / "wait").unlink()
            (row,) = await world.ended(job)
            assert (row.state, row.runs, row.failures) == ("done", 2, 0)
            await world.all_given_back()

    asyncio.run(scenario())
