"""Writes the parts of the reference pages that follow from the code, and the pictures of states and of floors.

A page holds regions between ``<!-- generated: NAME -->`` and ``<!-- end -->``; this script fills them and leaves
the rest alone. Run it after a change of a field, message, limit or option; ``--check`` only says what is stale.
The tables are made in ``reference_tables`` and ``schema_tables``, the page on Python in ``python_reference``, the
pictures in ``state_picture`` and ``floors_picture``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import floors_picture
import python_reference
import reference_tables
import schema_tables
import state_picture

from koala.descriptions import grid_schema, job_schema
from koala.descriptions.study.form import study_schema
from koala.descriptions.workload.form import workload_schema

DOCS = Path(__file__).resolve().parent
REGION = re.compile(r"<!-- generated: ([a-z-]+) -->\n.*?<!-- end -->", re.DOTALL)

REGIONS: dict[str, Callable[[], str]] = {
    "cli": reference_tables.verbs,
    "job": lambda: schema_tables.tables(job_schema()),
    "grid": lambda: schema_tables.tables(grid_schema()),
    "workload": lambda: schema_tables.tables(
        workload_schema(), skip=schema_tables.definitions(job_schema()) | {"JobText"}
    ),
    "study": lambda: schema_tables.tables(study_schema()),
    "rsl-component": reference_tables.rsl_component,
    "rsl-job": reference_tables.rsl_job,
    "rsl-refused": reference_tables.rsl_refused,
    "sbatch": reference_tables.sbatch,
    "sbatch-koala": reference_tables.sbatch_koala,
    "sbatch-noted": reference_tables.sbatch_noted,
    "sbatch-refused": reference_tables.sbatch_refused,
    "policies": reference_tables.policies,
    "events": reference_tables.events,
    "commands": reference_tables.commands,
    "facts": reference_tables.facts,
    "outcomes": reference_tables.outcomes,
    "states": reference_tables.states,
    "transitions": reference_tables.transitions,
    "limits": reference_tables.limits,
    "api": reference_tables.api,
    "python": python_reference.reference,
}


def filled(page: str) -> str:
    """The page with every region as the code says now; KeyError for a region that nobody writes."""
    return REGION.sub(lambda found: f"<!-- generated: {found[1]} -->\n{REGIONS[found[1]]()}\n<!-- end -->", page)


def outputs() -> Iterator[tuple[Path, str]]:
    """Every file that has generated parts, and what it should say."""
    for path in sorted((DOCS / "reference").glob("*.md")):
        yield path, filled(path.read_text(encoding="utf-8"))
    yield DOCS / "images" / "states.svg", state_picture.draw()
    yield DOCS / "images" / "floors.svg", floors_picture.draw()


def main(arguments: list[str]) -> int:
    """Write what is stale, or with ``--check`` name it and return 1."""
    stale = [
        (path, text) for path, text in outputs() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    if arguments == ["--check"]:
        for path, _ in stale:
            print(f"docs/{path.relative_to(DOCS)} is stale; run: python docs/generate.py")
        return 1 if stale else 0
    for path, text in stale:
        path.write_text(text, encoding="utf-8")
        print(f"wrote docs/{path.relative_to(DOCS)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
