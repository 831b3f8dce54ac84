"""How many submissions the daemon puts on record each second, beside what its server and its disk could do."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from tests.support.live_daemon import Daemon, until

from lean_client import DESCRIPTION
from processes import cpu_s, percentile

_HERE = Path(__file__).parent
COMMITS = 500
# Of one submission a store keeps about so much.
COMMIT_BYTES = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """What came of some clients that submitted as fast as they could."""

    submissions: int
    taken_s: float
    each_s: list[float]
    server_cpu_s: float

    @property
    def per_s(self) -> float:
        """Submissions each second, over all clients."""
        return self.submissions / self.taken_s


def submit_lean(socket: Path, pid: int, first: int, count: int, clients: int) -> Rate:
    """So many submissions, shared among clients of a process each that begin at the same moment."""
    share = count // clients
    program = [sys.executable, str(_HERE / "lean_client.py"), str(socket)]
    with contextlib.ExitStack() as closing:
        children = [
            closing.enter_context(
                subprocess.Popen(
                    [*program, str(first + number * share), str(share)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for number in range(clients)
        ]
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise SystemExit("a client did not get to the server")
        cpu_before, begun = cpu_s(pid), time.perf_counter()
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        outputs = [child.communicate()[0] for child in children]
        taken_s = time.perf_counter() - begun
        server_cpu_s = cpu_s(pid) - cpu_before
        if any(child.returncode for child in children):
            raise SystemExit("a client failed; the figures would be wrong")
    each_s = [value for output in outputs for value in json.loads(output)]
    return Rate(submissions=len(each_s), taken_s=taken_s, each_s=each_s, server_cpu_s=server_cpu_s)


def submit_typed(daemon: Daemon, first: int, count: int) -> Rate:
    """The same with the Python client that users have."""
    each_s = []
    cpu_before = cpu_s(daemon.pid)
    begun = time.perf_counter()
    for number in range(first, first + count):
        before = time.perf_counter()
        daemon.client.submit(DESCRIPTION.format(number=number), client_token=f"token-{number}")
        each_s.append(time.perf_counter() - before)
    taken_s = time.perf_counter() - begun
    return Rate(submissions=count, taken_s=taken_s, each_s=each_s, server_cpu_s=cpu_s(daemon.pid) - cpu_before)


@contextlib.contextmanager
def echo_server(directory: Path) -> Iterator[tuple[Path, int]]:
    """The bare server: its socket and its process."""
    socket = directory / "echo.sock"
    with subprocess.Popen([sys.executable, str(_HERE / "echo_server.py"), str(socket)]) as process:
        try:
            until(socket.exists, "the bare server listens")
            yield socket, process.pid
        finally:
            process.terminate()


def commits_per_s(directory: Path) -> float:
    """How often each second SQLite alone can put something on the disk for good."""
    with contextlib.closing(sqlite3.connect(directory / "bare.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, body BLOB)")
        body = b"x" * COMMIT_BYTES
        begun = time.perf_counter()
        for _ in range(COMMITS):
            database.execute("INSERT INTO jobs (body) VALUES (?)", (body,))
        return COMMITS / (time.perf_counter() - begun)


def rates_table() -> Table:
    """Empty; ``add_rate`` fills it."""
    table = Table(title="Submissions, each durable when it is answered", title_justify="left")
    table.add_column("store", no_wrap=True)
    for column in ("clients", "waiting", "per s", "p50 ms", "p99 ms", "CPU ms", "of bare"):
        table.add_column(column, justify="right", no_wrap=True)
    return table


def add_rate(table: Table, store: str, clients: str, waiting: int, rate: Rate, bare: Rate | None) -> None:
    """One row; ``bare`` is the same load on the bare server."""
    table.add_row(
        store,
        clients,
        f"{waiting:,}",
        f"{rate.per_s:,.0f}",
        f"{percentile(rate.each_s, 50) * 1e3:.1f}",
        f"{percentile(rate.each_s, 99) * 1e3:.1f}",
        f"{rate.server_cpu_s / rate.submissions * 1e3:.2f}",
        "" if bare is None else f"{rate.per_s / bare.per_s:.0%}",
    )
