"""``make bench``: what the live daemon can take, how soon a job runs, and what the daemon costs while it waits.

Every figure is of a real ``koala up`` with real clients over its socket. Beside them stand bare figures of the same
run on the same machine: a server on uvicorn that does nothing, SQLite that only commits, a shell that only starts.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.console import Console
from rich.status import Status
from rich.table import Table

# The tests know how to start a daemon and a PostgreSQL server, and how to leave nothing of them behind.
sys.path.append(str(Path(__file__).parents[1]))

from tests.support.live_daemon import Daemon, running_daemon, until
from tests.support.postgres_server import postgres_server

from processes import cpu_s, load_percent, resident_mb
from start_latency import latency_table, one_start, two_shells_s
from submission_rates import Rate, add_rate, commits_per_s, echo_server, rates_table, submit_lean, submit_typed

# So many overviews are asked for to learn what one costs.
OVERVIEWS = 50
CLIENTS = 10
SUBMISSIONS_ALONE = 500
SUBMISSIONS_TOGETHER = 2_000
QUEUED_JOBS = 10_000
STARTS = 100
IDLE_S = 20.0
# Ten components that only wait: two jobs of five.
SLEEPERS = "name: sleeper\napplication: {script: sleep 600}\ncomponents: [{processors: 1, count: 5}]\n"
SLEEPER_JOBS = 2


@dataclass(slots=True)
class Bare:
    """What the machine could do at most."""

    alone: Rate
    together: Rate
    commits_per_s: float


@dataclass(slots=True)
class Costs:
    """What the daemon uses, by what it holds."""

    rows: list[tuple[str, str]] = field(default_factory=list)

    def add(self, what: str, figure: str) -> None:
        self.rows.append((what, figure))

    def table(self) -> Table:
        table = Table(title="What the daemon costs", title_justify="left")
        table.add_column("while", no_wrap=True)
        table.add_column("figure", justify="right", no_wrap=True)
        for row in self.rows:
            table.add_row(*row)
        return table


def measure_bare(directory: Path) -> Bare:
    with echo_server(directory) as (socket, pid):
        submit_lean(socket, pid, 0, 100, 1)
        alone = submit_lean(socket, pid, 0, 2_000, 1)
        together = submit_lean(socket, pid, 0, 5_000, CLIENTS)
    return Bare(alone, together, commits_per_s(directory))


@contextlib.contextmanager
def drained_daemon(directory: Path, *options: str) -> Iterator[Daemon]:
    """A daemon whose jobs all wait. It is killed at the end: nothing runs, so there is nothing to cancel."""
    directory.mkdir()
    with running_daemon(directory, options=options) as daemon:
        for site in daemon.client.sites():
            daemon.client.drain(site.name)
        yield daemon
        daemon.kill()


def measure_rates(table: Table, store: str, daemon: Daemon, bare: Bare) -> int:
    """One client and ten; how many jobs wait afterwards."""
    submit_lean(daemon.socket, daemon.pid, 0, 100, 1)
    alone = submit_lean(daemon.socket, daemon.pid, 100, SUBMISSIONS_ALONE, 1)
    add_rate(table, store, "1", 100, alone, bare.alone)
    waiting = 100 + SUBMISSIONS_ALONE
    together = submit_lean(daemon.socket, daemon.pid, waiting, SUBMISSIONS_TOGETHER, CLIENTS)
    add_rate(table, store, str(CLIENTS), waiting, together, bare.together)
    return waiting + SUBMISSIONS_TOGETHER


def overview_cpu_ms(daemon: Daemon) -> float:
    """What one overview costs the daemon, from the question to the answer."""
    before = cpu_s(daemon.pid)
    for _ in range(OVERVIEWS):
        daemon.client.overview()
    return 1_000 * (cpu_s(daemon.pid) - before) / OVERVIEWS


def measure_long_queue(table: Table, daemon: Daemon, waiting: int, bare: Bare, costs: Costs) -> None:
    """The same with ever more jobs waiting, up to the number whose weight is then taken."""
    few, few_ms = waiting, overview_cpu_ms(daemon)
    typed = submit_typed(daemon, waiting, SUBMISSIONS_ALONE)
    add_rate(table, "SQLite", "1 Python", waiting, typed, None)
    waiting += SUBMISSIONS_ALONE
    fill = QUEUED_JOBS - SUBMISSIONS_TOGETHER - waiting
    submit_lean(daemon.socket, daemon.pid, waiting, fill, CLIENTS)
    waiting += fill
    last = submit_lean(daemon.socket, daemon.pid, waiting, SUBMISSIONS_TOGETHER, CLIENTS)
    add_rate(table, "SQLite", str(CLIENTS), waiting, last, bare.together)
    counts = daemon.client.overview().counts
    if counts.get("waiting") != QUEUED_JOBS:
        raise SystemExit(f"{QUEUED_JOBS} jobs should wait, and it is {counts}; the figures would be wrong")
    many_ms = overview_cpu_ms(daemon)
    ratio = f"{many_ms:.1f} ms CPU, {many_ms / few_ms:.2f} times that with {few:,}"
    costs.add(f"{QUEUED_JOBS:,} jobs wait: an overview", ratio)
    costs.add(f"{QUEUED_JOBS:,} jobs wait: memory", f"{resident_mb(daemon.pid):.0f} MB")
    costs.add(f"{QUEUED_JOBS:,} jobs wait: CPU", f"{load_percent(daemon.pid, IDLE_S):.2f} %")


def measure_restarts(daemon: Daemon, what: str, costs: Costs) -> None:
    """From the start of the process until it answers. The kill comes first, while there are events to replay."""
    for how, end in (("kill -9", daemon.kill), ("a clean stop", daemon.stop)):
        end()
        begun = time.perf_counter()
        daemon.start()
        daemon.client.overview()
        taken_s = time.perf_counter() - begun
        costs.add(f"{what}: restart after {how}", f"{taken_s:.1f} s, CPU {cpu_s(daemon.pid):.1f} s")


def measure_idle(daemon: Daemon, costs: Costs) -> None:
    """A fresh daemon with nothing to do, and then with ten components to watch."""
    costs.add("nothing to do: memory", f"{resident_mb(daemon.pid):.0f} MB")
    costs.add("nothing to do: CPU", f"{load_percent(daemon.pid, IDLE_S):.2f} %")
    for _ in range(SLEEPER_JOBS):
        daemon.client.submit(SLEEPERS)
    until(lambda: len(daemon.client.overview().active) == SLEEPER_JOBS, "both jobs run")
    costs.add("10 components run: CPU", f"{load_percent(daemon.pid, IDLE_S):.2f} %")
    for job in daemon.client.each_job():
        daemon.client.cancel(job.id)
    until(lambda: not any(site.ours for site in daemon.client.sites()), "both jobs are gone")


def measure_starts(daemon: Daemon, status: Status) -> Table:
    one_start(daemon)
    starts = []
    for number in range(STARTS):
        status.update(f"measuring starts, {number} of {STARTS} ...")
        starts.append(one_start(daemon))
    return latency_table(starts, [two_shells_s() for _ in range(STARTS)])


def measure_postgres(directory: Path, table: Table, bare: Bare) -> None:
    """With PostgreSQL where it is installed."""
    try:
        with postgres_server() as server, drained_daemon(directory, "--database", server.new_database()) as daemon:
            measure_rates(table, "PostgreSQL", daemon, bare)
    except pytest.skip.Exception as skipped:
        table.caption = f"without PostgreSQL: {skipped}"


def main() -> None:
    out = Console()
    costs = Costs()
    rates = rates_table()
    with (
        tempfile.TemporaryDirectory(prefix="koala-bench-") as name,
        out.status("measuring the machine ...") as status,
    ):
        directory = Path(name)
        bare = measure_bare(directory)
        (directory / "idle").mkdir()
        with running_daemon(directory / "idle") as daemon:
            status.update("measuring an idle daemon ...")
            measure_idle(daemon, costs)
            latencies = measure_starts(daemon, status)
            measure_restarts(daemon, "nothing to do", costs)
        with drained_daemon(directory / "full") as daemon:
            status.update("measuring submissions ...")
            waiting = measure_rates(rates, "SQLite", daemon, bare)
            measure_long_queue(rates, daemon, waiting, bare, costs)
            status.update("measuring restarts ...")
            measure_restarts(daemon, f"{QUEUED_JOBS:,} jobs wait", costs)
        status.update("measuring PostgreSQL ...")
        measure_postgres(directory / "postgres", rates, bare)
    out.print(rates)
    out.print(
        f"bare: an empty server, {bare.alone.per_s:,.0f} requests/s from 1 client, "
        f"{bare.together.per_s:,.0f} from {CLIENTS}\n"
        f"SQLite that only commits: {bare.commits_per_s:,.0f} each second\n"
        "CPU ms: the daemon's for one submission; 1 Python: with the typed client\n"
    )
    out.print(latencies)
    out.print(costs.table())


if __name__ == "__main__":
    main()
