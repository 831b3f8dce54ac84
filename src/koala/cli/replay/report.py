"""The report of ``koala replay``: the numbers and tables of ``koala simulate``, and further ones of a live grid.

The folder of ``--out`` and the comparison with a simulation are here, too.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from koala.cli.replay.source import ReplaySource
from koala.cli.simulate.report import facts
from koala.cli.terminal.output import OutputFile, counted_first

if TYPE_CHECKING:
    from rich.console import RenderableType

    from koala.model.grid import Grid
    from koala.simulator.result import Result
    from koala.study.replay.plan import OmittedJob
    from koala.study.replay.result import Replayed

METRICS, JOBS, SUBMISSIONS, PAGE = "metrics.json", "jobs.csv", "submissions.csv", "page.html"
# A remark names at most this many jobs, or reasons, before it only counts.
_NAMED = 5
_COMPARED = (
    ("queue_s", "mean queue, s"),
    ("overhead_s", "mean overhead, s"),
    ("wait_s", "mean wait, s"),
    ("execution_s", "mean execution, s"),
    ("response_s", "mean response, s"),
)


class ReplayReport(NamedTuple):
    """A finished replay, its jobs and its metrics."""

    replayed: Replayed
    source: ReplaySource
    metrics: dict[str, Any]


def metrics_of(replayed: Replayed, source: ReplaySource, grid: Grid, speed: float) -> dict[str, Any]:
    """Return the numbers under a simulation's names for them, and under ``replay`` further ones of a live grid."""
    from koala.simulator.result import summary

    own = replayed.result.metrics()
    if source.is_trace:
        own |= _headline(replayed.result)
    too_large = source.plan.too_large
    return {
        "grid": grid.name,
        **source.about,
        **own,
        "too_large": {"jobs": len(too_large), "first": [each.name for each in too_large[:_NAMED]]},
        "replay": {
            "speed": speed,
            "lag_s": summary(each.lag_s for each in replayed.submissions),
            "refused": _left_out_json(replayed.refused),
            "too_large": _left_out_json(too_large),
            "wasted_processor_s": {
                "barrier": replayed.waste.barrier_processor_s,
                "lost_runs": replayed.waste.lost_processor_s,
                "held": replayed.waste.held_processor_s,
                "share": replayed.waste.share,
            },
            "left_behind": list(replayed.left_behind),
            "unanswered": replayed.unanswered,
        },
    }


def _headline(result: Result) -> dict[str, Any]:
    """Return the further numbers of a simulated trace: above all slowdowns."""
    import numpy as np

    from koala.simulator.result import DONE
    from koala.simulator.trace_run import headline

    done = [row for row in result.rows() if row.outcome == DONE]
    waits, runs = (np.array([getattr(row, name) for row in done], dtype=float) for name in ("wait_s", "execution_s"))
    return headline(waits, runs)


def _left_out_json(jobs: Sequence[OmittedJob]) -> list[dict[str, Any]]:
    return [
        {"job": each.name, "name": each.request.name, "processors": each.request.processors, "reason": each.reason}
        for each in jobs
    ]


def compared(live: dict[str, Any], simulated: dict[str, Any]) -> dict[str, Any]:
    """Return the simulation of the same jobs, and by how many per cent it differs from the measurement."""
    pairs = {name: (_mean(live[name]), _mean(simulated[name])) for name, _ in _COMPARED}
    pairs["utilisation"] = live["utilisation"]["ours"], simulated["utilisation"]["ours"]
    pairs["makespan_s"] = live["makespan_s"], simulated["makespan_s"]
    return {
        name: {"live": real, "simulated": model, "difference_percent": _difference(real, model)}
        for name, (real, model) in pairs.items()
    }


def _mean(summary: dict[str, float] | None) -> float | None:
    return None if summary is None else summary["mean"]


def _difference(real: float | None, model: float | None) -> float | None:
    return None if real is None or model is None or real == 0 else 100 * (model - real) / real


