"""``make bench``: what Koala costs on real batch systems, on the lab of two Slurm clusters and a Grid Engine cell.

From submission to running over three idle clusters, beside the same three jobs submitted by hand at once;
co-allocated jobs per minute; uses of each batch system per job; and processor time wasted at barriers, with claims
by barrier and by reservation. Without the batch systems' programs it says what to install.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from koala import lab
from koala.wire import ComponentRun, JobDetail

# The tests know how to start a daemon and to leave nothing of it behind.
sys.path.append(str(Path(__file__).parents[1] / "tests"))

from live_daemon import Daemon, running_daemon, until
from processes import percentile

SITES = ("alpha", "beta", "gamma")
STARTS = 20
# So that what ran before is over and gone.
PAUSE_S = 1.5
CROWD = 30
FILE_JOBS = 4
FILE_BYTES = 120_000_000
FILE_MBIT_S = 80
WAIT_S = 300.0

CLOCK = "name: clock\napplication: {script: date +%s.%N}\ncomponents:\n" + "".join(
    f"- {{processors: 2, site: {site}}}\n" for site in SITES
)
BUSY = "name: busy\napplication: {script: sleep 1}\npolicy: WF\ncomponents: [{processors: 2, count: 3}]\n"
# At alpha and gamma; their file is at beta, so that they start when it has come.
FILED = (
    "name: filed\nwalltime: 2m\ninput_files: [data]\napplication: {script: sleep 2}\n"
    "components:\n- {processors: 2, site: alpha}\n- {processors: 2, site: gamma}\n"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Waste:
    """Processor seconds between the first processor of a component and the opening of its barrier."""

    wasted_s: float
    held_s: float

    @property
    def percent(self) -> float:
        """As a share of all that the components held."""
        return 100 * self.wasted_s / self.held_s if self.held_s else 0.0


def waste_of(jobs: Sequence[JobDetail]) -> Waste:
    """Over all components that were ever ready."""
    ready = [each for job in jobs for each in job.components if each.ready_at is not None]
    return Waste(
        wasted_s=sum(_until_release_s(each) * each.processors for each in ready),
        held_s=sum(((each.ended_at or 0.0) - (each.ready_at or 0.0)) * each.processors for each in ready),
    )


def _until_release_s(component: ComponentRun) -> float:
    until_at = component.released_at or component.ended_at or 0.0
    return until_at - (component.ready_at or 0.0)


def done(daemon: Daemon, job: int) -> JobDetail:
    """The job, which must end well."""
    if daemon.client.wait_ended(job, timeout_s=WAIT_S).state != "done":
        found = daemon.client.job(job)
        raise SystemExit(f"job {job} did not run: {found.state}, {found.reason}")
    return daemon.client.job(job)


def start_s(daemon: Daemon) -> float:
    """One job over three idle clusters, from its submission until the last component's application runs."""
    asked_at = time.time()
    detail = done(daemon, daemon.client.submit(CLOCK).job.id)
    return max(float(daemon.client.output(detail.id, part=part).text) for part in range(len(SITES))) - asked_at


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


def calls(daemon: Daemon) -> dict[str, dict[str, float]]:
    """How often each batch system was used so far, by what for. A listing is one errand: four commands of Slurm, six
    or seven where accounts have limits, and three to five of Grid Engine; a submission is one command, or a few where
    Koala chooses the environment."""
    found: dict[str, dict[str, float]] = {site: {} for site in SITES}
    pattern = r'^koala_site_calls_total\{(?=.*site="(\w+)")(?=.*call="([\w-]+)").*\} (\S+)$'
    for site, call, count in re.findall(pattern, daemon.client.metrics(), re.MULTILINE):
        found[site][call] = float(count)
    return found


def crowd(daemon: Daemon) -> tuple[list[JobDetail], float]:
    """Many jobs at once; their details, and how long all of them took."""
    begun = time.monotonic()
    ids = [daemon.client.submit(BUSY).job.id for _ in range(CROWD)]
    jobs = [done(daemon, job) for job in ids]
    return jobs, time.monotonic() - begun


