"""Reading descriptions: however large and many those of one caller are, others do not wait for them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from koala.daemon.service import submissions
from koala.daemon.service.submissions import SMALL_TEXT_CHARACTERS_MAX, WAITING_TEXT_CHARACTERS_MAX
from koala.model.api import Scope, Submission
from koala.model.errors import TooManyError
from koala.model.request import Request
from tests.support.api_world import WAITING_JOB, World, error_of, in_world
from tests.support.daemon_world import ANNA, BERT, OPERATOR, OWNER, WAIT_S, job_text, open_daemon

LARGE = "#" * SMALL_TEXT_CHARACTERS_MAX + "\n"


class Gate:
    """Holds up the reading of each large text until it is let through, and keeps the order of all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[str] = []
        self._permits = threading.Semaphore(0)
        self._read = submissions.read_submission
        monkeypatch.setattr(submissions, "read_submission", self._held)

    def let_through(self, texts: int) -> None:
        self._permits.release(texts)

    def _held(self, wish: Submission, *, sites: list[str], policies: list[str]) -> Request:
        self.begun.append(wish.source)
        if len(wish.description) > SMALL_TEXT_CHARACTERS_MAX:
            assert self._permits.acquire(timeout=WAIT_S)
        return self._read(wish, sites=sites, policies=policies)


def large(source: str) -> Submission:
    return Submission(description=job_text() + LARGE, source=source)


def test_a_small_job_is_read_and_the_store_answers_while_large_texts_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        gate = Gate(monkeypatch)
        async with open_daemon(tmp_path / "d") as world, asyncio.timeout(WAIT_S):
            # More than any pool of threads has.
            slow = [asyncio.create_task(world.service.dry_run(ANNA, large(f"{number}.yaml"))) for number in range(50)]
            await asyncio.sleep(0)
            job = await world.submit(job_text(), BERT, "t")
            assert [each.id for each in (await world.service.jobs(BERT)).items] == [job.job.id]
            assert (await world.service.overview(ANNA)).grid == "small"
            assert not any(task.done() for task in slow)
            gate.let_through(50)
            assert all(told.places for told in await asyncio.gather(*slow))

    asyncio.run(scenario())


def test_callers_take_turns_so_that_one_text_of_another_is_waited_for_and_not_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        gate = Gate(monkeypatch)
        async with open_daemon(tmp_path / "d") as world, asyncio.timeout(WAIT_S):
            tasks = [
                asyncio.create_task(world.service.dry_run(ANNA, large(f"anna{number}.yaml"))) for number in range(4)
            ]
            await asyncio.sleep(0)
            tasks.append(asyncio.create_task(world.service.dry_run(BERT, large("bert.yaml"))))
            await asyncio.sleep(0)
            gate.let_through(5)
            await asyncio.gather(*tasks)
            assert gate.begun.index("bert.yaml") <= 1
            gate.begun.remove("bert.yaml")
            assert gate.begun == [f"anna{number}.yaml" for number in range(4)]

    asyncio.run(scenario())


def test_no_more_text_of_one_caller_waits_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        gate = Gate(monkeypatch)
        async with open_daemon(tmp_path / "d") as world, asyncio.timeout(WAIT_S):
            text = job_text()
            half = Submission(description=text + "#" * (WAITING_TEXT_CHARACTERS_MAX // 2 - len(text)))
            first = [asyncio.create_task(world.service.submit(ANNA, half)) for _ in range(2)]
            await asyncio.sleep(0)
            with pytest.raises(TooManyError, match="WAITING_TEXT_CHARACTERS_MAX"):
                await world.service.dry_run(ANNA, large("more.yaml"))
            small = await world.service.dry_run(ANNA, Submission(description=text))  # it goes by another way
            assert small.places
            others = [asyncio.create_task(world.service.dry_run(who, half)) for who in (BERT, OPERATOR, OWNER)]
            await asyncio.sleep(0)
            gate.let_through(6)
            assert len({(await task).job.id for task in first}) == 2
            for task in others:
                await task
            assert (await world.service.dry_run(ANNA, large("again.yaml"))).places

    asyncio.run(scenario())


def test_over_the_api_the_limit_is_an_answer_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)

    async def scene(world: World) -> None:
        body = {"description": WAITING_JOB + "#" * (WAITING_TEXT_CHARACTERS_MAX - len(WAITING_JOB))}
        async with world.caller(await world.secret("eve", Scope.SUBMIT)) as eve, world.owner() as owner:
            taken = asyncio.create_task(eve.post("/v1/dry-runs", json=body))

            async with asyncio.timeout(WAIT_S):
                while not gate.begun:
                    await asyncio.sleep(0.01)
            refused = await eve.post("/v1/dry-runs", json=body)
            assert (refused.status_code, error_of(refused)["code"]) == (429, "too_many")
            assert (await owner.post("/v1/jobs", json={"description": WAITING_JOB})).status_code == 201
            gate.let_through(1)
            assert (await taken).status_code == 200

    in_world(tmp_path, scene)
