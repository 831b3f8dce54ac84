"""The distribution: what it imports of Koala is public, and what it declares is what is there."""

from __future__ import annotations

import ast
import importlib
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
from tests.support.paths import ROOT

from koala.version import __version__
from koala_papers.command import experiment

FOLDER = ROOT / "papers"
SOURCES = FOLDER / "src" / "koala_papers"
# Modules of values, where every name without an underscore is public, and programs to copy.
VALUES = ("koala.model.", "koala.examples.applications.")


def project(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    return found


def taken_of_koala() -> list[tuple[str, str]]:
    """The module and the name of everything that the studies import of Koala."""
    nodes = (node for path in SOURCES.rglob("*.py") for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    found = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "koala":
            found |= {(str(node.module), alias.name) for alias in node.names}
        if isinstance(node, ast.Import):
            assert not any(alias.name.split(".")[0] == "koala" for alias in node.names), "from koala.X import name"
    return sorted(found)


@pytest.mark.parametrize(("module", "name"), taken_of_koala())
def test_what_the_studies_take_of_koala_is_public(module: str, name: str) -> None:
    assert not name.startswith("_")
    if not module.startswith(VALUES):
        assert name in importlib.import_module(module).__all__


def test_the_entry_point_is_the_verb() -> None:
    ((verb, value),) = project(FOLDER)["project"]["entry-points"]["koala.commands"].items()
    assert verb == "experiment"
    assert EntryPoint(verb, value, "koala.commands").load() is experiment
    assert isinstance(experiment, click.Command)


def test_it_has_the_version_of_koala_and_requires_that_very_one() -> None:
    ours = project(FOLDER)["project"]
    assert ours["version"] == __version__
    (required,) = ours["dependencies"]
    name, _, rest = required.partition("[")
    extras, _, version = rest.partition("]==")
    assert (name, version) == (project(ROOT)["project"]["name"], __version__)
    assert set(extras.split(",")) <= set(project(ROOT)["project"]["optional-dependencies"])


@pytest.mark.parametrize(("folder", "package"), [(ROOT, "src/koala"), (FOLDER, "src/koala_papers")])
def test_a_wheel_has_its_own_package_with_its_types(folder: Path, package: str) -> None:
    assert project(folder)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == [package]
    assert (folder / package / "py.typed").exists()
