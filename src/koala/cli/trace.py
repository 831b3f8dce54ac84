"""``koala trace``: look at a workload trace, or draw one: from a published model, or like another trace."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import UserError
from koala.cli.libraries import refuse_without
from koala.cli.simulate.options import FiniteRange
from koala.cli.terminal.output import OutputFile, console, counted, print_json, refuse_clashes
from koala.model.request import PROCESSORS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from koala.simulator.traces.reader import Trace

JOBS_MAX = 20_000_000
_SIZES = re.compile(r"([0-9]{1,8})(?:-([0-9]{1,8}))?")
_SPREADS = (
    ("size", "processors"),
    ("run_s", "run time, s"),
    ("requested_s", "requested, s"),
    ("interarrival_s", "gap to the next, s"),
)
_COLUMNS = ("min", "p5", "p25", "p50", "p75", "p95", "max", "mean")
# On a narrower screen only some of the columns are shown, so that no word is cut.
_ALL_COLUMNS_FROM = 72
_FEW_COLUMNS = ("min", "p50", "p95", "max", "mean")
# Seconds and counts are shown whole from here on.
_WHOLE_FROM = 100
_NODES = click.IntRange(1, PROCESSORS_MAX)
# Three years: with it, the times of the longest trace still have all their digits.
_MEAN_S = FiniteRange(0.0, 1e8, min_open=True)


def _plain_or_gzip(_ctx: click.Context, _param: click.Parameter, path: Path) -> Path:
    """Return the file to write; refuse an ending that promises a packing that it would not have."""
    if path.suffix.casefold() in (".xz", ".bz2", ".zip", ".zst"):
        raise UserError(
            f"--out {path}: a trace is written plain or packed with gzip; let the name end in .swf or .gz"
        )
    return path


_jobs = click.option(
    "--jobs", type=click.IntRange(1, JOBS_MAX), required=True, metavar="N", help="How many jobs to draw."
)
_seed = click.option(
    "--seed", type=click.IntRange(0), default=1, show_default=True, help="The same seed gives the same file."
)
_out = click.option(
    "--out",
    "out_path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    callback=_plain_or_gzip,
    metavar="FILE.swf",
    help="Where to write the trace, packed if it ends in .gz.",
)


@click.group()
def trace() -> None:
    """Look at a workload trace (SWF or GWF), or draw a new one."""


@trace.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(path: Path, as_json: bool) -> None:
    """Print what is in a trace: jobs, span, load, and how sizes and times are spread."""
    refuse_without("koala trace show", "traces")
    from koala.simulator.traces.reader import read_trace
    from koala.simulator.traces.summary import trace_summary

    summary = trace_summary(read_trace(path))
    if as_json:
        print_json(summary)
        return
    screen = console()
    for part in _report(summary, screen.width):
        screen.print(part)


@trace.group()
def generate() -> None:
    """Draw a trace and write it as SWF.

    \b
    koala trace generate lublin --jobs 10000 --nodes 256 --out model.swf.gz
    koala trace generate fit --from KTH-SP2.swf.gz --jobs 50000 --seed 7 --out like-kth.swf
    """


@generate.command()
@_jobs
@_seed
@click.option("--nodes", type=_NODES, default=128, show_default=True, metavar="N", help="The size of the machine.")
@click.option("--by-type", is_flag=True, help="Draw batch and interactive jobs apart, and mix them.")
@_out
def lublin(jobs: int, seed: int, nodes: int, by_type: bool, out_path: Path) -> None:
    """Draw from Lublin and Feitelson's model of 2003, with its published parameters."""
    refuse_without("koala trace generate", "traces")
    from koala.simulator.workloads.lublin import lublin as drawn

    _write(drawn(jobs, seed, nodes=nodes, by_type=by_type), out_path)


