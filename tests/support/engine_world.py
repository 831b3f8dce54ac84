"""A real engine on embedded sites for tests, with requests for it, stores that fail, and nothing left behind."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from koala import files
from koala.daemon.engine.limits import EngineLimits
from koala.daemon.engine.loop import Engine
from koala.daemon.grid_sites import SiteMaker, make_site
from koala.files.checksums import of_path
from koala.model.grid import Grid, Link, Links, SchedulerParameters, Site, SiteKind
from koala.model.request import Application, Component, InputFile, Request
from koala.policies import Catalogue
from koala.sites import Stream
from koala.sites.local.site import LocalSite
from koala.store import Batch, Store, StoredJob, StoreError
from koala.words.facts import STORY_KINDS
from koala.words.stories import story
from tests.support.live_sites import left_no_process
from tests.support.local_areas import local_areas

WAIT_S = 120.0
OWNER = "anna"


def local_grid(processors: Sequence[int] = (4, 4), mbit_s: float = 800.0, **parameters: Any) -> Grid:
    """Return embedded sites a, b, c, ... with these parameters of the scheduler."""
    chosen = {"scan_interval_s": 0.0, "check_interval_s": 5.0, "answer_timeout_s": 20.0, **parameters}
    return Grid(
        sites=tuple(
            Site(name="abcdefgh"[index], processors=count, kind=SiteKind.LOCAL)
            for index, count in enumerate(processors)
        ),
        links=Links(default=Link(bandwidth_mbit_s=mbit_s, latency_s=0.001)),
        scheduler=SchedulerParameters(**chosen),
    )


def a_request(
    script: str = "exit 0", sizes: Sequence[int] = (1,), sites: Sequence[str] = (), reads: Any = (), **fields: Any
) -> Request:
    """Return a request for components of these sizes that run a script, at these sites if given; ``reads`` are input
    files."""
    inputs = tuple(InputFile(name=each) if isinstance(each, str) else each for each in reads)
    return Request(
        components=tuple(
            Component(
                processors=size,
                application=Application(script=script),
                site=sites[index] if sites else None,
                input_files=inputs,
            )
            for index, size in enumerate(sizes)
        ),
        **fields,
    )


class EngineWorld:
    """An open engine, and the things that tests do with it repeatedly."""

    def __init__(self, engine: Engine, store: Store) -> None:
        self.engine = engine
        self.store = store

    async def submit(self, request: Request, client_token: str | None = None) -> int:
        """Submit for the usual owner; return the job's id."""
        row, _ = await self.engine.submit(request, owner=OWNER, client_token=client_token)
        return row.id

    async def ended(self, *jobs: int, within_s: float = WAIT_S) -> list[StoredJob]:
        """Wait for the end of jobs; return their rows in the store."""
        rows = []
        for job in jobs:
            async with asyncio.timeout(within_s):
                await self.engine.wait_ended(job, within_s)
            row = self.store.job(job)
            assert row is not None
            assert row.ended_at is not None, f"job {job} is {row.state} since {row.since}"
            rows.append(row)
        return rows

    def story(self, job: int) -> list[str]:
        """Return the story of a job on record."""
        request = self.store.request(job)
        assert request is not None
        lines = [(line.at, line.body) for line in self.store.story(job, STORY_KINDS).first]
        return [line.text for line in story(request, 0.0, lines)]

    async def run(self, request: Request) -> StoredJob:
        """Submit a job and wait for its end."""
        return (await self.ended(await self.submit(request)))[0]

    async def until(self, condition: Callable[[], Any], within_s: float = WAIT_S) -> Any:
        """Wait until a look at the engine returns something."""
        async with asyncio.timeout(within_s):
            while not (found := condition()):
                await asyncio.sleep(0.02)
        return found

    async def in_state(self, job: int, state: str) -> StoredJob:
        """Wait until a live job is in a state."""

        def look() -> StoredJob | None:
            row = self.engine.live_row(job)
            return row if row is not None and row.state == state else None

        found: StoredJob = await self.until(look)
        return found

    async def output(self, job: int, part: int = 0) -> str:
        """Return the output of a component of the last run."""
        row = [row for row in self.store.components(job) if row.part == part][-1]
        data = await self.engine.site(row.site).output(row.token, Stream.STDOUT, 0)
        return data.decode()

    def site(self, name: str) -> LocalSite:
        """Return the embedded site itself."""
        site = self.engine.site(name)
        assert isinstance(site, LocalSite)
        return site

    async def register(self, name: str, data: bytes, *sites: str) -> None:
        """Register a file with replicas at some sites."""
        entry: files.CatalogueEntry | None = None
        for site in sites:
            source = local_areas(self.engine)[site].root / "incoming"
            source.write_bytes(data)
            path = local_areas(self.engine)[site].adopt(name, source)
            source.unlink()
            replica = files.Replica(site=site, size_bytes=len(data), checksum=of_path(path))
            if entry is None:
                entry, event = files.register(name, replica, at=0.0)
            else:
                entry, event = files.replicate(entry, replica, at=0.0)
            await self.engine.tell(event, files=[entry])

    def copies_at(self, site: str) -> list[str]:
        """Return the contents of a site's file area beside replicas."""
        root = local_areas(self.engine)[site].root
        return [each.name for each in [*(root / "copies").iterdir(), *(root / "trash").iterdir()]]

    async def all_given_back(self) -> None:
        """Wait until the core, the sites and the movers hold nothing, and the outbox is empty."""
        engine = self.engine

        def nothing_left() -> bool:
            return (
                not engine.scheduler.ledger.claims
                and all(row.ended_at is not None for row in engine.rows.components.values())
                and not engine.outbox.commands
                and not engine.scheduler.ledger.transfers.by_id
                and not engine.mover.transfers
                and all(self.site(each.name).processors_held == 0 for each in engine.grid.sites)
                and not any(self.copies_at(each.name) for each in engine.grid.sites)
            )

        await self.until(nothing_left)


