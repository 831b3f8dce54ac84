"""How far the model of shared links is from real jobs: all-to-all MPI jobs on links of the lab that they share.

The model is that of mini-grids (``koala.model.network``): where jobs ask for more than a link has, all get the same
share of what they ask for, a job goes at the pace of its worst link, and only its communication is stretched. Each
kind of job runs alone first, which gives its time, the share of it that is communication, and what it sends. Then two
and three run at once; the model is given when each began, and tells how long it should take. What a job asks for can
be read in two ways: as its mean over the run, or as what it sends while it communicates. Both are judged.

Jobs rest where others compute, so that the processors of this machine, which all clusters share, are not what they
wait for; three jobs that share no link are the control. It needs root, the programs of the batch systems and the
extra ``mpi``, and takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from koala.client import Client
from koala.lab import LabError
from koala.model import network
from koala.study.live import LabSize, live_grid

# Every job starts at once where it has room.
SCHEDULER = {"plan_depth": 0, "preemption": "claiming-only"}
SITES = ("alpha", "beta", "gamma")
LINKS = tuple(combinations(SITES, 2))
# What of a link's rate is left when headers are taken off: the data in a packet, by its bytes on the link.
PAYLOAD = 1_448 / 1_500
# Processors of a job at each of its sites, and how many jobs run at once at most.
PROCESSORS, JOBS_MAX = 2, 3
WAIT_S = 600.0
TWO, THREE = SITES[:2], SITES
# Jobs that run at once, each by its sites.
CASES: dict[str, tuple[tuple[str, ...], ...]] = {
    "2 over two clusters": (TWO,) * 2,
    "3 over two clusters": (TWO,) * 3,
    "2 over three clusters": (THREE,) * 2,
    "3 over three clusters": (THREE,) * 3,
    "1 over two, 1 over three": (TWO, THREE),
    "3 that share no link": LINKS,
}
READINGS = {"mean": "asks for its mean", "burst": "asks for what it sends while it communicates"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """A kind of job by itself. Seconds are those of its steps; ``bytes_a_link`` go each way on each of its links."""

    seconds: float
    waiting_s: float
    bytes_a_link: float

    @property
    def share(self) -> float:
        """What of its time it waits for messages: those from its own cluster are late where other clusters were."""
        return self.waiting_s / self.seconds

    def asked_bit_s(self, reading: str) -> int:
        """What it asks of each of its links."""
        over_s = self.seconds if reading == "mean" else self.waiting_s
        return network.demand_bit_s(8.0 * self.bytes_a_link, 1.0 / over_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A job beside others: its slow-down as measured, and as the model has it by each reading."""

    case: str
    work_ms: float
    share: float
    measured: float
    predicted: dict[str, float]

    def error_percent(self, reading: str) -> float:
        """By how much the model is off."""
        return 100.0 * (self.predicted[reading] / self.measured - 1.0)


# -------------------------------------------------------------------------------------------------- the model


@dataclass(slots=True)
class LoadedJob:
    """A job for the model: when it begins, and what it has left of its work at full speed."""

    began_at: float
    left_s: float
    share: float
    asked_bit_s: int
    links: tuple[int, ...]
    ended_at: float = inf


def stretches(jobs: Sequence[LoadedJob], capacity_bit_s: int) -> list[float]:
    """How much longer each takes while all of them run."""
    count = len(jobs)
    ratios = [0.0] * count
    links = len(LINKS)
    network.fill_shares(
        count,
        range(count),
        [len(job.links) for job in jobs],
        [job.links for job in jobs],
        [[job.asked_bit_s] * len(job.links) for job in jobs],
        [capacity_bit_s] * links,
        [0] * links,
        [0] * links,
        [0.0] * links,
        ratios,
    )
    return [network.stretch(job.share, ratio) for job, ratio in zip(jobs, ratios, strict=True)]


def follow(jobs: Sequence[LoadedJob], capacity_bit_s: int) -> None:
    """Let all run to their ends: whenever one begins or ends, the others get new shares."""
    waiting = sorted(jobs, key=lambda job: job.began_at)
    running: list[LoadedJob] = []
    now = 0.0
    while waiting or running:
        slower = stretches(running, capacity_bit_s)
        ends = [now + job.left_s * each for job, each in zip(running, slower, strict=True)]
        begins = waiting[0].began_at if waiting else inf
        until = min([begins, *ends])
        for job, each, end in zip(running, slower, ends, strict=True):
            job.left_s = network.work_left_s(job.left_s, until - now, each)
            if end <= until:
                job.ended_at = until
        now = until
        running = [job for job in running if job.ended_at == inf]
        while waiting and waiting[0].began_at <= now:
            running.append(waiting.pop(0))


