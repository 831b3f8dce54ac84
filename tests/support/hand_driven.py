"""A world driven by hand: a test gives the scheduler's commands, and sees the events for the scheduler."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from koala.model.grid import (
    Background,
    Grid,
    GridSimulation,
    LocalScheduler,
    SchedulerParameters,
    Site,
    SiteFaults,
    SiteSimulation,
    Startup,
)
from koala.model.messages import (
    AbortComponent,
    AnyEvent,
    AskSite,
    JobSubmitted,
    ReleaseBarrier,
    StartComponent,
    StartTransfer,
    Tick,
)
from koala.model.request import Component, Request
from koala.simulator import Arrival, Workload
from koala.simulator.world.world import World


def site(
    name: str,
    processors: int,
    *,
    scheduler: LocalScheduler = LocalScheduler.FIRST_FIT,
    background: Background | None = None,
    startup: Startup | None = None,
    **faults: Any,
) -> Site:
    return Site(
        name=name,
        processors=processors,
        simulation=SiteSimulation(
            local_scheduler=scheduler, background=background, faults=SiteFaults(**faults), startup=startup
        ),
    )


def grid(*sites: Site, **simulation: Any) -> Grid:
    return Grid(sites=sites, simulation=GridSimulation(**simulation))


def request(*sizes: int, **fields: Any) -> Request:
    return Request(components=tuple(Component(processors=size) for size in sizes), **fields)


def job(at_s: float, *sizes: int, execution_s: float = 100.0, slowdown: float = 0.0, **fields: Any) -> Arrival:
    return Arrival(at_s, request(*sizes, **fields), execution_s, slowdown)


def at_once(grid: Grid, **parameters: Any) -> Grid:
    """Return the grid with a scheduler that scans at every event."""
    return msgspec.structs.replace(grid, scheduler=SchedulerParameters(scan_interval_s=0.0, **parameters))


def by_hand() -> tuple[Grid, Workload]:
    """Return two sites of 10 and two jobs. One holds both sites for 130 s (100 * 1.3) from time 0; one of 4 comes at
    30, waits until 130, and then runs 50 s."""
    jobs = [job(0.0, 10, 10, execution_s=100.0, slowdown=0.3), job(30.0, 4, execution_s=50.0)]
    return at_once(grid(site("a", 10), site("b", 10))), Workload.from_arrivals(jobs)


class HandDriven:
    """A world with short forms of commands; ``until`` lets time pass and returns the events of that time."""

    def __init__(self, grid: Grid, *jobs: Arrival, seed: int = 1, hold: int | None = None) -> None:
        self.world = World(grid, Workload.from_arrivals(jobs, hold_when_waiting=hold), seed)

    @property
    def now(self) -> float:
        return self.world.now

    def until(self, at: float) -> list[AnyEvent]:
        """Return everything up to this moment, including jobs that arrive then, which come after a tick."""
        at = math.nextafter(at, math.inf)
        told: list[AnyEvent] = []
        while (event := self.world.next(due_at=at)) is not None:
            if isinstance(event, Tick) and event.at >= at:
                return told
            told.append(event)
        raise AssertionError("a tick that is due always comes")

    def heard(self, at: float) -> list[str]:
        """Return the events of components and transfers in short form: ``'12 ready a'``, ``'30 done a'``."""
        return [short(event) for event in self.until(at) if not isinstance(event, JobSubmitted)]

    def start(self, token: str, where: str, processors: int, *, job: int = 1, parts: int = 1) -> None:
        self.world.perform(
            StartComponent(job=job, token=token, site=where, processors=processors, component=0, part=0, parts=parts),
            self.now,
        )

    def release(self, *tokens: str, job: int = 1) -> None:
        self.world.perform(ReleaseBarrier(job=job, tokens=tokens), self.now)

    def abort(self, token: str, where: str) -> None:
        self.world.perform(AbortComponent(site=where, token=token), self.now)

    def ask(self, where: str, *tokens: str) -> None:
        self.world.perform(AskSite(site=where, tokens=tokens), self.now)

    def transfer(self, name: str, source: str, target: str, size_bytes: int) -> None:
        self.world.perform(
            StartTransfer(transfer=name, file="f", source=source, target=target, size_bytes=size_bytes), self.now
        )


def short(event: Any) -> str:
    at = round(event.at, 6)
    kind = type(event).__name__.removeprefix("Component").lower()
    if kind == "ended":
        return f"{at:g} {event.outcome} {event.token}"
    if kind in ("accepted", "ready", "running"):
        return f"{at:g} {kind} {event.token}"
    if kind == "transferended":
        return f"{at:g} {'arrived' if event.ok else 'broken'} {event.transfer}"
    if kind == "sitereported":
        return f"{at:g} {event.site} others {event.others}"
    if kind == "sitesilent":
        return f"{at:g} {event.site} silent"
    return f"{at:g} {kind}"
