"""A job taken out of the store of a stopped engine: the next start works, and knows nothing of it."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from koala.core import Scheduler
from koala.daemon.engine import loop as engine_module
from koala.daemon.engine.recovery import RecoveryError
from koala.daemon.engine.removal import remove_job
from koala.model.api import ElementCountsInfo
from koala.model.dependency import DEPENDENCIES_TOLD_MAX, Dependency
from koala.model.job_array import read_array
from koala.model.messages import CancelAsked, ChangeAsked, HoldAsked, JobSubmitted, SpawnAsked, UnholdAsked
from koala.model.request import Flexibility, Priority
from koala.model.task_graph import SpawnedTasks, TaskGraph
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, open_store, root
from tests.support.live_sites import processes_of

__all__ = ["root"]

SCRIPT = "sleep 600 # " + "a long comment " * 30


async def no_snapshot(_: Any) -> None:
    """As if the engine had been killed: the next one must replay."""


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
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2, 2))) as world:
            await world.register("data", b"x" * 1_000, "a")
            kept = await world.submit(a_request("sleep 600", sites=("b",), reads=("data",)))
            await world.in_state(kept, "running")
            gone = await world.submit(a_request(SCRIPT, sizes=(2, 1), sites=("a", "b"), reads=("data",)))
            await world.in_state(gone, "running")
            waiting = await world.submit(a_request(SCRIPT + "!", sizes=(1,), sites=("b",)))
            with monkeypatch.context() as killed:
                killed.setattr(engine_module.Engine, "_snapshot", no_snapshot)
                await world.engine.close()
        store = open_store(root)
        removed = remove_job(store, gone)
        store.close()
        assert removed.was_there
        assert removed.replayed
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


def broken_for_all(_: Scheduler, event: Any) -> Any:
    raise ZeroDivisionError("division by zero")


def test_a_running_job_that_cannot_be_replayed_gives_its_number_to_no_other(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            older = await world.run(a_request())
        async with open_engine(root, local_grid((1,))) as world:
            newest = await world.submit(a_request("sleep 600"))
            await world.in_state(newest, "running")
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        monkeypatch.undo()
        store = open_store(root)
        with monkeypatch.context() as defective:
            defective.setattr(Scheduler, "handle", broken_for_all)
            assert not remove_job(store, newest).replayed
        store.close()
        for _ in range(2):  # also where nobody has submitted anything before the next start
            async with open_engine(root, local_grid((1,))) as world:
                await world.all_given_back()
        async with open_engine(root, local_grid((1,))) as world:
            fresh = await world.run(a_request())
            assert (older.id, fresh.id, fresh.failures) == (newest - 1, newest + 1, 0)

    asyncio.run(scenario())


def test_a_job_that_keeps_the_engine_from_starting_is_removed_and_the_engine_starts(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Scheduler.handle

    def broken(scheduler: Scheduler, event: Any) -> Any:
        if isinstance(event, JobSubmitted) and event.request.name == "poison":
            raise ZeroDivisionError("division by zero")
        return handle(scheduler, event)

    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            first = await world.submit(a_request("sleep 600"))
            await world.in_state(first, "running")
        async with open_engine(root, local_grid((1,))) as world:
            poison = await world.submit(a_request(name="poison"))
            last = await world.submit(a_request())
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        monkeypatch.undo()
        monkeypatch.setattr(Scheduler, "handle", broken)
        with pytest.raises(RecoveryError):
            async with open_engine(root, local_grid((1,))):
                pass
        store = open_store(root)
        removed = remove_job(store, poison)
        store.close()
        assert (removed.was_there, removed.replayed) == (True, False)
        async with open_engine(root, local_grid((1,))) as world:
            assert [row.id for row in world.engine.live_rows()] == [first, last]
            await cancel_all(world)

    asyncio.run(scenario())


def poisoned(handle: Any) -> Any:
    """A core that cannot handle the submission of the job called poison again."""

    def broken(scheduler: Scheduler, event: Any) -> Any:
        if isinstance(event, JobSubmitted) and event.request.name == "poison":
            raise ZeroDivisionError("division by zero")
        return handle(scheduler, event)

    return broken


def remove_poison(root: Path, monkeypatch: pytest.MonkeyPatch, poison: int) -> Any:
    monkeypatch.undo()
    store = open_store(root)
    with monkeypatch.context() as defective:
        defective.setattr(Scheduler, "handle", poisoned(Scheduler.handle))
        removed = remove_job(store, poison)
    store.close()
    assert (removed.was_there, removed.replayed) == (True, False)
    return removed


def test_a_job_that_waited_behind_one_that_cannot_be_replayed_runs_once_after_the_removal(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            poison = await world.submit(a_request("sleep 600", name="poison"))
            await world.in_state(poison, "running")
            behind = await world.submit(a_request(f"echo run >> {root}/runs"))
            other = await world.submit(a_request(f"echo run >> {root}/runs"))
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        removed = remove_poison(root, monkeypatch, poison)
        assert removed.put_back == (behind,), "the other one waits in the replay, too"
        async with open_engine(root, local_grid((1,))) as world:
            rows = await world.ended(behind, other)
            assert [(row.state, row.runs, row.failures) for row in rows] == [("done", 1, 0), ("done", 1, 0)]
            assert world.store.job(poison) is None
        assert (root / "runs").read_text() == "run\nrun\n"
        assert processes_of(root) == []

    asyncio.run(scenario())


def test_jobs_that_were_kept_back_beside_one_that_cannot_be_replayed_stay_so_or_end_with_what_they_waited_for(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            poison = await world.submit(a_request("sleep 600", name="poison"))
            await world.in_state(poison, "running")
            follower = await world.submit(replace(a_request(), after=(Dependency(job=poison),)))
            held = await world.submit(a_request())
            await world.engine.tell(HoldAsked(at=0.0, job=held))
            await world.in_state(held, "held")
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        removed = remove_poison(root, monkeypatch, poison)
        assert follower in removed.put_back
        async with open_engine(root, local_grid((1,))) as world:
            row = (await world.ended(follower))[0]
            assert (row.state, row.runs) == ("cancelled", 0)
            assert world.engine.scheduler.ledger.jobs[held].held
            await world.engine.tell(UnholdAsked(at=0.0, job=held))
            assert (await world.ended(held))[0].state == "done"

    asyncio.run(scenario())


def test_an_array_beside_one_that_cannot_be_replayed_goes_on_where_it_was(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its elements keep their indices, what was cancelled is not made, and no number is used twice."""

    async def scenario() -> None:
        script = f'echo "$KOALA_ARRAY_INDEX" >> {root}/runs; until [ -e {root}/gate ]; do sleep 0.3; done'
        async with open_engine(root, local_grid((1, 1))) as world:
            poison = await world.submit(a_request("sleep 600", name="poison"))
            await world.in_state(poison, "running")
            array = await world.submit(a_request(script, array=read_array("10-50:10")))
            await world.in_state(array + 1, "running")
            await world.until(lambda: (root / "runs").exists() and (root / "runs").read_text() == "10\n")
            await world.engine.tell(CancelAsked(at=0.0, job=array + 4))
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        removed = remove_poison(root, monkeypatch, poison)
        assert array + 1 in removed.put_back, "without the removed job it would have had the other site"
        (root / "gate").touch()
        async with open_engine(root, local_grid((1, 1))) as world:
            row = (await world.ended(array))[0]
            assert (row.state, row.elements) == (
                "cancelled", ElementCountsInfo(indices="10-50:10", size=5, done=4, cancelled=1)
            )  # fmt: skip
            elements = world.store.jobs(array=array, limit=10)
            assert [row.array_index for row in reversed(elements)] == [10, 20, 30, 50]
            assert await world.submit(a_request()) == array + 6
            await world.all_given_back()
        runs = (root / "runs").read_text().split()
        assert runs.count("10") == 2, "it ran once before, and once after it was put back"
        assert sorted(set(runs)) == ["10", "20", "30", "50"]

    asyncio.run(scenario())


