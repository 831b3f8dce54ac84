"""What our own code raises on is set aside; everything else goes on, also over a restart."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from koala.core.life.job import Job
from koala.core.placement import JobPlacing
from koala.core.state.queues.due import ScanTimes
from koala.core.state.queues.placement import PlacementQueue
from koala.daemon.engine.loop import Engine
from koala.daemon.engine.recovery import live_grid, recover
from koala.daemon.perform.barrier import BarrierOpener
from koala.daemon.service.principal import Principal
from koala.daemon.service.service import Service
from koala.model.api import Scope
from koala.model.errors import ConflictError, ForbiddenError, UnavailableError
from koala.model.job_array import read_array
from koala.model.messages import CancelAsked, FileChanged, JobQuarantined, RequeueAsked, Tick
from koala.model.request import Request
from tests.support.engine_world import EngineWorld, a_request, local_grid, open_engine, root
from tests.support.raising_policy import POISON, SICK, raising_policy

__all__ = ["root"]

OPERATOR = Principal(name="anna", scopes=frozenset(Scope))


async def cancel(world: EngineWorld, job: int) -> None:
    await world.engine.tell(CancelAsked(at=0.0, job=job))


def held_by(gate: Path) -> str:
    """A script that runs until a file is there."""
    return f"until [ -e {gate} ]; do sleep 0.3; done"


def test_a_job_whose_placement_raises_is_set_aside_and_all_else_goes_on(root: Path) -> None:
    """Also over a restart; and it can be cancelled, or put back once the cause is mended."""
    sick = True
    catalogue = raising_policy(sick=lambda: sick)

    async def scenario() -> None:
        nonlocal sick
        async with open_engine(root, catalogue=catalogue) as world:
            before = await world.submit(a_request(held_by(root / "gate")))
            await world.in_state(before, "running")
            poison, other = await asyncio.gather(
                world.submit(a_request(sizes=[POISON], policy=SICK)), world.submit(a_request())
            )
            row = world.engine.live_row(poison)
            assert row is not None
            assert row.state == "quarantined"
            assert "ZeroDivisionError: an error of ours" in row.reason
            (ended,) = await world.ended(other)
            assert ended.state == "done"
            again = await world.submit(a_request(sizes=[POISON], policy=SICK))
            await cancel(world, again)
            (ended,) = await world.ended(again)
            assert ended.state == "cancelled"
            assert world.engine.failure == ""
            assert world.engine.silent_sites() == ()
        async with open_engine(root, catalogue=catalogue) as world:
            row = world.engine.live_row(poison)
            assert row is not None
            assert row.state == "quarantined"
            (root / "gate").touch()
            (ended,) = await world.ended(before)
            assert (ended.state, ended.runs) == ("done", 1)
            service = Service(world.engine)
            (warning,) = service.warnings(OPERATOR)
            assert f"jobs {poison}" in warning
            told = await service.explain(OPERATOR, poison)
            assert f"koala job requeue {poison}" in told.meaning
            assert (await service.changes.requeue(OPERATOR, poison)).state in ("waiting", "quarantined")
            await world.until(lambda: [line for line in world.story(poison) if "set aside" in line][1:])
            sick = False
            await world.in_state(poison, "quarantined")
            await service.changes.requeue(OPERATOR, poison)
            (ended,) = await world.ended(poison)
            assert ended.state == "done"
            assert service.warnings(OPERATOR) == []
            await world.all_given_back()
            await service.close()

    asyncio.run(scenario())


def test_what_cannot_be_read_as_another_job_raises_is_set_aside_for_callers_too(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, catalogue=raising_policy(sick=lambda: True)) as world:
            running = await world.submit(a_request("sleep 100"))
            await world.in_state(running, "running")
            world.store.write_records([("job", str(running), b"{")])
            with pytest.raises(UnavailableError):
                await world.submit(a_request(sizes=[POISON], policy=SICK))
            row = await world.in_state(running, "quarantined")
            assert "its record is damaged" in row.reason
            await world.engine.tell(RequeueAsked(at=0.0, job=running))
            await world.in_state(running, "running")
            on_record = world.store.job(running)
            assert on_record is not None
            assert on_record.state == "running"
            await cancel(world, running)
            await world.all_given_back()

    asyncio.run(scenario())


def test_only_an_operator_puts_back_from_quarantine_and_only_what_has_not_ended(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, catalogue=raising_policy()) as world:
            service = Service(world.engine)
            row, _ = await world.engine.submit(a_request(sizes=[POISON], policy=SICK), owner="anna")
            mere_user = Principal(name="anna", scopes=frozenset({Scope.READ, Scope.SUBMIT}))
            with pytest.raises(ForbiddenError):
                await service.changes.requeue(mere_user, row.id)
            assert service.warnings(mere_user) == []
            await service.changes.cancel(mere_user, row.id)
            with pytest.raises(ConflictError, match="is cancelled; submit it again"):
                await service.changes.requeue(OPERATOR, row.id)
            await service.close()

    asyncio.run(scenario())


def test_jobs_that_raise_at_a_tick_are_set_aside_and_no_worker_is_stopped(root: Path) -> None:
    """Two that wait raise at the same scan; a third that waits behind them is placed by it."""
    sick = False
    catalogue = raising_policy(sick=lambda: sick)

    async def scenario() -> None:
        nonlocal sick
        async with open_engine(root, local_grid((4,)), catalogue=catalogue) as world:
            workers = {task for task in asyncio.all_tasks() if task.get_name().startswith("site ")}
            first = await world.submit(a_request(held_by(root / "gate"), sizes=[4]))
            await world.in_state(first, "running")
            poison = [await world.submit(a_request(sizes=[POISON], policy=SICK)) for _ in range(2)]
            behind = await world.submit(a_request(sizes=[4]))
            sick = True
            (root / "gate").touch()
            (ended,) = await world.ended(behind)
            assert ended.state == "done"
            for job in poison:
                await world.in_state(job, "quarantined")
            assert world.engine.counters.recoveries == 1
            assert workers == {task for task in asyncio.all_tasks() if task.get_name().startswith("site ")}
            recovered = recover(world.store, live_grid(world.engine.grid), catalogue)
            assert {job: str(each.state) for job, each in recovered.scheduler.ledger.jobs.items()} == dict.fromkeys(
                poison, "quarantined"
            )
            for job in poison:
                await cancel(world, job)
            await world.all_given_back()

    asyncio.run(scenario())


def test_an_array_whose_element_raises_as_it_is_made_is_set_aside(root: Path) -> None:
    """An element that is being made is on no record yet. One that was made is set aside by itself."""
    sick = True
    poison = a_request(sizes=[POISON], policy=SICK, array=read_array("0-3"))

    async def scenario() -> None:
        nonlocal sick
        async with open_engine(root, catalogue=raising_policy(sick=lambda: sick)) as world:
            at_once = await world.submit(poison)
            row = await world.in_state(at_once, "quarantined")
            assert "ZeroDivisionError: an error of ours" in row.reason
            later = await world.submit(replace(poison, begin_in_s=0.1))
            for element in (later + 1, later + 2):
                await world.in_state(element, "quarantined")
            assert (await world.run(a_request())).state == "done"
            assert world.engine.failure == ""
            assert later + 3 not in world.engine.scheduler.ledger.jobs, "no more are made until these are looked at"
            sick = False
            for job in (at_once, later + 1, later + 2):
                await world.engine.tell(RequeueAsked(at=0.0, job=job))
            rows = await world.ended(at_once, later)
            assert [(row.state, row.elements and row.elements.done) for row in rows] == [("done", 4)] * 2

    asyncio.run(scenario())


def test_an_array_whose_element_raises_as_it_is_made_in_a_scan_is_set_aside(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick = False
    begin = JobPlacing._join_scan

    def raising(self: JobPlacing, job: Job) -> None:
        if sick:
            raise ZeroDivisionError("an error of ours")
        begin(self, job)

    monkeypatch.setattr(JobPlacing, "_join_scan", raising)

    async def scenario() -> None:
        nonlocal sick
        async with open_engine(root, local_grid((1,))) as world:
            first = await world.submit(a_request(held_by(root / "gate")))
            await world.in_state(first, "running")
            array = await world.submit(a_request(array=read_array("0-3")))
            sick = True
            (root / "gate").touch()
            row = await world.in_state(array, "quarantined")
            assert "an error of ours" in row.reason
            rows = await world.ended(first, array + 1, array + 2)
            assert [row.state for row in rows] == ["done"] * 3
            assert world.engine.failure == ""
            sick = False
            await world.engine.tell(RequeueAsked(at=0.0, job=array))
            (ended,) = await world.ended(array)
            assert ended.state == "done"

    asyncio.run(scenario())


def test_what_raises_on_no_job_is_tried_ever_more_rarely_and_told_meanwhile(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads are answered, callers are refused with the reason, and what sites said meanwhile is asked for later."""
    tries: list[float] = []
    sick = False
    is_needed = ScanTimes.is_needed

    def raising(self: ScanTimes, queue: object) -> bool:
        if sick:
            tries.append(time.monotonic())
            raise ZeroDivisionError("an error of ours")
        return is_needed(self, queue)  # type: ignore[arg-type]

    monkeypatch.setattr(ScanTimes, "is_needed", raising)

    async def scenario() -> None:
        nonlocal sick
        grid = local_grid((4,), scan_interval_s=1.0, check_interval_s=None)
        async with open_engine(root, grid, recovery_first_s=0.2, recovery_most_s=1.6) as world:
            running = await world.submit(a_request(held_by(root / "gate"), sizes=[4]))
            waiting = await world.submit(a_request(sizes=[4]))
            await world.in_state(running, "running")
            sick = True
            await world.until(lambda: "an error of ours" in world.engine.failure)
            (root / "gate").touch()
            with pytest.raises(UnavailableError, match="an error of ours"):
                await cancel(world, waiting)
            assert [row.id for row in world.engine.live_rows()] == [running, waiting]
            seen = len(tries)
            await world.until(lambda: len(tries) >= seen + 4)
            waits = [after - before for before, after in zip(tries[seen:], tries[seen + 1 :], strict=False)]
            assert max(waits[-2:]) > 3 * 0.2, waits
            sick = False
            rows = await world.ended(running, waiting)
            assert [row.state for row in rows] == ["done", "done"]
            assert world.engine.failure == ""

    asyncio.run(scenario())


