"""The options of ``koala experiment run`` that ask for one run alone: declared by the experiments, shown here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from koala.cli.errors import UserError
from koala.cli.terminal.output import console, print_json

if TYPE_CHECKING:
    from koala.experiments.frame.experiment import Experiment

# Of a run with a report; one run alone has none, and writes nothing.
_OF_A_REPORT = {
    "folder": "--out",
    "repetitions": "--repetitions",
    "processes": "--jobs",
    "quick": "--quick",
    "settings": "--set",
    "fresh": "--fresh",
    "dask": "--dask",
}


class RunCommand(click.Command):
    """A command with further options: those that some experiment declares for a single run of its own."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The options of every experiment, and those of single runs before ``--help``."""
        *ours, asking_for_help = super().get_params(ctx)
        return [*ours, *_declared(), asking_for_help]


def _declared() -> list[click.Parameter]:
    """An option for each field that an experiment has for its single runs; its text is read by the experiment."""
    import msgspec

    from koala.experiments.catalogue import experiments

    helps: dict[str, list[str]] = {}
    for experiment in experiments():
        if experiment.single_type is None:
            continue
        for field in msgspec.structs.fields(experiment.single_type):
            described = msgspec.inspect.type_info(field.type)
            words = (getattr(described, "extra_json_schema", None) or {}).get("description", "")
            helps.setdefault(field.name, []).append(f"{experiment.name}, one run: {words}".strip())
    return [click.Option([f"--{name.replace('_', '-')}"], help=" ".join(words)) for name, words in helps.items()]


def run_single(experiment: Experiment[Any], asked: dict[str, str], ctx: click.Context, as_json: bool) -> None:
    """Run what was asked for and print its numbers."""
    from koala.experiments.frame.experiment import single_from

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