def links_of(sites: Iterable[str]) -> tuple[int, ...]:
    """The links between some sites, by number."""
    return tuple(LINKS.index(pair) for pair in combinations(sites, 2))


# ------------------------------------------------------------------------------------------------ measurements


def description(options: argparse.Namespace, sites: Sequence[str], work_ms: float) -> str:
    """The job; JSON is YAML too."""
    arguments = ["-m", "koala.examples.applications.alternate", "--json", "--size", str(options.size)]
    arguments += ["--steps", str(options.steps), "--work-ms", str(work_ms)]
    environment = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return json.dumps(
        {
            "name": "all-to-all",
            "type": "mpi",
            "walltime": "9m",
            "application": {"executable": sys.executable, "arguments": arguments, "environment": environment},
            "components": [{"processors": PROCESSORS, "site": site} for site in sites],
        }
    )


def run(client: Client, texts: Sequence[str]) -> list[dict[str, Any]]:
    """Run jobs at once; what each has reported."""
    jobs = [client.submit(text).job.id for text in texts]
    for job in jobs:
        client.wait_ended(job, WAIT_S)
    reports = []
    for job in jobs:
        found = client.job(job)
        if found.state != "done":
            raise SystemExit(
                f"job {job} is {found.state}: {found.reason}\n{client.output(job, stream='stderr').text}"
            )
        reports.append(json.loads(client.output(job).text))
    return reports


def measure_alone(client: Client, options: argparse.Namespace, sites: tuple[str, ...], work_ms: float) -> Alone:
    """A kind of job by itself; of several runs the mean."""
    found = []
    for _ in range(options.repetitions):
        (told,) = run(client, [description(options, sites, work_ms)])
        links = len(links_of(sites))
        seconds = told["seconds"]
        found.append(
            (seconds["elapsed_s"], seconds["inside_s"] + seconds["across_s"], told["bytes_across"] / (2 * links))
        )
    elapsed_s, waiting_s, bytes_a_link = (fmean(column) for column in zip(*found, strict=True))
    return Alone(seconds=elapsed_s, waiting_s=waiting_s, bytes_a_link=bytes_a_link)


def measure_case(
    client: Client,
    options: argparse.Namespace,
    case: str,
    work_ms: float,
    alone: Mapping[tuple[str, ...], Alone],
) -> list[Shared]:
    """Some jobs at once, beside what the model says of them."""
    kinds = CASES[case]
    told = run(client, [description(options, sites, work_ms) for sites in kinds])
    began = [each["began_at"] for each in told]
    capacity_bit_s = network.capacity_bit_s(options.rate_mbit_s * PAYLOAD)
    slower: dict[str, list[float]] = {}
    for reading in READINGS:
        jobs = [
            LoadedJob(
                began_at=at - min(began),
                left_s=alone[sites].seconds,
                share=alone[sites].share,
                # Alone it got no more than the link has.
                asked_bit_s=min(alone[sites].asked_bit_s(reading), capacity_bit_s),
                links=links_of(sites),
            )
            for at, sites in zip(began, kinds, strict=True)
        ]
        follow(jobs, capacity_bit_s)
        slower[reading] = [
            (job.ended_at - job.began_at) / alone[sites].seconds for job, sites in zip(jobs, kinds, strict=True)
        ]
    return [
        Shared(
            case=case,
            work_ms=work_ms,
            share=alone[sites].share,
            measured=told[place]["seconds"]["elapsed_s"] / alone[sites].seconds,
            predicted={reading: slower[reading][place] for reading in READINGS},
        )
        for place, sites in enumerate(kinds)
    ]


def measure(options: argparse.Namespace, console: Console) -> list[Shared]:
    """All cases with all kinds of jobs."""
    room = PROCESSORS * JOBS_MAX
    size = LabSize(1, room, room, options.first_port, options.rate_mbit_s, options.delay_ms)
    found: list[Shared] = []
    with live_grid(size, SCHEDULER) as live, Client(live.server) as client:
        for work_ms in options.work_ms:
            alone: dict[tuple[str, ...], Alone] = {}
            for sites in (TWO, THREE):
                alone[sites] = measure_alone(client, options, sites, work_ms)
            alone |= dict.fromkeys(LINKS, alone[TWO])
            for sites in (TWO, THREE):
                told = alone[sites]
                console.print(
                    f"alone over {len(sites)} clusters, {work_ms:g} ms of work: {told.seconds:.1f} s, "
                    f"{told.share:.0%} communication, {told.asked_bit_s('mean') / 1e6:.2f} Mbit/s on a link"
                )
            for _ in range(options.repetitions):
                for case in CASES:
                    here = measure_case(client, options, case, work_ms, alone)
                    found += here
                    console.print(f"  {case}: " + "; ".join(in_words(each) for each in here))
    return found


