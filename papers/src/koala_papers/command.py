"""``koala experiment``: list the papers' experiments, and run one, with all its repetitions, to a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from koala.cli.verbs import (
    UserError,
    cluster,
    console,
    counted,
    print_json,
    refuse_without,
    report_folder,
    run_shown,
    summary,
)

if TYPE_CHECKING:
    from koala.study import Experiment

REPETITIONS_MAX = 10_000
# Options of a run with a report; a single run has none, and writes nothing.
_OF_A_REPORT = {
    "folder": "--out",
    "repetitions": "--repetitions",
    "seeds_max": "--seeds-max",
    "processes": "--jobs",
    "quick": "--quick",
    "settings": "--set",
    "fresh": "--fresh",
    "dask": "--dask",
}


class RunCommand(click.Command):
    """A command with further options: those that experiments declare for a single run."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own options, and the single runs' before ``--help``."""
        *ours, asking_for_help = super().get_params(ctx)
        return [*ours, *_declared(), asking_for_help]


def _declared() -> list[click.Parameter]:
    """Return an option for each field of an experiment's single runs; the experiment parses its text."""
    import msgspec

    from koala_papers.catalogue import experiments

    helps: dict[str, list[str]] = {}
    for experiment in experiments():
        if experiment.single_type is None:
            continue
        for field in msgspec.structs.fields(experiment.single_type):
            described = msgspec.inspect.type_info(field.type)
            words = (getattr(described, "extra_json_schema", None) or {}).get("description", "")
            helps.setdefault(field.name, []).append(f"{experiment.name}, one run: {words}".strip())
    return [click.Option([f"--{name.replace('_', '-')}"], help=" ".join(words)) for name, words in helps.items()]


@click.group()
def experiment() -> None:
    """Run the experiments of the papers again, and see which of their claims hold."""


@experiment.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def list_experiments(as_json: bool) -> None:
    """List the experiments, each with its question."""
    from koala_papers.catalogue import experiments

    found = experiments()
    if as_json:
        print_json([_described(each) for each in found])
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("name", no_wrap=True)
    table.add_column("question")
    for each in found:
        table.add_row(escape(each.name), escape(each.question))
    console().print(table)


def _described(each: Experiment[Any]) -> dict[str, Any]:
    import msgspec

    return {
        "name": each.name,
        "title": each.title,
        "question": each.question,
        "repetitions": each.repetitions,
        "seeds_max": max(each.repetitions, each.seeds_max),
        "parameters": msgspec.to_builtins(each.parameters_type()),
    }


@experiment.command(cls=RunCommand)
@click.argument("name")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The first seed; others follow.")
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where the report goes; by default NAME-results here, with --quick NAME-first-look.",
)
@click.option(
    "--repetitions",
    type=click.IntRange(2, REPETITIONS_MAX),
    help="How many seeds; no more follow unless --seeds-max says so.",
)
@click.option(
    "--seeds-max",
    type=click.IntRange(2, REPETITIONS_MAX),
    help="Go on while a claim is undecided, to so many seeds at most.",
)
@click.option("--jobs", "processes", type=click.IntRange(1), help="Processes to use; by default one for each core.")
@click.option(
    "--dask", metavar="ADDRESS", help="Compute on the Dask cluster of this scheduler, as tcp://host:8786, not here."
)
@click.option("--quick", is_flag=True, help="A first look: few seeds and less work in each.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Set a parameter of the experiment.")
@click.option("--fresh", is_flag=True, help="Compute everything again, also what an earlier run kept in --out.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def run(
    ctx: click.Context,
    /,
    name: str,
    seed: int,
    folder: Path | None,
    repetitions: int | None,
    seeds_max: int | None,
    processes: int | None,
    dask: str | None,
    quick: bool,
    settings: tuple[str, ...],
    fresh: bool,
    as_json: bool,
    **single: str | None,
) -> None:
    """Run an experiment and write its report: report.json, report.html, and each figure as PNG and SVG.

    \b
    koala experiment run koala2006 --seed 1 --out koala2006
    koala experiment run koala2006 --quick --out first-look

    More seeds follow while a claim is undecided and they would decide it. An interrupted run goes on where it was
    when the same command is given again.

    Some experiments also offer one run alone, which is printed and leaves no report:

    \b
    koala experiment run minigrid --policy B1 --bsbw 300 --lslt 1.0
    """
    from koala.study import SeedRange, check_folder, first_look, parameters_from
    from koala_papers.catalogue import find

    chosen = find(name)
    asked = {option: text for option, text in single.items() if text is not None}
    if asked:
        _run_single(chosen, asked, ctx, as_json)
        return
    if dask:
        refuse_without("koala experiment run", "dask")
    parameters = parameters_from(chosen, _parsed(settings), quick=quick)
    target = report_folder(chosen.name, folder, quick=quick)
    check_folder(target, chosen.name)
    computer = cluster(chosen, dask, processes) if dask else None
    first = repetitions or (chosen.quick_repetitions if quick else chosen.repetitions)
    most = seeds_max or (first if repetitions or quick else max(first, chosen.seeds_max))
    if most < first:
        raise UserError(f"--seeds-max {most}: the run begins with {first} seeds; ask for at least so many")

    seeds = SeedRange(seed, first, most)
    seen, outcome = run_shown(chosen, parameters, seeds, target, processes, computer, fresh=fresh, quick=quick)
    if as_json:
        print_json(outcome.report)
        return
    screen = console()
    for part in summary(chosen, seen, first_look(chosen, seen)):
        screen.print(part)
    screen.print(f"report: {outcome.html_path}", soft_wrap=True, markup=False)
    if outcome.figures:
        screen.print(f"and {counted(len(outcome.figures), 'figure file')} beside it", soft_wrap=True)


def _parsed(settings: tuple[str, ...]) -> dict[str, str]:
    parsed: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UserError(f"--set {setting}: there is no value in it; write --set KEY=VALUE")
        if key in parsed:
            raise UserError(f"--set {setting}: {key} is set twice; set it once")
        parsed[key] = value
    return parsed


# ------------------------------------------------------------------------------------ one run alone


def _run_single(experiment: Experiment[Any], asked: dict[str, str], ctx: click.Context, as_json: bool) -> None:
    """Run what was asked for and print its numbers."""
    from koala.study import single_from

    options = single_from(experiment, asked)
    for name, option in _OF_A_REPORT.items():
        if ctx.params[name] not in (None, False, ()):
            first = f"--{next(iter(asked)).replace('_', '-')}"
            raise UserError(
                f"{option}: {first} asks for one run alone, which is printed and has no report; leave one of them out"
            )
    numbers = experiment.run_single(options, ctx.params["seed"])
    if as_json:
        print_json(numbers)
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in numbers.items():
        table.add_row(name, _in_words(value))
    console().print(table)


def _in_words(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return "-" if value is None else str(value)
