"""A job over two embedded sites, by default an MPI world, started and driven as the daemon does."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from koala.model.launch import Peer
from koala.model.messages import ComponentEnded
from koala.model.request import Application, JobType
from koala.runners import PROXIES, PROXY, go_for, proxy_mail
from tests.support.live_sites import Watcher, launch, opened

BIN = str(Path(sys.executable).parent)
SIZES = (3, 1)
TOKENS = ("1.1", "1.2")


class World:
    """Two sites and the driver's part of a job between them."""

    def __init__(self, one: Watcher, two: Watcher) -> None:
        self.sites = (one, two)
        self._job_type = JobType.MPI

    async def start(self, program: str, job_type: JobType = JobType.MPI) -> None:
        self._job_type = job_type
        for part, watcher in enumerate(self.sites):
            await watcher.start(
                launch(
                    TOKENS[part],
                    Application(executable=sys.executable, arguments=("-c", program)),
                    processors=SIZES[part],
                    part=part,
                    parts=2,
                    job_type=job_type,
                    search_path=(BIN,),
                )
            )

    async def release(self, port: int | None = None, host: str = "127.0.0.1") -> None:
        peers = [Peer(part=part, host=host, processors=size) for part, size in enumerate(SIZES)]
        goes = go_for(self._job_type, 1, peers, port)
        for part, watcher in enumerate(self.sites):
            await watcher.ready(TOKENS[part])
            await watcher.site.release(TOKENS[part], goes[part])
        if self._job_type is JobType.MPI:
            await self._carry_mail()

    async def _carry_mail(self) -> None:
        await self.sites[0].until(lambda: bool(self.sites[0].mail))
        (mail,) = self.sites[0].mail
        assert mail.name == PROXIES
        for part, data in enumerate(proxy_mail(mail.data, components=2)):
            await self.sites[part].site.deliver(TOKENS[part], PROXY, data)

    async def ends(self) -> list[ComponentEnded]:
        return [await watcher.ended(token) for watcher, token in zip(self.sites, TOKENS, strict=True)]


def in_world(tmp_path: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        async with opened(tmp_path / "a") as one, opened(tmp_path / "b") as two:
            await scenario(World(one, two))

    asyncio.run(run())
