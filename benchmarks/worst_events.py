"""How long the core takes for one event, for the largest jobs that the limits allow on a large grid.

Usage: python benchmarks/worst_events.py [SITES [DEPTH [CLASSES]]]. Each line is one case: processor seconds of the
submission, of the next scan while it waits, of an explanation and of a dry run. The daemon's event loop waits that
long, so that these are what bounds the wait of everybody else.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

from koala.core import Scheduler
from koala.model.grid import Grid, Link, Links, SchedulerParameters, Site
from koala.model.messages import JobSubmitted, SiteReported, Tick
from koala.model.nodes import NodeClass, NodeSize, TaskNeeds
from koala.model.request import Communication, Component, Flexibility, Pattern, Request
from koala.model.request_size import JOB_SHAPES_MAX
from koala.policies import Catalogue
from koala.policies.interface import compile_demand

GIB = 2**30
COMPONENTS = 1_000


def grid(sites: int, depth: int) -> Grid:
    """Sites of 64 nodes with 8 processors each."""
    return Grid(
        sites=tuple(Site(name=f"s{number}", processors=512) for number in range(sites)),
        links=Links(default=Link(bandwidth_mbit_s=1_000.0, latency_s=0.01)),
        scheduler=SchedulerParameters(scan_interval_s=0.0, plan_depth=depth),
    )


def reported(scheduler: Scheduler, sites: int, classes: int) -> None:
    """Each site tells of its nodes: so many classes, no two alike."""
    nodes = [NodeSize(8, (32 + number) * GIB, (("a100", 4),)) for number in range(classes)]
    for number in range(sites):
        told = tuple(NodeClass(64 // classes, node, node, ("fast",)) for node in nodes)
        scheduler.handle(SiteReported(at=1.0, site=f"s{number}", processors=512, others=0, nodes=told))


def shaped(tasks: int, number: int) -> Component:
    """Each component of another shape than those before it, as far as that goes."""
    number %= JOB_SHAPES_MAX
    needs = TaskNeeds(gpus=1 + number % 4, memory_bytes=GIB + number * 2**20, gpu="a100", constraint="fast")
    return Component(processors=tasks, needs=needs)


def cases() -> Iterator[tuple[str, Request]]:
    """Each as large as it may be in one respect; some fit, some do not."""
    for policy in ("WF", "CF", "CM", "NCM"):
        for size in (1, 512, 5_000):
            components = (Component(processors=size),) * COMPONENTS
            yield f"{COMPONENTS} x {size}, {policy}", Request(components=components, policy=policy)
    for policy in ("WF", "CM", "NCM"):
        alike = (shaped(1, 1),) * COMPONENTS
        yield f"{COMPONENTS} of one shape, {policy}", Request(components=alike, policy=policy)
        for tasks in (1, 200):
            components = tuple(shaped(tasks, number) for number in range(COMPONENTS))
            text = f"{COMPONENTS} of {JOB_SHAPES_MAX} shapes, {tasks} tasks, {policy}"
            yield text, Request(components=components, policy=policy)
    for policy in ("FCM", "NFCM", "A1", "B1"):
        for size in (100_000, 10_000_000):
            whole = (Component(processors=size),)
            request = Request(components=whole, flexible=Flexibility(component_min=1), policy=policy)
            yield f"flexible {size}, {policy}", request
    cube = Communication(pattern=Pattern.CUBE, bisection_mbit_s=10.0)
    yield (
        "cube 9,999,991, FCM",
        Request(
            components=(Component(processors=9_999_991),), flexible=Flexibility(), communication=cube, policy="FCM"
        ),
    )


def taken(call: Callable[[], object]) -> float:
    """Processor seconds of a call."""
    begun = time.process_time()
    call()
    return time.process_time() - begun


def main() -> None:
    """Measure every case on a fresh scheduler with other large jobs waiting."""
    sites, depth, classes = (int(value) for value in (sys.argv[1:] + ["500", "8", "16"][len(sys.argv) - 1 :]))
    catalogue = Catalogue.builtin()
    sys.stdout.write(f"{sites} sites, plan_depth {depth}, {classes} classes of nodes a site\n")
    for name, request in cases():
        scheduler = Scheduler(grid(sites, depth), catalogue)
        reported(scheduler, sites, classes)
        # Two more than have plans wait, and cannot start for want of processors.
        large = Request(
            components=(Component(processors=300),) * sites, policy="WF", walltime_s=3_600.0,
        )  # fmt: skip
        for number in range(1, depth + 3):
            scheduler.handle(JobSubmitted(at=2.0, job=number, request=large))
        job = depth + 3
        submit = taken(lambda: scheduler.handle(JobSubmitted(at=3.0, job=job, request=request)))  # noqa: B023
        scan = taken(lambda: [scheduler.handle(Tick(at=3.0 + step)) for step in (1, 2)])  # noqa: B023
        explain = taken(lambda: scheduler.explain(job))  # noqa: B023
        policy = catalogue.choose(request, "WF")

        def preview(request: Request = request, scheduler: Scheduler = scheduler, policy=policy) -> object:  # type: ignore[no-untyped-def]
            demand = compile_demand(request, policy, scheduler.ledger.index)
            return scheduler.preview(demand, request)

        row = (submit, scan, explain, taken(preview))
        sys.stdout.write(f"{name:40s}" + "".join(f"{value * 1000:9.1f} ms" for value in row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
