"""``make bench``: what Koala costs on real batch systems, on the lab of two Slurm clusters and a Grid Engine cell.

From submission to running over three idle clusters, beside the same three jobs submitted by hand at once;
co-allocated jobs per minute; errands and single commands at each batch system per job; and processor time wasted,
with claims by barrier and by reservation: what that is stands in ``kept_processors``. Without the batch systems'
programs it says what to install. It takes about seven minutes.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from koala import lab

# The tests know how to start a daemon on a lab, what the batch systems hold, and how to leave nothing behind.
sys.path.append(str(Path(__file__).parents[1]))

from tests.support.live_daemon import until
from tests.support.real_grid import SITES, RealGrid, real_grid

from batch_commands import CountedCommands
from kept_processors import TIMED_SCRIPT, Waste, reservations_seen, waste_of
from processes import percentile

STARTS = 30
CROWD = 30
# Listings of idle clusters, to see of how many commands one is; so far apart that nobody is told of an earlier one.
LISTINGS = 3
LISTINGS_APART_S = 1.2
# How long applications take: of the many, and of those that wait for a file.
BUSY_S = 1
FILED_S = 2
FILE_JOBS = 4
FILE_BYTES = 120_000_000
FILE_MBIT_S = 80
# At these two the jobs run that wait for a file; it is at beta.
FILED_AT = ("alpha", "gamma")
WAIT_S = 300.0

CLOCK = "name: clock\napplication: {script: date +%s.%N}\ncomponents:\n" + "".join(
    f"- {{processors: 2, site: {site}}}\n" for site in SITES
)
BUSY = (
    f"name: busy\napplication: {{script: {TIMED_SCRIPT.format(seconds=BUSY_S)}}}\npolicy: WF\n"
    "components: [{processors: 2, count: 3}]\n"
)
FILED = (
    "name: filed\nwalltime: 2m\ninput_files: [data]\n"
    f"application: {{script: {TIMED_SCRIPT.format(seconds=FILED_S)}}}\ncomponents:\n"
) + "".join(f"- {{processors: 2, site: {site}}}\n" for site in FILED_AT)

# By site, and there by what for.
Counts = dict[str, dict[str, float]]


# --------------------------------------------------------------------------------------------- how long a start takes


def start_s(grid: RealGrid) -> float:
    """One job over three idle clusters, from its submission until the last component's application runs."""
    asked_at = time.time()
    job = grid.done(grid.submit(CLOCK), WAIT_S).id
    return max(float(grid.printed(job, part)) for part in range(len(SITES))) - asked_at


def by_hand_s(the_lab: lab.Lab, directory: Path) -> float:
    """The same three jobs, submitted at once with sbatch and qsub, until the last runs."""
    directory.mkdir()
    asked_at = time.time()

    def submit(site: str) -> Path:
        told = directory / site
        script = f"#!/bin/sh\ndate +%s.%N >{told}.new && mv {told}.new {told}\n"
        words = ["sbatch", "-n", "2", "-o", "/dev/null"]
        if site == "gamma":
            words = ["qsub", "-S", "/bin/sh", "-j", "y", "-o", "/dev/null", "-pe", "mpi", "2"]
        answer = the_lab.run(site, *words, text=script)
        if answer.code != 0:
            raise SystemExit(f"{site}: {answer.stderr}")
        return told

    with ThreadPoolExecutor(len(SITES)) as pool:
        files = list(pool.map(submit, SITES))
    until(lambda: all(file.exists() for file in files), "all three run")
    return max(float(file.read_text()) for file in files) - asked_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """How long many starts took."""

    p50_s: float
    p90_s: float
    longest_s: float

    @classmethod
    def of(cls, took_s: list[float]) -> Starts:
        """Of so few, a higher percentile would be the longest."""
        return cls(p50_s=percentile(took_s, 50), p90_s=percentile(took_s, 90), longest_s=max(took_s))


