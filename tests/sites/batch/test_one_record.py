"""Nothing outside ``koala.sites.batch`` names a batch system: what the rest needs comes with the records."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import koala
from koala.sites.batch.kind import BatchKind
from koala.sites.batch.systems import SYSTEMS

PACKAGE = Path(koala.__file__).parent
# Scripts that are written for a batch system are read, and started at any site; a lab builds real clusters.
MAY_NAME = (
    "sites/batch/",
    "descriptions/sbatch/",
    "descriptions/__init__.py",  # the endings and first lines of scripts
    "model/launch.py",  # by what names scripts look for what is theirs
    "runners/",  # what scripts find set
    "lab/",
    "cli/lab.py",
    "daemon/api/jobs.py",  # an example of a script
    "simulator/torture/storms.py",  # a program that some sites provide
)
# A batch system is an example in what is said to people, or in a comment.
MAY_TELL = {
    "cli/__init__.py",
    "cli/grid/command.py",
    "descriptions/fields.py",
    "descriptions/grid/batch.py",
    "descriptions/grid/site.py",
    "descriptions/job/form.py",
    "descriptions/job/outputs.py",
    "descriptions/job/task.py",
    "model/job_array.py",
}


def names() -> Iterator[str]:
    """The names of batch systems, of their programs and their variables."""
    for system in SYSTEMS.values():
        parts = system.parts()
        yield from (system.name, system.title, *system.programs)
        yield from (*parts.checks.programs, *(key.name for key in system.keys))
        yield from parts.discovery.variables
    yield "sge"


NAMED = re.compile(
    "|".join(rf"(?<![a-z]){re.escape(name).replace('_', '[_ -]')}(?![a-z])" for name in names()), re.IGNORECASE
)


def words_of(module: ast.Module) -> Iterator[tuple[int, str]]:
    """What a module imports, calls and compares, with its lines: everything but what is written for people."""
    for node in ast.walk(module):
        for field in ("id", "attr", "arg", "name", "module", "asname"):
            word = getattr(node, field, None)
            if isinstance(word, str):
                yield getattr(node, "lineno", 0), word
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and not re.search(r"\s", node.value):
            yield node.lineno, node.value


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")) + sorted(PACKAGE.rglob("*.sh")), ids=str)
def test_only_its_folder_names_a_batch_system(path: Path) -> None:
    name = path.relative_to(PACKAGE).as_posix()
    if name.startswith((*MAY_NAME, "examples/")):
        return
    text = path.read_text(encoding="utf-8")
    if name not in MAY_TELL:
        found = [f"{number}: {line}" for number, line in enumerate(text.splitlines(), 1) if NAMED.search(line)]
        assert found == []
    else:
        found = [f"{number}: {word}" for number, word in words_of(ast.parse(text)) if NAMED.search(word)]
        assert found == []


def test_what_may_be_named_or_told_is_there() -> None:
    for name in (*MAY_NAME, *MAY_TELL):
        assert (PACKAGE / name).exists()
    for name in MAY_TELL:
        assert NAMED.search((PACKAGE / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [path.name for path in (PACKAGE / "sites" / "batch").iterdir() if path.is_dir()])
def test_the_folder_of_a_batch_system_exports_its_record_alone(name: str) -> None:
    module = __import__(f"koala.sites.batch.{name}", fromlist=["*"])
    records = [each for each in vars(module).values() if isinstance(each, BatchKind)]
    if name in SYSTEMS:
        assert records == [SYSTEMS[name]]
        assert [getattr(module, each) for each in module.__all__] == records
    else:
        assert records == []
