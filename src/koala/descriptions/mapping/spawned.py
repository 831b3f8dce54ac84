"""Texts that name tasks for a running job, and their reader."""

from __future__ import annotations

from collections.abc import Collection

from pydantic import Field

from koala.descriptions.errors import refuse_any
from koala.descriptions.fields import Description
from koala.descriptions.job.task_graph import TASKS_WORDS, Edges, Tasks, spawned_of, spawned_problems
from koala.descriptions.yaml.text import Document, read_document
from koala.model.task_graph import SpawnedTasks

SPAWNED_EDGES_WORDS = (
    "the pairs of tasks that communicate, each with its rqoc: one is new, the other new or a task of the job"
)


class SpawnText(Description):
    """Tasks for a job of tasks that runs."""

    tasks: Tasks = Field(description=TASKS_WORDS)
    edges: Edges = Field(default=(), description=SPAWNED_EDGES_WORDS)


def read_spawned(text: str, source: str, there: Collection[str] | None = None) -> SpawnedTasks:
    """Return the tasks that a YAML text names; raise DescriptionError with all problems if it is invalid.

    ``there`` are the tasks of the job, if they are known.
    """
    document: Document[SpawnText] = read_document(text, source, SpawnText)
    refuse_any(source, spawned_problems(document, (), document.model.tasks, document.model.edges, there))
    return spawned_of(document.model.tasks, document.model.edges)
