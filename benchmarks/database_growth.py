"""How much the database grows by a job and by an event, and how long a submission and a cancellation take.

    benchmarks/database_growth.py                                   of the koala beside this Python
    benchmarks/database_growth.py before=OTHER/bin/koala after=...  of several, case by case in turn

Each case runs on a daemon of its own with a fresh state: jobs of one component, one job of a thousand components
with a script of 60 KB, and a thousand jobs with that script. Nothing of them ever starts: the grid is too small.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lean_client import UnixConnection

GRID = "name: small\nsites:\n  a: {processors: 1, kind: local}\nscheduler: {scan_interval_s: 0}\n"
SCRIPT_LINES = 2_000
LINE = "echo this is one line of a long script\n"
START_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """What one case cost, from the first submission until the daemon has stopped."""

    jobs: int
    events: int
    bytes_kept: int
    submit_s: float
    cancel_s: float


def script_job(components: int) -> str:
    """A Slurm script of so many components, which a grid of one processor never runs."""
    parts = "#SBATCH hetjob\n".join(["#SBATCH --ntasks=2\n"] * components)
    return f"#!/bin/sh\n{parts}{LINE * SCRIPT_LINES}"[:60_000]


CASES: dict[str, tuple[int, str]] = {
    "100 jobs, 1 component": (100, "name: one\napplication: {script: exit 0}\ncomponents: [{processors: 2}]\n"),
    "1 job, 1,000 components, 60 KB": (1, script_job(1_000)),
    "1,000 jobs, 1 component, 60 KB": (1_000, script_job(1)),
}


@contextmanager
def daemon(program: str, state: Path) -> Iterator[UnixConnection]:
    """A daemon on the small grid; it stops at the end."""
    grid = state.with_suffix(".yaml")
    grid.write_text(GRID)
    with subprocess.Popen(
        [program, "up", "--state", str(state), "--grid", str(grid)], stdout=subprocess.DEVNULL
    ) as process:
        socket = state / "koala.sock"
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                connection = UnixConnection(str(socket))
                connection.connect()
                break
            except OSError:
                time.sleep(0.1)
        else:
            raise SystemExit(f"{program} up does not answer")
        try:
            yield connection
        finally:
            connection.close()
            process.terminate()


def call(connection: UnixConnection, method: str, path: str, body: object = None) -> dict[str, Any]:
    """One call, answered with success."""
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    data = answer.read()
    if answer.status >= 300:
        raise SystemExit(f"{method} {path} was answered with {answer.status}: {data.decode(errors='replace')[:500]}")
    found: dict[str, Any] = json.loads(data)
    return found


def growth(program: str, count: int, text: str) -> Growth:
    """Run one case."""
    with tempfile.TemporaryDirectory() as directory:
        state = Path(directory) / "state"
        with daemon(program, state):
            pass
        before_bytes, before_events = kept(state)
        with daemon(program, state) as connection:
            begun = time.perf_counter()
            for _ in range(count):
                job = call(connection, "POST", "/v1/jobs", {"description": text})["job"]["id"]
            submitted = time.perf_counter()
            call(connection, "POST", f"/v1/jobs/{job}/cancel")
            cancelled = time.perf_counter()
        after_bytes, after_events = kept(state)
    return Growth(
        jobs=count,
        events=after_events - before_events,
        bytes_kept=after_bytes - before_bytes,
        submit_s=(submitted - begun) / count,
        cancel_s=cancelled - submitted,
    )


def kept(state: Path) -> tuple[int, int]:
    """Bytes of the database of a stopped daemon, and the number of entries in its journal."""
    with closing(sqlite3.connect(state / "koala.db")) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (entries,) = database.execute("SELECT count(*) FROM journal").fetchone()
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = database.execute("PRAGMA page_size").fetchone()
    return pages * page_bytes, entries


def main() -> None:
    named = dict(argument.split("=", 1) for argument in sys.argv[1:])
    programs = named or {"now": str(Path(sys.executable).parent / "koala")}
    table = Table(title="What a job costs in the database", title_justify="left")
    for column in ("case", "Koala"):
        table.add_column(column, no_wrap=True)
    for column in ("KB a job", "B an entry", "ms a submission", "ms a cancellation"):
        table.add_column(column, justify="right", no_wrap=True)
    for case, (count, text) in CASES.items():
        for name, program in programs.items():
            found = growth(program, count, text)
            table.add_row(
                case,
                name,
                f"{found.bytes_kept / found.jobs / 1e3:,.1f}",
                f"{found.bytes_kept / max(1, found.events):,.0f}",
                f"{found.submit_s * 1e3:,.1f}",
                f"{found.cancel_s * 1e3:,.1f}",
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
