"""How long a job as wide as three real clusters waits while small jobs of local users and of Koala's go on.

On the lab of two Slurm clusters and a Grid Engine cell. Users of each cluster submit small jobs without a pause, as
do users of Koala; then somebody submits a job of all processors. It is tried without plans, with a plan alone, and
with a plan before whose time it claims, at the barrier and by reservation, for ``WAIT_S`` and three times the limit
of local jobs at most. ``--limit 180`` lets every other local job ask for three minutes instead of one, so that the
plan is as far away. Not part of ``make bench``: it takes about ten minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from koala import lab

# The tests know how to start a daemon on a lab, what the batch systems hold, and how to leave nothing behind.
sys.path.append(str(Path(__file__).parents[1]))

from tests.support.real_grid import PROCESSORS, SITES, SLURM_SITES, RealGrid, real_grid

# How long a wide job is given beside the limits of local jobs, and for how long small ones go on before it comes.
WAIT_S = 120.0
BEFORE_S = 25.0
# A local user's job has so many processors, runs so long and may run so long; the next comes so much later.
LOCAL_PROCESSORS, LOCAL_S, LOCAL_EVERY_S = 2, 15, 5.0
LOCAL_LIMIT_S = 60
OURS_EVERY_S = 3.0
SMALL = "name: small\nwalltime: 20s\napplication: {script: sleep 10}\ncomponents: [{processors: 1}]\n"
WIDE = "name: wide\nwalltime: 1m\napplication: {script: sleep 5}\ncomponents:\n" + "".join(
    f"- {{processors: {PROCESSORS}, site: {site}}}\n" for site in SITES
)
HELD = {"hold_budget": 0.5, "hold_budget_per_job": 0.5, "hold_window_s": 3_600.0}
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "no plans": ({"plan_depth": 0}, "barrier"),
    "a plan, hold_budget 0": ({"plan_depth": 1}, "barrier"),
    "hold_budget, at the barrier": ({"plan_depth": 1, **HELD}, "barrier"),
    "hold_budget, by reservation": ({"plan_depth": 1, **HELD}, "reservation"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How the wide job fared, and what was done beside it; no wait where it had not started in time. ``planned_s`` is
    how far away its plan was when it had come, ``reserved_s`` when the reservation at each site began after that,
    ``local_started`` how many local jobs of each limit (minutes) the Slurm clusters started while it waited."""

    way: str
    local_limit_s: int
    planned_s: float | None
    reserved_s: dict[str, float]
    wait_s: float | None
    gained_processor_s: float
    wasted_processor_s: float
    local_jobs: int
    small_jobs: int
    local_started: dict[str, int]
    story: list[str]


class Stream:
    """Submits again and again, in a thread of its own, until it is closed; counts what it has submitted."""

    def __init__(self, submit: Callable[[], object], every_s: float) -> None:
        self.submitted = 0
        self._submit = submit
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            self._submit()
            self.submitted += 1
            self._over.wait(self._every_s)

    def close(self) -> None:
        self._over.set()
        self._thread.join()


@dataclass
class Watched:
    """What is seen of a wide job until it has started."""

    planned_s: float | None = None
    wait_s: float | None = None
    reserved_s: dict[str, float] = field(default_factory=dict)


def watched(grid: RealGrid, job: int, wait_s: float) -> Watched:
    """Look at the job until it has started, for so long at most."""
    seen = Watched()
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        found = grid.client.job(job)
        if found.started_at is not None:
            seen.wait_s = found.started_at - found.submitted_at
            break
        if seen.planned_s is None:
            latest_at = grid.client.explain(job).latest_at
            seen.planned_s = None if latest_at is None else latest_at - found.submitted_at
        for site in SITES:
            for begins in grid.reservations(site).values():
                seen.reserved_s[site] = begins.timestamp() - found.submitted_at
        time.sleep(0.5)
    return seen


