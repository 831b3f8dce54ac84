"""A disk that runs full is told before it is full, and a database that has gone is missed at once."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path

import pytest

from koala.daemon.service.service import Service
from koala.daemon.upkeep.storage_watch import StorageWatch
from koala.model.errors import UnavailableError
from tests.support.daemon_world import ANNA, OPERATOR, DaemonWorld, job_text, open_daemon

MIB = 1_048_576


class Disk:
    """A disk of which so much is free."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes

    def free(self, path: Path) -> int:
        return self.free_bytes


def watched(world: DaemonWorld, disk: Disk) -> tuple[StorageWatch, DaemonWorld]:
    """The same daemon on this disk."""
    watch = StorageWatch(
        world.engine,
        world.engine.store,
        world.root,
        low_bytes=100 * MIB,
        reserve_bytes=10 * MIB,
        watch_s=0.01,
        free=disk.free,
    )
    return watch, DaemonWorld(world.engine, Service(world.engine, watch), world.root)


def test_on_a_disk_that_is_nearly_full_no_job_is_taken_and_those_that_run_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with open_daemon(tmp_path) as plain:
            disk = Disk(1_000 * MIB)
            watch, world = watched(plain, disk)
            running = await world.start(job_text("while [ ! -e end ]; do sleep 0.3; done"), ANNA)
            assert world.service.warnings(OPERATOR) == []
            disk.free_bytes = 99 * MIB
            assert world.service.warnings(OPERATOR) == [f"99 MiB are left on the disk of {tmp_path}"]
            low = await world.start(job_text(), ANNA)
            disk.free_bytes = 9 * MIB
            with pytest.raises(UnavailableError, match=r"9 MiB are left on the disk .* no job is accepted"):
                await world.submit(job_text(), ANNA)
            watch.start()
            async with asyncio.timeout(120):
                while "nearly full" not in caplog.text:
                    await asyncio.sleep(0.01)
            await watch.stop()
            assert (await world.ended(low)).state == "done"
            await world.service.changes.cancel(OPERATOR, running)
            assert (await world.ended(running)).state == "cancelled"
            disk.free_bytes = 1_000 * MIB
            assert (await world.ended(await world.start(job_text(), ANNA))).state == "done"

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())


def test_a_disk_that_has_gone_is_told_and_the_watch_goes_on_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class GoneDisk(Disk):
        def free(self, path: Path) -> int:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    async def scenario() -> None:
        async with open_daemon(tmp_path) as plain:
            watch, world = watched(plain, GoneDisk(0))
            watch.start()
            async with asyncio.timeout(120):
                while "cannot be reached" not in caplog.text:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert world.service.warnings(ANNA) == [
                f"{tmp_path} cannot be reached (No such file or directory); no job is accepted until it is back"
            ]
            with pytest.raises(UnavailableError, match="cannot be reached"):
                await world.submit(job_text(), ANNA)
            await watch.stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())


def test_a_database_that_was_removed_is_missed_before_anybody_writes(tmp_path: Path) -> None:
    """An idle daemon would else learn of it from the next job, which a restart could not find again."""

    async def scenario() -> None:
        async with open_daemon(tmp_path, recovery_first_s=0.01) as plain:
            watch, world = watched(plain, Disk(1_000 * MIB))
            job = await world.start(job_text(), ANNA)
            await world.ended(job)
            file = tmp_path / "koala.db"
            away = file.rename(tmp_path / "away.db")
            watch.start()
            async with asyncio.timeout(120):
                while not world.service.failure:
                    await asyncio.sleep(0.01)
            await watch.stop()
            assert "No such file" in world.service.failure
            with pytest.raises(UnavailableError):
                await world.submit(job_text(), ANNA)
            assert not file.exists(), "nobody makes an empty one in its place"
            away.rename(file)
            async with asyncio.timeout(120):
                while world.service.failure:
                    await asyncio.sleep(0.01)
            assert [each.id for each in (await world.service.jobs(ANNA)).items] == [job]

    asyncio.run(scenario())
