"""The outputs of a job in descriptions: by path alone, or with more details."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from koala.descriptions.errors import shown
from koala.descriptions.fields import Description, Memory, SomeText, memory_value
from koala.descriptions.yaml.problems import text_wanted, wrong
from koala.model.outputs import OUTPUTS_MAX, JobOutput, plain_output

# What a shell or Slurm would replace: a path is used as it is.
_PATTERN = re.compile(r"[*?\[$]|%[0-9]*[A-Za-z]")


def pattern_problem(path: str) -> tuple[str, str] | None:
    """Return what is wrong with the path of an output that has a placeholder, and what to write."""
    found = _PATTERN.search(path)
    if found is None:
        return None
    return (
        f"{shown(path)} has {shown(found[0])}, and patterns and variables are not filled in in the paths of outputs",
        "let the job write into a directory and name that, such as results/, or name each file",
    )


def _without_pattern(path: str) -> str:
    if (problem := pattern_problem(path)) is not None:
        raise wrong(*problem)
    return path


def _by_path(value: Any) -> Any:
    """Read the path of an output alone as the output."""
    if isinstance(value, str):
        return {"path": value}
    if isinstance(value, int | float):
        raise text_wanted()
    return value


class OutputText(Description):
    """Something that a component makes and that is kept."""

    path: Annotated[SomeText, AfterValidator(_without_pattern)] = Field(
        description="the file or directory as the component leaves it, below the directory in which it starts"
    )
    to: SomeText | None = Field(
        default=None, description="where it is brought besides: a site, or a URL; one that ends with / is a directory"
    )
    size: Memory | None = Field(default=None, description="how large it becomes in a simulation, such as 2G")


Outputs = Annotated[
    tuple[Annotated[OutputText, BeforeValidator(_by_path, json_schema_input_type=str | OutputText)], ...],
    Field(max_length=OUTPUTS_MAX),
]


def outputs_of(texts: tuple[OutputText, ...], directory: str | None) -> tuple[JobOutput, ...]:
    """Return the values; paths are below the directory in which the application starts."""
    below = "" if directory is None or directory.startswith("/") else f"{directory}/"
    return tuple(JobOutput(path=_plain(text.path, below), size_bytes=text.size or 0, to=text.to) for text in texts)


def _plain(path: str, below: str) -> str:
    """Return a path below the workspace; a path that leads away stays as it is, to be refused by its own name."""
    return path if path.startswith("/") or plain_output(path).startswith("..") else plain_output(f"{below}{path}")


def output_values(outputs: tuple[JobOutput, ...], directory: str | None) -> list[Any]:
    """Return values that ``outputs_of`` reads as these outputs."""
    below = "" if directory is None else f"{plain_output(directory)}/"
    values: list[Any] = []
    for output in outputs:
        value: dict[str, Any] = {"path": output.path.removeprefix(below)}
        if output.to is not None:
            value["to"] = output.to
        if output.size_bytes:
            value["size"] = memory_value(output.size_bytes)
        values.append(value["path"] if len(value) == 1 else value)
    return values
