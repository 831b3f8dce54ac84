"""A grid painted by hand behind the real API and the real dashboard, so that a test decides what is visible.

``PaintedService`` answers like ``Service``, from values that a test changes; ``Served`` is the server for browsers,
on a port of the loopback, which can be closed and opened again.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import uvicorn

from koala.daemon.api import make_app
from koala.daemon.service.job_changes import JobChanges
from koala.daemon.service.journal import RenderedEntry
from koala.daemon.service.principal import Principal
from koala.daemon.service.service import Service
from koala.daemon.service.sites.grid import GridService
from koala.daemon.service.tokens import AccessTokens
from koala.model.api import (
    CheckpointInfo,
    Explanation,
    JobDetail,
    JobOnLinks,
    JobSummary,
    JournalEntry,
    LinkHistory,
    LinkMeasurement,
    NetworkInfo,
    NewToken,
    Output,
    Overview,
    Page,
    PlanInfo,
    Refusal,
    SavedCheckpointInfo,
    Scope,
    Shortage,
    SiteHistory,
    SiteInfo,
    StoryLine,
    TrafficInfo,
    UnmeasuredInfo,
    UsageInfo,
    UsagePoint,
)
from koala.model.api.questions import TokenWish
from koala.model.errors import NotFoundError
from koala.store import ALL_JOBS, ChosenJobs, Store, StoredJob
from koala.store.rows import RecentlyEnded
from tests.support.grid_forms import NOW, component, job, link, link_state, overview, places, site, transfer

START_S_MAX = 60.0
TRAFFIC = TrafficInfo(
    declared_mbit_s=40.0,
    measured_mbit_s=23.4,
    measured_until_s=8.0,
    believed_mbit_s=23.4,
    belief="measured",
    unmeasured=[UnmeasuredInfo(site="vrije", reason="it has not reported yet")],
)


class PaintedService(Service):
    """A service that shows what the test painted. It checks rights like the real service."""

    def __init__(self, grid: Overview, jobs: list[JobDetail]) -> None:
        self.picture = grid
        self.grid = cast(GridService, self)
        self.changes = cast(JobChanges, self)
        self.painted = {each.id: each for each in jobs}
        self.outputs: dict[tuple[int, int, str], bytes] = {}
        self.complete: set[int] = set()
        self.why_not = ""
        self.plans: dict[int, PlanInfo] = {}
        self.did: list[tuple[str, str]] = []
        self.reasons: list[str] = []
        self._entries: list[JournalEntry] = []
        self._changed = asyncio.Event()

    # ------------------------------------------------------------------------------- what a test does

    def happen(self, text: str, **fields: Any) -> None:
        """Add an entry to the journal, and notify its followers."""
        seq = len(self._entries) + 1
        entry = JournalEntry(seq=seq, at=self.picture.now, kind="event", what="Painted", text=text, **fields)
        self._entries.append(entry)
        self._changed.set()
        self._changed = asyncio.Event()

    def paint_job(self, painted: JobDetail) -> None:
        """Replace a job."""
        self.painted[painted.id] = painted
        self.happen(f"job {painted.id} is {painted.state}", job=painted.id)

    def paint_site(self, name: str, **fields: Any) -> SiteInfo:
        """Change these fields of the site."""
        sites = [
            msgspec.structs.replace(each, **fields) if each.name == name else each for each in self.picture.sites
        ]
        self.picture = msgspec.structs.replace(self.picture, sites=sites)
        self.happen(f"{name} changed", site=name)
        return self._site(name)

    # ---------------------------------------------------------------------------- what callers ask for

    async def overview(self, who: Principal) -> Overview:
        who.need(Scope.READ)
        jobs = list(self.painted.values())
        counts: dict[str, int] = {}
        for each in jobs:
            counts[each.state] = counts.get(each.state, 0) + 1
        lists = {
            "waiting_high": [each for each in jobs if each.state == "waiting" and each.priority == "high"],
            "waiting_low": [each for each in jobs if each.state == "waiting" and each.priority == "low"],
            "claiming": [each for each in jobs if each.state in ("placed", "claiming")],
            "active": [each for each in jobs if each.state in ("starting", "running", "unwinding")],
        }
        moving = [each for one in jobs for each in one.transfers if each.ended_at is None]
        return msgspec.structs.replace(self.picture, **lists, transfers=moving, counts=counts)

    async def network(self, who: Principal) -> NetworkInfo:
        """Return every link as declared one way, and probed the other way, where the first one fails."""
        who.need(Scope.READ)
        links = [link_state(*each.between) for each in self.picture.links]
        links += [link_state(each.between[1], each.between[0], 42.0) for each in self.picture.links]
        if links:
            links[0] = msgspec.structs.replace(links[0], probe_failure="delft: no route to host", probe_failures=2)
        return NetworkInfo(
            now=NOW,
            sites=[each.name for each in self.picture.sites],
            default_bandwidth_mbit_s=100.0,
            default_latency_s=0.005,
            links=links,
            jobs=[JobOnLinks(job=7, name="tides", sites=["delft", "vrije"], traffic=TRAFFIC)],
        )

    async def link(self, who: Principal, source: str, target: str) -> LinkHistory:
        """Return a link that was measured to be fast twice, and then slow."""
        who.need(Scope.READ)
        measured = [
            LinkMeasurement(at=NOW, value=value, weight=1.0, size_bytes=8, by="probe") for value in (90.0, 90.0, 42.0)
        ]
        state = link_state(source, target, 42.0)
        return LinkHistory(now=NOW, link=state, bandwidth_mbit_s=measured, latency_s=[])

    async def sites(self, who: Principal) -> list[SiteInfo]:
        who.need(Scope.READ)
        return self.picture.sites

    async def jobs(
        self,
        who: Principal,
        *,
        states: frozenset[str] = frozenset(),
        owner: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
        array: int | None = None,
        which: ChosenJobs = ALL_JOBS,
    ) -> Page[JobSummary]:
        who.need(Scope.READ)
        before = int(cursor) if cursor else 2**62
        found = [
            each
            for each in sorted(self.painted.values(), key=lambda each: -each.id)
            if each.id < before
            and (not states or each.state in states)
            and owner in (None, each.owner)
            and array == each.array
            and which.has(cast(StoredJob, each))
        ]
        more = str(found[limit - 1].id) if len(found) > limit else None
        return Page[JobSummary](items=list[JobSummary](found[:limit]), next=more)

    async def job(self, who: Principal, job: int) -> JobDetail:
        who.need(Scope.READ)
        if job not in self.painted:
            raise NotFoundError(f"there is no job {job}; GET /v1/jobs lists yours")
        return self.painted[job]

    async def explain(self, who: Principal, job: int) -> Explanation:
        about = await self.job(who, job)
        next_element = job + 1 if about.elements is not None and about.elements.waiting else None
        waits = about.state == "waiting" or next_element is not None
        plan = self.plans.get(job)
        return Explanation(
            job=job,
            state=about.state,
            meaning="in its placement queue; no places have been found yet" if waits else "as its state says",
            since=about.since,
            next_element=next_element,
            waiting_since=about.submitted_at if waits else None,
            placement_tries=3,
            claiming_tries=0,
            runs=about.runs,
            failures=about.failures,
            preemptions=about.preemptions,
            place_in_line=1 if waits else None,
            queue_length=3 if waits else None,
            refusal=self._refusal(about) if waits else None,
            expected_at=None if plan is None else plan.expected_at,
            expected_sites=[] if plan is None else plan.expected_sites,
            planned_before=[
                each for each in self.plans.values() if waits and each.job is not None and each.job < job
            ],
            places=about.places,
            story=[
                StoryLine(
                    at=about.submitted_at, text=f"submitted: non-fixed request for {about.processors} processors"
                ),
                StoryLine(at=about.submitted_at + 3, text="no place found (idle: delft 2, leiden 4, twente 0)"),
            ],
        )

    def _refusal(self, about: JobDetail) -> Refusal:
        return Refusal(
            policy=about.policy,
            reason=f"no site has {about.processors} idle processors",
            cure=f"{max(1, about.processors - 4)} more idle processors on leiden",
            component=0,
            shortages=tuple(
                Shortage(
                    site=each.name,
                    wanted=about.processors,
                    idle=each.idle,
                    missing=max(0, about.processors - each.idle),
                    cure="resume the site"
                    if each.drained
                    else f"{about.processors - each.idle} more idle processors",
                )
                for each in self.picture.sites
            ),
        )

    async def cancel(self, who: Principal, job: int, *, reason: str = "") -> JobSummary:
        return await self._do("cancel", who, job, reason, state="cancelled", ended_at=self.picture.now)

    async def hold(self, who: Principal, job: int, *, reason: str = "") -> JobSummary:
        return await self._do("hold", who, job, reason, state="held")

    async def unhold(self, who: Principal, job: int, *, reason: str = "") -> JobSummary:
        return await self._do("release", who, job, reason, state="waiting")

    async def requeue(self, who: Principal, job: int, *, reason: str = "") -> JobSummary:
        return await self._do("requeue", who, job, reason, state="waiting")

    async def _do(self, act: str, who: Principal, job: int, reason: str, **changes: Any) -> JobSummary:
        who.need(Scope.SUBMIT)
        about = msgspec.structs.replace(await self.job(who, job), **changes)
        self.did.append((act, str(job)))
        self.reasons.append(reason)
        self.paint_job(about)
        return about

    async def output(
        self,
        who: Principal,
        job: int,
        *,
        part: int = 0,
        run: int | None = None,
        stream: str = "stdout",
        offset: int = 0,
        limit: int = 65_536,
    ) -> Output:
        await self.job(who, job)
        data = self.outputs.get((job, part, stream), b"")
        piece = data[offset : offset + limit]
        return Output(
            token=f"{job}.{part}",
            part=part,
            site="delft",
            stream="stderr" if stream == "stderr" else "stdout",
            offset=offset,
            next_offset=offset + len(piece),
            text=piece.decode(errors="replace"),
            complete=job in self.complete and offset + len(piece) >= len(data),
        )

    async def ended_lately(self, who: Principal, from_at: float, site: str | None = None) -> list[RecentlyEnded]:
        who.need(Scope.READ)
        found = [
            RecentlyEnded(each.id, each.array, each.ended_at)
            for each in self.painted.values()
            if each.ended_at is not None
            and each.ended_at >= from_at
            and any(site in (None, part.site) for part in each.components)
        ]
        return sorted(found, key=lambda each: (each.ended_at, each.id), reverse=True)

    async def history(self, who: Principal, site: str, from_at: float, to_at: float) -> SiteHistory:
        who.need(Scope.READ)
        now = self._site(site)
        step_s = (to_at - from_at) / 12
        points = [
            UsagePoint(
                at=from_at + step_s * n,
                processors=now.processors,
                ours=max(0, now.ours - (n * 7) % 5) if n < 11 else now.ours,
                others=max(0, now.others - (n * 3) % 4) if n < 11 else now.others,
            )
            for n in range(12)
        ]
        return SiteHistory(site=site, from_at=from_at, to_at=to_at, points=points)

    def _site(self, name: str) -> SiteInfo:
        found = [each for each in self.picture.sites if each.name == name]
        if not found:
            raise NotFoundError(f"there is no site {name!r}")
        return found[0]

    async def drain(self, who: Principal, site: str, *, reason: str = "") -> SiteInfo:
        who.need(Scope.OPERATE)
        self.did.append(("drain", site))
        self.reasons.append(reason)
        return self.paint_site(site, drained=True, drained_by=f"{who.name}: {reason}")

    async def resume(self, who: Principal, site: str, *, reason: str = "") -> SiteInfo:
        who.need(Scope.OPERATE)
        self.did.append(("resume", site))
        self.reasons.append(reason)
        return self.paint_site(site, drained=False, trust="usable")

    async def declare_lost(self, who: Principal, site: str, *, force: bool = False, reason: str = "") -> SiteInfo:
        who.need(Scope.OPERATE)
        self.did.append(("lost", site))
        self.reasons.append(reason)
        return self.paint_site(site, lost=f"{who.name} declared it lost")

    async def probe(self, who: Principal, site: str) -> SiteInfo:
        who.need(Scope.OPERATE)
        self.did.append(("probe", site))
        return self._site(site)

    async def journal(
        self, who: Principal, *, after: int = 0, limit: int = 100, job: int | None = None
    ) -> list[JournalEntry]:
        who.need(Scope.READ)
        return [each for each in self._entries if each.seq > after and job in (None, each.job)][:limit]

    async def follow_rounds(
        self, who: Principal, *, after: int | None = None, job: int | None = None
    ) -> AsyncIterator[list[RenderedEntry]]:
        at = self.last_seq if after is None else after
        while True:
            changed = self._changed
            if found := await self.journal(who, after=at, job=job):
                at = found[-1].seq
                yield [RenderedEntry(entry) for entry in found]
            await changed.wait()

    @property
    def last_seq(self) -> int:
        return len(self._entries)

    @property
    def failure(self) -> str:
        return self.why_not


def busy_grid() -> PaintedService:
    """Return four sites and a job in every condition, one of them with a hostile name."""
    sites = [
        site("delft", 24, ours=14, others=6, idle=2, earmarked=2, jobs=[7, 8, 6]),
        site("leiden", 16, ours=8, others=4, idle=4, jobs=[7, 6]),
        site("twente", 128, ours=0, others=40, idle=0, drained=True),
        site(
            "vrije",
            64,
            trust="unusable",
            errors=5,
            silent_since=NOW - 300,
            silent_reason="connection refused",
            problem="vrije does not answer: connection refused; koala site check vrije shows more",
        ),
    ]
    links = [
        link("delft", "leiden", 1_000, 640),
        link("delft", "twente", 100, 80),
        link("leiden", "twente"),
        link("delft", "vrije"),
        link("leiden", "vrije"),
        link("twente", "vrije", 10),
    ]
    ran: dict[str, Any] = {"released_at": NOW - 1_000, "ended_at": NOW - 400}
    jobs = [
        job(
            3,
            "done",
            name="warm-up",
            submitted_at=NOW - 1_500,
            since=NOW - 400,
            started_at=NOW - 1_000,
            ended_at=NOW - 400,
            exit_code=0,
            runs=1,
            places=places(("delft", 4), ("leiden", 4)),
            components=[
                component(0, claimed_at=NOW - 1_100, outcome="done", exit_code=0, **ran),
                component(1, "leiden", claimed_at=NOW - 1_060, outcome="done", exit_code=0, **ran),
            ],
            transfers=[transfer(9, started_at=NOW - 1_300, ended_at=NOW - 1_090, ok=True, jobs=[3])],
        ),
        job(
            4,
            "failed",
            name="broken",
            owner="grace",
            submitted_at=NOW - 1_200,
            since=NOW - 500,
            started_at=NOW - 900,
            ended_at=NOW - 500,
            exit_code=3,
            runs=2,
            failures=2,
            reason="component 0 failed on delft: exit code 3; restarts used up",
            usage=UsageInfo(
                components=2,
                measured=1,
                processor_s=320.0,
                held_processor_s=800.0,
                efficiency=0.4,
                peak_memory_bytes=3 * 1024**3,
                asked_memory_bytes=4 * 1024**3,
            ),
            places=places(("delft", 2)),
            checkpoint=CheckpointInfo(
                saved=[
                    SavedCheckpointInfo(component=0, run=1, site="delft", size_bytes=1_200_000, saved_at=NOW - 960)
                ]
            ),
            components=[
                component(claimed_at=NOW - 1_150, released_at=NOW - 1_100, ended_at=NOW - 950, outcome="failed"),
                component(
                    run=2,
                    claimed_at=NOW - 920,
                    released_at=NOW - 900,
                    ended_at=NOW - 500,
                    outcome="failed",
                    exit_code=3,
                    stderr_line="mesh.c:88: cannot open <b>tides</b>.mesh",
                    processor_s=320.0,
                    peak_memory_bytes=3 * 1024**3,
                ),
            ],
        ),
        job(5, "cancelled", submitted_at=NOW - 800, since=NOW - 700, ended_at=NOW - 700),
        job(
            6,
            "starting",
            name="weather model",
            submitted_at=NOW - 420,
            since=NOW - 90,
            places=places(("delft", 4), ("leiden", 4)),
            components=[
                component(0, claimed_at=NOW - 120, ready_at=NOW - 100),
                component(1, "leiden", claimed_at=NOW - 90),
            ],
        ),
        job(
            7,
            "running",
            name="<script>alert(1)</script>",
            owner="grace",
            priority="high",
            submitted_at=NOW - 700,
            since=NOW - 450,
            started_at=NOW - 450,
            runs=1,
            places=places(("delft", 6), ("leiden", 4)),
            checkpoint=CheckpointInfo(work_lost_s=42.0),
            components=[
                component(0, claimed_at=NOW - 600, ready_at=NOW - 590, released_at=NOW - 450, processors=6),
                component(1, "leiden", claimed_at=NOW - 560, ready_at=NOW - 540, released_at=NOW - 450),
            ],
            transfers=[transfer(8, started_at=NOW - 660, ended_at=NOW - 470, ok=True, jobs=[7])],
        ),
        job(
            8,
            "claiming",
            name="genome",
            submitted_at=NOW - 300,
            since=NOW - 60,
            places=places(("delft", 4), ("leiden", 4)),
            components=[component(0, claimed_at=NOW - 60)],
            transfers=[transfer(1, started_at=NOW - 250, jobs=[8])],
        ),
        job(
            9,
            "placed",
            name="tides",
            submitted_at=NOW - 200,
            since=NOW - 150,
            places=places(("leiden", 8)),
            transfers=[
                transfer(2, started_at=NOW - 150, source="delft", target="leiden", brought_bytes=10**8, jobs=[9])
            ],
        ),
        job(10, "waiting", name="urgent", priority="high", processors=12, submitted_at=NOW - 90, since=NOW - 90),
        job(11, "waiting", name="sweep " + "x" * 80, processors=48, submitted_at=NOW - 60, since=NOW - 60),
        job(12, "waiting", processors=20, submitted_at=NOW - 30, since=NOW - 30),
    ]
    service = PaintedService(overview(sites, links=links), jobs)
    for each in jobs:
        service.happen(f"job {each.id} ({each.name}) was submitted by {each.owner}", job=each.id)
    service.happen("leiden reports 16 processors, 4 of them others'", site="leiden")
    service.outputs[(7, 0, "stdout")] = b"".join(
        b"step %d of 100: residual 0.%03d\n" % (n, 999 - n) for n in range(60)
    )
    service.outputs[(4, 0, "stderr")] = b"reading tides.mesh\nmesh.c:88: cannot open <b>tides</b>.mesh\n"
    service.outputs[(7, 0, "stderr")] = b"warning: <b>slow</b> disk\n"
    return service


class Served:
    """The painted grid at an address, in a thread of its own."""

    def __init__(self, make: Callable[[], PaintedService], state: Path, *, trusted: bool = False) -> None:
        self._make = make
        self._store = Store.open(f"sqlite:///{state / 'koala.db'}")
        self._trusted = trusted
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: uvicorn.Server | None = None
        self._serving: Future[None] | None = None
        self.port = 0
        self.open()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def open(self) -> None:
        """Listen, at the same port as before if there was one."""
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", self.port))
        self.port = listening.getsockname()[1]
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(listening), self._loop)
        deadline = time.monotonic() + START_S_MAX
        while self._server is None or not self._server.started:
            assert time.monotonic() < deadline, "the server did not start"
            assert not self._serving.done(), self._serving.exception()
            time.sleep(0.01)

    async def _serve(self, listening: socket.socket) -> None:
        if not hasattr(self, "service"):
            self.service = self._make()
            self.tokens = AccessTokens(self._store, time.time)
        app = make_app(self.service, self.tokens, trusted=self._trusted, owner="root")
        config = uvicorn.Config(app, log_level="error", lifespan="off", timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        await self._server._serve(sockets=[listening])
        listening.close()

    def token(self, *scopes: Scope, user: str = "ada") -> str:
        """Return the secret of a new token."""
        made: NewToken = asyncio.run_coroutine_threadsafe(
            self.tokens.create(TokenWish(user=user, scopes=list(scopes))), self._loop
        ).result(START_S_MAX)
        return made.secret

    def revoke_all(self) -> None:
        """Revoke every token, which ends the sessions of its holders."""

        async def revoke() -> None:
            for each in await self.tokens.tokens():
                await self.tokens.revoke(each.id)

        asyncio.run_coroutine_threadsafe(revoke(), self._loop).result(START_S_MAX)

    def paint(self, change: Callable[[PaintedService], object]) -> None:
        """Change the grid, in the thread that serves it."""

        async def apply() -> None:
            change(self.service)

        asyncio.run_coroutine_threadsafe(apply(), self._loop).result(START_S_MAX)

    def close(self) -> None:
        """Stop listening and end every connection."""
        assert self._server is not None
        assert self._serving is not None
        self._server.should_exit = True
        self._server.force_exit = True
        self._serving.result(START_S_MAX)
        self._server = None

    def end(self) -> None:
        """Close everything."""
        if self._server is not None:
            self.close()
        asyncio.run_coroutine_threadsafe(self.tokens.close(), self._loop).result(START_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_S_MAX)
        self._loop.close()
        self._store.close()


@contextmanager
def served(state: Path, make: Callable[[], PaintedService] = busy_grid, *, trusted: bool = False) -> Iterator[Served]:
    """Serve a painted grid for browsers during the block."""
    server = Served(make, state, trusted=trusted)
    try:
        yield server
    finally:
        server.end()
