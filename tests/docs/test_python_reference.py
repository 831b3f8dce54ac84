"""The Python library is what its reference says: every public name is there, has an example, and the example runs."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pydoc
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import koala
from tests.support.live_daemon import Daemon, running_daemon

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"

sys.path.insert(0, str(DOCS))
try:
    import python_reference
finally:
    sys.path.remove(str(DOCS))

PUBLIC = [
    (module, name)
    for module in python_reference.MODULES
    for name in python_reference.public_names(module)
    if not python_reference.is_constant(name)
]
# What a class has beside its docstring of its own: methods, which may have examples too.
FINDER = doctest.DocTestFinder(exclude_empty=True)


def public(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The daemon that the examples of the clients talk to."""
    with running_daemon(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_the_example_of_a_public_name_runs(
    module: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if module == "koala":
        monkeypatch.setenv("KOALA_SERVER", request.getfixturevalue("daemon").server)
    monkeypatch.chdir(tmp_path)
    script = {"__name__": "__main__"}
    examples = [each for each in FINDER.find(public(module, name), name, module=False, globs=script) if each.examples]
    assert examples, f"{module}.{name} has no example in its docstring"
    for each in examples:
        said: list[str] = []
        failed = doctest.DocTestRunner(verbose=False).run(each, out=said.append).failed
        assert failed == 0, "".join(said)


@pytest.mark.parametrize("module", python_reference.MODULES)
def test_dir_lists_the_public_names_and_no_other(module: str) -> None:
    found = importlib.import_module(module)
    shown = {name for name in dir(found) if not name.startswith("_")}
    named = {name for name in found.__all__ if not name.startswith("_")}
    modules = {name for name in shown - named if inspect.ismodule(getattr(found, name))}
    assert named == shown - modules
    assert len(set(found.__all__)) == len(found.__all__)


@pytest.mark.parametrize("module", python_reference.MODULES)
def test_help_of_a_module_shows_what_is_public(module: str) -> None:
    text = pydoc.plain(pydoc.render_doc(importlib.import_module(module)))
    for name in python_reference.public_names(module):
        assert name in text


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_types_of_arguments_and_answers_are_annotated(module: str, name: str) -> None:
    value = public(module, name)
    called = [value] if inspect.isfunction(value) else []
    if inspect.isclass(value) and not issubclass(value, BaseException):
        called += [what for _, what in python_reference.members(value) if inspect.isfunction(what)]
    for each in called:
        signature = inspect.signature(each)
        assert signature.return_annotation is not signature.empty, each
        for parameter in signature.parameters.values():
            assert parameter.name == "self" or parameter.annotation is not parameter.empty, (each, parameter)


def test_type_checkers_are_told_that_the_package_is_typed() -> None:
    assert koala.__file__ is not None
    assert (Path(koala.__file__).parent / "py.typed").exists()
