"""The ``koala`` command. Each verb lives in a module of this folder and is imported when it is used.

Exit codes, for every verb: 0 done; 1 the thing asked for was tried and failed; 2 wrong use or bad input;
3 refused by a policy; 130 interrupted.
"""

from __future__ import annotations

import importlib
from typing import Any

import click

from koala import __version__
from koala.cli.errors import ReportedGroup

# verb -> (module, attribute, one line for the overview)
VERBS: dict[str, tuple[str, str, str]] = {
    "demo": ("koala.cli.demo", "demo", "Run one co-allocation on a simulated grid and show it."),
    "examples": (
        "koala.cli.examples",
        "examples",
        "List, show and copy the grids, workloads and jobs that ship with Koala.",
    ),
    "place": ("koala.cli.place", "place", "Ask where a job would go, without any grid running."),
    "policies": ("koala.cli.policies", "policies", "List the placement policies."),
    "schema": ("koala.cli.schema", "schema", "Print the JSON schema of a file that Koala reads."),
    "simulate": ("koala.cli.simulate", "simulate", "Run a workload on a simulated grid."),
    "torture": (
        "koala.cli.torture",
        "torture",
        "Run the scheduler under storms of faults and check that it keeps its promises.",
    ),
}


class LazyGroup(ReportedGroup):
    """A group that knows its verbs by name and imports one only when it is called, so that --help is fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module, attribute, _ = VERBS[cmd_name]
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(verb, VERBS[verb][2]) for verb in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="koala")
def koala() -> None:
    """One queue over many clusters: places the pieces of a parallel job on several of them at once."""


def main(*args: Any, **kwargs: Any) -> None:
    """The entry point of the ``koala`` script."""
    koala(*args, **kwargs)