def starts(the_lab: lab.Lab, root: Path, console: Console) -> tuple[Starts, Starts]:
    """Koala's, and those by hand, in turn."""
    ours, by_hand = [], []
    moments = random.Random(1)
    (root / "starts").mkdir()
    with real_grid(the_lab, root / "starts") as grid:

        def be_idle() -> None:
            """A batch system starts jobs in rounds of a second: nobody is to come at the same moment of one each
            time."""
            until(lambda: not any(grid.queued(site) for site in SITES), "what ran before is over and gone")
            time.sleep(moments.random())

        for number in range(STARTS):
            be_idle()
            ours.append(start_s(grid))
            be_idle()
            by_hand.append(by_hand_s(the_lab, root / f"by-hand-{number}"))
            console.print(f"start {number + 1} of {STARTS}: {ours[-1]:.2f} s, by hand {by_hand[-1]:.2f} s")
    return Starts.of(ours), Starts.of(by_hand)


# ------------------------------------------------------------------------------------------ what many jobs cost


def errands(grid: RealGrid) -> Counts:
    """How often each batch system was used so far, by what for. A listing is one script, of several commands."""
    found: Counts = {site: {} for site in SITES}
    pattern = r'^koala_site_calls_total\{(?=.*site="(\w+)")(?=.*call="([\w-]+)").*\} (\S+)$'
    for site, call, count in re.findall(pattern, grid.client.metrics(), re.MULTILINE):
        found[site][call] = float(count)
    return found


def more(after: Mapping[str, Mapping[str, float]], before: Mapping[str, Mapping[str, float]], jobs: int) -> Counts:
    """What has come besides, for each of so many jobs."""
    return {
        site: {what: (count - before[site].get(what, 0.0)) / jobs for what, count in sorted(counted.items())}
        for site, counted in after.items()
    }


