"""Real embedded sites for tests: what they emit is kept, waits are bounded, and no process may be left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, TypeVar

from koala.launching import Go, Launch
from koala.messages import AnyEvent, ComponentEnded, ComponentReady, Token
from koala.model import Application
from koala.runners import component_script
from koala.sites import LocalSite, Mail, Site, Stream

WAIT_S = 30.0
FIRST = "1.1"

E = TypeVar("E", bound=AnyEvent)


def launch(token: Token = FIRST, application: Application | str = "exit 0", **fields: Any) -> Launch:
    """A launch of one processor; a text stands for a script."""
    if isinstance(application, str):
        application = Application(script=application)
    return Launch(**{"token": token, "job": 1, "processors": 1, "application": application, **fields})


class Watcher:
    """An open site, and everything that it has told."""

    def __init__(self, root: Path, processors: int, **options: Any) -> None:
        self.events: list[AnyEvent] = []
        self.mail: list[Mail] = []
        self._changed = asyncio.Event()
        self.site = LocalSite(
            root.name,
            root,
            processors,
            **{"emit": self._take, "clock": time.time, "on_mail": self._take_mail, "grace_s": 1.0, **options},
        )

    def as_site(self) -> Site:
        """The embedded site keeps the protocol of all sites; the type checker holds it to that."""
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

    async def stdout(self, token: Token = FIRST) -> str:
        """All that a component has written."""
        return (await self.site.output(token, Stream.STDOUT, 0)).decode()


@contextlib.asynccontextmanager
async def opened(root: Path, processors: int = 4, **options: Any) -> AsyncIterator[Watcher]:
    """An open site below ``root``."""
    watcher = Watcher(root, processors, **options)
    await watcher.site.open()
    try:
        yield watcher
    finally:
        await watcher.site.close()


async def file_appears(path: Path) -> None:
    """Wait until an application has made a file."""
    async with asyncio.timeout(WAIT_S):
        while not path.exists():
            await asyncio.sleep(0.02)


def processes_of(directory: Path) -> list[int]:
    """Every living process that was started for a component below this directory."""
    mark = os.fsencode(f"KOALA_HOME={directory.resolve()}/")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            if any(line.startswith(mark) for line in (entry / "environ").read_bytes().split(b"\0")):
                found.append(int(entry.name))
    return found


def all_gone(directory: Path) -> bool:
    """Whether every process started below this directory ends within a moment."""
    deadline = time.monotonic() + 30.0
    while processes_of(directory):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
