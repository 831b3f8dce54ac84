"""User text to Request and Grid: the only parsers of user input.

Text arrives as ``str`` with the name of its source; nothing here opens a file. Each format lives in a module of its
own, which is imported when it is first needed.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Any

from koala.descriptions.errors import DescriptionError, Problem, decoded

if TYPE_CHECKING:
    from collections.abc import Collection

    from koala.descriptions.fields import Description, Label
    from koala.descriptions.job.order import JobNumber
    from koala.descriptions.mapping.application import ApplicationGraph
    from koala.descriptions.workload.form import ApplicationModelText, RequestKind, WorkloadText
    from koala.descriptions.yaml.text import read_document
    from koala.model.dendrogram import Dendrogram
    from koala.model.grid import Grid
    from koala.model.request import GraphJob, Request

__all__ = [
    "ApplicationModelText",
    "Description",
    "DescriptionError",
    "Label",
    "Problem",
    "RequestKind",
    "WorkloadText",
    "decoded",
    "grid_schema",
    "is_graph",
    "job_notes",
    "job_schema",
    "place_of_job",
    "read_application",
    "read_document",
    "read_graph",
    "read_grid",
    "read_job",
    "read_machines",
    "write_job_yaml",
    "write_rsl",
]

# Readers of other files and workloads build on these. They need pydantic, and are imported when first used.
_FORMS = {
    "ApplicationModelText": "workload.form",
    "Description": "fields",
    "Label": "fields",
    "RequestKind": "workload.form",
    "WorkloadText": "workload.form",
    "read_document": "yaml.text",
}
_YAML_ENDINGS = (".yaml", ".yml")
_RSL_ENDINGS = (".rsl",)
_GRAPH = re.compile(r"^jobs[ \t]*:", re.MULTILINE)
_SCRIPT_ENDINGS = (".sbatch", ".slurm", ".pbs", ".qsub", ".sge", ".sh")
_SCRIPT_STARTS = ("#!", "#SBATCH ", "#PBS ", "#$ -")


if not TYPE_CHECKING:  # a type checker knows the names above, and should report others

    def __getattr__(name: str) -> Any:
        if name not in _FORMS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"koala.descriptions.{_FORMS[name]}"), name)


def is_graph(text: str, source: str) -> bool:
    """Return True if a text describes several jobs: in YAML, with the key ``jobs`` at the start of a line."""
    return _job_format(text, source.lower()) == "yaml" and _GRAPH.search(text) is not None


def read_graph(
    text: str,
    source: str,
    *,
    known_sites: Collection[str] | None = None,
    known_policies: Collection[str] | None = None,
) -> tuple[GraphJob, ...]:
    """Return the jobs of a YAML text, which wait for each other; a job comes before its dependents."""
    from koala.descriptions.fields import KnownNames
    from koala.descriptions.job.graph import read_graph_yaml

    return read_graph_yaml(text, source, KnownNames(known_sites, known_policies))


def place_of_job(text: str, source: str, name: str, number: JobNumber | None = None) -> tuple[int, int]:
    """Return the line and the column of a job, or of a number that it waits for, in the text of a
    graph read before."""
    from koala.descriptions.job.graph import place_of_job as place

    return place(text, source, name, number)


def job_notes(text: str, source: str) -> tuple[str, ...]:
    """Return the parts of a text that have no effect here: options of a batch script. Raises as ``read_job`` does."""
    if _job_format(text, source.lower()) != "script":
        return ()
    from koala.descriptions.sbatch.reader import read_sbatch_noted

    return read_sbatch_noted(text, source)[1]


def read_job(
    text: str,
    source: str,
    *,
    known_sites: Collection[str] | None = None,
    known_policies: Collection[str] | None = None,
) -> Request:
    """Return the job that a text describes, in YAML, RSL or as a batch script.

    The ending of the source's name determines the format, or else the text's first character. If the known sites or
    policies are given, a job that names another is refused at the place of that name.
    """
    from koala.descriptions.fields import KnownNames

    known = KnownNames(known_sites, known_policies)
    kind = _job_format(text, source.lower())
    if kind == "script":
        from koala.descriptions.sbatch.reader import read_sbatch

        return read_sbatch(text, source, known)
    if kind == "rsl":
        from koala.descriptions.rsl.reader import read_rsl

        return read_rsl(text, source, known)
    from koala.descriptions.job.form import read_job_yaml

    return read_job_yaml(text, source, known)


def _job_format(text: str, name: str) -> str:
    if name.endswith(_YAML_ENDINGS):
        return "yaml"
    if name.endswith(_RSL_ENDINGS):
        return "rsl"
    if name.endswith(_SCRIPT_ENDINGS) or text.removeprefix("\N{BYTE ORDER MARK}").startswith(_SCRIPT_STARTS):
        return "script"
    return "rsl" if text.lstrip("\N{BYTE ORDER MARK} \t\r\n").startswith(("+", "&", "(")) else "yaml"


def read_grid(text: str, source: str) -> Grid:
    """Return the grid that a YAML text describes."""
    from koala.descriptions.grid.form import read_grid_yaml

    return read_grid_yaml(text, source)


def read_application(text: str, source: str) -> ApplicationGraph:
    """Return the application of communicating tasks that a YAML text describes."""
    from koala.descriptions.mapping import application

    return application.read_application(text, source)


def read_machines(text: str, source: str) -> Dendrogram:
    """Return the machines of a grid, in LANs, MANs and WANs, from a YAML text; a grid file works, too."""
    from koala.descriptions.mapping import grid

    return grid.read_machines(text, source)


def write_job_yaml(request: Request) -> str:
    """Return YAML that ``read_job`` reads as this request."""
    from koala.descriptions.job import form

    return form.write_job_yaml(request)


def write_rsl(request: Request) -> str:
    """Return RSL that ``read_job`` reads as this request."""
    from koala.descriptions.rsl import writer

    return writer.write_rsl(request)


def job_schema() -> dict[str, Any]:
    """Return the JSON schema of a job in YAML."""
    from koala.descriptions.fields import schema_of
    from koala.descriptions.job.form import JobText

    return schema_of(JobText, "Koala job")


def grid_schema() -> dict[str, Any]:
    """Return the JSON schema of a grid file."""
    from koala.descriptions.fields import schema_of
    from koala.descriptions.grid.form import GridText

    return schema_of(GridText, "Koala grid")
