"""How long a job of two components takes from its submission until both truly run, and where that time goes."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass

from rich.table import Table
from tests.support.live_daemon import Daemon

from processes import percentile

# Each component prints when it runs, by the clock that the daemon and this program have too.
JOB = "name: clock\napplication: {script: date +%s.%N}\ncomponents: [{processors: 1, count: 2}]\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """When each thing happened to one job; of the two components, always the later."""

    asked_at: float
    submitted_at: float
    released_at: float
    runs_at: float


def one_start(daemon: Daemon) -> Start:
    """Submit a job to the idle grid and see it through."""
    asked_at = time.time()
    job = daemon.client.submit(JOB).job.id
    ended = daemon.client.wait_ended(job, timeout_s=120.0)
    if ended.state != "done":
        raise SystemExit(f"job {job} did not run: {ended.state}, {ended.reason}")
    detail = daemon.client.job(job)
    runs_at = [float(daemon.client.output(job, part=each.part).text) for each in detail.components]
    return Start(
        asked_at=asked_at,
        submitted_at=detail.submitted_at,
        released_at=max(each.released_at or 0.0 for each in detail.components),
        runs_at=max(runs_at),
    )


def two_shells_s() -> float:
    """What a machine needs at the least: two shells that run the same program, from nothing to both times."""
    asked_at = time.time()
    script = ["/bin/sh", "-c", "date +%s.%N"]
    both = [subprocess.Popen(script, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    return max(float(each.communicate()[0]) for each in both) - asked_at


def latency_table(starts: list[Start], bare_s: list[float]) -> Table:
    """The stages in order, and the whole."""
    table = Table(title=f"Two components from submission to running, {len(starts)} jobs", title_justify="left")
    table.add_column("stage", no_wrap=True)
    for column in ("p50 ms", "p99 ms"):
        table.add_column(column, justify="right", no_wrap=True)
    stages: list[tuple[str, list[float]]] = [
        ("call until the event is stamped", [each.submitted_at - each.asked_at for each in starts]),
        ("submitted until the barrier opens", [each.released_at - each.submitted_at for each in starts]),
        ("opened until both applications run", [each.runs_at - each.released_at for each in starts]),
        ("call until both applications run", [each.runs_at - each.asked_at for each in starts]),
        ("bare: two shells started from Python", bare_s),
    ]
    for number, (stage, values) in enumerate(stages):
        table.add_row(
            stage,
            f"{percentile(values, 50) * 1e3:.0f}",
            f"{percentile(values, 99) * 1e3:.0f}",
            end_section=number in (2, 3),
        )
    return table
