"""Training over three clusters behind a wide area: averages in every step (DDP) beside few of them (local SGD).

The clusters of the lab are behind emulated links. The example that trains a small model runs over all of them, until
the loss of all samples is below a target: what it sent over the links, by the counters of the kernel, how long it
took, and what Koala has measured of the job. It needs root, the programs of the batch systems and the extra
``torch``. The ways take turns. It takes about a minute for each run of each way.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from koala.client import Client
from koala.lab import LabError
from koala.lab.plan import WIDE_AREA_DEVICE
from koala.study.live import LabSize, LiveGrid, live_grid

# Every job starts at once where it has room.
SCHEDULER = {"plan_depth": 0, "preemption": "claiming-only"}
SITES = ("alpha", "beta", "gamma")
STEPS_MAX = 5_000
WAIT_S = 900.0
LOOK_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What one run of one way came to. ``curve`` has steps, seconds and the loss at each look."""

    inner_steps: int
    steps: int
    loss: float
    exchanges: int
    seconds: float
    sent_bytes: int
    traffic: str
    curve: list[tuple[int, float, float]]


def words_of(inner_steps: int) -> str:
    """A way in words."""
    return f"every {inner_steps} steps (local SGD)" if inner_steps else "every step (DDP)"


def description(options: argparse.Namespace, inner_steps: int) -> str:
    """The job; JSON is YAML too."""
    arguments = ["-m", "torch.distributed.run", "-m", "koala.examples.training.train", "--steps", str(STEPS_MAX)]
    arguments += ["--hidden", str(options.hidden), "--target-loss", str(options.target)]
    arguments += ["--look-every", "10", "--inner-steps", str(inner_steps)]
    environment = {"GLOO_SOCKET_IFNAME": WIDE_AREA_DEVICE, "OMP_NUM_THREADS": "1"}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return json.dumps(
        {
            "name": f"train-{inner_steps}",
            "type": "torchrun",
            "walltime": "14m",
            "application": {"executable": sys.executable, "arguments": arguments, "environment": environment},
            "components": [{"processors": options.processors, "site": site} for site in SITES],
        }
    )


def sent_bytes(live: LiveGrid) -> int:
    """What all sites have sent over their links until now."""
    total = 0
    for site in SITES:
        text = live.lab.run(site, "cat", "/proc/net/dev").stdout
        found = re.search(rf"^\s*{WIDE_AREA_DEVICE}:(.*)$", text, re.MULTILINE)
        if found is None:
            raise SystemExit(f"{site}: there is no device {WIDE_AREA_DEVICE}: {text}")
        total += int(found[1].split()[8])
    return total


def train(live: LiveGrid, client: Client, options: argparse.Namespace, inner_steps: int) -> Training:
    """One run of one way."""
    before = sent_bytes(live)
    job = client.submit(description(options, inner_steps)).job.id
    found = client.job(job)
    traffic = ""
    gives_up_at = time.monotonic() + WAIT_S
    while found.ended_at is None and time.monotonic() < gives_up_at:
        # What it sends is told while it runs.
        traffic = traffic if found.traffic is None else found.traffic.in_words
        client.wait_ended(job, LOOK_S)
        found = client.job(job)
    if found.state != "done":
        said = client.output(job, part=0, stream="stderr").text
        raise SystemExit(f"job {job} is {found.state}: {found.reason}\n{said}")
    told = json.loads(client.output(job, part=0).text)
    return Training(
        inner_steps=inner_steps,
        steps=told["steps"],
        loss=told["loss"],
        exchanges=told["exchanges_across"],
        seconds=told["seconds"],
        sent_bytes=sent_bytes(live) - before,
        traffic=traffic,
        curve=[tuple(each) for each in told["curve"]],
    )