def test_what_nobody_says_again_is_kept_while_what_is_due_raises_on_no_job(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those who perform commands go on meanwhile: that a transfer has ended, or a command raised, is told once."""
    sick = True
    scan = JobPlacing.scan

    def raising(self: JobPlacing, queue: PlacementQueue) -> None:
        if sick:
            raise ZeroDivisionError("an error of ours")
        scan(self, queue)

    monkeypatch.setattr(JobPlacing, "scan", raising)

    async def scenario() -> None:
        nonlocal sick
        grid = local_grid((4,), scan_interval_s=1.0, check_interval_s=None)
        async with open_engine(root, grid, recovery_first_s=0.2, recovery_most_s=0.2) as world:
            other = await world.submit(a_request("sleep 600", sizes=[1]))
            running = await world.submit(a_request(held_by(root / "gate"), sizes=[3]))
            await world.in_state(other, "running")
            await world.in_state(running, "running")
            waiting = await world.submit(a_request(sizes=[3]))
            (root / "gate").touch()
            await world.until(lambda: "an error of ours" in world.engine.failure)
            world.engine.report(JobQuarantined(at=0.0, job=other, reason="told once"))
            seen = world.engine.counters.recoveries
            await world.until(lambda: world.engine.counters.recoveries >= seen + 3)
            sick = False
            row = await world.in_state(other, "quarantined")
            assert row.reason == "told once"
            assert [row.state for row in await world.ended(running, waiting)] == ["done", "done"]
            await cancel(world, other)
            await world.all_given_back()

    asyncio.run(scenario())


def test_an_event_that_raises_is_passed_over_and_its_caller_told(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            engine: Engine = world.engine
            await world.run(a_request())
            with pytest.raises(UnavailableError, match="while it handled FileChanged"):
                await engine.tell(FileChanged(at=0.0, file="f", size_bytes=1, replicas=({},)))  # type: ignore[arg-type]
            assert (await world.run(a_request())).state == "done"
            assert engine.failure == ""

    asyncio.run(scenario())


def test_what_is_handled_singly_ends_with_the_items_that_raised_and_what_is_due_is_done(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root) as world:
            engine: Engine = world.engine
            later, _ = await engine.submit(a_request(begin_in_s=1.0), owner="anna")
            broken = FileChanged(at=0.0, file="f", size_bytes=1, replicas=({},))  # type: ignore[arg-type]
            answers = await asyncio.gather(engine.tell(broken), engine.tell(Tick(at=0.0)), return_exceptions=True)
            assert [type(each) for each in answers] == [UnavailableError, type(None)]
            assert engine._quarantine.singly == 0
            (ended,) = await world.ended(later.id)
            assert ended.state == "done"

    asyncio.run(scenario())


def test_a_command_that_cannot_even_be_handed_over_sets_its_job_aside(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: BarrierOpener, placed: object, request: Request) -> None:
        if request.name == "sick":
            raise ZeroDivisionError("an error of ours")

    monkeypatch.setattr(BarrierOpener, "foresee", broken)

    async def scenario() -> None:
        async with open_engine(root) as world:
            job = await world.submit(a_request("sleep 600", name="sick"))
            row = await world.in_state(job, "quarantined")
            assert "at JobPlaced" in row.reason
            assert (await world.run(a_request())).state == "done"
            assert world.engine.counters.recoveries == 0
            await cancel(world, job)
            await world.all_given_back()

    asyncio.run(scenario())
