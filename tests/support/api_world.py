"""The API over a real service, engine, store and embedded sites, called without a network."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from koala.daemon.api import RequestTraffic, make_app
from koala.daemon.engine.loop import Engine
from koala.daemon.service.principal import owner
from koala.daemon.service.service import Service
from koala.daemon.service.tokens import AccessTokens
from koala.daemon.workers.pool import Workers
from koala.model.api import Scope
from koala.model.api.questions import TokenWish
from koala.model.grid import Grid, SchedulerParameters, Site, SiteKind
from tests.support.daemon_world import open_daemon

Played = TypeVar("Played")

OWNER = "ada"
SCENE_S_MAX = 120.0
GRID = Grid(
    name="pair",
    sites=(
        Site(name="west", processors=2, kind=SiteKind.LOCAL),
        Site(name="east", processors=2, kind=SiteKind.LOCAL),
    ),
    scheduler=SchedulerParameters(scan_interval_s=0.0),
    shared_account=True,
)
# Larger than any site, so that the job waits for ever and nothing runs.
WAITING_JOB = "name: giant\ncomponents:\n  - {processors: 3, application: {executable: /bin/true}}\n"
QUICK_JOB = (
    "name: quick\ncomponents:\n  - {processors: 1, application: {executable: /bin/echo, arguments: [hello]}}\n"
)


class World:
    """A daemon without its process: both listeners, and tokens for them."""

    def __init__(
        self, service: Service, tokens: AccessTokens, engine: Engine, traffic: RequestTraffic, root: Path
    ) -> None:
        self.service = service
        self.tokens = tokens
        self.engine = engine
        self.store = engine.store
        self.traffic = traffic
        self.root = root
        self.trusted = make_app(service, tokens, trusted=True, owner=OWNER, traffic=traffic, url="http://127.0.0.1:1")
        self.open = make_app(
            service,
            tokens,
            trusted=False,
            owner=OWNER,
            traffic=traffic,
            hosts=frozenset({"koala.test"}),
            url="http://k:1",
        )

    async def secret(self, user: str, *scopes: Scope) -> str:
        """Return the secret of a new token."""
        return (await self.tokens.create(TokenWish(user=user, scopes=list(scopes)))).secret

    def caller(self, secret: str | None = None, app: FastAPI | None = None, **options: Any) -> httpx.AsyncClient:
        """Return a client at the public listener, with a token if one is given."""
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        return client_of(self.open if app is None else app, headers=headers, **options)

    def owner(self) -> httpx.AsyncClient:
        """Return a client of the daemon's own user at the socket."""
        return client_of(self.trusted)

    async def session(self, code: str | None = None) -> httpx.AsyncClient:
        """Return a client of the daemon's own user in a browser at the public listener."""
        secret = self.tokens.open_session(code or self.tokens.make_code(owner(OWNER))[0])
        assert secret is not None
        return client_of(self.open, headers={"Cookie": f"koala_session={secret}"})


def client_of(app: FastAPI, **options: Any) -> httpx.AsyncClient:
    """Return a client that calls the app; an exception that escapes it fails the test."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://koala.test", **options)


@asynccontextmanager
async def api_world(
    root: Path, grid: Grid = GRID, traffic: RequestTraffic | None = None, workers: Workers | None = None
) -> AsyncIterator[World]:
    """Open a world for the block; nothing of it runs on after it."""
    try:
        async with open_daemon(root, grid, workers=workers) as daemon:
            tokens = AccessTokens(daemon.engine.store, daemon.engine.now)
            yield World(daemon.service, tokens, daemon.engine, RequestTraffic() if traffic is None else traffic, root)
            await tokens.close()
    finally:
        end_processes_of(root)


class Stage:
    """A world that many tests share: it lives in a thread of its own, where each test plays its scene."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._closing = AsyncExitStack()

    def __enter__(self) -> Stage:
        self._thread.start()
        self._world = self._run(self._closing.enter_async_context(api_world(self._root)))
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._closing.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def play(self, scene: Callable[[World], Awaitable[None]]) -> None:
        """Play a scene to its end."""
        self._run(scene(self._world))

    def _run(self, work: Awaitable[Played]) -> Played:
        async def whole() -> Played:
            return await work

        return asyncio.run_coroutine_threadsafe(whole(), self._loop).result(SCENE_S_MAX)


def in_world(root: Path, scene: Callable[[World], Awaitable[None]], **options: Any) -> None:
    """Play a scene in a world of its own."""

    async def play() -> None:
        async with api_world(root, **options) as world:
            await scene(world)

    asyncio.run(play())


def end_processes_of(root: Path) -> None:
    """Kill what the sites under this directory still run."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if os.fsencode(root) + b"/" in command:
                os.kill(int(entry.name), signal.SIGKILL)


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """Return the error in an answer, which must have exactly the form of an error."""
    body = answer.json()
    assert set(body) == {"error"}, body
    error: dict[str, Any] = body["error"]
    assert set(error) == {"code", "message", "problems"}, error
    assert error["code"]
    assert error["message"]
    assert answer.headers["content-type"] == "application/json"
    return error
