"""A job taken out of the store of a stopped engine: the next start works, and knows nothing of it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from msgspec.structs import replace

from koala.daemon.engine.removal import remove_job
from koala.model.dependency import Dependency
from koala.model.job_array import read_array
from koala.model.messages import CancelAsked
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, open_store, root
from tests.support.live_sites import processes_of

__all__ = ["root"]

SCRIPT = "sleep 600 # " + "a long comment " * 30


def rows_that_name(root: Path, job: int) -> dict[str, int]:
    """How many rows of each table are still the job's."""
    tables = {"jobs": "id", "components": "job", "journal": "job", "transfer_jobs": "job"}
    with sqlite3.connect(root / "koala.db") as connection:
        found = {
            table: connection.execute(f"SELECT count(*) FROM {table} WHERE {column} = {job}").fetchone()[0]  # noqa: S608
            for table, column in tables.items()
        }
    connection.close()
    return found


def count(root: Path, table: str) -> int:
    with sqlite3.connect(root / "koala.db") as connection:
        (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608
    connection.close()
    return int(found)


async def cancel_all(world: EngineWorld) -> None:
    for row in reversed(world.engine.live_rows()):
        await world.engine.tell(CancelAsked(at=0.0, job=row.id))
    await world.all_given_back()


def test_a_running_job_that_is_removed_is_gone_after_a_restart_with_its_processes_and_the_others_go_on(
    root: Path,
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2, 2))) as world:
            await world.register("data", b"x" * 1_000, "a")
            kept = await world.submit(a_request("sleep 600", sites=("b",), reads=("data",)))
            await world.in_state(kept, "running")
            gone = await world.submit(a_request(SCRIPT, sizes=(2, 1), sites=("a", "b"), reads=("data",)))
            await world.in_state(gone, "running")
            waiting = await world.submit(a_request(SCRIPT + "!", sizes=(1,), sites=("b",)))
        store = open_store(root)
        removed = remove_job(store, gone)
        store.close()
        assert removed.was_there
        assert {(site, count) for _, site, count in removed.held} == {("a", 2), ("b", 1)}
        assert not any(rows_that_name(root, gone).values())
        assert (count(root, "requests"), count(root, "texts")) == (2, 1), "the request and its script are gone too"
        async with open_engine(root, local_grid((2, 2))) as world:
            assert world.store.job(gone) is None
            assert [row.id for row in world.engine.live_rows()] == [kept, waiting]
            assert [row.jobs for row in world.engine.transfers_now()] == [(kept,)], "the others share it no more"
            await world.in_state(waiting, "running")
            assert await world.submit(a_request()) == waiting + 1, "numbers are not used again"
            await cancel_all(world)
        assert processes_of(root) == []

    asyncio.run(scenario())


def test_the_newest_job_that_is_removed_gives_its_number_to_no_other(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            newest = (await world.run(a_request())).id
        store = open_store(root)
        assert remove_job(store, newest).held == ()
        assert not remove_job(store, newest).was_there
        store.close()
        async with open_engine(root, local_grid((1,))) as world:
            assert (await world.run(a_request())).id == newest + 1

    asyncio.run(scenario())


def test_an_array_does_not_wait_for_an_element_that_is_removed(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            array = await world.submit(replace(a_request("sleep 600"), array=read_array("0-1")))
            await world.in_state(array + 1, "running")
        store = open_store(root)
        assert remove_job(store, array + 1).was_there
        store.close()
        async with open_engine(root, local_grid((1,))) as world:
            await world.in_state(array + 2, "running")
            await world.engine.tell(CancelAsked(at=0.0, job=array + 2))
            (row,) = await world.ended(array)
            assert (row.state, row.reason) == ("cancelled", "of 2 elements 2 were cancelled")
            await world.all_given_back()

    asyncio.run(scenario())


def test_who_waits_for_a_removed_job_ends_as_it_never_comes(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            first = await world.submit(a_request("sleep 600"))
            await world.in_state(first, "running")
            then = await world.submit(replace(a_request(), after=(Dependency(job=first),)))
            await world.in_state(then, "held")
        store = open_store(root)
        remove_job(store, first)
        store.close()
        async with open_engine(root, local_grid((1,))) as world:
            (row,) = await world.ended(then)
            assert row.state == "cancelled"
            await world.all_given_back()

    asyncio.run(scenario())


def test_a_job_whose_rows_are_missing_or_damaged_is_removed(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            jobs = [await world.submit(a_request(f"sleep {600 + number}", sizes=(2,))) for number in range(4)]
        with sqlite3.connect(root / "koala.db") as connection:
            connection.execute("DELETE FROM jobs WHERE id = 1")
            connection.execute("UPDATE jobs SET request_key = NULL WHERE id = 2")
            connection.execute("UPDATE jobs SET owner = x'ff00' WHERE id = 3")
        connection.close()
        store = open_store(root)
        assert [remove_job(store, job).was_there for job in jobs[:3]] == [True, True, True]
        store.close()
        async with open_engine(root, local_grid((1,))) as world:
            assert [row.id for row in world.engine.live_rows()] == jobs[3:]
            await cancel_all(world)

    asyncio.run(scenario())
