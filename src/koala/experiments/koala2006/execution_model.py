"""The file that says how long the applications run: by size, and how much longer on each further cluster.

Its form is the ``applications`` part of a workload file, with a word on where the numbers come from. Measuring
writes such a file; the experiments on placement read it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field

from koala.descriptions import decoded
from koala.descriptions.fields import Description, Label
from koala.descriptions.workload.form import ApplicationModelText, WorkloadText
from koala.descriptions.yaml.text import read_document


class ExecutionModelText(Description):
    """Execution times on one cluster by application and size, T1, and beta: T1 * (1 + beta * (clusters - 1))."""

    source: str = Field(default="", description="where the numbers come from, for reports")
    applications: dict[Label, ApplicationModelText] = Field(
        min_length=1, description="how long each application runs, as in a workload file"
    )


class MissingApplicationError(ValueError):
    """An execution model does not cover what a workload runs."""

    def for_user(self) -> str:
        """Which application and size, and what to add."""
        return str(self)


def read_execution_model(path: Path) -> ExecutionModelText:
    """The model in a file; DescriptionError names every problem with its place, OSError the file."""
    return read_document(decoded(path.read_bytes(), str(path)), str(path), ExecutionModelText).model


def applications_as_json(applications: dict[str, ApplicationModelText]) -> dict[str, Any]:
    """The model in a form that a unit of work can carry and ``with_applications`` reads back."""
    return {
        name: model.model_dump(mode="json", exclude_defaults=True) for name, model in sorted(applications.items())
    }


def with_applications(text: WorkloadText, applications: dict[str, Any], source: str) -> WorkloadText:
    """The workload with these execution times instead of its own; MissingApplicationError where one is not given."""
    models = {name: ApplicationModelText.model_validate(model) for name, model in applications.items()}
    for generator in text.generate:
        for mix in generator.mix:
            if mix.application not in models:
                raise MissingApplicationError(
                    f"{source}: there is no {mix.application} under applications, and {text.name} runs it; add it"
                )
            for size in mix.sizes:
                for processors in size.processors.bounds:
                    if not models[mix.application].execution_s.covers(processors):
                        raise MissingApplicationError(
                            f"{source}: {mix.application} has no execution time for {processors} processors, "
                            f"and {text.name} runs it with so many; add it under by_size"
                        )
    return text.model_copy(update={"applications": models})
