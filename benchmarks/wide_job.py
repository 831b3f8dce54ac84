"""How long a job as wide as three real clusters waits while small jobs of local users and of Koala's go on.

On the lab of two Slurm clusters and a Grid Engine cell. Users of each cluster submit small jobs without a pause, as
do users of Koala; then somebody submits a job of all processors. It is tried without plans, with a plan alone, and
with a plan before whose time it claims, at the barrier and by reservation, for ``WAIT_S`` at most. Not part of ``make
bench``: it takes about ten minutes.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from koala import lab

# The tests know how to start a daemon on a lab, what the batch systems hold, and how to leave nothing behind.
sys.path.append(str(Path(__file__).parents[1]))

from tests.support.real_grid import PROCESSORS, SITES, RealGrid, real_grid

# How long a wide job is given, and for how long small ones go on before it comes.
WAIT_S = 180.0
BEFORE_S = 25.0
# A local user's job has so many processors, runs so long and may run so long; the next comes so much later.
LOCAL_PROCESSORS, LOCAL_S, LOCAL_LIMIT_S, LOCAL_EVERY_S = 2, 15, 60, 5.0
OURS_EVERY_S = 3.0
SMALL = "name: small\nwalltime: 20s\napplication: {script: sleep 10}\ncomponents: [{processors: 1}]\n"
WIDE = "name: wide\nwalltime: 1m\napplication: {script: sleep 5}\ncomponents:\n" + "".join(
    f"- {{processors: {PROCESSORS}, site: {site}}}\n" for site in SITES
)
HELD = {"hold_budget": 0.5, "hold_budget_per_job": 0.5, "hold_window_s": 3_600.0, "hold_ahead_s": 120.0}
WAYS: dict[str, tuple[dict[str, Any], str]] = {
    "no plans": ({"plan_depth": 0}, "barrier"),
    "a plan, hold_budget 0": ({"plan_depth": 1}, "barrier"),
    "hold_budget, at the barrier": ({"plan_depth": 1, **HELD}, "barrier"),
    "hold_budget, by reservation": ({"plan_depth": 1, **HELD}, "reservation"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """How the wide job fared, and what was done beside it; no wait where it had not started in time."""

    way: str
    wait_s: float | None
    gained_processor_s: float
    wasted_processor_s: float
    local_jobs: int
    small_jobs: int
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


def started_after_s(grid: RealGrid, job: int) -> float | None:
    """How long the job waited, if it has started within ``WAIT_S``."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        found = grid.client.job(job)
        if found.started_at is not None:
            return found.started_at - found.submitted_at
        time.sleep(0.5)
    return None


def measure(the_lab: lab.Lab, directory: Path, way: str) -> Figures:
    """One wide job, the one way."""
    scheduler, claims = WAYS[way]
    directory.mkdir()
    sites = {site: {"claims": claims} for site in SITES}
    with real_grid(the_lab, directory, sites=sites, barrier_timeout_s=90.0, **scheduler) as grid:

        def local(site: str) -> Callable[[], object]:
            return lambda: grid.local_job(site, LOCAL_PROCESSORS, LOCAL_S, LOCAL_LIMIT_S)

        streams = [Stream(local(site), LOCAL_EVERY_S) for site in SITES]
        ours = Stream(lambda: grid.submit(SMALL), OURS_EVERY_S)
        try:
            time.sleep(BEFORE_S)
            job = grid.submit(WIDE)
            wait_s = started_after_s(grid, job)
            found, told = grid.client.job(job), grid.told(job)
        finally:
            for stream in (ours, *streams):
                stream.close()
        return Figures(
            way=way,
            wait_s=wait_s,
            gained_processor_s=found.gained_processor_s,
            wasted_processor_s=found.wasted_processor_s,
            local_jobs=sum(stream.submitted for stream in streams),
            small_jobs=ours.submitted,
            story=told,
        )


def table_of(figures: list[Figures]) -> Table:
    """The figures for people."""
    table = Table(title=f"A job of {PROCESSORS * len(SITES)} processors on three clusters", title_justify="left")
    for column in ("way", "waited, s", "wasted, processor s", "gained, processor s", "local jobs", "small jobs"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for each in figures:
        wait = f"over {WAIT_S:.0f}" if each.wait_s is None else f"{each.wait_s:.0f}"
        numbers = (f"{each.wasted_processor_s:.0f}", f"{each.gained_processor_s:.0f}")
        table.add_row(each.way, wait, *numbers, str(each.local_jobs), str(each.small_jobs))
    return table


def main() -> None:
    """Measure and print; with ``--json`` for programs, with words those ways whose names have one of them."""
    words = [word for word in sys.argv[1:] if word != "--json"]
    ways = [way for way in WAYS if not words or any(word in way for word in words)]
    console = Console(stderr=True)
    root = Path(tempfile.mkdtemp(prefix="koala-wide-"))
    found = []
    try:
        the_lab = lab.up(lab.LabOptions(directory=root / "lab"), say=console.print)
        try:
            for number, way in enumerate(ways):
                found.append(measure(the_lab, root / f"way-{number}", way))
                console.print(f"{way}: {found[-1].wait_s} s")
        finally:
            the_lab.down()
    except lab.LabError as error:
        raise SystemExit(f"no figures of real clusters: {error}") from None
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if "--json" in sys.argv[1:]:
        sys.stdout.write(f"{json.dumps([asdict(each) for each in found], indent=2)}\n")
    else:
        Console().print(table_of(found))


if __name__ == "__main__":
    main()
