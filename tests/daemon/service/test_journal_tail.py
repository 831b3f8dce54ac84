"""The tail that all followers of the journal share: it tells what the store would, and spares the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from koala.daemon.service import journal as journal_reading
from koala.daemon.service.journal import JournalTail, RenderedEntry
from koala.daemon.service.principal import Principal
from koala.model.api import JournalEntry
from koala.model.messages import AskSite, CancelAsked, Tick
from koala.store import Batch, JournalRow, StoreError
from tests.support.daemon_world import ANNA, BERT, OWNER, WAIT_S, job_text, open_daemon, small_grid


def entry(seq: int, job: int | None = None) -> JournalRow:
    body = Tick(at=1.0) if job is None else CancelAsked(at=1.0, job=job)
    return JournalRow(seq=seq, at=1.0, kind="event", what=type(body).__name__, job=job, site=None, body=body)


def batch(*entries: JournalRow) -> Batch:
    return Batch(entries=entries)


def seqs(answer: tuple[list[RenderedEntry], int] | None) -> tuple[list[int], int] | None:
    return None if answer is None else ([told.entry.seq for told in answer[0]], answer[1])


def test_it_keeps_nothing_unless_somebody_follows() -> None:
    tail = JournalTail()
    tail.grow(batch(entry(1)), {})
    assert tail.after(0, 1, 10, job=None, owner=None) is None
    with tail.followed():
        tail.grow(batch(entry(2), entry(3)), {})
        assert seqs(tail.after(1, 3, 10, job=None, owner=None)) == ([2, 3], 3)
        assert seqs(tail.after(2, 3, 10, job=None, owner=None)) == ([3], 3)
        assert tail.after(0, 3, 10, job=None, owner=None) is None, "entry 1 is only in the store"
    assert tail.after(1, 3, 10, job=None, owner=None) is None


def test_it_has_no_gap_after_entries_that_it_was_not_told_of() -> None:
    tail = JournalTail()
    with tail.followed():
        tail.grow(batch(entry(1)), {})
        assert tail.after(0, 2, 10, job=None, owner=None) is None, "entry 2 is on record and not here"
        tail.grow(batch(entry(3)), {})
        assert tail.after(1, 3, 10, job=None, owner=None) is None
        assert seqs(tail.after(2, 3, 10, job=None, owner=None)) == ([3], 3)


def test_it_holds_no_more_than_its_limit() -> None:
    tail = JournalTail(entries_max=3)
    with tail.followed():
        tail.grow(batch(*(entry(seq) for seq in range(1, 6))), {})
        assert tail.after(1, 5, 10, job=None, owner=None) is None
        assert seqs(tail.after(2, 5, 10, job=None, owner=None)) == ([3, 4, 5], 5)
        assert seqs(tail.after(2, 5, 2, job=None, owner=None)) == ([3, 4], 4)


def test_of_a_job_whose_owner_it_does_not_know_only_the_store_tells_a_user() -> None:
    tail = JournalTail()
    with tail.followed():
        tail.grow(batch(entry(1, job=7), entry(2)), {})
        assert tail.after(0, 2, 10, job=None, owner="anna") is None
        assert seqs(tail.after(1, 2, 10, job=None, owner="anna")) == ([2], 2)
        assert seqs(tail.after(0, 2, 10, job=None, owner=None)) == ([1, 2], 2)


def test_an_entry_that_may_name_strangers_is_veiled_for_users_only() -> None:
    tail = JournalTail()
    body = AskSite(site="A", tokens=("9.1",))
    asked = JournalRow(seq=1, at=1.0, kind="command", what="AskSite", job=None, site="A", body=body)
    with tail.followed():
        tail.grow(batch(asked), {})
        for owner, named in ((None, True), ("anna", False)):
            answer = tail.after(0, 1, 10, job=None, owner=owner)
            assert answer is not None
            assert ("9.1" in answer[0][0].json) is named


async def hear(entries: AsyncIterator[JournalEntry], heard: list[int]) -> None:
    async for each in entries:
        heard.append(each.seq)  # noqa: PERF401 -- it is looked at while this goes on


def test_followers_hear_what_the_store_has_for_them_and_do_not_ask_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d", small_grid(check_interval_s=0.2)) as world:
            mine = await world.start(job_text("sleep 1"), ANNA)
            start = world.service.last_seq
            readers: list[tuple[Principal, int | None]] = [(OWNER, None), (ANNA, None), (BERT, None), (ANNA, mine)]
            heard: list[list[int]] = [[] for _ in readers]
            tasks = [
                asyncio.create_task(hear(world.service.follow(who, after=start, job=job), into))
                for (who, job), into in zip(readers, heard, strict=True)
            ]
            await asyncio.sleep(0)
            questions = 0
            ask = world.engine.store.journal

            def counted(**wanted: object) -> object:
                nonlocal questions
                questions += 1
                return ask(**wanted)  # type: ignore[arg-type]

            monkeypatch.setattr(world.engine.store, "journal", counted)
            jobs = [await world.start(job_text("sleep 0.3"), who) for who in (ANNA, BERT, OWNER) * 3]
            for job in (mine, *jobs):
                await world.ended(job)
            # What came before the first of them waited is all that the store may have been asked for.
            assert questions <= len(readers)
            end = world.service.last_seq
            for (who, of_job), into in zip(readers, heard, strict=True):
                stored = await world.service.journal(who, after=start, job=of_job, limit=1_000)
                expected = [each.seq for each in stored if each.seq <= end]

                async def all_heard(into: list[int] = into, expected: list[int] = expected) -> bool:
                    return len(into) >= len(expected)

                await world.until(all_heard)
                assert into[: len(expected)] == expected
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(scenario())


def test_followers_miss_nothing_of_a_commit_that_seemed_to_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            start = world.service.last_seq
            heard: list[int] = []
            task = asyncio.create_task(hear(world.service.follow(OWNER, after=start), heard))
            await world.start(job_text("sleep 0.2"))
            record = world.engine.store.record

            def record_and_break(kept: Batch) -> None:
                monkeypatch.undo()
                record(kept)
                raise StoreError("store", "the connection broke during the commit")

            monkeypatch.setattr(world.engine.store, "record", record_and_break)

            async def recovered() -> bool:
                return world.engine.counters.recoveries == 1 and not world.service.failure

            await world.until(recovered)
            await world.ended(await world.start(job_text()))
            stored = [each.seq for each in await world.service.journal(OWNER, after=start, limit=1_000)]

            async def all_heard() -> bool:
                return len(heard) >= len(stored)

            await world.until(all_heard)
            assert heard[: len(stored)] == stored
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())


def test_a_busy_journal_is_told_in_rounds_and_not_entry_by_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_reading, "FOLLOW_PAUSE_S", 1.0)

    async def scenario() -> None:
        async with open_daemon(tmp_path / "d") as world:
            for site in "ABC":
                await world.service.grid.drain(OWNER, site)
            rounds: list[list[int]] = []

            async def follow() -> None:
                async for found in world.service.follow_rounds(OWNER):
                    submitted = [each.entry.job or 0 for each in found if each.entry.what == "JobSubmitted"]
                    if submitted:
                        rounds.append(submitted)

            task = asyncio.create_task(follow())
            await asyncio.sleep(1.1)
            jobs = [await world.start(job_text()) for _ in range(20)]
            async with asyncio.timeout(WAIT_S):
                while sum(map(len, rounds)) < len(jobs):
                    await asyncio.sleep(0.02)
            assert [job for found in rounds for job in found] == jobs
            assert len(rounds) < len(jobs)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(scenario())
