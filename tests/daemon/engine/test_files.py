"""Input files that are lost, changed or slow to go: what the engine tells components of them, and what it leaves."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from koala.files import AreaDirectory
from koala.model.errors import UnavailableError
from koala.model.grid import Link, Links
from koala.model.messages import CancelAsked
from koala.model.request import InputFile, InputMode
from tests.support.engine_world import EngineWorld, a_request, disturbed, local_grid, open_engine, root
from tests.support.local_areas import local_areas
from tests.support.troubled_site import trouble, troubled

__all__ = ["root"]

NOTE = 'echo "$KOALA_COMPONENT" >>{root}/log'


def forget_replica(area: AreaDirectory) -> None:
    area.forget("data")


def shorten_replica(area: AreaDirectory) -> None:
    area.replica("data").chmod(0o600)
    area.replica("data").write_bytes(b"shor")


def alter_replica(area: AreaDirectory) -> None:
    """One byte of it, which is not in the chunk that the component at b reads."""
    area.replica("data").chmod(0o600)
    area.replica("data").write_bytes(b"Longer")


@pytest.mark.parametrize("mode", [InputMode.WHOLE, InputMode.CHUNK])
@pytest.mark.parametrize("spoil", [forget_replica, shorten_replica, alter_replica])
def test_no_part_of_a_job_runs_when_the_file_of_another_is_known_to_be_lost(
    root: Path, mode: InputMode, spoil: Any
) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=100)) as world:
            await world.register("data", b"longer", "a", "b")
            spoil(local_areas(world.engine)["b"])
            reads = [InputFile(name="data", mode=mode)]
            job = await world.submit(a_request(NOTE.format(root=root), (1, 1), "ab", reads))
            await world.until(lambda: (row := world.engine.live_row(job)) is not None and row.failures >= 2)
            assert not (root / "log").exists()
            ended = [row for row in world.store.components(job) if row.ended_at is not None]
            assert {row.outcome for row in ended if row.site == "b"} == {"failed"}
            assert "'data' at b" in ended[-1].reason or "'data' at b" in ended[-2].reason
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            await world.all_given_back()
            assert not (root / "log").exists()

    asyncio.run(scenario())


def test_a_copy_that_was_lost_after_it_came_is_brought_again_before_any_part_runs(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(error_threshold=100), site_maker=troubled) as world:
            await world.register("data", b"here", "a")
            trouble(world, "a").gate.clear()
            job = await world.submit(a_request(NOTE.format(root=root), (1, 1), "ab", ["data"]))
            await world.until(lambda: any(row.ok for row in world.engine.transfers_now()))
            (copy,) = local_areas(world.engine)["b"].copies()
            copy.data.unlink()
            trouble(world, "a").gate.set()
            (row,) = await world.ended(job)
            assert row.state == "done"
            assert sorted((root / "log").read_text().split()) == ["0", "1"]
            lost = [each for each in world.store.components(job) if each.outcome == "site_failed"]
            assert [(each.site, "brought again" in each.reason) for each in lost] == [("b", True)]
            assert len(world.store.transfers(job)) == 2
            await world.all_given_back()

    asyncio.run(scenario())


def test_why_a_component_was_ended_is_known_also_after_a_restart_before_its_end_was_heard(root: Path) -> None:
    async def scenario() -> None:
        grid = local_grid(error_threshold=100)
        async with open_engine(root, grid, site_maker=troubled) as world:
            await world.register("data", b"here", "a")
            local_areas(world.engine)["a"].forget("data")
            site = trouble(world, "a")
            site.mute = True
            job = await world.submit(a_request("cat data", (1,), "a", ["data"]))
            (token,) = await world.until(lambda: list(site.aborted))
        async with open_engine(root, grid) as world:

            def end() -> Any:
                row = world.store.component(token)
                return row if row is not None and row.ended_at is not None else None

            row = await world.until(end)
            assert row.outcome == "failed"
            assert "'data' at a: it is not there" in row.reason
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            await world.all_given_back()

    asyncio.run(scenario())


def written(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []


def test_a_transfer_that_breaks_leaves_nothing_in_memory(root: Path) -> None:
    async def scenario() -> None:
        async with open_engine(root, local_grid(mbit_s=8.0)) as world:
            await world.register("data", b"x" * 500_000, "a")
            job = await world.submit(a_request("exit 0", (1,), "b", ["data"]))
            (moving,) = await world.until(world.engine.transfers_now)
            await world.until(lambda: world.engine.transferred_bytes(moving.id))
            local_areas(world.engine)["a"].replica("data").unlink()
            await world.until(lambda: any(row.ok is False for row in world.store.transfers(job)))
            await world.until(lambda: moving.id not in world.engine.mover.transfers)
            await world.until(lambda: world.engine.transferred_bytes(moving.id) == 0)
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            await world.all_given_back()

    asyncio.run(scenario())


async def with_a_piece(world: EngineWorld, script: str) -> int:
    """A job that runs with a piece of its site's own replica."""
    await world.register("data", b"x" * 1_000, "a")
    reads = [InputFile(name="data", mode=InputMode.CHUNK)]
    job = await world.submit(a_request(script, (1,), "a", reads))
    await world.in_state(job, "running")
    await world.until(lambda: world.copies_at("a"))
    return job


def fail_discards(area: AreaDirectory, times: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let so many removals of copies fail; the list grows with each."""
    tries: list[int] = []
    discard = area.discard

    def failing(copy: Any) -> Any:
        tries.append(len(tries))
        if len(tries) <= times:
            raise PermissionError(13, "Permission denied")
        return discard(copy)

    monkeypatch.setattr(area, "discard", failing)
    return tries


def test_a_piece_that_cannot_be_removed_at_once_is_removed_later_also_through_a_failure_of_the_store(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        store = disturbed(root)
        async with open_engine(root, store=store) as world:
            job = await with_a_piece(world, f"until [ -e {root}/gate ]; do sleep 0.3; done")
            tries = fail_discards(local_areas(world.engine)["a"], 2, monkeypatch)
            (root / "gate").touch()
            await world.ended(job)
            await world.until(lambda: tries)
            store.fail_before("JobSubmitted")
            with pytest.raises(UnavailableError):
                await world.submit(a_request())
            await world.until(lambda: not world.engine.failure)
            await world.all_given_back()
            assert len(tries) == 3

    asyncio.run(scenario())


def test_the_pieces_of_a_component_go_when_its_end_was_written_by_a_commit_that_seemed_to_fail(root: Path) -> None:
    async def scenario() -> None:
        store = disturbed(root)
        async with open_engine(root, store=store) as world:
            job = await with_a_piece(world, f"until [ -e {root}/gate ]; do sleep 0.3; done")
            store.fail_after("ComponentEnded")
            (root / "gate").touch()
            (row,) = await world.ended(job)
            assert row.state == "done"
            await world.all_given_back()

    asyncio.run(scenario())


def test_the_latency_in_the_grid_file_is_an_estimate_and_delays_no_real_transfer(root: Path) -> None:
    """Claims are planned by it; the bytes themselves take what they take."""

    async def scenario() -> None:
        grid = msgspec.structs.replace(
            local_grid((4, 4)), links=Links(default=Link(bandwidth_mbit_s=800.0, latency_s=3_600.0))
        )
        async with open_engine(root, grid) as world:
            await world.register("f", b"data", "a")
            job = await world.submit(a_request(sites=["b"], reads=["f"]))
            await world.until(lambda: [row for row in world.engine.transfers_now() if row.ok])
            await world.engine.tell(CancelAsked(at=0.0, job=job))
            await world.all_given_back()

    asyncio.run(scenario())