@generate.command()
@_jobs
@_seed
@click.option("--nodes", type=_NODES, default=100, show_default=True, metavar="N", help="The size of the machine.")
@click.option(
    "--interarrival",
    "interarrival_s",
    type=_MEAN_S,
    default=150.0,
    show_default=True,
    metavar="SECONDS",
    help="The mean time between two submissions.",
)
@click.option(
    "--run",
    "run_s",
    type=_MEAN_S,
    default=450.0,
    show_default=True,
    metavar="SECONDS",
    help="The mean run time.",
)
@click.option("--sizes", default="10-50", show_default=True, metavar="N-M", help="The least and greatest size.")
@_out
def poisson(
    jobs: int, seed: int, nodes: int, interarrival_s: float, run_s: float, sizes: str, out_path: Path
) -> None:
    """Draw a Poisson stream with exponential run times and uniform sizes, by default that of a mini-grid's
    cluster."""
    refuse_without("koala trace generate", "traces")
    from koala.simulator.workloads.synthetic import poisson as drawn

    found = _SIZES.fullmatch(sizes)
    if found is None:
        raise UserError(f"--sizes {sizes}: write the least and the greatest size, as 10-50, or one size")
    least, most = int(found[1]), int(found[2] or found[1])
    made = drawn(
        jobs,
        seed,
        interarrival_mean_s=interarrival_s,
        run_mean_s=run_s,
        size_min=least,
        size_max=most,
        nodes=nodes,
    )
    _write(made, out_path)


@generate.command()
@_jobs
@_seed
@click.option(
    "--from",
    "from_path",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    required=True,
    metavar="FILE",
    help="The trace to draw from, SWF or GWF.",
)
@click.option("--nodes", type=_NODES, metavar="N", help="The size of the machine, if not that of the trace.")
@_out
def fit(jobs: int, seed: int, from_path: Path, nodes: int | None, out_path: Path) -> None:
    """Draw jobs like those of a trace: with its sizes, its run times by size, its gaps and its daily cycle."""
    refuse_without("koala trace generate", "traces")
    from koala.simulator.traces.reader import read_trace
    from koala.simulator.workloads.synthetic import fitted

    refuse_clashes([("--out", out_path)], [("--from", str(from_path))])
    _write(fitted(read_trace(from_path), jobs, seed, nodes=nodes), out_path)


def _write(made: Trace, path: Path) -> None:
    from koala.simulator.traces.summary import trace_summary
    from koala.simulator.traces.writer import swf_bytes

    with OutputFile("--out", path) as file:
        file.write(swf_bytes(made, packed=path.suffix.casefold() == ".gz"))
    summary = trace_summary(made)
    load = "" if summary["load"] is None else f", load {summary['load']:.2f} on {summary['processors']} processors"
    console().print(
        f"{path}: {counted(made.jobs, 'job')}, {_days(summary['span_s'])}{load}", markup=False, soft_wrap=True
    )


# ------------------------------------------------------------------------------------------ for people


def _report(summary: dict[str, Any], width: int) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(f"{summary['trace']} ({summary['format']})", style="bold")
    processors = summary["processors"]
    machine = "a machine of unknown size" if processors is None else f"{processors:,} processors"
    load = "" if summary["load"] is None else f", load {summary['load']:.2f}"
    yield Text(f"{counted(summary['jobs'], 'job')} over {_days(summary['span_s'])} on {machine}{load}")
    for each in summary["skipped"]["reasons"]:
        first = ", ".join(map(str, each["first"]))
        yield Text(
            f"note: not run, for {each['reason']}: {counted(each['jobs'], 'job')}, first {first}", style="yellow"
        )
    if summary["reordered"]:
        yield Text(f"note: {counted(summary['reordered'], 'job')} behind a later one, put in order", style="yellow")
    if not summary["jobs"]:
        return
    yield ""
    yield _spreads_table(summary, _COLUMNS if width >= _ALL_COLUMNS_FROM else _FEW_COLUMNS)
    yield ""
    yield Text(
        f"serial {summary['serial_share']:.1%}, powers of two {summary['power_of_two_share']:.1%}, "
        f"ran longer than requested {summary['exceeded_request_share']:.1%}"
    )


def _spreads_table(summary: dict[str, Any], columns: Sequence[str]) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column("median" if name == "p50" else name, justify="right")
    for key, name in _SPREADS:
        spread = summary[key]
        if spread is not None:
            table.add_row(name, *(_number(spread[column]) for column in columns))
    return table


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= _WHOLE_FROM or value == int(value) else f"{value:.1f}"


def _days(seconds: float) -> str:
    if seconds < 3600:
        return f"{seconds:.0f} s"
    return f"{seconds / 86_400:.1f} days" if seconds >= 86_400 else f"{seconds / 3600:.1f} hours"
