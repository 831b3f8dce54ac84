"""``koala examples``: the grids, workloads, jobs, studies and task graphs that ship with Koala.

``read_named`` also serves the other verbs that take a file or the name of an example.
"""

from __future__ import annotations

import difflib
import os
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import NamedTuple

import click

from koala.cli.errors import UserError
from koala.cli.terminal.output import OutputFile, console, print_json

# Folder of the examples -> the kind of its files.
KINDS = {
    "grids": "grid",
    "workloads": "workload",
    "jobs": "job",
    "studies": "study",
    "task_graphs": "graph",
    "dendrograms": "dendrogram",
}
_COMMENT_MARKS = "#(* "


class Example(NamedTuple):
    """One shipped file. Names are unique within a kind."""

    kind: str
    name: str
    file: Traversable

    def text(self) -> str:
        """Return the contents of the file."""
        return self.file.read_text(encoding="utf-8")

    def summary(self) -> str:
        """Return its first comment line."""
        lines = [line for line in self.text().splitlines() if not line.startswith("#!")]
        return lines[0].lstrip(_COMMENT_MARKS).removesuffix("*)").strip()


def shipped(kind: str | None = None) -> list[Example]:
    """Return the examples of one kind, or all of them, by kind and name."""
    root = resources.files("koala") / "examples"
    return [
        Example(word, _bare_name(file), file)
        for folder, word in KINDS.items()
        if kind in (None, word)
        for file in sorted((root / folder).iterdir(), key=_bare_name)
        if not file.name.startswith((".", "_"))
    ]


def _bare_name(file: Traversable) -> str:
    return file.name.rsplit(".", 1)[0]


def read_named(kind: str, name: str, *others: str) -> tuple[str, str]:
    """Return the text of a file, or of the example of that name, and its name in messages.

    The example is the first of that name, of this kind or of one of the others, in this order.
    """
    from koala.descriptions import decoded

    path = Path(name)
    shown = os.fsencode(name).decode("utf-8", errors="replace")
    if path.is_file():
        return decoded(path.read_bytes(), shown), shown
    known = {example.name: example for each in reversed((kind, *others)) for example in shipped(each)}
    of_kind = {_full_name(example): example for each in (kind, *others) for example in shipped(each)}
    example = known.get(name) or of_kind.get(name)
    if example is not None:
        return example.text(), example.file.name
    if path.is_dir():
        raise UserError(f"{shown}: this is a directory; name a file in it")
    raise UserError(f"{shown}: there is no such file, and no example {kind} of that name; {_advice(name, known)}")


def _advice(name: str, known: dict[str, Example]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    listed = ", ".join(known)
    return f"did you mean {near[0]}? There are {listed}" if near else f"there are {listed}"


def _find(name: str) -> Example:
    """Return an example by its name, with its kind before a slash if two kinds have the name: ``grid/demo``."""
    kind, _, bare = name.rpartition("/")
    found = [each for each in shipped() if bare in (each.name, each.file.name) and kind in ("", each.kind)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UserError(f"{name}: several examples have that name; write {' or '.join(map(_full_name, found))}")
    raise UserError(
        f"{name}: there is no example of that name; {_advice(bare, {each.name: each for each in shipped()})}"
    )


def _full_name(example: Example) -> str:
    return f"{example.kind}/{example.name}"


@click.group(invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def examples(ctx: click.Context, as_json: bool) -> None:
    """List, show and copy the grids, workloads, jobs, studies and task graphs that ship with Koala.

    Wherever a verb takes such a file it takes the name of one of these too.
    """
    if ctx.invoked_subcommand is not None:
        return
    if as_json:
        print_json([{"kind": each.kind, "name": each.name, "summary": each.summary()} for each in shipped()])
        return
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in ("kind", "name", "what it is"):
        table.add_column(column, no_wrap=column != "what it is")
    for each in shipped():
        table.add_row(each.kind, escape(each.name), escape(each.summary()))
    console().print(table)


@examples.command()
@click.argument("name")
def show(name: str) -> None:
    """Print an example."""
    click.echo(_find(name).text(), nl=False)


@examples.command()
@click.argument("name")
@click.argument("dest", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace a file that is there already.")
def copy(name: str, dest: Path | None, force: bool) -> None:
    """Copy an example to DEST, a file or a folder; by default here, under its own name."""
    example = _find(name)
    target = Path(example.file.name) if dest is None else dest
    if target.is_dir():
        target /= example.file.name
    if target.exists() and not force:
        raise UserError(f"{target}: the file is there already; choose another name, or --force to replace it")
    with OutputFile("DEST", target) as copied:
        copied.write(example.text().encode())
    click.echo(f"{target}")
