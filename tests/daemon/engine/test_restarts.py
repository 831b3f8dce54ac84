"""Restarts: nothing is decided again, a damaged record costs its job and no other, and the journal is bounded."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from koala.core import Kind
from koala.daemon.engine.recovery import RecoveryError
from koala.model.job_array import read_array
from koala.model.messages import CancelAsked, RequeueAsked, RestartAsked
from koala.store import writes as recording
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, open_store, root
from tests.support.live_sites import processes_of

__all__ = ["root"]


async def cancel_all(world: EngineWorld) -> None:
    for row in reversed(world.engine.live_rows()):
        await world.engine.tell(CancelAsked(at=0.0, job=row.id))
    await world.all_given_back()


def execute(root: Path, statement: str, *values: object) -> None:
    """Change the database of a stopped engine."""
    with sqlite3.connect(root / "koala.db") as connection:
        connection.execute(statement, values)
    connection.close()


def test_a_restart_goes_on_from_the_records_of_what_lives_and_of_nothing_else(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            for _ in range(3):
                await world.run(a_request())
            running = await world.submit(a_request("sleep 100"))
            await world.in_state(running, "running")
            waiting = await world.submit(a_request())
            before = [world.engine.scheduler.explain(job) for job in (running, waiting)]
        store = open_store(root)
        kinds = [(row.kind, row.key) for row in store.recover().records]
        store.close()
        assert [key for kind, key in kinds if kind == Kind.JOB] == [str(running), str(waiting)]
        assert [key for kind, key in kinds if kind == Kind.CLAIM] == [f"{running}.1"]
        async with open_engine(root, local_grid((1,))) as world:
            assert [world.engine.scheduler.explain(job) for job in (running, waiting)] == before
            await cancel_all(world)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("statement", "problem"),
    [
        ("UPDATE records SET body = '{' WHERE kind = 'job' AND key = '1'", "it cannot be read"),
        ("DELETE FROM records WHERE kind = 'job' AND key = '1'", "there is no record of its job 1"),
        (
            "UPDATE records SET body = replace(body, '\"started_at\":', '\"begun_at\":') WHERE key = '1'",
            "it is running, and has begun_at",
        ),
        ("UPDATE records SET body = '[]' WHERE kind = 'claim' AND key = '1.1'", "it cannot be read"),
        ("UPDATE jobs SET state = 'held' WHERE id = 1", "and shown as held"),
    ],
)
def test_a_damaged_record_is_set_aside_with_its_job_while_all_others_go_on(
    root: Path, statement: str, problem: str
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1, 1))) as world:
            damaged = await world.submit(a_request("sleep 100", sites=("a",)))
            whole = await world.submit(a_request("sleep 101", sites=("b",)))
            await world.in_state(damaged, "running")
            await world.in_state(whole, "running")
            waiting = await world.submit(a_request(sites=("a",)))
        execute(root, statement)
        async with open_engine(root, local_grid((1, 1))) as world:
            row = world.engine.live_row(damaged)
            assert row is not None
            assert row.state == "quarantined"
            assert problem in row.reason
            assert world.engine.live_rows()[1].runs == 1, "the other one has run on"
            assert (await world.ended(waiting))[0].state == "done", "what a site still had of it was ended first"
            aside = world.store.damaged_records()
            assert [each.problem for each in aside if problem in each.problem] or "job" not in statement
            await world.engine.tell(RequeueAsked(at=0.0, job=damaged))
            await world.in_state(damaged, "running")
        async with open_engine(root, local_grid((1, 1))) as world:
            assert [each.state for each in world.engine.live_rows()] == ["running", "running"]
            await cancel_all(world)
        assert processes_of(root) == []

    asyncio.run(scenario())


def test_a_job_of_which_nobody_knows_what_it_asked_for_fails_with_the_reason(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            first = await world.submit(a_request("sleep 100"))
            then = await world.submit(a_request())
        execute(root, "UPDATE jobs SET request_key = NULL WHERE id = 1")
        async with open_engine(root, local_grid((1,))) as world:
            row = world.store.job(first)
            assert row is not None
            assert row.state == "failed"
            assert "nobody knows what the job asks for" in row.reason
            assert (await world.ended(then))[0].state == "done"
            await world.all_given_back()

    asyncio.run(scenario())


def test_records_of_a_kind_that_this_koala_does_not_know_are_refused_with_advice(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            await world.run(a_request())
        execute(root, "INSERT INTO records (kind, key, body) VALUES ('elastic', '1', '{}')")
        with pytest.raises(RecoveryError, match=r"'elastic'.*start the version that wrote it"):
            async with open_engine(root, local_grid((1,))):
                pass

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
        async with open_engine(root, local_grid((1,)), journal_entries_max=10, pruning_events=5) as world:
            last = world.engine.last_seq
            await world.until(lambda: world.store.journal(after=0, limit=1_000)[0].seq == last - 9)
            for _ in range(4):
                await world.run(a_request())
            await world.all_given_back()
            await world.until(lambda: len(world.store.journal(after=0, limit=1_000)) <= 10 + 6 * 5)

    asyncio.run(scenario())


def test_a_job_that_is_set_aside_gives_no_start_again_and_the_daemon_starts(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            job = await world.submit(a_request("sleep 100"))
            await world.in_state(job, "running")
            await world.engine.tell(RestartAsked(at=0.0, job=job, hold=True))
            await world.in_state(job, "held")
        execute(root, "UPDATE records SET body = '{' WHERE kind = 'job' AND key = '1'")
        async with open_engine(root, local_grid((1,))) as world:
            await world.in_state(job, "quarantined")
            await world.engine.tell(RequeueAsked(at=0.0, job=job))
            await world.in_state(job, "running")
            assert [row.token for row in world.store.components(job)] == ["1.1", "1.2"]
            await cancel_all(world)

    asyncio.run(scenario())


def test_an_array_that_is_set_aside_makes_none_of_its_elements_again(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            array = await world.submit(a_request("exit 3", array=read_array("0-3%1"), restarts_max=0))
            await world.ended(array + 1)
            await world.engine.tell(RestartAsked(at=0.0, job=array, hold=True))
        execute(root, "UPDATE records SET body = '{' WHERE kind = 'job' AND key = '1'")
        async with open_engine(root, local_grid((1,))) as world:
            await world.in_state(array, "quarantined")
            await world.engine.tell(RequeueAsked(at=0.0, job=array))
            (row,) = await world.ended(array)
            assert row.elements is not None
            assert row.elements.failed == 4
            assert row.state == "failed"
            made = [each.job for each in world.store.journal(limit=1_000) if each.what == "ElementMade"]
            assert made == [array + 1, array + 2, array + 3, array + 4]
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_file_that_another_job_needs_is_still_brought_when_the_first_one_is_set_aside(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1, 2))) as world:
            await world.register("f", b"x", "a")
            world.engine._performer.perform = lambda *_: None  # type: ignore[method-assign]  # it dies before
            jobs = [await world.submit(a_request(sites=("b",), reads=("f",))) for _ in range(2)]
        execute(root, "UPDATE records SET body = '{' WHERE kind = 'job' AND key = '1'")
        async with open_engine(root, local_grid((1, 2))) as world:
            await world.in_state(jobs[0], "quarantined")
            assert (await world.ended(jobs[1], within_s=15.0))[0].state == "done"
            await cancel_all(world)

    asyncio.run(scenario())


def test_a_file_of_which_the_record_is_lost_is_where_the_catalogue_has_it(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1, 2))) as world:
            await world.register("f", b"x", "a")
        execute(root, "DELETE FROM records WHERE kind = 'file'")
        async with open_engine(root, local_grid((1, 2))) as world:
            assert (await world.run(a_request(sites=("b",), reads=("f",)))).state == "done"
            assert [row.key for row in world.store.records() if row.kind == Kind.FILE] == ["f"]

    asyncio.run(scenario())