def table_of(trainings: Sequence[Training], options: argparse.Namespace) -> Table:
    """Of each way the median run by seconds, with the least and the most of them."""
    link = f"{options.rate_mbit_s:g} Mbit/s and {options.delay_ms:g} ms one way"
    title = f"To a loss of {options.target} over three clusters behind links of {link}"
    table = Table(title=title, title_justify="left")
    table.add_column("clusters average")
    for column in ("steps", "averages", "MB sent across", "seconds", "least", "most"):
        table.add_column(column, justify="right")
    for inner_steps in sorted({each.inner_steps for each in trainings}):
        runs = [each for each in trainings if each.inner_steps == inner_steps]
        took_s = [each.seconds for each in runs]
        middle = min(runs, key=lambda run: abs(run.seconds - median(took_s)))
        table.add_row(
            words_of(inner_steps),
            str(middle.steps),
            str(middle.exchanges),
            f"{median(each.sent_bytes for each in runs) / 1e6:.1f}",
            f"{median(took_s):.1f}",
            f"{min(took_s):.1f}",
            f"{max(took_s):.1f}",
        )
    return table


def draw(trainings: Sequence[Training], options: argparse.Namespace, path: Path) -> None:
    """The loss over time, and over bytes sent; every run is a line."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    ways = sorted({each.inner_steps for each in trainings})
    for run in trainings:
        colour = f"C{ways.index(run.inner_steps)}"
        first = next(each for each in trainings if each.inner_steps == run.inner_steps)
        label = words_of(run.inner_steps) if run is first else None
        losses = [each[2] for each in run.curve]
        megabytes = [run.sent_bytes / 1e6 * each[0] / run.steps for each in run.curve]
        axes[0].plot([each[1] for each in run.curve], losses, color=colour, label=label, linewidth=1.2)
        axes[1].plot(megabytes, losses, color=colour, linewidth=1.2)
    axes[0].set(xlabel="seconds", ylabel="loss of all samples", xscale="log")
    axes[1].set(xlabel="MB sent between the clusters", xscale="log")
    for axis in axes:
        axis.axhline(options.target, color="grey", linewidth=0.8, linestyle=":")
        axis.grid(alpha=0.3)
    axes[0].legend(title="clusters average", fontsize="small")
    figure.savefig(path, dpi=110)


def options_of(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=3, help="runs of each way")
    words_of_ways = "inner steps of each way; 0 is an average in every step"
    parser.add_argument("--inner-steps", type=int, nargs="+", default=[0, 20, 50], help=words_of_ways)
    parser.add_argument("--target", type=float, default=0.25)
    parser.add_argument("--hidden", type=int, default=1_024, help="width of the model")
    parser.add_argument("--processors", type=int, default=1, help="at each cluster")
    parser.add_argument("--rate-mbit-s", type=float, default=100.0)
    parser.add_argument("--delay-ms", type=float, default=10.0)
    parser.add_argument("--first-port", type=int, default=26_700)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(words)


def measure(options: argparse.Namespace, console: Console) -> list[Training]:
    """All runs; the ways take turns."""
    size = LabSize(
        1, options.processors, options.processors, options.first_port, options.rate_mbit_s, options.delay_ms
    )
    trainings: list[Training] = []
    with live_grid(size, SCHEDULER) as live, Client(live.server) as client:
        for number in range(options.runs):
            for inner_steps in options.inner_steps:
                found = train(live, client, options, inner_steps)
                trainings.append(found)
                console.print(
                    f"run {number + 1}, {words_of(inner_steps)}: {found.steps} steps, {found.seconds:.1f} s, "
                    f"{found.sent_bytes / 1e6:.1f} MB. {found.traffic}"
                )
    return trainings


def main() -> None:
    """Measure and print; with ``--json`` for programs, with ``--figure`` as a figure too."""
    options = options_of()
    try:
        trainings = measure(options, Console(stderr=True))
    except LabError as error:
        raise SystemExit(f"no figures of training: {error}") from None
    if options.figure is not None:
        draw(trainings, options, options.figure)
    if options.json:
        told: list[dict[str, Any]] = [asdict(each) for each in trainings]
        sys.stdout.write(f"{json.dumps(told, indent=1)}\n")
    else:
        Console().print(table_of(trainings, options))


if __name__ == "__main__":
    main()
