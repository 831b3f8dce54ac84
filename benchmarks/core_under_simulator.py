"""``make bench``: how fast the scheduler itself runs inside the simulator, beside a plain loop of the same model.

Every figure is taken in a process of its own, the two side by side, several times in turn; the best of each is
shown, since whatever else the machine does can only make a run slower. The mean waits must agree to the last bit:
a simulator that is fast because it does something else is not shown at all.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from first_fit import start_times
from koala.core import Scheduler
from koala.model.grid import Grid, SchedulerParameters, Site
from koala.model.messages import JobSubmitted, SiteReported, Tick
from koala.simulator import Workload, simulate
from koala.simulator.workloads.workload import single_component
from workloads import Jobs, burst, calm, poisson

CLUSTERS, PROCESSORS = 4, 100
ROUNDS = 5
SCANS = 2_000


def grid(plan_depth: int = 0) -> Grid:
    """Four clusters of 100 processors; the queue is scanned at every event that could help."""
    return Grid(
        sites=tuple(Site(name=f"c{index + 1}", processors=PROCESSORS) for index in range(CLUSTERS)),
        scheduler=SchedulerParameters(scan_interval_s=0.0, check_interval_s=None, plan_depth=plan_depth),
    )


def mean_wait_s(jobs: Jobs, starts: list[float]) -> float:
    return sum(start - submit for start, submit in zip(starts, jobs.submit_s, strict=True)) / len(starts)


def run_core(jobs: Jobs, plan_depth: int = 0) -> dict[str, Any]:
    workload = Workload.from_arrays(jobs.submit_s, jobs.processors, jobs.execution_s)
    before = time.process_time()
    result = simulate(grid(plan_depth), workload, policy="WF")
    taken_s = time.process_time() - before
    rows = list(result.rows())
    starts = [row.started for row in rows if row.started is not None]
    return {"s": taken_s, "events": result.events, "mean_wait_s": mean_wait_s(jobs, starts)}


def run_loop(jobs: Jobs) -> dict[str, Any]:
    before = time.process_time()
    starts = start_times(jobs, CLUSTERS, PROCESSORS)
    return {"s": time.process_time() - before, "mean_wait_s": mean_wait_s(jobs, starts)}


def run_scans(waiting: int, *, helped: bool) -> dict[str, Any]:
    """What one tick of the scan interval costs while this many jobs wait and none of them fits.

    Unchanged, nothing has happened since the last scan; helped, a processor has come free before each.
    """
    parameters = SchedulerParameters(scan_interval_s=1.0, check_interval_s=None)
    scheduler = Scheduler(
        Grid(
            sites=tuple(Site(name=f"c{index}", processors=PROCESSORS) for index in range(CLUSTERS)),
            scheduler=parameters,
        )
    )
    for index in range(CLUSTERS):
        scheduler.handle(SiteReported(at=0.0, site=f"c{index}", processors=PROCESSORS, others=PROCESSORS))
    for job, size in enumerate(poisson(waiting).processors):
        scheduler.handle(JobSubmitted(at=0.0, job=job, request=single_component(size)))
    scheduler.handle(Tick(at=3.0))
    taken_s = 0.0
    for number in range(SCANS):
        at = 4.0 + number
        if helped:
            scheduler.handle(
                SiteReported(at=at - 0.5, site="c0", processors=PROCESSORS, others=PROCESSORS - number % 2)
            )
        before = time.process_time()
        scheduler.handle(Tick(at=at))
        taken_s += time.process_time() - before
    return {"s": taken_s}


def measure(what: str, jobs: int) -> dict[str, Any]:
    """One measurement in a fresh process, with its memory."""
    output = subprocess.run([sys.executable, __file__, what, str(jobs)], check=True, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(output.stdout)
    return measured


def best(whats: list[str], jobs: int, rounds: int = ROUNDS) -> dict[str, dict[str, Any]]:
    """The best of several rounds for each, taken in turn."""
    found: dict[str, dict[str, Any]] = {}
    for _ in range(rounds):
        for what in whats:
            measured = measure(what, jobs)
            if what not in found or measured["s"] < found[what]["s"]:
                found[what] = measured
    return found


def child(what: str, count: int) -> None:
    measured: dict[str, Any]
    if what == "core":
        measured = run_core(poisson(count))
    elif what == "loop":
        measured = run_loop(poisson(count))
    elif what == "core-burst":
        measured = run_core(burst(count))
    elif what == "loop-burst":
        measured = run_loop(burst(count))
    elif what in ("calm", "calm-planned"):
        measured = run_core(calm(count), plan_depth=int(what == "calm-planned"))
    else:
        measured = run_scans(count, helped=what == "scans-helped")
    measured["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(json.dumps(measured))


def main() -> None:
    out = Console()
    with out.status("measuring ...") as status:
        table = Table(title=f"{CLUSTERS}x{PROCESSORS}, WF, single components, no faults", title_justify="left")
        table.add_column("load", no_wrap=True)
        for column in ("jobs", "core jobs/s", "µs a job", "loop jobs/s", "loop / core", "MB", "mean wait s"):
            table.add_column(column, justify="right")
        for name, suffix, jobs, rounds in (
            ("0.91", "", 10_000, ROUNDS),
            ("0.91", "", 100_000, ROUNDS),
            ("burst", "-burst", 10_000, ROUNDS),
        ):
            status.update(f"measuring {name}, {jobs:,} jobs ...")
            core, loop = best([f"core{suffix}", f"loop{suffix}"], jobs, rounds).values()
            if core["mean_wait_s"] != loop["mean_wait_s"]:
                raise SystemExit(f"the mean waits differ: {core['mean_wait_s']} and {loop['mean_wait_s']}")
            table.add_row(
                name,
                f"{jobs:,}",
                f"{jobs / core['s']:,.0f}",
                f"{core['s'] / jobs * 1e6:.0f}",
                f"{jobs / loop['s']:,.0f}",
                f"{core['s'] / loop['s']:.1f}",
                f"{core['rss_mb']:.0f}",
                f"{core['mean_wait_s']:.2f}",
            )
        status.update("measuring plans where nobody waits ...")
        without, planned = best(["calm", "calm-planned"], 10_000).values()
        plans = Table(title="What plans cost where hardly anybody waits (load 0.3)", title_justify="left")
        for column in ("jobs", "plan_depth 0, µs a job", "plan_depth 1, µs a job", "ratio"):
            plans.add_column(column, justify="right")
        each_us = (f"{each['s'] / 10_000 * 1e6:.0f}" for each in (without, planned))
        plans.add_row("10,000", *each_us, f"{planned['s'] / without['s']:.2f}")
        scans = Table(title="One scan of a queue in which no job fits", title_justify="left")
        for column in ("waiting jobs", "nothing changed, µs", "a processor came free, µs"):
            scans.add_column(column, justify="right")
        for waiting in (100, 1_000, 10_000):
            status.update(f"measuring scans, {waiting:,} jobs waiting ...")
            unchanged, helped = best(["scans-unchanged", "scans-helped"], waiting).values()
            scans.add_row(f"{waiting:,}", *(f"{each['s'] / SCANS * 1e6:.1f}" for each in (unchanged, helped)))
    out.print(table)
    out.print("load 0.91: Poisson arrivals; burst: all jobs are submitted at once, and nearly all of them wait\n")
    out.print(plans)
    out.print(scans)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(sys.argv[1], int(sys.argv[2]))
    else:
        main()
