"""``make bench``: how fast simulators run the same jobs under the same policy, measured in one run.

The mean wait stands beside the speed: jobs, policy and ties are the same, so it must be that of the plain loop in
Python to the last bit, and a simulator that has another one is shown as doing something else. Speed is jobs for each
second of processor time, the best of several turns; memory is what the process grows by at its peak, for each job.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from contenders import (
    ACCASIM,
    CORE,
    KERNEL,
    LIMIT,
    LOOP,
    SIMGRID,
    SIMGRID_OWN_ORDER,
    Arena,
    Contender,
    Missing,
    Platform,
)
from jobs_file import Measured
from mini_grid_speed import mini_grid_rows
from workloads import Jobs, poisson

FOUR, ONE = Platform(4, 100), Platform(1, 400)
WIDTH = 100
# Two of them agree on a mean wait when only the order of the sum may differ.
SAME = 1e-12


class Plan(NamedTuple):
    """How much to measure: jobs of the first table, turns, and the most jobs of each table of growth by contender."""

    jobs: int
    turns: int
    by_jobs: tuple[tuple[Contender, int], ...]
    by_clusters: tuple[tuple[Contender, int], ...]
    sizes: tuple[int, ...]
    clusters: tuple[int, ...]
    mini_grid_jobs_per_cluster: int


FULL = Plan(
    100_000,
    5,
    (
        (LIMIT, 1_000_000),
        (KERNEL, 1_000_000),
        (CORE, 100_000),
        (LOOP, 100_000),
        (SIMGRID, 100_000),
        (ACCASIM, 10_000),
    ),
    ((LIMIT, 100_000), (KERNEL, 100_000), (CORE, 10_000), (LOOP, 10_000), (SIMGRID, 10_000)),
    (10_000, 100_000, 1_000_000),
    (4, 16, 64, 256),
    400_000,
)
QUICK = Plan(
    10_000,
    1,
    ((LIMIT, 100_000), (KERNEL, 100_000), (CORE, 10_000), (LOOP, 100_000), (SIMGRID, 10_000), (ACCASIM, 10_000)),
    ((LIMIT, 10_000), (KERNEL, 10_000), (CORE, 10_000), (LOOP, 10_000), (SIMGRID, 10_000)),
    (10_000, 100_000),
    (4, 256),
    100_000,
)


class Row(NamedTuple):
    """One contender on one platform: ``valid`` if its mean wait is the reference; ``missing`` says how to get it."""

    system: str
    platform: str
    jobs: int
    jobs_per_s: float | None
    times_slower_than_kernel: float | None
    mean_wait_s: float | None
    reference_wait_s: float
    bytes_per_job: float | None
    valid: bool
    missing: str


def named(jobs: int, clusters: int = FOUR.clusters) -> str:
    return f"{jobs:,}" if clusters == FOUR.clusters else f"{jobs:,} on {clusters}"


def jobs_for(jobs: int, clusters: int) -> Jobs:
    """The workload with its arrivals brought together, so that the load is the same on more clusters of the same
    size. Times stay whole seconds."""
    drawn = poisson(jobs)
    if clusters == FOUR.clusters:
        return drawn
    return drawn._replace(submit_s=[float(int(at_s * FOUR.clusters / clusters)) for at_s in drawn.submit_s])


def rows_of(
    arena: Arena, contenders: Sequence[Contender], jobs: int, platform: Platform, turns: int, name: str
) -> list[Row]:
    """A row for each contender, checked against the plain loop."""
    measured = arena.best([KERNEL, LOOP, *contenders], name, platform, turns)
    kernel, reference = measured[KERNEL.name], measured[LOOP.name]
    assert isinstance(kernel, Measured)
    assert isinstance(reference, Measured)
    rows = []
    for contender in contenders:
        taken = measured[contender.name]
        shown = contender.name, str(platform), jobs
        if isinstance(taken, Missing):
            rows.append(Row(*shown, None, None, None, reference.mean_wait_s, None, False, str(taken)))
        else:
            valid = abs(taken.mean_wait_s - reference.mean_wait_s) <= SAME * reference.mean_wait_s
            speeds = jobs / taken.s, taken.s / kernel.s
            waits = taken.mean_wait_s, reference.mean_wait_s
            rows.append(Row(*shown, *speeds, *waits, taken.bytes_per_job, valid, ""))
    return rows


def first_table(arena: Arena, plan: Plan) -> list[Row]:
    name = named(plan.jobs)
    arena.write(name, jobs_for(plan.jobs, FOUR.clusters))
    # The two whose ratio is the smallest are taken more often, and in turn.
    rows = rows_of(arena, [LIMIT, KERNEL], plan.jobs, FOUR, max(3, 2 * plan.turns), name)
    rows += rows_of(arena, [LOOP, CORE, SIMGRID, SIMGRID_OWN_ORDER], plan.jobs, FOUR, min(2, plan.turns), name)
    rows += rows_of(arena, [LIMIT, KERNEL], plan.jobs, ONE, max(3, plan.turns), name)
    return rows + rows_of(arena, [ACCASIM], plan.jobs, ONE, 1, name)


def growth_by_jobs(arena: Arena, plan: Plan) -> list[Row]:
    rows = []
    for jobs in plan.sizes:
        arena.write(named(jobs), jobs_for(jobs, FOUR.clusters))
        taking_part = [contender for contender, most in plan.by_jobs if jobs <= most]
        many = [contender for contender in taking_part if contender is not ACCASIM]
        rows += rows_of(arena, many, jobs, FOUR, min(2, plan.turns), named(jobs))
        if ACCASIM in taking_part:
            rows += rows_of(arena, [ACCASIM], jobs, ONE, 1, named(jobs))
    return rows


def growth_by_clusters(arena: Arena, plan: Plan) -> list[Row]:
    rows: list[Row] = []
    for clusters in plan.clusters:
        platform = Platform(clusters, FOUR.processors)
        for jobs in sorted({most for _, most in plan.by_clusters}):
            name = named(jobs, clusters)
            arena.write(name, jobs_for(jobs, clusters))
            taking_part = [contender for contender, most in plan.by_clusters if most == jobs]
            rows += rows_of(arena, taking_part, jobs, platform, min(2, plan.turns), name)
    order = [contender.name for contender, _ in plan.by_clusters]
    return sorted(rows, key=lambda row: order.index(row.system))


def start_s() -> float:
    """Seconds on the clock from the start of a process to the end of a small run, its kernel compiled before."""
    code = "from koala.simulator.kernels.plain import run_plain; run_plain([0.0], [1.0], [1], [1], 'first-fit')"
    taken = []
    for _ in range(4):
        before_s = time.monotonic()
        subprocess.run([sys.executable, "-c", code], check=True)
        taken.append(time.monotonic() - before_s)
    return min(taken[1:])


def shown_speed(row: Row) -> str:
    if row.jobs_per_s is None:
        return "-"
    return f"{row.jobs_per_s:,.0f}" if row.valid else f"({row.jobs_per_s:,.0f})"


def print_first(out: Console, rows: list[Row]) -> None:
    table = Table(title=f"First fit, {rows[0].jobs:,} jobs at a load of 0.91", title_justify="left")
    table.add_column("system", no_wrap=True)
    table.add_column("platform")
    for column in ("jobs/s", "kernel faster", "mean wait s", "bytes/job"):
        table.add_column(column, justify="right")
    for row in rows:
        if row.jobs_per_s is None:
            table.add_row(row.system, row.platform, row.missing)
            continue
        assert row.mean_wait_s is not None
        assert row.times_slower_than_kernel is not None
        wait = f"{row.mean_wait_s:.2f}" if row.valid else f"{row.mean_wait_s:.2f}, not {row.reference_wait_s:.2f}"
        faster = f"{row.times_slower_than_kernel:,.2f}" if row.times_slower_than_kernel < 10 else ""
        faster = faster or f"{row.times_slower_than_kernel:,.0f}"
        table.add_row(
            row.system,
            row.platform,
            shown_speed(row),
            f"{faster} x" if row.valid else "-",
            wait,
            f"{row.bytes_per_job:,.0f}",
        )
    out.print(table)
    out.print(
        "In brackets: another mean wait than that of the plain loop, so no comparison. SimGrid wakes what happens "
        "at one moment in an order of its own, and looks at the queue before all that ends then has ended; its other "
        "row waits for that, and pays for it. AccaSim knows one cluster only.\n"
    )


def print_growth(out: Console, title: str, heads: list[str], rows: list[Row], head_of: dict[Row, str]) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("jobs/s of", no_wrap=True)
    for head in heads:
        table.add_column(head, justify="right")
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        cells.setdefault(row.system, {})[head_of[row]] = shown_speed(row)
    for system, by_head in cells.items():
        table.add_row(system, *(by_head.get(head, "") for head in heads))
    out.print(table)


def show(out: Console, found: dict[str, Any]) -> None:
    print_first(out, found["comparison"])
    by_jobs, by_clusters = found["by_jobs"], found["by_clusters"]
    heads = list(dict.fromkeys(f"{row.jobs:,} jobs" for row in by_jobs))
    title = f"From {heads[0]} to {heads[-1]}, {FOUR}; AccaSim {ONE}"
    print_growth(out, title, heads, by_jobs, {row: f"{row.jobs:,} jobs" for row in by_jobs})
    heads = list(dict.fromkeys(row.platform for row in by_clusters))
    most = {row.system: f"{row.jobs:,}" for row in by_clusters}
    title = f"From {heads[0]} to {heads[-1]}, at the same load"
    print_growth(out, title, heads, by_clusters, {row: row.platform for row in by_clusters})
    out.print("Jobs: " + "; ".join(f"{system} {jobs}" for system, jobs in most.items()) + ".\n")
    table = Table(title="The kernel for mini-grids, 4x100, links of 1000 Mbit/s", title_justify="left")
    for column in ("module", "Mbit/s a job", "jobs", "jobs/s", "mean turnaround s"):
        table.add_column(column, justify="left" if column == "module" else "right")
    for each in found["mini_grids"]:
        speed, turnaround = f"{each.jobs_per_s:,.0f}", f"{each.mean_turnaround_s:,.1f}"
        table.add_row(each.module, f"{each.bisection_mbit_s:.0f}", f"{each.jobs:,}", speed, turnaround)
    out.print(table)
    out.print(f"From the start of a process to the end of a small run of the kernel: {found['start_s']:.2f} s.")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare simulators on the same jobs, in one run.")
    parser.add_argument("--quick", action="store_true", help="fewer jobs and turns, in under a minute")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    plan = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="koala-bench-") as folder, Console(stderr=True).status("") as status:
        arena = Arena(Path(folder), status.update)
        found: dict[str, Any] = {
            "comparison": first_table(arena, plan),
            "by_jobs": growth_by_jobs(arena, plan),
            "by_clusters": growth_by_clusters(arena, plan),
            "mini_grids": mini_grid_rows(plan.mini_grid_jobs_per_cluster, status.update),
            "start_s": start_s(),
        }
    if options.json:
        rows = {name: [row._asdict() for row in rows] for name, rows in found.items() if isinstance(rows, list)}
        print(json.dumps({**rows, "start_s": found["start_s"], "load_of_the_machine": os.getloadavg()[0]}, indent=2))
    else:
        show(Console(width=WIDTH), found)


if __name__ == "__main__":
    main()
