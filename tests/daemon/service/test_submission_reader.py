"""Reading descriptions: however large and many those of one caller are, others do not wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from koala.daemon.service.service import SMALL_REQUEST_CHARACTERS_MAX
from koala.daemon.service.submissions import SMALL_TEXT_CHARACTERS_MAX, WAITING_TEXT_CHARACTERS_MAX
from koala.descriptions import read_job
from koala.model.api import Scope
from koala.model.api.questions import Submission
from koala.model.errors import TooManyError
from koala.policies.tasks.wase import ClusteredTasks
from tests.support.api_world import WAITING_JOB, World, error_of, in_world
from tests.support.daemon_world import ANNA, BERT, OPERATOR, OWNER, WAIT_S, job_text, open_daemon

T = TypeVar("T")

LARGE = "#" * SMALL_TEXT_CHARACTERS_MAX + "\n"


class Gate:
    """A worker that holds up each large text until it is let through, and keeps their order."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self._permits = asyncio.Semaphore(0)
        self._alone = asyncio.Lock()

    def let_through(self, texts: int) -> None:
        for _ in range(texts):
            self._permits.release()

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        async with self._alone:
            self.begun.append(getattr(arguments[0], "source", "written"))
            async with asyncio.timeout(WAIT_S):
                await self._permits.acquire()
            return await asyncio.to_thread(work, *arguments)

    async def close(self) -> None:
        """There is nothing to close."""


class CountingWorkers:
    """Workers in threads that remember what they did."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    async def run(self, work: Callable[..., T], *arguments: Any) -> T:
        self.ran.append(work.__name__)
        return await asyncio.to_thread(work, *arguments)

    async def close(self) -> None:
        """There is nothing to close."""


def large(source: str) -> Submission:
    return Submission(description=job_text() + LARGE, source=source)


def test_a_small_job_is_read_and_the_store_answers_while_large_texts_are_read(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with open_daemon(tmp_path / "d", workers=gate) as world, asyncio.timeout(WAIT_S):
            # More than any pool of threads has.
            slow = [asyncio.create_task(world.service.dry_run(ANNA, large(f"{number}.yaml"))) for number in range(50)]
            await asyncio.sleep(0)
            job = await world.submit(job_text(), BERT, "t")
            assert [each.id for each in (await world.service.jobs(BERT)).items] == [job.job.id]
            assert (await world.service.grid.overview(ANNA)).grid == "small"
            assert not any(task.done() for task in slow)
            gate.let_through(50)
            assert all(told.places for told in await asyncio.gather(*slow))

    asyncio.run(scenario())


def test_callers_take_turns_so_that_one_text_of_another_is_waited_for_and_not_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with open_daemon(tmp_path / "d", workers=gate) as world, asyncio.timeout(WAIT_S):
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


def test_whoever_asks_for_a_large_job_many_times_keeps_others_waiting_for_one_of_them(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with open_daemon(tmp_path / "d", workers=gate) as world, asyncio.timeout(WAIT_S):
            gate.let_through(1)
            script = "x" * (SMALL_REQUEST_CHARACTERS_MAX + 1)
            text = f"application: {{script: {script}}}\ncomponents: [{{processors: 1}}]\n"
            job = (await world.submit(text, ANNA)).job.id
            views = [asyncio.create_task(world.service.job(ANNA, job)) for _ in range(4)]
            while "written" not in gate.begun:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # the others have come as far
            bert = asyncio.create_task(world.service.dry_run(BERT, large("bert.yaml")))
            await asyncio.sleep(0)
            gate.let_through(5)
            assert (await bert).places
            assert all(script in view.description for view in await asyncio.gather(*views))
            assert gate.begun[1:3] == ["written", "bert.yaml"]

    asyncio.run(scenario())


def test_no_more_text_of_one_caller_waits_than_the_limit(tmp_path: Path) -> None:
    async def scenario() -> None:
        gate = Gate()
        async with open_daemon(tmp_path / "d", workers=gate) as world, asyncio.timeout(WAIT_S):
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


def test_over_the_api_the_limit_is_an_answer_of_its_own(tmp_path: Path) -> None:
    gate = Gate()

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

    in_world(tmp_path, scene, workers=gate)


def test_the_clusters_of_tasks_are_found_once_beside_the_loop_and_put_on_record(tmp_path: Path) -> None:
    async def scenario() -> None:
        workers = CountingWorkers()
        tasks = ", ".join(f"t{number}: 1" for number in range(8))
        edges = ", ".join(f"[t{number}, t{number + 1}, {number + 1}]" for number in range(7))
        text = f"application: {{executable: /bin/true}}\nmcr: 1\ntasks: {{{tasks}}}\nedges: [{edges}]\n"
        async with open_daemon(tmp_path / "d", workers=workers) as world, asyncio.timeout(WAIT_S):
            job = (await world.submit(text, ANNA, "tasks.yaml")).job.id
            assert workers.ran == ["with_clusters"]
            live = world.engine.scheduler.ledger.jobs.get(job)
            asked = read_job(text, "tasks.yaml")
            found = ClusteredTasks.of(asked)
            assert found is not None
            on_record = await asyncio.to_thread(world.engine.store.request, job)
            assert on_record is not None
            assert (on_record.tasks, on_record.task_clusters) == (asked.tasks, found.clusters)
            assert live is None or live.request == on_record
            by_hand = f"clusters: [[{', '.join(f't{number}' for number in range(8))}]]\n"
            again = await world.submit(text + by_hand, ANNA, "t")
            assert again.job.id != job
            assert workers.ran == ["with_clusters"]

    asyncio.run(scenario())


def test_the_clusters_of_a_graph_are_found_by_the_workers_however_its_tasks_are_written(tmp_path: Path) -> None:
    def graph(more: str) -> Submission:
        job = f"application: {{executable: /bin/true}}, mcr: 1, edges: [[t, u, 1]]{more}"
        text = f"jobs:\n  a: {{processors: 1, application: {{executable: /bin/true}}}}\n  b: {{{job}}}\n"
        return Submission(description=text, source="graph.yaml")

    async def scenario() -> None:
        workers = CountingWorkers()
        async with open_daemon(tmp_path / "d", workers=workers) as world, asyncio.timeout(WAIT_S):
            hidden = graph(r', "t\x61sks": {t: 1, u: 1}')
            _, second = (await world.service.submit_graph(ANNA, hidden)).jobs
            assert workers.ran == ["all_clusters"]
            on_record = await asyncio.to_thread(world.engine.store.request, second.job.id)
            assert on_record is not None
            assert on_record.task_clusters
            assert (await world.service.dry_run_graph(ANNA, graph(", tasks: {t: 1, u: 1}, clusters: [[t, u]]"))).jobs
            assert workers.ran == ["all_clusters"]

    asyncio.run(scenario())
