"""The ``task`` of a job or a component: what each of its equal tasks holds, and how many there are."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from koala.descriptions.fields import Description, Memory, Processors, memory_value
from koala.model.nodes import (
    CONSTRAINT_CHARACTERS_MAX,
    CONSTRAINT_PATTERN,
    GPU_KIND_PATTERN,
    TASK_GPUS_MAX,
    TaskNeeds,
)
from koala.model.request import Component, InvalidRequestError

GpuKind = Annotated[str, Field(pattern=GPU_KIND_PATTERN, max_length=CONSTRAINT_CHARACTERS_MAX)]
Constraint = Annotated[str, Field(pattern=CONSTRAINT_PATTERN, max_length=CONSTRAINT_CHARACTERS_MAX)]


class ShapeText(Description):
    """What each of the equal tasks of a component holds. Without it a task is one processor."""

    count: Processors | None = Field(
        default=None,
        description="how many tasks there are, which makes count times processors; instead of processors elsewhere, "
        "or beside them where they agree",
    )
    processors: Processors | None = Field(
        default=None, description="processors of one task, all on one node; by default 1, or processors_per_task"
    )
    memory: Memory | None = Field(
        default=None, description="memory of one task, such as 16G (2^30 bytes each, as in Slurm), 16 GiB or 16 GB"
    )
    gpus: Annotated[int, Field(strict=True, ge=0, le=TASK_GPUS_MAX)] | None = Field(
        default=None, description="GPUs of one task, on its node"
    )
    gpu: GpuKind | None = Field(default=None, description="the kind of its GPUs, such as a100; by default any")
    constraint: Constraint | None = Field(
        default=None,
        description="features that its node must have: one (a), all of several (a&b), or one of them (a|b)",
    )

    def over(self, default: ShapeText | None) -> ShapeText:
        """Return this shape's keys over another's."""
        if default is None:
            return self
        given = {key: getattr(default, key) for key in default.model_fields_set}
        return ShapeText.model_construct(**(given | {key: getattr(self, key) for key in self.model_fields_set}))

    def needs(self) -> TaskNeeds | None:
        """Return what a task needs beside its processors; None if nothing."""
        needs = TaskNeeds(
            memory_bytes=self.memory or 0, gpus=self.gpus or 0, gpu=self.gpu or "", constraint=self.constraint or ""
        )
        return None if needs == TaskNeeds() else needs

    def per_task(self, of_application: int | None) -> int:
        """Return the processors of one task. Raises InvalidRequestError if the application
        declares another number."""
        if self.processors is None:
            return of_application or 1
        if of_application is not None and of_application != self.processors:
            raise InvalidRequestError(
                "processors_per_task",
                f"the application has {of_application} processors_per_task, and task has {self.processors} "
                "processors; keep one of the two",
            )
        return self.processors


def sized(processors: int | None, shape: ShapeText | None, per_task: int) -> int:
    """Return the processors of a component. Raises InvalidRequestError if nothing gives them, or
    two values differ."""
    counted = None if shape is None or shape.count is None else shape.count * per_task
    if processors is None and counted is None:
        raise InvalidRequestError("size", "'processors' is missing; write how many")
    if processors is not None and counted is not None and processors != counted:
        assert shape is not None
        raise InvalidRequestError(
            "count",
            f"{shape.count} tasks of {per_task} processors are {counted} processors, and processors says "
            f"{processors}; keep one of the two, or let them agree",
        )
    return processors if processors is not None else counted or 0


def shape_values(component: Component) -> dict[str, Any]:
    """Return the ``task`` of a component for a description; empty if ``processors_per_task`` expresses all of it."""
    needs = component.needs
    if needs is None:
        return {}
    values: dict[str, Any] = {}
    if needs.memory_bytes:
        values["memory"] = memory_value(needs.memory_bytes)
    for key in ("gpus", "gpu", "constraint"):
        if getattr(needs, key):
            values[key] = getattr(needs, key)
    return values