@cache
def empty_database() -> bytes:
    """Return a new database in a file, made once for all tests of a process: its tables take most of the time."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "koala.db"
        Store.open(path).close()
        return path.read_bytes()


def open_store(root: Path, url: str | None = None) -> Store:
    """Open the store of an engine below ``root``, or elsewhere."""
    root.mkdir(parents=True, exist_ok=True)
    path = root / "koala.db"
    if url is None and not path.exists():
        path.touch(mode=0o600)
        path.write_bytes(empty_database())
    return Store.open(url or f"sqlite:///{path}")


class DisturbedStore:
    """A real store whose commits wait at a gate, and whose next commit with an entry of a given name fails. The
    engine may write other commits at any time, which must not use up the failure."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.gate = threading.Event()
        self.gate.set()
        self._fails_before = ""
        self._fails_after = ""
        self.recover_failures = 0
        self.batches: list[Batch] = []

    def fail_before(self, what: str) -> None:
        """Let the next commit with such an entry fail, with nothing written."""
        self._fails_before = what

    def fail_after(self, what: str) -> None:
        """Let the next commit with such an entry be written, and then seem to fail."""
        self._fails_after = what

    def record(self, batch: Batch) -> None:
        assert self.gate.wait(WAIT_S)
        words = {entry.what for entry in batch.entries}
        if self._fails_before in words:
            self._fails_before = ""
            raise StoreError("test", "the disk is full; free some space")
        self._store.record(batch)
        self.batches.append(batch)
        if self._fails_after in words:
            self._fails_after = ""
            raise StoreError("test", "the connection broke during the commit; check the server")

    def recover(self) -> Any:
        if self.recover_failures > 0:
            self.recover_failures -= 1
            raise StoreError("test", "the disk is still full; free some space")
        return self._store.recover()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def disturbed(root: Path, url: str | None = None) -> Any:
    """Return the store of an engine below ``root`` as one that can be disturbed."""
    return DisturbedStore(open_store(root, url))


@contextlib.asynccontextmanager
async def open_engine(
    root: Path,
    grid: Grid | None = None,
    store: Store | None = None,
    site_maker: SiteMaker = make_site,
    catalogue: Catalogue | None = None,
    *,
    accepts_database: bool = False,
    **limits: Any,
) -> AsyncIterator[EngineWorld]:
    """Open an engine below ``root`` with these limits; a later engine there continues where it stopped."""
    own = open_store(root) if store is None else store
    try:
        engine = Engine(
            grid or local_grid(),
            catalogue or Catalogue.builtin(),
            own,
            root,
            site_maker=site_maker,
            limits=EngineLimits(**limits),
            accepts_database=accepts_database,
        )
        await engine.open()
        try:
            yield EngineWorld(engine, own)
        finally:
            await engine.close()
    finally:
        own.close()


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """Return a directory for one engine; at the end of the test no process of it may be left."""
    yield tmp_path
    left_no_process(tmp_path)
