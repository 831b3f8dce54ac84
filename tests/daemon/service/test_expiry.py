"""Outputs whose time is over are forgotten with their bytes, and not while a job that has not ended reads them."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from koala.daemon.service.data.expiry import OutputExpiry
from koala.files.area.layout import replica_path
from koala.model.messages import FileChanged, UnholdAsked
from tests.support.daemon_world import OWNER, job_text, open_daemon, small_grid


def test_outputs_whose_time_is_over_go_with_their_bytes_once_nobody_reads_them(tmp_path: Path) -> None:
    async def scene() -> None:
        async with open_daemon(tmp_path, small_grid(keep_outputs_for_s=0.0)) as world:
            engine, service = world.engine, world.service
            expiry = OutputExpiry(engine, service._catalogue)
            await service._expiry.stop()
            script = "printf made >out"
            long = await world.start(job_text(script, outputs="[out]", keep_outputs_for="1d"))
            short = await world.start(job_text(script, outputs="[out]"))
            made = [(await world.ended(job), (await service.outputs_of(OWNER, job))[0])[1] for job in (long, short)]
            assert made[0].kept_until is not None
            assert made[0].kept_until > engine.now() + 80_000
            assert made[1].kept_until is not None
            assert made[1].kept_until <= engine.now()
            reads = job_text("cat out", input_files=f"[{{name: {made[1].name}, path: out}}]", hold=True)
            reader = await world.start(reads)
            assert await expiry.look() == []
            await engine.tell(UnholdAsked(at=engine.now(), job=reader))
            assert (await world.ended(reader)).state == "done"
            assert await expiry.look() == [made[1].name]
            assert await expiry.look() == []
            assert [each.name for each in (await service.files(OWNER)).items] == [made[0].name]
            for each, there in ((made[0], 4), (made[1], None)):
                for replica in each.replicas:
                    assert await engine.areas[replica.site].size_bytes(replica_path(each.name)) == there
            told = [each.text for each in await service.journal(OWNER, limit=1_000) if each.what == "FileChanged"]
            assert told == [
                f"the time of the file {made[1].name} is over",
                f"the file {made[1].name} was forgotten: it was kept as long as its job or the grid says",
            ]

    asyncio.run(asyncio.wait_for(scene(), 240))


def test_a_job_that_begins_to_read_an_output_as_its_time_ends_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with open_daemon(tmp_path, small_grid(keep_outputs_for_s=0.0)) as world:
            engine, service = world.engine, world.service
            expiry = OutputExpiry(engine, service._catalogue)
            await service._expiry.stop()
            maker = await world.start(job_text("printf made >out", outputs="[out]"))
            await world.ended(maker)
            file = f"jobs/{maker}/out"
            readers: list[int] = []
            tell = engine.tell

            async def told(event: Any, **more: Any) -> None:
                """A job comes between the look for those whose time is over and what follows."""
                if isinstance(event, FileChanged) and not readers:
                    readers.append(
                        await world.start(job_text("cat out", input_files=f"[{{name: {file}, path: out}}]"))
                    )
                await tell(event, **more)

            monkeypatch.setattr(engine, "tell", told)
            assert await expiry.look() == []
            assert (await world.ended(readers[0])).state == "done"
            assert await expiry.look() == [file]

    asyncio.run(asyncio.wait_for(scene(), 240))


def test_a_site_that_does_not_answer_holds_up_the_end_of_no_outputs_at_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene() -> None:
        async with open_daemon(tmp_path, small_grid(keep_outputs_for_s=0.0)) as world:
            expiry = OutputExpiry(world.engine, world.service._catalogue)
            await world.service._expiry.stop()
            monkeypatch.setattr("koala.daemon.service.data.expiry.FORGOTTEN_AT_ONCE_MAX", 1)
            jobs = [
                await world.start(job_text("touch out", (f"{{processors: 1, site: {site}}}",), outputs="[out]"))
                for site in ("A", "A", "B")
            ]
            for job in jobs:
                await world.ended(job)
            silent = world.engine.areas["A"]

            async def away(*_: str) -> None:
                raise OSError(errno.EHOSTUNREACH, "no answer")

            with monkeypatch.context() as trouble:
                trouble.setattr(silent, "doubt", away)
                assert await expiry.look() == [f"jobs/{jobs[2]}/out"]
            assert sorted(await expiry.look()) == [f"jobs/{job}/out" for job in jobs[:2]]

    asyncio.run(asyncio.wait_for(scene(), 240))