def in_words(one: Shared) -> str:
    """A job in a line of progress."""
    return f"{one.measured:.2f} ({one.predicted['mean']:.2f} or {one.predicted['burst']:.2f})"


# ------------------------------------------------------------------------------------------------- what came out


def table_of(found: Sequence[Shared], options: argparse.Namespace) -> Table:
    """Means over the jobs of a case."""
    link = f"{options.rate_mbit_s:g} Mbit/s and {options.delay_ms:g} ms one way"
    table = Table(title=f"Slow-down of all-to-all jobs that share links of {link}", title_justify="left")
    table.add_column("jobs")
    for column in ("communication, %", "measured", "model: mean", "error, %", "model: burst", "error, %"):
        table.add_column(column, justify="right")
    for work_ms in dict.fromkeys(each.work_ms for each in found):
        for case in CASES:
            jobs = [each for each in found if each.case == case and each.work_ms == work_ms]
            if not jobs:
                continue
            row = [f"{100 * fmean(each.share for each in jobs):.0f}", f"{fmean(each.measured for each in jobs):.2f}"]
            for reading in READINGS:
                row.append(f"{fmean(each.predicted[reading] for each in jobs):.2f}")
                row.append(f"{fmean(each.error_percent(reading) for each in jobs):+.0f}")
            table.add_row(case, *row)
        table.add_section()
    return table


def draw(found: Sequence[Shared], options: argparse.Namespace, path: Path) -> None:
    """What the model says over what was measured, and the error by how much jobs communicate."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 4.6), layout="constrained")
    markers = dict(zip(CASES, "os^vDx", strict=True))
    most = max(max(each.measured, *each.predicted.values()) for each in found) * 1.05
    axes[0].plot([1, most], [1, most], color="grey", linewidth=0.8)
    for place, (reading, words) in enumerate(READINGS.items()):
        for case, marker in markers.items():
            jobs = [each for each in found if each.case == case]
            style = {"color": f"C{place}", "marker": marker, "linestyle": "none", "markersize": 5, "alpha": 0.8}
            axes[0].plot([e.measured for e in jobs], [e.predicted[reading] for e in jobs], **style)
            axes[1].plot([100 * e.share for e in jobs], [e.error_percent(reading) for e in jobs], **style)
        axes[0].plot([], [], color=f"C{place}", linewidth=5, label=f"a job {words}")
    for case, marker in markers.items():
        axes[0].plot([], [], color="black", marker=marker, linestyle="none", markersize=5, label=case)
    axes[0].set(xlabel="slow-down, measured", ylabel="slow-down, by the model")
    figure.legend(loc="outside lower center", ncols=4, fontsize="small")
    axes[1].axhline(0.0, color="grey", linewidth=0.8)
    axes[1].set(xlabel="wait for messages when alone (% of the time)", ylabel="error of the model (%)")
    for axis in axes:
        axis.grid(alpha=0.3)
    figure.suptitle(f"Jobs that share links of {options.rate_mbit_s:g} Mbit/s, {options.delay_ms:g} ms", fontsize=10)
    figure.savefig(path, dpi=110)


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rate-mbit-s", type=float, default=10.0)
    parser.add_argument("--delay-ms", type=float, default=2.0)
    parser.add_argument("--size", type=int, default=192)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--work-ms", type=float, nargs="+", default=[0.0, 100.0, 300.0])
    parser.add_argument("--repetitions", type=int, default=1)
    parser.add_argument("--first-port", type=int, default=26_700)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def main() -> None:
    """Measure and print; with ``--json`` for programs, with ``--figure`` as a figure too."""
    options = options_of()
    try:
        found = measure(options, Console(stderr=True, width=200))
    except LabError as error:
        raise SystemExit(f"no figures of shared links: {error}") from None
    if options.figure is not None:
        draw(found, options, options.figure)
    if options.json:
        sys.stdout.write(f"{json.dumps([asdict(each) for each in found], indent=1)}\n")
    Console(stderr=options.json, width=120).print(table_of(found, options))


if __name__ == "__main__":
    main()
