"""Durable before acted on: what the engine promises about its record, with stores that are slow or fail."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from koala.core import RecordsError
from koala.daemon.engine import loop as engine_module
from koala.daemon.engine.clock import SteadyClock
from koala.model.dependency import Dependency
from koala.model.errors import InvalidError, TooManyError, UnavailableError
from koala.model.grid import PolicyFile, SiteKind
from koala.model.messages import CancelAsked, SiteDrained
from koala.model.request import GraphJob
from koala.policies import Catalogue
from tests.support.engine_world import (
    OWNER,
    EngineWorld,
    a_request,
    disturbed,
    local_grid,
    open_engine,
    open_store,
    root,
)

__all__ = ["root"]

TOKEN = "mine"  # noqa: S105 - a client token is no secret


async def settle(world: EngineWorld) -> None:
    """Wait until the engine has nothing more to write."""
    await world.all_given_back()
    await world.until(lambda: not world.engine.outbox.has_settled())


def test_no_caller_is_answered_and_no_site_told_before_the_commit(root: Path, database: str) -> None:
    async def scenario() -> None:
        store = disturbed(root, database)
        async with open_engine(root, store=store) as world:
            await world.until(lambda: store.batches)
            store.gate.clear()
            submitting = asyncio.create_task(world.submit(a_request()))
            await world.until(lambda: world.engine.scheduler.ledger.jobs)  # the core has handled it
            assert not submitting.done()
            assert world.engine.live_rows() == []
            assert not list((root / "sites/a/components").iterdir())
            assert not list((root / "sites/b/components").iterdir())
            store.gate.set()
            (row,) = await world.ended(await submitting)
            assert row.state == "done"

    asyncio.run(scenario())


def test_what_gathers_while_a_commit_runs_is_committed_together_up_to_the_limit(root: Path, database: str) -> None:
    async def scenario() -> None:
        store = disturbed(root, database)
        async with open_engine(root, local_grid((10,)), store=store, batch_events_max=10) as world:
            first = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await world.in_state(first, "running")
            await world.until(lambda: not world.engine.outbox.commands and not world.engine.outbox.has_settled())
            store.gate.clear()
            calls = [asyncio.create_task(world.submit(a_request())) for _ in range(25)]
            # Each waits in the inbox, or is in the commit that waits at the gate.
            await world.until(lambda: len(world.engine._inbox) + len(world.engine.scheduler.ledger.jobs) == 26)
            done_before = len(store.batches)
            store.gate.set()
            jobs = await asyncio.gather(*calls)
            sizes = [
                sum(entry.what == "JobSubmitted" for entry in batch.entries) for batch in store.batches[done_before:]
            ]
            assert sum(sizes) == 25
            assert max(sizes) == 10
            assert len([size for size in sizes if size]) <= 5
            (root / "gate").touch()
            assert {row.state for row in await world.ended(first, *jobs)} == {"done"}
            await settle(world)

    asyncio.run(scenario())


def test_the_journal_is_gapless_in_order_of_time_and_commands_follow_their_event(root: Path, database: str) -> None:
    async def scenario() -> None:
        async with open_engine(root, store=open_store(root, database)) as world:
            job = (await world.run(a_request(sizes=(3, 3)))).id
            await settle(world)
            entries = world.store.journal(after=0, limit=1_000)
            assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
            assert world.engine.last_seq == len(entries)
            assert [entry.at for entry in entries] == sorted(entry.at for entry in entries)
            words = [entry.what for entry in entries if entry.job == job]
            assert words[:4] == ["JobSubmitted", "JobPlaced", "StartComponent", "StartComponent"]
            assert words[-2:] == ["ComponentEnded", "JobEnded"]
            assert words.count("ReleaseBarrier") == 1
            assert words.index("ReleaseBarrier") == 1 + max(
                index for index, word in enumerate(words) if word == "ComponentReady"
            )

    asyncio.run(scenario())


@pytest.mark.parametrize("where", ["fail_before", "fail_after"], ids=["nothing was written", "it was written"])
def test_a_failed_commit_is_told_to_its_caller_and_the_engine_goes_on_from_the_record(
    root: Path, database: str, where: str
) -> None:
    async def scenario() -> None:
        store = disturbed(root, database)
        async with open_engine(root, store=store) as world:
            engine = world.engine
            running = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done", sizes=(1, 1)))
            await world.in_state(running, "running")
            getattr(store, where)("JobSubmitted")
            store.recover_failures = 2
            with pytest.raises(UnavailableError, match=r"disk is full|connection broke"):
                await engine.submit(a_request(), owner=OWNER, client_token=TOKEN)
            assert engine.failure
            with pytest.raises(UnavailableError, match="try again later"):
                await engine.tell(SiteDrained(at=0.0, site="a"))
            await world.until(lambda: not engine.failure)
            assert engine.counters.recoveries == 1
            row, new = await engine.submit(a_request(), owner=OWNER, client_token=TOKEN)
            assert new is (where == "fail_before")
            (root / "gate").touch()
            rows = await world.ended(running, row.id)
            assert [row.state for row in rows] == ["done", "done"]
            assert [row.runs for row in rows] == [1, 1]
            await settle(world)

    asyncio.run(scenario())


def test_an_end_that_happens_while_the_store_is_away_is_learned_afterwards(root: Path, database: str) -> None:
    async def scenario() -> None:
        store = disturbed(root, database)
        async with open_engine(root, store=store) as world:
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await world.in_state(job, "running")
            waiting = asyncio.create_task(world.ended(job))
            store.recover_failures = 2
            store.fail_before("ComponentEnded")
            (root / "gate").touch()
            await world.until(lambda: world.engine.failure)
            (row,) = await waiting
            assert (row.state, row.runs) == ("done", 1)

    asyncio.run(scenario())


def test_an_error_inside_the_engine_loses_nothing_that_was_acknowledged(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            engine = world.engine
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await world.in_state(job, "running")
            broken = engine.scheduler
            monkeypatch.setattr(broken, "handle", lambda _: 1 / 0)
            with pytest.raises(UnavailableError, match="inside the daemon"):
                await world.submit(a_request())
            await world.until(lambda: not engine.failure)
            assert engine.scheduler is not broken
            (root / "gate").touch()
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 1)

    asyncio.run(scenario())


def test_a_closed_engine_is_opened_again_and_goes_on_with_what_ran_meanwhile(root: Path, database: str) -> None:
    async def scenario() -> None:
        async with open_engine(root, store=open_store(root, database)) as world:
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done", sizes=(3, 3)))
            waiting = await world.submit(a_request("exit 0", sizes=(4, 4)))
            await world.in_state(job, "running")
            before = world.store.components(job)
        (root / "gate").touch()
        async with open_engine(root, store=open_store(root, database)) as world:
            assert [row.id for row in world.engine.live_rows()] == [job, waiting]
            rows = await world.ended(job, waiting)
            assert [(row.state, row.runs) for row in rows] == [("done", 1), ("done", 1)]
            assert [row.token for row in world.store.components(job)] == [row.token for row in before]
            await settle(world)
        async with open_engine(root, store=open_store(root, database)) as world:
            found = await asyncio.to_thread(world.store.recover)
            assert found.outbox == ()
            assert (await world.run(a_request())).id == waiting + 1

    asyncio.run(scenario())


def test_alarms_that_were_set_before_a_crash_go_off_after_it(root: Path, database: str) -> None:
    def asked(world: EngineWorld, after: int) -> bool:
        return any(entry.what == "AskSite" for entry in world.store.journal(after=after, limit=1_000))

    async def scenario() -> None:
        grid = local_grid(check_interval_s=4.0)
        async with open_engine(root, grid, open_store(root, database)) as world:
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await world.in_state(job, "running")
        async with open_engine(root, grid, open_store(root, database)) as world:
            before = world.engine.last_seq
            await world.until(lambda: asked(world, before))
            (root / "gate").touch()
            await world.ended(job)

    asyncio.run(scenario())


def test_time_never_goes_back_over_a_restart(root: Path) -> None:
    class BehindClock(SteadyClock):
        def __init__(self) -> None:
            super().__init__(wall=lambda: 1_000.0)

    async def scenario() -> None:
        async with open_engine(root) as world:
            await world.run(a_request())
            last_at = world.store.journal(after=0, limit=1_000)[-1].at
        store = open_store(root)
        engine = engine_module.Engine(local_grid(), Catalogue.builtin(), store, root, clock=BehindClock())
        await engine.open()
        try:
            assert engine.now() >= last_at
            row, _ = await engine.submit(a_request(), owner=OWNER)
            assert row.submitted_at >= last_at
            await engine.wait_ended(row.id, 60.0)
        finally:
            await engine.close()
            store.close()

    asyncio.run(scenario())


def test_a_grid_that_lacks_a_site_with_claims_is_refused_and_one_with_more_sites_is_taken(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done", sizes=(3, 3)))
            await world.in_state(job, "running")
        with pytest.raises(RecordsError, match="b"):
            async with open_engine(root, local_grid((4,))):
                pass
        (root / "gate").touch()
        async with open_engine(root, local_grid((6, 4, 2))) as world:
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 1)
            assert (await world.run(a_request(sizes=(6, 4, 2)))).state == "done"

    asyncio.run(scenario())


def test_a_kind_of_site_that_cannot_run_live_is_refused_with_advice(root: Path) -> None:
    grid = local_grid((1,))
    simulated = msgspec.structs.replace(
        grid, sites=(msgspec.structs.replace(grid.sites[0], kind=SiteKind.SIMULATED),)
    )

    async def scenario() -> None:
        with pytest.raises(InvalidError, match=r"site a .*kind: local"):
            async with open_engine(root, simulated):
                pass

    asyncio.run(scenario())


def test_more_live_jobs_than_the_limit_are_refused(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,)), jobs_live_max=2) as world:
            first = await world.submit(a_request("sleep 60"))
            second = await world.submit(a_request())
            with pytest.raises(TooManyError, match="JOBS_LIVE_MAX"):
                await world.submit(a_request())
            await world.engine.tell(CancelAsked(at=0.0, job=first))
            await world.ended(second)

    asyncio.run(scenario())


def test_text_that_cannot_be_put_on_record_is_refused(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            with pytest.raises(InvalidError, match="UTF-8"):
                await world.submit(a_request(name="half \ud800"))
            assert world.engine.failure == ""

    asyncio.run(scenario())


def all_on(index: int) -> PolicyFile:
    """A policy that puts everything on one site."""
    text = f"""
