"""Open sites for tests, of any kind: their events are kept, and waits are bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from koala.model.launch import Go, Launch
from koala.model.messages import AnyEvent, ComponentEnded, ComponentReady, ComponentStarting, Token
from koala.runners import component_script
from koala.sites import LiveSite, Mail, Stream

# A batch system on a busy machine may take this long.
WAIT_S = 120.0
FIRST = "1.1"

E = TypeVar("E", bound=AnyEvent)
S = TypeVar("S", bound=LiveSite)


class WatchedSite(Generic[S]):
    """A site, with everything that it has reported: its maker connects ``take`` and ``take_mail``."""

    site: S

    def __init__(self) -> None:
        self.events: list[AnyEvent] = []
        self.mail: list[Mail] = []
        self._changed = asyncio.Event()

    def as_site(self) -> LiveSite:
        """Return the site as one with the protocol of all sites, which the type checker verifies."""
        return self.site

    def take(self, event: AnyEvent) -> None:
        """Take an event of the site."""
        self.events.append(event)
        self._changed.set()

    def take_mail(self, mail: Mail) -> None:
        """Take a component's mail for the others."""
        self.mail.append(mail)
        self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the site's events make the condition true."""
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def told(self, kind: type[E], token: Token) -> list[E]:
        """Return the events of one kind about one token."""
        return [event for event in self.events if isinstance(event, kind) and getattr(event, "token", None) == token]

    def stages(self, token: Token) -> list[type[AnyEvent]]:
        """Return the events of a component except its start, which a listing may or may not show before its files
        do."""
        told = [event for event in self.events if getattr(event, "token", None) == token]
        return [type(event) for event in told if not isinstance(event, ComponentStarting)]

    async def ready(self, *tokens: Token) -> None:
        """Wait until these are at the barrier; fail if one ends before."""

        def is_ready(token: Token) -> bool:
            here = self.told(ComponentReady, token)
            assert here or not self.told(ComponentEnded, token), self.told(ComponentEnded, token)
            return bool(here)

        await self.until(lambda: all(is_ready(token) for token in tokens))

    async def ended(self, token: Token) -> ComponentEnded:
        """Wait for the end of a component."""
        await self.until(lambda: bool(self.told(ComponentEnded, token)))
        return self.told(ComponentEnded, token)[-1]

    async def start(self, *launches: Launch) -> None:
        """Start components with the script that their runner writes."""
        for each in launches:
            await self.site.start(each, component_script(each))

    async def run(self, one: Launch, go: Go | None = None) -> ComponentEnded:
        """Start, release and await the end of one component."""
        await self.start(one)
        await self.ready(one.token)
        await self.site.release(one.token, go or Go())
        return await self.ended(one.token)

    async def stdout(self, token: Token = FIRST) -> str:
        """Return all output of a component."""
        return (await self.site.output(token, Stream.STDOUT, 0)).decode()
