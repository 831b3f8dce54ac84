"""Large jobs leave a small database, from which the engine starts again; what is missing in one is named."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import event

from koala.daemon.engine.removal import remove_job
from koala.descriptions.sbatch.reader import read_sbatch
from koala.model.messages import CancelAsked
from tests.support.engine_world import a_request, local_grid, open_engine, open_store, root

__all__ = ["root"]

FILES = 15
COMPONENTS = 1_000
FILE_CHARACTERS = 65_000


def hetjob_file(number: int) -> str:
    """An sbatch file of many components."""
    lines = ["#!/bin/sh", *["#SBATCH --ntasks=1", "#SBATCH hetjob"] * (COMPONENTS - 1), "#SBATCH --ntasks=1"]
    text = "\n".join([*lines, f"# file {number}", ""])
    return text + "# a comment\n" * ((FILE_CHARACTERS - len(text)) // 12)


def size_bytes(root: Path) -> int:
    return sum(path.stat().st_size for path in root.glob("koala.db*"))


def test_fifteen_sbatch_files_of_a_thousand_components_leave_a_small_database_and_the_engine_starts_again(
    root: Path,
) -> None:
    requests = [read_sbatch(hetjob_file(number), "job.sbatch") for number in range(FILES)]
    assert {len(request.components) for request in requests} == {COMPONENTS}
    sent = FILES * FILE_CHARACTERS

    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            jobs = [await world.submit(request) for request in requests]
        assert size_bytes(root) < 5 * sent
        async with open_engine(root, local_grid((1,))) as world:
            assert [row.id for row in world.engine.live_rows()] == jobs
            assert world.engine.scheduler.ledger.jobs[jobs[3]].request == requests[3]
            assert world.store.request(jobs[-1]) == requests[-1]
            for job in jobs:
                await world.engine.tell(CancelAsked(at=0.0, job=job))
            assert {row.state for row in await world.ended(*jobs)} == {"cancelled"}
        assert size_bytes(root) < 8 * sent

    asyncio.run(scenario())


def test_a_restart_asks_the_store_no_more_questions_for_more_jobs(root: Path) -> None:
    asked: list[int] = []

    async def scenario() -> None:
        async with open_engine(root, local_grid((4,))) as world:
            running = [await world.submit(a_request("sleep 60", sizes=(1, 1))) for _ in range(2)]
            for job in running:
                await world.in_state(job, "running")
            waiting = [await world.submit(a_request(f"echo {number}", sizes=(4,))) for number in range(30)]
        for jobs in (running + waiting, running):
            counted = 0

            def count(*_: Any) -> None:
                nonlocal counted
                counted += 1

            async with open_engine(root, local_grid((4,))) as world:
                pass
            store = open_store(root)
            event.listen(store._database.engine, "before_cursor_execute", count)
            async with open_engine(root, local_grid((4,)), store=store) as world:
                asked.append(counted)
                assert [row.id for row in world.engine.live_rows()] == jobs
                assert [len(world.engine.components_of(job)) for job in running] == [2, 2]
                for job in waiting if jobs != running else running:
                    await world.engine.tell(CancelAsked(at=0.0, job=job))
                if jobs == running:
                    await world.all_given_back()

    asyncio.run(scenario())
    assert abs(asked[0] - asked[1]) <= 2
    assert max(asked) < 40


def change(root: Path, *statements: str) -> None:
    with sqlite3.connect(root / "koala.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_job_whose_row_is_missing_is_set_aside_and_can_be_removed_while_the_others_run_on(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2,))) as world:
            jobs = [await world.submit(a_request("sleep 60")) for _ in range(2)]
            for job in jobs:
                await world.in_state(job, "running")
        change(root, "DELETE FROM jobs WHERE id = 2")
        async with open_engine(root, local_grid((2,))) as world:
            assert [(row.id, row.state, row.runs) for row in world.engine.live_rows()] == [(1, "running", 1)]
            (problem,) = {each.problem for each in world.store.damaged_records() if each.kind == "job"}
            assert problem == "it cannot be read: nobody knows what the job asks for"
            then = await world.submit(a_request())
            assert (then, (await world.ended(then))[0].state) == (3, "done"), "what the site had of it was ended"
            await world.engine.tell(CancelAsked(at=0.0, job=1))
            await world.all_given_back()
        store = open_store(root)
        assert remove_job(store, 2).was_there
        assert store.damaged_records() == []
        store.close()

    asyncio.run(scenario())


def test_the_row_of_a_component_that_is_missing_is_made_again(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2,))) as world:
            job = await world.submit(a_request("sleep 60"))
            await world.in_state(job, "running")
            (before,) = world.store.components(job)
        change(root, "DELETE FROM components")
        async with open_engine(root, local_grid((2,))) as world:
            assert [row.state for row in world.engine.live_rows()] == ["running"]
            (after,) = world.engine.components_of(job)
            assert (after.token, after.run, after.part, after.site) == (
                before.token, before.run, before.part, before.site
            )  # fmt: skip
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            await world.all_given_back()
            assert [row.outcome for row in world.store.components(job)] == ["aborted"]

    asyncio.run(scenario())
