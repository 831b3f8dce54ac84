"""The main ways through the service on both databases: a real daemon on SQLite and on a PostgreSQL server."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import pytest

from koala.daemon.service.tokens import AccessTokens
from koala.model.api import Scope
from koala.model.api.questions import Forgetting, Registration, Replication, TokenWish
from koala.model.errors import NotFoundError, UnavailableError
from tests.support.daemon_world import (
    ANNA,
    BERT,
    OPERATOR,
    OWNER,
    WAIT_S,
    DaemonWorld,
    job_text,
    open_daemon,
    small_grid,
)
from tests.support.postgres_server import PostgresServer

TWO_PARTS = ("{processors: 2, site: A}", "{processors: 1, site: B}")


def test_jobs_are_submitted_once_run_listed_counted_and_still_there_after_a_restart(
    tmp_path: Path, database: str
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", database=database) as world:
            told = await asyncio.gather(*(world.submit(job_text("echo hi", TWO_PARTS), ANNA, "t") for _ in range(4)))
            assert len({each.job.id for each in told}) == 1
            job = told[0].job.id
            others = [await world.start(job_text("exit 3"), BERT) for _ in range(3)]
            assert (await world.ended(job, ANNA)).state == "done"
            for other in others:
                await world.ended(other)
            assert (await world.service.output(ANNA, job, part=1)).text == "hi\n"
            assert [each.id for each in (await world.service.jobs(ANNA)).items] == [job]
            await check_pages(world, [job, *others])
            before = await world.service.job(OWNER, job)
            story = await world.service.explain(OWNER, job)
        async with open_daemon(tmp_path / "d", database=database) as world:
            assert await world.service.job(OWNER, job) == before
            assert await world.service.explain(OWNER, job) == story
            assert (await world.submit(job_text("echo hi", TWO_PARTS), ANNA, "t")).job.id == job
            assert (await world.ended(await world.start(job_text()))).state == "done"

    asyncio.run(scenario())


async def check_pages(world: DaemonWorld, jobs: list[int]) -> None:
    """Pages are whole, and each caller's counts are exact."""
    found, cursor = [], None
    for _ in range(len(jobs)):
        page = await world.service.jobs(OPERATOR, limit=1, cursor=cursor)
        found += [each.id for each in page.items]
        cursor = page.next
    assert (found, cursor) == (jobs[::-1], None)
    counts = {who.name: (await world.service.grid.overview(who)).counts for who in (ANNA, BERT, OPERATOR)}
    assert (counts["anna"]["done"], counts["anna"]["failed"]) == (1, 0)
    assert (counts["bert"]["done"], counts["bert"]["failed"]) == (0, len(jobs) - 1)
    assert (counts["olga"]["done"], counts["olga"]["failed"]) == (1, len(jobs) - 1)


def test_the_journal_is_read_and_followed_by_those_it_concerns(tmp_path: Path, database: str) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid(check_interval_s=0.2), database) as world:
            begin = world.service.last_seq
            jobs = {who.name: await world.start(job_text("sleep 0.5"), who) for who in (ANNA, BERT)}
            heard = []
            async with asyncio.timeout(WAIT_S):
                async for entry in world.service.follow(ANNA, after=begin):
                    heard.append(entry)
                    if entry.what == "JobEnded":
                        break
            assert heard[-1].job == jobs["anna"]
            await world.ended(jobs["bert"])
            stored = await world.service.journal(ANNA, after=begin, limit=1_000)
            assert heard == stored[: len(heard)]
            assert {entry.job for entry in stored} == {None, jobs["anna"]}
            of_job = await world.service.journal(OPERATOR, job=jobs["bert"], limit=1_000)
            assert {entry.job for entry in of_job} == {jobs["bert"]}
            with pytest.raises(NotFoundError):
                await world.service.journal(ANNA, job=jobs["bert"])
            history = await world.service.grid.history(ANNA, "A", heard[0].at, world.engine.now())
            assert history.points

    asyncio.run(scenario())


def test_files_and_tokens_come_and_go(tmp_path: Path, database: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"some words")

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", database=database) as world:
            for name in ("b/1", "b/2", "ä", "a"):
                await world.service.register(OWNER, Registration(name=name, site="A", path=str(file)))
            page = await world.service.files(ANNA, limit=3)
            rest = await world.service.files(ANNA, limit=3, cursor=page.next)
            assert [each.name for each in (*page.items, *rest.items)] == ["a", "b/1", "b/2", "ä"]
            assert [each.name for each in (await world.service.files(ANNA, prefix="b/")).items] == ["b/1", "b/2"]
            there = await world.service.replicate(OPERATOR, Replication(name="ä", site="C"))
            assert [each.site for each in there.replicas] == ["A", "C"]
            await world.service.forget(OPERATOR, Forgetting(name="a"))
            access = AccessTokens(world.engine.store, world.engine.now)
            kept, gone = [await access.create(TokenWish(user="bob", scopes=[Scope.READ])) for _ in range(2)]
            await access.revoke(gone.token.id)
            await access.close()
        async with open_daemon(tmp_path / "d", database=database) as world:
            assert [each.name for each in (await world.service.files(ANNA)).items] == ["b/1", "b/2", "ä"]
            access = AccessTokens(world.engine.store, world.engine.now)
            assert access.by_secret(kept.secret) is not None
            assert access.by_secret(gone.secret) is None
            assert {each.id for each in await access.tokens()} == {kept.token.id, gone.token.id}
            await access.close()

    asyncio.run(scenario())


def test_while_the_server_is_away_calls_are_unavailable_and_afterwards_nothing_is_lost(
    tmp_path: Path, server: PostgresServer
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", database=server.new_database()) as world:
            job = (await world.submit(job_text(), ANNA, "before")).job.id
            await world.ended(job)
            await asyncio.to_thread(server.stop, "immediate")
            try:
                with pytest.raises(UnavailableError):
                    await world.service.jobs(ANNA)
                with pytest.raises(UnavailableError):
                    await world.submit(job_text(), ANNA, "during")
            finally:
                await asyncio.to_thread(server.start)

            async def works() -> bool:
                with contextlib.suppress(UnavailableError):
                    return bool((await world.submit(job_text(), ANNA, "during")).job.id)
                return False

            await world.until(works)
            again = (await world.submit(job_text(), ANNA, "during")).job.id
            assert (await world.ended(again)).state == "done"
            assert [each.id for each in (await world.service.jobs(ANNA)).items] == [again, job]

    asyncio.run(scenario())
