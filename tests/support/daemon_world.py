"""A daemon without sockets for tests: a real engine on embedded sites, and the service in front of it.

Everything is in the test's own event loop; other modules offer a whole daemon process with its API.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from koala.daemon.engine.limits import EngineLimits
from koala.daemon.engine.loop import Engine
from koala.daemon.service.principal import Principal
from koala.daemon.service.principal import owner as owner_of
from koala.daemon.service.service import Service
from koala.daemon.workers.pool import Workers
from koala.model.api import JobDetail, JobSummary, Scope, Submitted
from koala.model.api.questions import Submission
from koala.model.grid import Grid, Link, Links, SchedulerParameters, Site, SiteKind
from koala.model.messages import CancelAsked
from koala.policies import Catalogue
from koala.store import Store
from tests.support.pauses import pause_s

T = TypeVar("T")

# A busy machine needs time; what should take a second may take this long.
WAIT_S = 120.0

# The daemon's own user, an operator, and two users who see only their own jobs.
OWNER = owner_of("root")
OPERATOR = Principal(name="olga", scopes=frozenset(Scope))
ANNA = Principal(name="anna", scopes=frozenset({Scope.READ, Scope.SUBMIT, Scope.PRIORITY}))
BERT = Principal(name="bert", scopes=frozenset({Scope.READ, Scope.SUBMIT, Scope.PRIORITY}))


def small_grid(processors: Sequence[int] = (4, 4, 4), **parameters: Any) -> Grid:
    """Return embedded sites A, B, C, ... that are scanned at every event, with fast links between them."""
    chosen = {"scan_interval_s": 0.0, "check_interval_s": 5.0, "answer_timeout_s": 20.0, **parameters}
    return Grid(
        name="small",
        sites=tuple(
            Site(name=chr(ord("A") + index), processors=count, kind=SiteKind.LOCAL)
            for index, count in enumerate(processors)
        ),
        links=Links(default=Link(bandwidth_mbit_s=800.0, latency_s=0.001)),
        scheduler=SchedulerParameters(**chosen),
    )


def job_text(script: str = "exit 0", components: Sequence[str] = ("{processors: 1}",), **fields: Any) -> str:
    """Return a job in YAML whose components run a shell script; further fields are written as given."""
    lines = [f"{name}: {value}" for name, value in fields.items()]
    lines += ["application:", "  script: |", *(f"    {line}" for line in script.splitlines())]
    lines += ["components:", *(f"  - {component}" for component in components)]
    return "\n".join(lines) + "\n"


class DaemonWorld:
    """An open daemon, and the few things that tests do with it repeatedly."""

    def __init__(self, engine: Engine, service: Service, root: Path) -> None:
        self.engine = engine
        self.service = service
        self.root = root

    async def submit(self, text: str, who: Principal = OWNER, client_token: str | None = None) -> Submitted:
        """Submit a job."""
        return await self.service.submit(
            who, Submission(description=text, source="job.yaml", client_token=client_token)
        )

    async def start(self, text: str, who: Principal = OWNER) -> int:
        """Submit a job; return its id."""
        return (await self.submit(text, who)).job.id

    async def ended(self, job: int, who: Principal = OWNER) -> JobSummary:
        """Wait for a job's end."""
        async with asyncio.timeout(WAIT_S):
            while (summary := await self.service.wait(who, job, 30.0)).ended_at is None:
                pass
        return summary

    async def in_state(self, job: int, *states: str) -> JobDetail:
        """Wait until the job is in one of some states."""

        async def look() -> JobDetail | None:
            detail = await self.service.job(OWNER, job)
            return detail if detail.state in states else None

        return await self.until(look)

    async def until(self, look: Callable[[], Awaitable[T | None]]) -> T:
        """Wait until a look at the daemon returns something; return that."""
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(WAIT_S):
            while not (found := await look()):
                await asyncio.sleep(pause_s(asyncio.get_running_loop().time() - began, 0.02))
            return found


async def end_everything(engine: Engine) -> None:
    """Cancel all jobs, and wait until every site has given back their components."""
    async with asyncio.timeout(WAIT_S):
        for row in engine.live_rows():
            await engine.tell(CancelAsked(at=engine.now(), job=row.id))
        for site in engine.grid.sites:
            while await engine.site(site.name).held():
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def open_daemon(
    root: Path,
    grid: Grid | None = None,
    database: str | None = None,
    *,
    leave_running: bool = False,
    workers: Workers | None = None,
    **limits: Any,
) -> AsyncIterator[DaemonWorld]:
    """Open a daemon below ``root``, with an engine with these limits. A daemon on the same root continues where the
    last one stopped. ``workers`` compute beside the event loop, by default in processes.

    At the end all its jobs are cancelled and no process of theirs is left, unless ``leave_running`` is set.
    """
    root.mkdir(parents=True, exist_ok=True)
    store = await asyncio.to_thread(Store.open, database or f"sqlite:///{root / 'koala.db'}")
    try:
        engine = Engine(grid or small_grid(), Catalogue.builtin(), store, root, limits=EngineLimits(**limits))
        try:
            await engine.open()
            service = Service(engine, workers=workers)
            await service.open()
            try:
                yield DaemonWorld(engine, service, root)
            finally:
                if not leave_running:
                    await end_everything(engine)
                await service.close()
        finally:
            await engine.close()
    finally:
        await asyncio.to_thread(store.close)
