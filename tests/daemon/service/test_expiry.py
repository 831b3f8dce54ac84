"""Outputs whose time is over are forgotten with their bytes, and not while a job that has not ended reads them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from koala.daemon.service.data.expiry import OutputExpiry
from koala.files.area.layout import replica_path
from koala.model.messages import UnholdAsked
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
            assert await expiry.step() == []
            await engine.tell(UnholdAsked(at=engine.now(), job=reader))
            assert (await world.ended(reader)).state == "done"
            assert await expiry.step() == [made[1].name]
            assert await expiry.step() == []
            assert [each.name for each in (await service.files(OWNER)).items] == [made[0].name]
            for each, there in ((made[0], 4), (made[1], None)):
                for replica in each.replicas:
                    assert await engine.areas[replica.site].size_bytes(replica_path(each.name)) == there
            told = [each.text for each in await service.journal(OWNER, limit=1_000) if each.what == "FileChanged"]
            assert told == [f"the file {made[1].name} was forgotten: it was kept as long as its job or the grid says"]

    asyncio.run(asyncio.wait_for(scene(), 240))
