"""``make bench``: how long one scan takes where plans are made, beside the same scan without plans.

Twenty sites, 5,000 running jobs, and many waiting ones of 100 sizes with walltimes of their own. Components end here
and there, and the queue is scanned. The depths are measured in the same process in turn, in processor time, so that
others on the machine do not count; the median and the longest of each are shown. In the easy case all that runs and
all that ends has one processor, so that little can start. In the hard case sizes and ends are mixed, every site has
some processors idle, most waiting jobs would fit by numbers, and each has to be weighed against the plans.
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
DEPTHS = (0, 1, 8)
# In the hard case a running job has up to so many processors, so many end at once, and so many are idle at a site.
RUNNING_SIZE_MAX, ENDING, IDLE = 8, 4, 12


def request(processors: int, walltime_s: float) -> Request:
    """A total that FCM divides."""
    component = Component(processors=processors)
    return Request(components=(component,), flexible=Flexibility(), walltime_s=walltime_s)


def loaded(waiting: int, plan_depth: int, *, hard: bool) -> tuple[Scheduler, list[str]]:
    """A scheduler with that many jobs waiting behind those that run; the tokens of these."""
    rng = random.Random(1)
    sizes = [rng.randint(1, RUNNING_SIZE_MAX) if hard else 1 for _ in range(RUNNING)]
    processors = -(-sum(sizes) // SITES) + (IDLE if hard else 0)
    grid = Grid(
        sites=tuple(Site(name=f"c{index + 1}", processors=processors) for index in range(SITES)),
        scheduler=SchedulerParameters(
            policy="FCM", scan_interval_s=0.0, check_interval_s=None, plan_depth=plan_depth
        ),
    )
    scheduler = Scheduler(grid)
    tokens: list[str] = []
    for job, size in enumerate(sizes, start=1):
        at = float(job)
        answer = scheduler.handle(
            JobSubmitted(at=at, job=job, request=request(size, 50_000.0 + rng.uniform(0, 50_000.0)))
        )
        for command in answer:
            if isinstance(command, StartComponent):
                scheduler.handle(ComponentReady(at=at, token=command.token))
                tokens.append(command.token)
    job = RUNNING + 1
    # The first are wide, so that they wait and have plans; behind them all sizes.
    for wide in range(max(DEPTHS)):
        big = request(processors * SITES - 40 * wide, 20_000.0 + 1_000.0 * wide)
        scheduler.handle(JobSubmitted(at=6_000.0, job=job, request=big))
        job += 1
    for number in range(job, job + waiting):
        size = 2 + rng.randrange(SIZES)
        scheduler.handle(
            JobSubmitted(at=6_000.0, job=number, request=request(size, rng.uniform(50_000.0, 200_000.0)))
        )
    scheduler.handle(Tick(at=6_000.0))
    rng.shuffle(tokens)
    return scheduler, tokens


def pass_s(scheduler: Scheduler, tokens: list[str], at: float) -> float:
    """The time from the end of components until the queue has been scanned."""
    before = time.process_time()
    for token in tokens:
        scheduler.handle(ComponentEnded(at=at, token=token, outcome=Outcome.DONE, exit_code=0))
    scheduler.handle(Tick(at=at))
    return time.process_time() - before


def main() -> None:
    """Measure and show."""
    table = Table("case", "waiting", *(f"plan_depth {depth}, ms" for depth in DEPTHS))
    for hard in (False, True):
        ending = ENDING if hard else 1
        for waiting in (10_000, 100_000):
            worlds = [loaded(waiting, depth, hard=hard) for depth in DEPTHS]
            gc.collect()
            gc.disable()
            taken: list[list[float]] = [[] for _ in DEPTHS]
            for number in range(PASSES):
                for (scheduler, tokens), times in zip(worlds, taken, strict=True):
                    ended = tokens[number * ending : (number + 1) * ending]
                    times.append(pass_s(scheduler, ended, 6_001.0 + number))
            gc.enable()
            row = (f"{statistics.median(times) * 1000:.2f} (longest {max(times) * 1000:.1f})" for times in taken)
            table.add_row("hard" if hard else "easy", f"{waiting:,}", *row)
    Console().print(table)


if __name__ == "__main__":
    main()
