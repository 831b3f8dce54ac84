"""Large jobs leave a small database, from which the engine starts again; what is missing in one is named."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from koala.daemon.engine.recovery import RecoveryError
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


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        (["DELETE FROM jobs WHERE id = 2"], "there is no row of it;"),
        (["UPDATE jobs SET request_key = NULL WHERE id = 2"], "there is no row of what it asks for"),
        (["DELETE FROM components WHERE job = 2"], "there is no row of a component of it"),
    ],
)
def test_missing_rows_are_told_as_such_with_the_job_and_what_to_do(
    root: Path, statements: list[str], what: str
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2,))) as world:
            jobs = [await world.submit(a_request("sleep 60")) for _ in range(2)]
            for job in jobs:
                await world.in_state(job, "running")
        saved = (root / "koala.db").read_bytes()
        change(root, *statements)
        with pytest.raises(RecoveryError) as told:
            async with open_engine(root, local_grid((2,))):
                pass
        assert told.value.for_user().startswith("rows are missing from the database: job 2 is known")
        assert what in told.value.for_user()
        assert "restore the database from a backup" in told.value.for_user()
        assert "policy" not in told.value.for_user()
        (root / "koala.db").write_bytes(saved)
        async with open_engine(root, local_grid((2,))) as world:
            for job in jobs:
                await world.engine.tell(CancelAsked(at=0.0, job=job))
            await world.all_given_back()

    asyncio.run(scenario())