# ------------------------------------------------------------------------------------------------ tables


def more(done: ReplayReport) -> Iterator[RenderableType]:
    """Yield what follows the report of a simulation."""
    from rich.text import Text

    replay = done.metrics["replay"]
    lag = replay["lag_s"]
    if lag is not None:
        words = ", ".join(f"{name} {lag[name]:.2f} s" for name in ("median", "p95", "max"))
        yield Text(f"on record later than planned: {words}")
    wasted = replay["wasted_processor_s"]
    yield Text(
        f"wasted: {wasted['barrier']:.0f} processor-seconds at barriers, {wasted['lost_runs']:.0f} in runs that "
        f"failed: {wasted['share']:.1%} of what was held"
    )
    yield from _left_out("too large for the grid", replay["too_large"])
    yield from _left_out("refused by the daemon", replay["refused"])
    if replay["unanswered"] is not None:
        yield Text(
            f"the submission of job {replay['unanswered']} was never answered; koala jobs shows whether it is there",
            style="yellow",
        )
    if replay["left_behind"]:
        left = replay["left_behind"]
        yield Text(f"still there: {counted_first(len(left), 'job', left[:_NAMED])}", style="yellow")
    if "compared" in done.metrics:
        yield ""
        yield _comparison(done.metrics["compared"])


def _left_out(what: str, jobs: list[dict[str, Any]]) -> Iterator[RenderableType]:
    from rich.text import Text

    if not jobs:
        return
    named = counted_first(len(jobs), "job", [each["job"] for each in jobs[:_NAMED]])
    yield Text(f"{what}: {named}; the first: {jobs[0]['reason']}", style="yellow")


def _comparison(figures: dict[str, Any]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("the same jobs")
    for column in ("live", "simulated", "difference"):
        table.add_column(column, justify="right")
    for name, words in (*_COMPARED, ("utilisation", "utilisation"), ("makespan_s", "makespan, s")):
        each = figures[name]
        form = "{:.1%}" if name == "utilisation" else "{:.1f}"
        cells = ["-" if each[key] is None else form.format(each[key]) for key in ("live", "simulated")]
        difference = each["difference_percent"]
        table.add_row(words, *cells, "-" if difference is None else f"{difference:+.1f} %")
    return table


# ------------------------------------------------------------------------------------------------ the folder


def write_folder(folder: Path, done: ReplayReport, grid: Grid) -> None:
    """Write everything about a replay to files of the folder, which is made if it is missing."""
    from koala.simulator.report.page import page
    from koala.simulator.report.page_holds import run_picture

    replayed, metrics = done.replayed, done.metrics
    picture = run_picture(
        list(replayed.result.rows()),
        replayed.holds,
        grid,
        title=f"{done.source.plan.title} on {grid.name}, live",
        subtitle=f"policy {metrics['policy']}, speed {metrics['replay']['speed']:g}",
        facts=facts(metrics),
        notes=metrics["notes"],
    )
    texts = {
        METRICS: json.dumps(metrics, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        JOBS: replayed.result.csv(),
        SUBMISSIONS: _submissions(done),
        PAGE: page(picture),
    }
    for name, text in texts.items():
        with OutputFile("--out", folder / name) as file:
            file.write(text.encode())


def _submissions(done: ReplayReport) -> str:
    """Return every job of the plan: its number at the daemon, its time, and its lag; or why it was not submitted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("name", "job", "planned_s", "lag_s", "not_submitted"))
    rows: list[tuple[Any, ...]] = [
        (each.name, each.job, round(each.planned_s, 6), round(each.lag_s, 6), "")
        for each in done.replayed.submissions
    ]
    left_out = [*done.source.plan.too_large, *done.replayed.refused]
    rows += [(each.name, "", "", "", each.reason) for each in left_out]
    writer.writerows(rows)
    return text.getvalue()