def test_an_array_that_the_replay_lacks_is_put_back_and_makes_its_elements(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing at all can be replayed: it comes back from its row alone."""

    async def scenario() -> None:
        async with open_engine(root, local_grid((1,))) as world:
            await world.run(a_request())
        async with open_engine(root, local_grid((1,))) as world:
            poison = await world.submit(a_request("sleep 600"))
            await world.in_state(poison, "running")
            array = await world.submit(a_request("exit 0", array=read_array("0-4")))
            changed = await world.submit(a_request("exit 0", walltime_s=60.0))
            await world.engine.tell(ChangeAsked(at=0.0, job=changed, walltime_s=90.0, priority=Priority.HIGH))
            first = [await world.submit(a_request(hold=True)) for _ in range(DEPENDENCIES_TOLD_MAX + 2)]
            patient = await world.submit(replace(a_request(), after=tuple(Dependency(job=job) for job in first)))
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        monkeypatch.undo()
        store = open_store(root)
        with monkeypatch.context() as defective:
            defective.setattr(Scheduler, "handle", broken_for_all)
            removed = remove_job(store, poison)
        store.close()
        assert {array, array + 1, array + 2, changed, patient} <= set(removed.put_back)
        async with open_engine(root, local_grid((1,))) as world:
            job = world.engine.scheduler.ledger.jobs.get(changed) or world.engine.scheduler.ledger.ended[changed]
            assert (job.walltime_s, job.high) == (90.0, True)
            assert [other for _, other in world.engine.scheduler.ledger.jobs[patient].waits_for] == first
            for held in first:
                await world.engine.tell(UnholdAsked(at=0.0, job=held))
            rows = await world.ended(array, changed, patient)
            assert [row.state for row in rows] == ["done"] * 3
            assert rows[0].elements == ElementCountsInfo(indices="0-4", size=5, done=5)
            assert [row.array_index for row in world.store.jobs(array=array, limit=10)] == [4, 3, 2, 1, 0]

    asyncio.run(scenario())


def test_jobs_that_ran_or_ended_beside_one_that_cannot_be_replayed_go_back_or_stay_as_they_ended(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((2, 1))) as world:
            poison = await world.submit(a_request("sleep 600", name="poison"))
            await world.in_state(poison, "running")
            done = await world.run(a_request(f"echo done >> {root}/runs"))
            script = f'echo $KOALA_RUN >> {root}/runs; if [ "$KOALA_RUN" = 1 ]; then exec sleep 600; fi'
            first = await world.submit(a_request(script))
            second = await world.submit(a_request(script))
            for job in (first, second):
                await world.in_state(job, "running")
            await world.until(lambda: (root / "runs").read_text().split().count("1") == 2)
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        removed = remove_poison(root, monkeypatch, poison)
        assert set(removed.put_back) <= {first, second}
        assert second in removed.put_back, "without the removed job it would have had another site"
        async with open_engine(root, local_grid((2, 1))) as world:
            assert world.store.job(done.id) == done
            for job in removed.put_back:
                row = (await world.ended(job))[0]
                assert (row.state, row.runs) == ("done", 2)
            assert await world.submit(a_request()) == second + 1
            await cancel_all(world)
        runs = (root / "runs").read_text().split()
        assert sorted(runs) == sorted(["done", "1", "1", *("2" for _ in removed.put_back)])
        assert processes_of(root) == []

    asyncio.run(scenario())


def test_a_job_that_is_put_back_keeps_the_tasks_that_were_spawned_into_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid((4,))) as world:
            poison = await world.submit(a_request("sleep 600"))
            script = f'if [ "$KOALA_RUN" = 1 ]; then exec sleep 600; fi; echo $KOALA_TASKS >> {root}/runs'
            graph = TaskGraph.of({"a": 1.0}, [], 1.0)
            job = await world.submit(a_request(script, flexible=Flexibility(), tasks=graph, task_clusters=((0,),)))
            await world.in_state(job, "running")
            # The second is the first again, and the last two are refused.
            for name, rcr in (("b", 1.0), ("b", 1.0), ("b", 2.0), ("a", 1.0)):
                tasks = SpawnedTasks.of({name: rcr})
                await world.engine.tell(SpawnAsked(at=0.0, job=job, tasks=tasks))
            monkeypatch.setattr(engine_module.Engine, "_snapshot", no_snapshot)
        monkeypatch.undo()
        store = open_store(root)
        with monkeypatch.context() as defective:
            defective.setattr(Scheduler, "handle", broken_for_all)
            assert remove_job(store, poison).put_back == (job,)
        store.close()
        async with open_engine(root, local_grid((4,))) as world:
            assert (await world.ended(job))[0].state == "done"
            await cancel_all(world)
        assert (root / "runs").read_text().split() == ["a", "b"]

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
