"""``make bench``: how long one scan takes where plans are made, beside the same scan without plans.

Twenty sites, 5,000 running jobs, and many waiting ones of 100 sizes with walltimes of their own. Components end here
and there, and the queue is scanned. The depths are measured in the same process in turn, in processor time, so that
others on the machine do not count; the median and the longest of each are shown. In the easy case all that runs and
all that ends has one processor, so that little can start. In the hard case sizes and ends are mixed, every site has
some processors idle, most waiting jobs would fit by numbers, and each has to be weighed against the plans. That case
is measured by each order of the queue, too, with jobs of one user and of many. With
nodes each site has ten classes of them, with memory and GPUs, and tells who holds what of them; all jobs, those that
run and those that wait, have tasks of one of four shapes.
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
    SiteReported,
    StartComponent,
    Tick,
)
from koala.model.nodes import NodeClass, NodeSize, TaskNeeds, TaskShape
from koala.model.request import Application, Component, Flexibility, Request
from koala.simulator.world.nodes import SiteNodes

SITES, RUNNING, SIZES = 20, 5_000, 100
PASSES = 30
USERS = (1, 10, 100)
DEPTHS = (0, 1, 8)
# In the hard case a running job has up to so many processors, so many end at once, and so many are idle at a site.
RUNNING_SIZE_MAX, ENDING, IDLE = 8, 4, 12

GIB = 2**30
# With nodes: the shapes of tasks, as (processors, memory, GPUs), and of each site the classes of nodes.
SHAPES = ((1, 0, 0), (2, 4 * GIB, 0), (1, 0, 1), (4, 16 * GIB, 2))
NODE_CLASSES = 10
NODE_WAITING = 10_000
TOLD_AFTER = 100  # while the world is made, sites tell of so many starts at once


def request(processors: int, walltime_s: float) -> Request:
    """A total that FCM divides."""
    component = Component(processors=processors)
    return Request(components=(component,), flexible=Flexibility(), walltime_s=walltime_s)


def loaded(
    waiting: int, plan_depth: int, *, hard: bool, order: str = "fcfs", users: int = 1
) -> tuple[Scheduler, list[str]]:
    """A scheduler with that many jobs waiting behind those that run; the tokens of these."""
    rng = random.Random(1)
    sizes = [rng.randint(1, RUNNING_SIZE_MAX) if hard else 1 for _ in range(RUNNING)]
    processors = -(-sum(sizes) // SITES) + (IDLE if hard else 0)
    grid = Grid(
        sites=tuple(Site(name=f"c{index + 1}", processors=processors) for index in range(SITES)),
        scheduler=SchedulerParameters(
            policy="FCM", scan_interval_s=0.0, check_interval_s=None, plan_depth=plan_depth, order=order
        ),
    )
    scheduler = Scheduler(grid)
    tokens: list[str] = []
    for job, size in enumerate(sizes, start=1):
        at = float(job)
        answer = scheduler.handle(
            JobSubmitted(at=at, job=job, request=request(size, 50_000.0 + rng.uniform(0, 50_000.0)))
        )
        for command in answer.commands:
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
        asked = request(size, rng.uniform(50_000.0, 200_000.0))
        scheduler.handle(JobSubmitted(at=6_000.0, job=number, request=asked, owner=f"u{number % users}"))
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


class NodeWorld:
    """A scheduler with jobs of shaped tasks, and the nodes of its sites, which it is told of."""

    def __init__(self, waiting: int, plan_depth: int) -> None:
        self._rng = rng = random.Random(1)
        sizes = [
            NodeSize(8 * (1 + kind % 4), 64 * GIB * (1 + kind % 3), ((("a100", "v100")[kind % 2], 2 + kind % 3),))
            for kind in range(NODE_CLASSES)
        ]
        classes = tuple([NodeClass(16, size, size, ("big",) if size.processors > 16 else ()) for size in sizes])
        self._processors = sum(each.count * each.whole.processors for each in classes)
        names = [f"c{index + 1}" for index in range(SITES)]
        self._nodes: dict[str, SiteNodes[str]] = {name: SiteNodes.of_classes(classes) for name in names}
        grid = Grid(
            sites=tuple(Site(name=name, processors=self._processors, node_classes=classes) for name in names),
            scheduler=SchedulerParameters(
                policy="FCM", scan_interval_s=0.0, check_interval_s=None, plan_depth=plan_depth
            ),
        )
        self.scheduler = Scheduler(grid)
        self.tokens: list[tuple[str, str]] = []  # of what runs, with its site
        self._job = 0
        for name in names:
            self._tell(name, 0.0)
        while len(self.tokens) < RUNNING and self._submit(
            0.0, rng.randint(1, 4), 50_000.0 + rng.uniform(0, 50_000.0)
        ):
            pass
        for name in names:
            self._tell(name, 0.0)
        for wide in range(max(DEPTHS)):
            self._submit(6_000.0, 4_000 - 40 * wide, 20_000.0 + 1_000.0 * wide, shape=wide % 2)
        for _ in range(waiting):
            self._submit(6_000.0, 2 + rng.randrange(SIZES), rng.uniform(50_000.0, 200_000.0))
        self.scheduler.handle(Tick(at=6_000.0))
        rng.shuffle(self.tokens)

    def _submit(self, at: float, tasks: int, walltime_s: float, shape: int | None = None) -> bool:
        """Whether it started at once."""
        self._job += 1
        processors, memory_bytes, gpus = SHAPES[tasks % len(SHAPES) if shape is None else shape]
        component = Component(
            processors=tasks * processors,
            application=Application(processors_per_task=processors),
            needs=TaskNeeds(memory_bytes=memory_bytes, gpus=gpus),
        )
        asked = Request(components=(component,), flexible=Flexibility(), walltime_s=walltime_s)
        started = [
            each
            for each in self.scheduler.handle(JobSubmitted(at=at, job=self._job, request=asked)).entries
            if isinstance(each, StartComponent)
        ]
        for each in started:
            needs = TaskShape(processors, memory_bytes, gpus)
            self._nodes[each.site].take_tasks(each.token, needs, each.processors // processors)
            self.scheduler.handle(ComponentReady(at=at, token=each.token))
            self.tokens.append((each.token, each.site))
            if len(self.tokens) % TOLD_AFTER == 0:
                for site in {site for _, site in self.tokens[-TOLD_AFTER:]}:
                    self._tell(site, at)
        return bool(started)

    def _tell(self, site: str, at: float) -> None:
        self.scheduler.handle(self._report(site, at))

    def _report(self, site: str, at: float) -> SiteReported:
        nodes = self._nodes[site]
        shown, classes = tuple(nodes.holders()), nodes.classes(str)
        return SiteReported(at=at, site=site, processors=self._processors, others=0, nodes=classes, shown=shown)

    def pass_s(self, ended: list[tuple[str, str]], at: float) -> float:
        """The time from the end of components until the sites have told of it and the queue has been scanned."""
        for token, site in ended:
            self._nodes[site].give_back(token)
        reports = [self._report(site, at) for site in sorted({site for _, site in ended})]
        before = time.process_time()
        for token, _ in ended:
            self.scheduler.handle(ComponentEnded(at=at, token=token, outcome=Outcome.DONE, exit_code=0))
        for report in reports:
            self.scheduler.handle(report)
        answer = self.scheduler.handle(Tick(at=at)).entries
        took_s = time.process_time() - before
        for each in answer:  # what starts is shown from the next pass on
            if isinstance(each, StartComponent):
                self._show(each, at)
        return took_s

    def _show(self, started: StartComponent, at: float) -> None:
        shape = self.scheduler.ledger.jobs[started.job].request.shape_of(started.component) or TaskShape()
        self._nodes[started.site].take_tasks(started.token, shape, started.processors // shape.processors)
        self._tell(started.site, at)
        self.scheduler.handle(ComponentReady(at=at, token=started.token))


def with_nodes(table: Table) -> None:
    """The case of shaped tasks."""
    worlds = [NodeWorld(NODE_WAITING, depth) for depth in DEPTHS]
    gc.collect()
    gc.disable()
    taken: list[list[float]] = [[] for _ in DEPTHS]
    for number in range(PASSES):
        for world, times in zip(worlds, taken, strict=True):
            times.append(world.pass_s(world.tokens[number * ENDING : (number + 1) * ENDING], 6_001.0 + number))
    gc.enable()
    row = (f"{statistics.median(times) * 1000:.2f} (longest {max(times) * 1000:.1f})" for times in taken)
    running = ", ".join(f"{len(world.tokens):,}" for world in worlds)
    table.add_row(f"nodes ({running} components run)", f"{NODE_WAITING:,}", *row)


def orders() -> Table:
    """The hard case with 100,000 waiting jobs, by each order, where they are of one user and of many."""
    table = Table("order", *(f"{users} users, ms" for users in USERS))
    for order in ("fcfs", "sjf", "round-robin"):
        worlds = [loaded(100_000, 1, hard=True, order=order, users=users) for users in USERS]
        gc.collect()
        gc.disable()
        taken: list[list[float]] = [[] for _ in USERS]
        for number in range(PASSES):
            for (scheduler, tokens), times in zip(worlds, taken, strict=True):
                times.append(pass_s(scheduler, tokens[number * ENDING : (number + 1) * ENDING], 6_001.0 + number))
        gc.enable()
        row = (f"{statistics.median(times) * 1000:.2f} (longest {max(times) * 1000:.1f})" for times in taken)
        table.add_row(order, *row)
    return table


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
    with_nodes(table)
    Console().print(table)
    Console().print(orders())


if __name__ == "__main__":
    main()
