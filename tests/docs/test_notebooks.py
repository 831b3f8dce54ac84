"""The notebooks of the documentation run as they are shown."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


def script() -> ModuleType:
    """The script that runs notebooks, as a module."""
    spec = importlib.util.spec_from_file_location("docs_notebook", DOCS / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


notebook = script()


@pytest.mark.parametrize("path", notebook.notebooks(), ids=lambda path: path.name)
def test_cells_run_and_give_what_the_notebook_shows(path: Path, tmp_path: Path) -> None:
    shown = path.read_text(encoding="utf-8")
    found = notebook.refreshed(shown, tmp_path)
    assert notebook.without_pictures(found) == notebook.without_pictures(shown), "run: python docs/notebook.py"
