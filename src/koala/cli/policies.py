"""``koala policies``: the policies and orders, including those of installed packages and given files.

``full_catalogue`` also serves the other verbs that take ``--policy-file``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from koala.cli.terminal.output import console, print_json
from koala.policies import Catalogue, JobOrder, Policy

if TYPE_CHECKING:
    from rich.console import RenderableType

    from koala.model.grid import Grid

# On a narrower screen the table would cut words.
_TABLE_FROM = 76


def full_catalogue(policy_files: Iterable[str], grid: Grid | None = None) -> Catalogue:
    """Return Koala's own policies, those of installed packages, and those in the files of the grid and in these."""
    from koala.simulator.reading import read_policy_files, with_policy_files

    if grid is None:
        return Catalogue.of(read_policy_files(policy_files))
    return Catalogue.of(with_policy_files(grid, policy_files).policy_files)


@click.command()
@click.option(
    "--policy-file", "policy_files", multiple=True, metavar="FILE.py", help="A Python file that registers policies."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def policies(policy_files: tuple[str, ...], as_json: bool) -> None:
    """List the placement policies, and the orders of the queue.

    A policy's form says what it decides: "components" places components of given sizes, "files" does so by
    the time their input files take, "flexible" divides a total (and places given sizes by CM), "links" does so by the
    load of the links between the sites. Parameters follow the name: B3(chunk=0.9, lslt=0.8). An "order" says which
    waiting job comes first.
    """
    catalogue = full_catalogue(policy_files)
    if as_json:
        print_json(
            [
                {
                    "name": known.name,
                    "form": str(known.form),
                    "summary": known.summary,
                    "origin": known.origin,
                    "parameters": [
                        {"name": each.name, "default": each.default, "values": each.values}
                        for each in known.parameters
                    ],
                }
                for known in catalogue
            ]
            + [
                {"name": each.name, "form": "order", "summary": each.summary, "origin": each.origin, "parameters": []}
                for each in catalogue.orders()
            ]
        )
        return
    screen = console()
    if screen.width < _TABLE_FROM:
        for known in catalogue:
            parameters = ", ".join(f"{each.name}={each.default}" for each in known.parameters)
            screen.print(_entry(known, str(known.form), parameters))
        for each in catalogue.orders():
            screen.print(_entry(each, "order"))
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("policy", "form", "what it does", "parameters", "from"):
        table.add_column(column, no_wrap=column in ("policy", "form"))
    for known in catalogue:
        parameters = "\n".join(f"{each.name}={each.default}" for each in known.parameters)
        table.add_row(*_plain(known.name, str(known.form), known.summary, parameters, known.origin))
    for each in catalogue.orders():
        table.add_row(*_plain(each.name, "order", each.summary, "", each.origin))
    screen.print(table)


def _entry(known: Policy | JobOrder, form: str, parameters: str = "") -> RenderableType:
    """Return a policy or an order as lines, for a screen on which the table would cut its words."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    lines = [known.summary, *([f"Parameters: {parameters}."] if parameters else [])]
    head = Text(f"{known.name} ({form}, from {known.origin})", style="bold")
    return Group(head, Padding(Text("\n".join(lines)), (0, 0, 0, 2)))


def _plain(*cells: str) -> tuple[str, ...]:
    """Return cells whose square brackets are text and not markup."""
    from rich.markup import escape

    return tuple(map(escape, cells))