def commands_per_listing(grid: RealGrid, counted: CountedCommands) -> dict[str, float]:
    """Of how many commands a listing of an idle cluster is."""
    errands_before, commands_before = errands(grid), counted.so_far()
    for _ in range(LISTINGS):
        for site in SITES:
            grid.client.probe(site)
        time.sleep(LISTINGS_APART_S)
    listings, used = more(errands(grid), errands_before, 1), more(counted.so_far(), commands_before, 1)
    return {site: sum(used[site].values()) / listings[site]["listing"] for site in SITES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """What many jobs cost that come at once."""

    jobs_per_minute: float
    errands_per_job: Counts
    commands_per_job: Counts
    commands_per_listing: dict[str, float]
    waste: Waste


def crowd(the_lab: lab.Lab, root: Path) -> Crowd:
    """Many jobs at once."""
    counted = CountedCommands(root / "commands", SITES)
    (root / "crowd").mkdir()
    with real_grid(the_lab, root / "crowd", sites=counted.settings()) as grid:
        per_listing = commands_per_listing(grid, counted)
        errands_before, commands_before = errands(grid), counted.so_far()
        begun = time.monotonic()
        ids = [grid.submit(BUSY) for _ in range(CROWD)]
        jobs = [grid.done(job, WAIT_S) for job in ids]
        took_s = time.monotonic() - begun
        return Crowd(
            jobs_per_minute=60 * CROWD / took_s,
            errands_per_job=more(errands(grid), errands_before, CROWD),
            commands_per_job=more(counted.so_far(), commands_before, CROWD),
            commands_per_listing=per_listing,
            waste=waste_of(grid, jobs, {}),
        )


def filed(the_lab: lab.Lab, root: Path, claims: str) -> Waste:
    """Jobs that wait for a file, one after the other, with claims of this kind."""
    # What is reserved for later wastes nothing until then, so that it is claimed at once.
    at_once: dict[str, Any] = {"claim_fraction": 0.05, "claim_fraction_min": 0.05} if claims == "reservation" else {}
    directory = root / claims
    directory.mkdir()
    data = directory / "data"
    data.write_bytes(bytes(FILE_BYTES))
    sites = {site: {"claims": claims} for site in SITES}
    with real_grid(the_lab, directory, FILE_MBIT_S, sites=sites, **at_once) as grid:
        grid.client.register("data", "beta", path=str(data))
        with reservations_seen(grid, FILED_AT) as reservations:
            jobs = [grid.done(grid.submit(FILED), WAIT_S) for _ in range(FILE_JOBS)]
        return waste_of(grid, jobs, reservations)


# -------------------------------------------------------------------------------------------------- all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that is measured."""

    starts: int
    ours: Starts
    by_hand: Starts
    crowd: Crowd
    by_barrier: Waste
    by_reservation: Waste


def measure(the_lab: lab.Lab, root: Path, console: Console) -> Figures:
    """All figures, one after the other."""
    ours, by_hand = starts(the_lab, root, console)
    console.print(f"now {CROWD} jobs of three components at once")
    many = crowd(the_lab, root)
    console.print("now with files, by barrier and by reservation")
    return Figures(
        starts=STARTS,
        ours=ours,
        by_hand=by_hand,
        crowd=many,
        by_barrier=filed(the_lab, root, "barrier"),
        by_reservation=filed(the_lab, root, "reservation"),
    )


def _in_words(counted: Mapping[str, float]) -> str:
    return ", ".join(f"{what} {count:.1f}" for what, count in counted.items() if count)


def table_of(figures: Figures) -> Table:
    """The figures for people."""
    table = Table(
        title="Koala on two Slurm clusters and a Grid Engine cell",
        title_justify="left",
        caption="Wasted is the time from when a processor is kept for a component, by its job or by its reservation, "
        "until its application begins, and from the application's end until its reservation is given back; as a "
        f"share of all the time that it is kept. Applications take {BUSY_S} s, those of jobs that wait for files "
        f"{FILED_S} s.",
        caption_justify="left",
    )
    table.add_column("what")
    for column in ("Koala", "by hand", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    ours, hand = figures.ours, figures.by_hand
    for words, one, other in (
        ("p50", ours.p50_s, hand.p50_s),
        ("p90", ours.p90_s, hand.p90_s),
        (f"the longest of {figures.starts}", ours.longest_s, hand.longest_s),
    ):
        table.add_row(
            f"submission until all three run, {words}, s", f"{one:.2f}", f"{other:.2f}", f"{one / other:.2f}"
        )
    table.add_section()
    many = figures.crowd
    table.add_row("co-allocated jobs per minute", f"{many.jobs_per_minute:.0f}", "", "", end_section=True)
    for site in SITES:
        done, used = many.errands_per_job[site], many.commands_per_job[site]
        table.add_row(f"errands per job at {site}: {_in_words(done)}", f"{sum(done.values()):.1f}", "", "")
        table.add_row(f"commands per job at {site}: {_in_words(used)}", f"{sum(used.values()):.1f}", "", "")
        table.add_row(f"commands of one listing at {site}", f"{many.commands_per_listing[site]:.1f}", "", "")
    table.add_section()
    reserved = figures.by_reservation
    held = f"{reserved.reserved} of {reserved.components} components had one"
    for words, waste in (
        ("wasted, jobs at once", many.waste),
        ("wasted, jobs that wait for files, claims by barrier", figures.by_barrier),
        (f"the same, claims by reservation ({held})", reserved),
    ):
        table.add_row(f"{words}: {waste.in_words}, %", f"{waste.percent:.1f}", "", "")
    return table


def main() -> None:
    """Measure and print; with ``--json`` for programs."""
    console = Console(stderr=True)
    root = Path(tempfile.mkdtemp(prefix="koala-bench-"))
    try:
        the_lab = lab.up(lab.LabOptions(directory=root / "lab"), say=console.print)
        try:
            figures = measure(the_lab, root, console)
        finally:
            the_lab.down()
    except lab.LabError as error:
        raise SystemExit(f"no figures of real clusters: {error}") from None
    finally:
        shutil.rmtree(root, ignore_errors=True)
    if "--json" in sys.argv[1:]:
        sys.stdout.write(f"{json.dumps(asdict(figures), indent=2)}\n")
    else:
        Console().print(table_of(figures))


if __name__ == "__main__":
    main()