def filed(the_lab: lab.Lab, root: Path, claims: str) -> Waste:
    """Jobs that wait for a file, one after the other, with claims of this kind."""
    text = the_lab.grid_file.read_text(encoding="utf-8")
    text = re.sub(r"(    work_directory: .*)", rf"\1-{claims}\n    claims: {claims}", text)
    text = re.sub(r"bandwidth_mbit_s: .*", f"bandwidth_mbit_s: {FILE_MBIT_S}", text)
    if claims == "reservation":
        # What is reserved for later wastes nothing until then, so that it is claimed at once.
        text = text.replace("\nscheduler:\n", "\nscheduler:\n  claim_fraction: 0.05\n  claim_fraction_min: 0.05\n")
    directory = root / claims
    directory.mkdir()
    data = directory / "data"
    data.write_bytes(bytes(FILE_BYTES))
    with running_daemon(directory, grid=text) as daemon:
        until(lambda: all(site.reported_at for site in daemon.client.sites()), "all sites have reported")
        daemon.client.register("data", "beta", path=str(data))
        return waste_of([done(daemon, daemon.client.submit(FILED).job.id) for _ in range(FILE_JOBS)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """All that is measured."""

    start_p50_s: float
    start_p99_s: float
    by_hand_p50_s: float
    by_hand_p99_s: float
    jobs_per_minute: float
    calls_per_job: dict[str, dict[str, float]]
    crowd_waste_percent: float
    barrier_waste_percent: float
    reservation_waste_percent: float


def measure(the_lab: lab.Lab, root: Path, console: Console) -> Figures:
    """All figures, one after the other."""
    (root / "daemon").mkdir()
    with running_daemon(root / "daemon", grid=str(the_lab.grid_file)) as daemon:
        until(lambda: all(site.reported_at for site in daemon.client.sites()), "all sites have reported")
        ours, by_hand = [], []
        moments = random.Random(1)
        for number in range(STARTS):
            # A batch system starts jobs in rounds of a second: nobody is to come at the same moment of one each time.
            time.sleep(PAUSE_S + moments.random())
            ours.append(start_s(daemon))
            time.sleep(PAUSE_S + moments.random())
            by_hand.append(by_hand_s(the_lab, root / f"by-hand-{number}"))
            console.print(f"start {number + 1} of {STARTS}: {ours[-1]:.2f} s, by hand {by_hand[-1]:.2f} s")
        before = calls(daemon)
        jobs, took_s = crowd(daemon)
        after = calls(daemon)
    console.print(
        f"{CROWD} jobs of three components in {took_s:.0f} s; now with files, by barrier and by reservation"
    )
    return Figures(
        start_p50_s=percentile(ours, 50),
        start_p99_s=percentile(ours, 99),
        by_hand_p50_s=percentile(by_hand, 50),
        by_hand_p99_s=percentile(by_hand, 99),
        jobs_per_minute=60 * CROWD / took_s,
        calls_per_job={
            site: {call: (count - before[site].get(call, 0.0)) / CROWD for call, count in after[site].items()}
            for site in SITES
        },
        crowd_waste_percent=waste_of(jobs).percent,
        barrier_waste_percent=filed(the_lab, root, "barrier").percent,
        reservation_waste_percent=filed(the_lab, root, "reservation").percent,
    )


def table_of(figures: Figures) -> Table:
    """The figures for people."""
    table = Table(title="Koala on two Slurm clusters and a Grid Engine cell", title_justify="left")
    table.add_column("what", no_wrap=True)
    for column in ("Koala", "by hand", "ratio"):
        table.add_column(column, justify="right", no_wrap=True)
    for percent, ours, hand in (
        (50, figures.start_p50_s, figures.by_hand_p50_s),
        (99, figures.start_p99_s, figures.by_hand_p99_s),
    ):
        what = f"submission until all three run, p{percent}, s"
        table.add_row(what, f"{ours:.2f}", f"{hand:.2f}", f"{ours / hand:.2f}", end_section=percent == 99)
    table.add_row("co-allocated jobs per minute", f"{figures.jobs_per_minute:.0f}", "", "", end_section=True)
    for site, counted in figures.calls_per_job.items():
        words = ", ".join(f"{call} {count:.1f}" for call, count in sorted(counted.items()) if count)
        table.add_row(f"uses per job at {site}: {words}", f"{sum(counted.values()):.1f}", "", "")
    table.add_section()
    for words, wasted in (
        ("wasted at barriers, jobs at once, %", figures.crowd_waste_percent),
        ("wasted at barriers, jobs that wait for files, %", figures.barrier_waste_percent),
        ("the same with reservations, %", figures.reservation_waste_percent),
    ):
        table.add_row(words, f"{wasted:.1f}", "", "")
    return table


def main() -> None:
    """Measure and print; with ``--json`` for programs."""
    console = Console(stderr=True)
    root = Path(tempfile.mkdtemp(prefix="koala-bench-"))
    try:
        the_lab = lab.up(lab.Options(directory=root / "lab"), say=console.print)
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
