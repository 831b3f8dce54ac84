"""Embedded sites with troubles: their calls fail a number of times or wait at a gate, and their ends may get lost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from koala.model.launch import Launch
from koala.model.messages import AnyEvent, ComponentEnded, SiteReported, Token
from koala.sites import LiveSite, SiteError
from koala.sites.local.site import LocalSite
from tests.support.engine_world import EngineWorld


class TroubledSite(LocalSite):
    """An embedded site whose calls fail a number of times, or wait at a gate."""

    starts_to_fail = 0
    probes_to_fail = 0
    releases_to_fail = 0
    release_error: OSError = ConnectionError("the site cannot be reached")
    mute = False
    cut_off = False  # nobody reaches it, and nothing that it says is heard; what it holds runs on

    def __init__(self, *arguments: Any, emit: Any, **named: Any) -> None:
        def emit_unless_mute(event: AnyEvent) -> None:
            if not (self.cut_off or (self.mute and isinstance(event, ComponentEnded))):
                emit(event)

        super().__init__(*arguments, emit=emit_unless_mute, **named)
        self.gate = asyncio.Event()
        self.gate.set()
        self.probes = 0
        self.asked: list[Token] = []
        self.aborted: list[Token] = []
        self.unforgettable: set[Token] = set()
        self.called: list[tuple[str, Token]] = []  # aborts and questions, in order

    def _reach(self) -> None:
        if self.cut_off:
            raise ConnectionError("no route to host")

    async def start(self, launch: Launch, script: str) -> None:
        await self.gate.wait()
        self._reach()
        if self.starts_to_fail > 0:
            self.starts_to_fail -= 1
            raise OSError(28, "No space left on device")
        await super().start(launch, script)

    async def release(self, token: Token, go: Any) -> None:
        self._reach()
        if self.releases_to_fail > 0:
            self.releases_to_fail -= 1
            raise self.release_error
        await super().release(token, go)

    async def abort(self, token: Token, **why: Any) -> None:
        self._reach()
        self.called.append(("abort", token))
        await super().abort(token, **why)
        self.aborted.append(token)

    async def ask(self, tokens: Sequence[Token]) -> None:
        self._reach()
        self.called += [("ask", token) for token in tokens]
        self.asked += tokens
        await super().ask(tokens)

    async def held(self) -> tuple[Token, ...]:
        self._reach()
        return await super().held()

    async def probe(self) -> SiteReported:
        self.probes += 1
        self._reach()
        if self.probes_to_fail > 0:
            self.probes_to_fail -= 1
            raise SiteError(self.name, "the batch system is down; start it")
        return await super().probe()

    async def forget(self, token: Token) -> None:
        if token in self.unforgettable:
            raise PermissionError(13, "Permission denied")
        await super().forget(token)


def troubled(description: Any, root: Path, **named: Any) -> LiveSite:
    """Make a troubled site where the engine makes an embedded one."""
    site_root = root / "sites" / description.name
    return TroubledSite(description.name, site_root, description.processors, **named)


def trouble(world: EngineWorld, name: str) -> TroubledSite:
    """Return the troubled site itself."""
    site = world.engine.site(name)
    assert isinstance(site, TroubledSite)
    return site
