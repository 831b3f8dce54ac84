"""Real sites under a batch system for tests: what they emit is kept, and waits are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from koala.model.grid import BatchSettings
from koala.model.launch import Go
from koala.model.messages import Token
from koala.sites.batch.site import BatchSite
from koala.sites.batch.system import BatchSystem
from tests.support.pauses import pause_s
from tests.support.watched_sites import WAIT_S, WatchedSite

OWNER = "a test"


class BatchWatcher(WatchedSite[BatchSite]):
    """An open site, with everything that it has reported."""

    def __init__(self, settings: BatchSettings, system: BatchSystem, processors: int, **options: Any) -> None:
        super().__init__()
        self.root = Path(settings.work_directory)
        self.site = BatchSite(
            "alpha",
            settings,
            system,
            processors,
            **{"owner": OWNER, "emit": self.take, "clock": time.time, "on_mail": self.take_mail, **options},
        )

    async def release_when_it_answers(self, token: Token) -> None:
        """Release like a driver: retry until it works."""
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await self.site.release(token, Go())
                except OSError:
                    await asyncio.sleep(0.2)
                else:
                    return

    def now(self) -> float:
        """Return the time by the site's clock."""
        return time.time()

    def home(self, token: Token) -> Path:
        """Return a component's directory."""
        return self.root / "components" / token


@contextlib.asynccontextmanager
async def opened_batch(
    settings: BatchSettings, system: BatchSystem, processors: int = 8, **options: Any
) -> AsyncIterator[BatchWatcher]:
    """Open a site for the block."""
    watcher = BatchWatcher(settings, system, processors, **options)
    await watcher.site.open()
    try:
        yield watcher
    finally:
        await watcher.site.close()


def unanswered(text_of: Callable[..., str]) -> Callable[..., str]:
    """Return a maker of the same texts that are killed at their end, after all is done, so that no answer arrives."""
    return lambda *arguments: f"{text_of(*arguments)}kill -KILL $$\n"


async def until_true(condition: Callable[[], bool]) -> None:
    """Wait until something has happened outside."""
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(pause_s(asyncio.get_running_loop().time() - began))