from koala.policies import policy


@policy("MINE")
def mine(idle, sizes, left, chosen):
    for component in range(len(sizes)):
        chosen[component] = {index}
    return -1
"""
    return PolicyFile(path="mine.py", text=text)


def test_what_was_decided_by_a_policy_that_has_changed_since_stands(root: Path) -> None:
    first, second = (
        msgspec.structs.replace(local_grid(policy="MINE"), policy_files=(all_on(index),)) for index in (0, 1)
    )

    async def scenario() -> None:
        async with open_engine(root, first, catalogue=Catalogue.of(first.policy_files)) as world:
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await world.in_state(job, "running")
        async with open_engine(root, second, catalogue=Catalogue.of(second.policy_files)) as world:
            (root / "gate").touch()
            (row,) = await world.ended(job)
            assert (row.state, row.runs, [site for site, _ in row.places]) == ("done", 1, ["a"])
            later = await world.run(a_request())
            assert [site for site, _ in later.places] == ["b"]

    asyncio.run(scenario())


def test_an_engine_is_closed_while_its_store_is_away_and_the_next_one_goes_on(root: Path) -> None:
    async def scenario() -> None:
        store = disturbed(root)
        async with open_engine(root, store=store) as world:
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await world.in_state(job, "running")
            store.recover_failures = 1_000_000
            store.fail_before("JobSubmitted")
            with pytest.raises(UnavailableError):
                await world.submit(a_request())
        (root / "gate").touch()
        async with open_engine(root) as world:
            (row,) = await world.ended(job)
            assert (row.state, row.runs) == ("done", 1)
            assert len(world.store.jobs()) == 1

    asyncio.run(scenario())


def test_whoever_waits_is_woken_by_what_is_on_record_or_by_the_timeout(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            engine = world.engine
            await world.until(lambda: engine.counters.commits)
            await engine.wait_journal(engine.last_seq - 1, 60.0)
            await engine.wait_journal(engine.last_seq, 0.05)
            waiting = asyncio.create_task(engine.wait_journal(engine.last_seq, 60.0))
            job = await world.submit(a_request(f"until [ -e {root}/gate ]; do sleep 0.3; done"))
            await waiting
            await engine.wait_ended(job, 0.05)
            assert engine.live_row(job) is not None
            (root / "gate").touch()
            await engine.wait_ended(job, 60.0)
            row = world.store.job(job)
            assert row is not None
            assert row.state == "done"
            await engine.wait_ended(12_345, 60.0)

    asyncio.run(scenario())


def test_the_row_of_a_job_is_recorded_only_when_it_changed(root: Path) -> None:
    async def scenario() -> None:
        store = disturbed(root)
        async with open_engine(root, store=store) as world:
            job = await world.submit(a_request(sizes=(1, 1, 1)))
            await world.ended(job)
            recorded = [row for batch in store.batches for row in batch.jobs]
            assert len(recorded) >= 3
            assert all(row != before for before, row in pairwise(recorded))

    asyncio.run(scenario())


@pytest.mark.parametrize("where", ["fail_before", "fail_after"], ids=["nothing was written", "it was written"])
def test_a_graph_is_on_record_whole_or_not_at_all(root: Path, database: str, where: str) -> None:
    """Three jobs, one after the other, in batches that hold one event each."""

    async def scenario() -> None:
        store = disturbed(root, database)
        graph = [
            GraphJob(name=str(place), request=a_request(), within=(Dependency(job=place - 1),) if place else ())
            for place in range(3)
        ]
        async with open_engine(root, store=store, batch_events_max=1) as world:
            engine = world.engine
            getattr(store, where)("JobSubmitted")
            with pytest.raises(UnavailableError, match=r"disk is full|connection broke"):
                await engine.submit_together(graph, owner=OWNER, client_token=TOKEN, ended=[()] * 3)
            await world.until(lambda: not engine.failure)
            rows, new = await engine.submit_together(graph, owner=OWNER, client_token=TOKEN, ended=[()] * 3)
            assert new is (where == "fail_before")
            assert [row.id for row in rows] == [1, 2, 3]
            ended = await world.ended(1, 2, 3)
            assert [row.state for row in ended] == ["done"] * 3
            submitted = [[each.what for each in batch.entries].count("JobSubmitted") for batch in store.batches]
            assert [count for count in submitted if count] == [3]
            await settle(world)

    asyncio.run(scenario())
