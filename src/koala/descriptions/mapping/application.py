"""Files that hold a task graph, alone or as a part of a job, and the reader of the graph."""

from __future__ import annotations

from typing import Any, NamedTuple

from pydantic import Field

from koala.descriptions.errors import refuse_any
from koala.descriptions.fields import Description, schema_of
from koala.descriptions.job.form import JobText, read_job_yaml
from koala.descriptions.job.task_graph import (
    CLUSTERS_WORDS,
    EDGES_WORDS,
    MCR_WORDS,
    TASKS_WORDS,
    ClusterNames,
    Clusters,
    Edges,
    Positive,
    Tasks,
    clusters_of,
    graph_of,
    graph_problems,
)
from koala.descriptions.yaml.nodes import LARGE, compose
from koala.descriptions.yaml.text import read_composed
from koala.model.task_graph import TaskGraph


class ApplicationGraphText(Description):
    """An application of communicating tasks."""

    mcr: Positive = Field(description=MCR_WORDS)
    tasks: Tasks = Field(description=TASKS_WORDS)
    edges: Edges = Field(default=(), description=EDGES_WORDS)
    clusters: ClusterNames | None = Field(default=None, description=CLUSTERS_WORDS)


# These keys distinguish a job with a task graph from a task graph alone.
_KEYS_OF_JOBS = JobText.model_fields.keys() - ApplicationGraphText.model_fields.keys()


class ApplicationGraph(NamedTuple):
    """The contents of such a file: the graph, and its clusters by index if they are given by hand."""

    graph: TaskGraph
    clusters: Clusters | None


def read_application(text: str, source: str) -> ApplicationGraph:
    """Return the task graph that a YAML text describes, alone or as a part of a job.

    Raises DescriptionError with all problems if it is invalid.
    """
    composed = compose(text, source, LARGE)
    root = composed.root.content
    if isinstance(root, dict) and "tasks" in root and root.keys() & _KEYS_OF_JOBS:
        job = read_job_yaml(text, source)
        assert job.tasks is not None, "it has a key of that name"
        return ApplicationGraph(job.tasks, job.task_clusters or None)
    document = read_composed(composed, ApplicationGraphText)
    application = document.model
    refuse_any(source, graph_problems(document, application.tasks, application.edges, application.clusters))
    return ApplicationGraph(
        graph_of(application.tasks, application.edges, application.mcr),
        clusters_of(application.tasks, application.clusters),
    )


def graph_schema() -> dict[str, Any]:
    """Return the JSON schema of a file that holds only a task graph."""
    return schema_of(ApplicationGraphText, "Koala task graph")