def local_started(the_lab: lab.Lab, from_at: float, to_at: float) -> dict[str, int]:
    """How many local jobs of each limit the Slurm clusters started in that time, by what they put on record of those
    that have ended."""
    found: Counter[str] = Counter()
    for site in SLURM_SITES:
        record = Path(the_lab.environment(site)["SLURM_CONF"]).with_name("jobcomp.txt")
        for line in record.read_text().splitlines():
            words = dict(word.split("=", 1) for word in line.split() if "=" in word)
            if words.get("Name") == "local-user" and words["StartTime"][:1].isdigit():
                at = datetime.fromisoformat(words["StartTime"]).timestamp()
                found[words["TimeLimit"]] += from_at <= at < to_at
    return dict(found)


def measure(the_lab: lab.Lab, directory: Path, way: str, limit_s: int) -> Figures:
    """One wide job, the one way."""
    scheduler, claims = WAYS[way]
    directory.mkdir()
    sites = {site: {"claims": claims} for site in SITES}
    if "hold_budget" in scheduler:
        scheduler = {**scheduler, "hold_ahead_s": 2.0 * limit_s}
    with real_grid(the_lab, directory, sites=sites, barrier_timeout_s=90.0, **scheduler) as grid:

        def local(site: str) -> Callable[[], object]:
            limits = itertools.cycle((limit_s, LOCAL_LIMIT_S))
            return lambda: grid.local_job(site, LOCAL_PROCESSORS, LOCAL_S, next(limits))

        streams = [Stream(local(site), LOCAL_EVERY_S) for site in SITES]
        ours = Stream(lambda: grid.submit(SMALL), OURS_EVERY_S)
        try:
            time.sleep(BEFORE_S)
            job = grid.submit(WIDE)
            seen = watched(grid, job, WAIT_S + 3 * limit_s)
            found, told = grid.client.job(job), grid.told(job)
        finally:
            for stream in (ours, *streams):
                stream.close()
        return Figures(
            way=way,
            local_limit_s=limit_s,
            planned_s=seen.planned_s,
            reserved_s=seen.reserved_s,
            wait_s=seen.wait_s,
            gained_processor_s=found.gained_processor_s,
            wasted_processor_s=found.wasted_processor_s,
            local_jobs=sum(stream.submitted for stream in streams),
            small_jobs=ours.submitted,
            local_started=local_started(the_lab, found.submitted_at, found.started_at or time.time()),
            story=told,
        )


def table_of(figures: list[Figures]) -> Table:
    """The figures for people."""
    table = Table(title=f"A job of {PROCESSORS * len(SITES)} processors on three clusters", title_justify="left")
    heads = ("way", "planned, s", "reserved, s", "waited, s", "wasted, processor s", "gained, processor s")
    for column in (*heads, "local jobs", "small jobs"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for each in figures:
        planned = "" if each.planned_s is None else f"{each.planned_s:.0f}"
        reserved = ", ".join(f"{site} {begins:.0f}" for site, begins in sorted(each.reserved_s.items()))
        wait = "not started" if each.wait_s is None else f"{each.wait_s:.0f}"
        numbers = (f"{each.wasted_processor_s:.0f}", f"{each.gained_processor_s:.0f}")
        table.add_row(each.way, planned, reserved, wait, *numbers, str(each.local_jobs), str(each.small_jobs))
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only those ways whose names have one of these words")
    parser.add_argument("--limit", type=int, default=LOCAL_LIMIT_S, help="how long local jobs may run, in seconds")
    parser.add_argument("--json", action="store_true", help="print JSON, with the story of the wide job")
    chosen = parser.parse_args()
    ways = [way for way in WAYS if not chosen.words or any(word in way for word in chosen.words)]
    console = Console(stderr=True)
    root = Path(tempfile.mkdtemp(prefix="koala-wide-"))
    found = []
    try:
        the_lab = lab.up(lab.LabOptions(directory=root / "lab"), say=console.print)
        try:
            for number, way in enumerate(ways):
                found.append(measure(the_lab, root / f"way-{number}", way, chosen.limit))
                console.print(f"{way}: {found[-1].wait_s} s")
        finally:
            the_lab.down()
    except lab.LabError as error:
        raise SystemExit(f"no figures of real clusters: {error}") from None
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if chosen.json:
        sys.stdout.write(f"{json.dumps([asdict(each) for each in found], indent=2)}\n")
    else:
        Console().print(table_of(found))


if __name__ == "__main__":
    main()
