"""``koala study``: run a study file of the user's own to a report, and show a study or its report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import UserError
from koala.cli.examples import read_named
from koala.cli.libraries import refuse_without
from koala.cli.study.running import cluster, report_folder, run_shown
from koala.cli.terminal.output import console, counted, print_json

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from koala.study import Study

# The largest report that is read back.
REPORT_BYTES_MAX = 256 * 1024 * 1024
_COLOURS = {"holds": "green", "contrary": "red", "undecided": "yellow"}


@click.group()
def study() -> None:
    """Compare policies, your own too, on grids and workloads of your choice, and judge what you expect of them.

    \b
    koala examples copy das2-policies
    koala study run das2-policies.yaml --quick
    koala study show das2-policies-first-look
    """


@study.command()
@click.argument("name", metavar="STUDY")
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the report goes; by default NAME-results here, with --quick NAME-first-look.",
)
@click.option("--quick", is_flag=True, help="A first look: 3 seeds and at most 40 jobs in each; it decides nothing.")
@click.option("--jobs", "processes", type=click.IntRange(1), help="Processes to use; by default one for each core.")
@click.option(
    "--dask", metavar="ADDRESS", help="Compute on the Dask cluster of this scheduler, as tcp://host:8786, not here."
)
@click.option("--fresh", is_flag=True, help="Compute everything again, also what an earlier run kept in --out.")
@click.option("--parquet", is_flag=True, help="Write runs.parquet beside runs.csv.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def run(
    name: str,
    folder: Path | None,
    quick: bool,
    processes: int | None,
    dask: str | None,
    fresh: bool,
    parquet: bool,
    as_json: bool,
) -> None:
    """Run a study, a file or an example, and write report.html, report.json, CSV files and each figure.

    More seeds follow while an expectation is undecided and they would decide it. An interrupted run goes on where
    it was when the same command is given again, and a study with a further policy runs that one only.
    """
    from koala.study.frame.experiment import parameters_from
    from koala.study.frame.report import check_folder

    extras = ("study", *(("parquet",) if parquet else ()), *(("dask",) if dask else ()))
    refuse_without("koala study run", *extras)
    chosen = _read(name, parquet=parquet)
    refuse_without("koala study run", *chosen.extras)
    target = report_folder(chosen.name, folder, quick=quick)
    check_folder(target, chosen.name)
    computer = cluster(chosen, dask, processes) if dask else None
    parameters = parameters_from(chosen, {}, quick=quick)
    seeds = chosen.seed_range(quick=quick)
    done = run_shown(chosen, parameters, seeds, target, processes, computer, fresh=fresh, quick=quick)
    if as_json:
        print_json(done.written.report)
        return
    screen = console()
    for part in _report(done.written.report):
        screen.print(part)
    screen.print(f"report: {done.written.html_path}", soft_wrap=True, markup=False)
    files = len(done.written.figures) + len(done.seen.conclusion.files)
    screen.print(f"and {counted(files, 'file')} beside it: figures, runs.csv, differences.csv", soft_wrap=True)


@study.command()
@click.argument("name", metavar="STUDY")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, as_json: bool) -> None:
    """Show what came out, given the folder of a report; given a study, what it would run, after checking it."""
    path = Path(name)
    if path.is_dir():
        found = _read_report(path)
        if as_json:
            print_json(found)
            return
        parts = _report(found)
    else:
        chosen = _read(name)
        if as_json:
            print_json(_plan(chosen))
            return
        parts = _planned(chosen)
    screen = console()
    for part in parts:
        screen.print(part)


def _read(name: str, *, parquet: bool = False) -> Study:
    """The study in a file or among the examples."""
    from koala.study import read_study

    if Path(name).is_file():
        return read_study(name, parquet=parquet)
    text, _ = read_named("study", name)
    return read_study(name, text=text, parquet=parquet)


def _read_report(folder: Path) -> dict[str, Any]:
    import msgspec

    from koala.study.frame.report import REPORT_JSON

    path = folder / REPORT_JSON
    if not path.is_file():
        raise UserError(
            f"{folder}: there is no {REPORT_JSON} in it; run a study with: koala study run STUDY --out DIR"
        )
    if path.stat().st_size > REPORT_BYTES_MAX:
        raise UserError(f"{path}: it is larger than {REPORT_BYTES_MAX} bytes (REPORT_BYTES_MAX); use its CSV files")
    try:
        report = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UserError(f"{path}: it is no report: {error}; run the study again") from None
    if "worlds" not in report.get("results", {}):
        raise UserError(f"{path}: it is the report of an experiment and not of a study; open report.html beside it")
    return report


# --------------------------------------------------------------------------------------------- the plan


def _plan(chosen: Study) -> dict[str, Any]:
    matrix = chosen.matrix
    return {
        "study": matrix.name,
        "question": matrix.question,
        "policies": [each.label for each in matrix.contenders],
        "baseline": matrix.baseline,
        "grids": [each.label for each in matrix.grids],
        "workloads": [each.label for each in matrix.jobs],
        "seeds": {"first": matrix.first_seed, "count": matrix.seeds, "most": matrix.seeds_max},
        "runs": len(matrix.contenders) * len(matrix.worlds) * matrix.seeds,
        "runs_max": len(matrix.contenders) * len(matrix.worlds) * matrix.seeds_max,
        "metrics": [str(metric) for metric in matrix.metrics],
        "expectations": len(matrix.expectations),
    }


def _planned(chosen: Study) -> Iterator[RenderableType]:
    from rich.text import Text

    plan = _plan(chosen)
    yield Text(f"{plan['study']}: {plan['question']}", style="bold")
    yield Text(chosen.matrix.in_words())
    for key in ("policies", "grids", "workloads", "metrics"):
        yield Text(f"{key}: {', '.join(plan[key])}")
    yield Text(f"baseline: {plan['baseline']}; expectations: {plan['expectations']}")


# -------------------------------------------------------------------------------------- the results


def _report(report: dict[str, Any]) -> Iterator[RenderableType]:
    from rich.text import Text

    judged, results = report["judged"], report["results"]
    yield Text(f"{report['experiment']}: {counted(judged['seeds'], 'seed')}", style="bold")
    yield ""
    if report["claims"]:
        yield _expectations(report["claims"])
        yield ""
        if judged["looks_max"] > 1:
            looks = f"{len(judged['looks'])} of {counted(judged['looks_max'], 'look')} at the data"
            yield Text(f"{looks}: {judged['stopped']}.")
            yield ""
    yield _means(results)
    yield Text(f"Means over seeds, and the change from {results['baseline']} with its 95 % interval.")


def _expectations(claims: list[dict[str, Any]]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("name", "verdict"):
        table.add_column(column, no_wrap=True)
    table.add_column("what is expected")
    for claim in claims:
        what = Text(claim["text"])
        if claim["verdict"] != "holds":
            what.append(f"\n{claim['evidence']['why']}", style="dim")
        if claim["evidence"]["to_go"]:
            what.append(f"\n{claim['evidence']['to_go']}", style="yellow")
        table.add_row(claim["id"], Text(claim["verdict"], style=_COLOURS[claim["verdict"]]), what)
    return table


def _means(results: dict[str, Any]) -> Table:
    """Make a row for each policy under each metric in each world; values that repeat the row above are left out."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("grid", "workload", "metric", "policy"):
        table.add_column(column, overflow="fold")
    for column in ("mean", "change", "from", "to"):
        table.add_column(column, justify="right", no_wrap=True)
    before = ["", "", ""]
    for world in results["worlds"]:
        for metric in next(iter(world["policies"].values()))["metrics"]:
            for policy, found in world["policies"].items():
                names = [world["grid"], world["workload"], metric]
                same = next((place for place in range(3) if names[place] != before[place]), 3)
                before = names
                shown = [*([""] * same), *names[same:], policy]
                numbers = _numbers(found["metrics"][metric], found["change_percent"].get(metric))
                table.add_row(*map(escape, shown), *numbers)
    return table


def _numbers(value: dict[str, Any], change: dict[str, Any] | None) -> tuple[str, str, str, str]:
    """Format a mean, and the change from the baseline with its interval."""
    if not value["n"]:
        return "-", "", "", ""
    mean = f"{value['mean']:,.4g}" if abs(value["mean"]) < 1000 else f"{value['mean']:,.0f}"
    if change is None or not change["n"]:
        return mean, "", "", ""
    low, high = ("-" if end is None else f"{end:+.1f} %" for end in (change["low"], change["high"]))
    return mean, f"{change['mean']:+.1f} %", low, high
