"""Runs the notebooks of the documentation and writes what their cells print and give under them.

Cells run one after the other in one namespace, in an empty directory, as a notebook's kernel would run them; neither
Jupyter nor a kernel is needed. ``--check`` changes nothing and names the notebooks that differ. Pictures are not
compared: another version of the drawing library draws them otherwise.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PICTURE = "image/svg+xml"


def notebooks() -> list[Path]:
    """Every notebook of the documentation."""
    return sorted(DOCS.rglob("*.ipynb"))


def refreshed(text: str, directory: Path) -> str:
    """The notebook with the outputs of its cells as they are now; they run in the directory given, in order."""
    book = json.loads(text)
    names: dict[str, Any] = {"__name__": "__notebook__"}
    with contextlib.chdir(directory):
        for number, cell in enumerate((cell for cell in book["cells"] if cell["cell_type"] == "code"), 1):
            cell["execution_count"] = number
            cell["outputs"] = list(_outputs("".join(cell["source"]), number, names))
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def _outputs(source: str, number: int, names: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What a cell prints, and what its last expression is."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    place = f"cell {number}"
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, place, "exec"), names)  # noqa: S102
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), place, "eval"), names)  # noqa: S307
    if printed.getvalue():
        yield {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
    if value is not None:
        drawn = getattr(value, "_repr_svg_", None)
        data = {"text/plain": "a figure"} if drawn else {"text/plain": repr(value)}
        if drawn:
            data[PICTURE] = drawn()
        lines = {kind: text.splitlines(keepends=True) for kind, text in data.items()}
        yield {"data": lines, "execution_count": number, "metadata": {}, "output_type": "execute_result"}


def without_pictures(text: str) -> str:
    """The notebook as it is compared."""
    book = json.loads(text)
    for cell in book["cells"]:
        for output in cell.get("outputs", ()):
            output.get("data", {}).pop(PICTURE, None)
    return json.dumps(book)


def main(arguments: list[str]) -> int:
    """Write what is stale, or with ``--check`` name it and return 1."""
    stale = 0
    for path in notebooks():
        shown = path.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as directory:
            found = refreshed(shown, Path(directory))
        if without_pictures(found) == without_pictures(shown):
            continue
        stale += 1
        if arguments == ["--check"]:
            print(f"docs{os.sep}{path.relative_to(DOCS)} is stale; run: python docs/notebook.py")
        else:
            path.write_text(found, encoding="utf-8")
            print(f"wrote docs{os.sep}{path.relative_to(DOCS)}")
    return 1 if stale and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
