"""``make bench``: how long one scan takes where plans are made, beside the same scan without plans.

Twenty sites, 5,000 running jobs, and many waiting ones of 100 sizes with walltimes of their own. A component ends,
and the queue is scanned. The two are measured in the same process in turn; the median of each is shown.
"""

from __future__ import annotations

import gc
import random
import statistics
import time

from rich.console import Console
from rich.table import Table

from koala.core import Scheduler
from koala.model.grid import Grid, SchedulerParameters, Site
from koala.model.messages import (
    ComponentEnded,
    ComponentReady,
    JobSubmitted,
    Outcome,
    StartComponent,
    Tick,
)
from koala.model.request import Component, Flexibility, Request

SITES, RUNNING, SIZES = 20, 5_000, 100
PASSES = 30


def request(processors: int, walltime_s: float) -> Request:
    """A total that FCM divides."""
    component = Component(processors=processors)
    return Request(components=(component,), flexible=Flexibility(), walltime_s=walltime_s)


def loaded(waiting: int, plan_depth: int) -> tuple[Scheduler, list[str]]:
    """A scheduler with that many jobs waiting behind those that run; the tokens of these."""
    processors = RUNNING // SITES
    grid = Grid(
        sites=tuple(Site(name=f"c{index + 1}", processors=processors) for index in range(SITES)),
        scheduler=SchedulerParameters(
            policy="FCM", scan_interval_s=0.0, check_interval_s=None, plan_depth=plan_depth
        ),
    )
    rng = random.Random(1)
    scheduler = Scheduler(grid)
    tokens: list[str] = []
    for job in range(1, RUNNING + 1):
        at = float(job)
        answer = scheduler.handle(
            JobSubmitted(at=at, job=job, request=request(1, 50_000.0 + rng.uniform(0, 50_000.0)))
        )
        for command in answer:
            if isinstance(command, StartComponent):
                scheduler.handle(ComponentReady(at=at, token=command.token))
                tokens.append(command.token)
    for job in range(RUNNING + 1, RUNNING + waiting + 1):
        size = 2 + rng.randrange(SIZES)
        scheduler.handle(JobSubmitted(at=6_000.0, job=job, request=request(size, rng.uniform(100.0, 100_000.0))))
    scheduler.handle(Tick(at=6_000.0))
    return scheduler, tokens


def pass_s(scheduler: Scheduler, token: str, at: float) -> float:
    """The time from the end of a component until the queue has been scanned."""
    before = time.perf_counter()
    scheduler.handle(ComponentEnded(at=at, token=token, outcome=Outcome.DONE, exit_code=0))
    scheduler.handle(Tick(at=at))
    return time.perf_counter() - before


def main() -> None:
    """Measure and show."""
    table = Table("waiting", "plan_depth 0, ms", "plan_depth 1, ms")
    for waiting in (10_000, 100_000):
        worlds = [loaded(waiting, depth) for depth in (0, 1)]
        gc.collect()
        gc.disable()
        taken: list[list[float]] = [[], []]
        for number in range(PASSES):
            for (scheduler, tokens), times in zip(worlds, taken, strict=True):
                times.append(pass_s(scheduler, tokens[number], 6_001.0 + number))
        gc.enable()
        table.add_row(f"{waiting:,}", *(f"{statistics.median(times) * 1000:.2f}" for times in taken))
    Console().print(table)


if __name__ == "__main__":
    main()
