"""An engine that dies of an error nobody foresaw: nobody waits for it in vain, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from koala.daemon import run
from koala.daemon.engine.loop import Engine
from koala.daemon.options import DaemonOptions
from koala.model.errors import UnavailableError
from koala.model.grid import Grid
from tests.support.engine_world import WAIT_S, EngineWorld, a_request, disturbed, local_grid, open_engine, root

__all__ = ["root"]


async def dead(world: EngineWorld) -> None:
    """Wait for its death, and see that it says so to everybody."""
    async with asyncio.timeout(WAIT_S):
        await world.engine.died.wait()
    assert "the engine has died" in world.engine.failure
    with pytest.raises(UnavailableError, match="the engine has died"):
        await world.submit(a_request())


@pytest.mark.parametrize("where", ["_adopt", "_go_on"])
def test_an_engine_that_cannot_start_over_says_so_and_its_successor_goes_on(
    root: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("nobody foresaw this")

    async def scenario() -> None:
        store = disturbed(root)
        async with open_engine(root, store=store) as world:
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await world.in_state(job, "running")
            monkeypatch.setattr(world.engine, where, broken)
            store.fail_before("JobSubmitted")
            with pytest.raises(UnavailableError, match="disk is full"):
                await world.submit(a_request())
            await dead(world)
            assert "nobody foresaw this" in world.engine.failure
        (root / "gate").touch()
        async with open_engine(root) as world:
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 1)

    asyncio.run(scenario())


def test_whoever_waits_in_the_mailbox_of_an_engine_that_dies_is_refused(root: Path) -> None:
    async def scenario() -> None:
        store = disturbed(root)
        async with open_engine(root, store=store) as world:
            await world.until(lambda: store.batches)
            store.gate.clear()
            calls = [asyncio.create_task(world.submit(a_request())) for _ in range(2)]
            await world.until(lambda: world.engine.scheduler.ledger.jobs)  # in the batch that is being written
            calls += [asyncio.create_task(world.submit(a_request())) for _ in range(2)]
            await asyncio.sleep(0)
            (turning,) = [task for task in asyncio.all_tasks() if task.get_name() == "engine"]
            turning.cancel()
            async with asyncio.timeout(WAIT_S):
                results = await asyncio.gather(*calls, return_exceptions=True)
            assert all(isinstance(result, UnavailableError) for result in results), results
            await dead(world)
            store.gate.set()

    asyncio.run(scenario())


def test_a_daemon_whose_engine_has_died_stops_and_says_why(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready: list[object] = []

    async def scenario(grid: Grid) -> None:
        serving = asyncio.create_task(run.serve(DaemonOptions(grid=grid, state=root / "state"), ready.append))
        async with asyncio.timeout(WAIT_S):
            while not ready and not serving.done():
                await asyncio.sleep(0.02)
            (turning,) = [task for task in asyncio.all_tasks() if task.get_name() == "engine"]
            turning.cancel()
            with pytest.raises(UnavailableError, match="the engine has died: it was cancelled"):
                await serving

    asyncio.run(scenario(local_grid((1,))))


def test_an_engine_that_is_closed_has_not_died(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            engine: Engine = world.engine
            await world.run(a_request())
        assert not engine.died.is_set()
        assert engine.failure == "the daemon has stopped"

    asyncio.run(scenario())
