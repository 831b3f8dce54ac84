"""Real sites under a batch system for tests: what they emit is kept, and waits are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from koala.grid import BatchSettings
from koala.launching import Go, Launch
from koala.messages import AnyEvent, ComponentEnded, ComponentReady, Token
from koala.runners import component_script
from koala.sites import Mail, Site, Stream
from koala.sites.batch.site import BatchSite
from koala.sites.batch.system import BatchSystem

WAIT_S = 60.0
OWNER = "a test"

E = TypeVar("E", bound=AnyEvent)


class BatchWatcher:
    """An open site, and everything that it has told."""

    def __init__(self, settings: BatchSettings, system: BatchSystem, processors: int, **options: Any) -> None:
        self.events: list[AnyEvent] = []
        self.mail: list[Mail] = []
        self._changed = asyncio.Event()
        self.root = Path(settings.work_directory)
        self.site = BatchSite(
            "alpha",
            settings,
            system,
            processors,
            **{"owner": OWNER, "emit": self._take, "clock": time.time, "on_mail": self._take_mail, **options},
        )

    def as_site(self) -> Site:
        """It keeps the protocol of all sites; the type checker holds it to that."""
        return self.site

    def _take(self, event: AnyEvent) -> None:
        self.events.append(event)
        self._changed.set()

    def _take_mail(self, mail: Mail) -> None:
        self.mail.append(mail)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until what the site has told makes the condition true."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def told(self, kind: type[E], token: Token) -> list[E]:
        """The events of one kind about one token."""
        return [event for event in self.events if isinstance(event, kind) and getattr(event, "token", None) == token]

    async def ready(self, *tokens: Token) -> None:
        """Wait until these are at the barrier."""
        await self.until(lambda: all(self.told(ComponentReady, token) for token in tokens))

    async def ended(self, token: Token) -> ComponentEnded:
        """Wait for the end of a component."""
        await self.until(lambda: bool(self.told(ComponentEnded, token)))
        return self.told(ComponentEnded, token)[-1]

    async def start(self, *launches: Launch) -> None:
        """Start components with the script that their runner writes."""
        for each in launches:
            await self.site.start(each, component_script(each))

    async def run(self, one: Launch, go: Go | None = None) -> ComponentEnded:
        """Start, release and see the end of one component."""
        await self.start(one)
        await self.ready(one.token)
        await self.site.release(one.token, go or Go())
        return await self.ended(one.token)

    async def release_when_it_answers(self, token: Token) -> None:
        """As a driver does: again until it works."""
        async with asyncio.timeout(WAIT_S):
            while True:
                try:
                    await self.site.release(token, Go())
                except OSError:
                    await asyncio.sleep(0.2)
                else:
                    return

    async def stdout(self, token: Token) -> str:
        """All that a component has written."""
        return (await self.site.output(token, Stream.STDOUT, 0)).decode()

    def now(self) -> float:
        """The time that the site goes by."""
        return time.time()

    def home(self, token: Token) -> Path:
        """A component's directory."""
        return self.root / "components" / token


@contextlib.asynccontextmanager
async def opened_batch(
    settings: BatchSettings, system: BatchSystem, processors: int = 8, **options: Any
) -> AsyncIterator[BatchWatcher]:
    """An open site."""
    watcher = BatchWatcher(settings, system, processors, **options)
    await watcher.site.open()
    try:
        yield watcher
    finally:
        await watcher.site.close()


async def until_true(condition: Callable[[], bool]) -> None:
    """Wait until something has happened outside."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.05)
