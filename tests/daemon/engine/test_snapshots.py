"""Snapshots and the length of the journal: taken without holding anybody up, and bounded however many jobs live."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from koala.core import Scheduler, split_snapshot
from koala.core.state.snapshots import snapshot as core_snapshot
from koala.daemon.engine import loop as engine_module
from koala.daemon.engine import recovery as recovering
from koala.daemon.engine.recovery import RecoveryError
from koala.model.messages import CancelAsked, JobSubmitted
from koala.store import writes as recording
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, root

__all__ = ["root"]


async def no_snapshot(_: Any) -> None:
    """As if the engine had been killed: the next one must replay."""


async def waiting_jobs(world: EngineWorld, count: int) -> list[int]:
    """One job that holds everything, and others that wait behind it."""
    first = await world.submit(a_request("sleep 60"))
    await world.in_state(first, "running")
    return [first, *[await world.submit(a_request()) for _ in range(count)]]


async def next_snapshot(world: EngineWorld) -> None:
    """Let events come until one is taken."""
    before = world.engine.counters.snapshots
    for _ in range(100):
        if world.engine.counters.snapshots > before:
            return
        await world.engine.probe("a")
    raise AssertionError("no snapshot was taken")


async def cancel(world: EngineWorld, jobs: list[int]) -> None:
    for job in reversed(jobs):
        await world.engine.tell(CancelAsked(at=0.0, job=job))
    await world.all_given_back()


def test_others_have_their_turn_while_a_snapshot_is_taken_and_what_they_submit_is_replayed(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core_snapshot, "STEP_JOBS", 1)
    threads: list[int] = []
    submitted: list[asyncio.Task[int]] = []
    turns: list[str] = []

    def split(snapshot: Any) -> Any:
        threads.append(threading.get_ident())
        return split_snapshot(snapshot)

    async def scenario() -> None:
        async with open_engine(root, local_grid((1,)), snapshot_events=0) as world:
            jobs = await waiting_jobs(world, 5)
            steps = world.engine.scheduler.snapshot_in_steps

            def while_it_is_taken() -> Any:
                writing = steps()
                next(writing)
                if not submitted:
                    submitted.append(asyncio.create_task(world.submit(a_request())))
                    asyncio.get_running_loop().call_soon(turns.append, "of another")
                yield
                turns.append("of the snapshot")
                return (yield from writing)

            monkeypatch.setattr(recovering, "split_snapshot", split)
            monkeypatch.setattr(world.engine.scheduler, "snapshot_in_steps", while_it_is_taken)
            await next_snapshot(world)
            monkeypatch.setattr(world.engine.scheduler, "snapshot_in_steps", steps)
            jobs.append(await submitted[0])
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        assert turns[:2] == ["of another", "of the snapshot"]
        assert threads
        assert threading.get_ident() not in threads, "encoding is left to the store's thread"
        monkeypatch.undo()
        async with open_engine(root, local_grid((1,))) as world:
            assert [row.id for row in world.engine.live_rows()] == jobs
            await cancel(world, jobs)

    asyncio.run(scenario())


def test_the_journal_is_held_to_its_bound_in_short_transactions_with_many_entries_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "PRUNED_ENTRIES_MAX", 3)

    async def scenario() -> None:
        async with open_engine(root, local_grid((1,)), journal_entries_max=10) as world:
            for _ in range(8):
                await world.run(a_request())
            assert len(world.store.journal(after=0, limit=1_000)) > 40
        # Closing has taken the snapshot that allows it.
        async with open_engine(root, local_grid((1,)), journal_entries_max=10, snapshot_events=5) as world:
            last = world.engine.last_seq
            await world.until(lambda: world.store.journal(after=0, limit=1_000)[0].seq == last - 9)
            for _ in range(4):
                await world.run(a_request())
            taken = world.engine.counters.snapshots
            assert taken
            await world.all_given_back()
            await world.until(lambda: len(world.store.journal(after=0, limit=1_000)) <= 10 + 6 * 5)

    asyncio.run(scenario())


def test_an_event_that_cannot_be_handled_again_is_named_with_advice(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Scheduler.handle

    def broken(scheduler: Scheduler, event: Any) -> Any:
        if isinstance(event, JobSubmitted):
            raise ZeroDivisionError("division by zero")
        return handle(scheduler, event)

    async def scenario() -> None:
        async with open_engine(root) as world:
            await world.run(a_request())
            (entry,) = [each for each in world.store.journal(after=0, limit=99) if each.what == "JobSubmitted"]
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        monkeypatch.undo()
        monkeypatch.setattr(Scheduler, "handle", broken)
        with pytest.raises(
            RecoveryError, match=rf"entry {entry.seq} of the journal \(JobSubmitted\).*backup"
        ) as told:
            async with open_engine(root):
                pass
        assert told.value.for_user() == str(told.value)

    asyncio.run(scenario())
