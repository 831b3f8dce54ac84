"""Task graphs in YAML: the form of their tasks, edges and clusters, their checks, and the way to a TaskGraph.

They serve files that hold only a task graph (``koala.descriptions.mapping.application``), and jobs with one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from koala.descriptions.errors import Problem, shown
from koala.descriptions.fields import Description, Name, Number
from koala.descriptions.yaml.problems import nearest, wrong
from koala.descriptions.yaml.text import Document
from koala.model.task_graph import (
    EDGES_MAX,
    QUANTITY_MAX,
    QUANTITY_MIN,
    TASKS_MAX,
    SpawnedTasks,
    TaskGraph,
    quantity_advice,
)

Positive = Annotated[Number, Field(ge=QUANTITY_MIN, le=QUANTITY_MAX)]
Clusters = tuple[tuple[int, ...], ...]

# At most this many tasks are named in a problem.
NAMED_MAX = 5
_EDGE_FORM = "write two tasks and the quality of communication that they need: [render, encode, 3.0]"


class TaskText(Description):
    """A task."""

    rcr: Positive = Field(
        description="its relative computational requirement: it needs mcr times this of a machine's power"
    )


class EdgeText(Description):
    """Two tasks that communicate."""

    between: tuple[Name, Name] = Field(description="the two tasks, in either order")
    rqoc: Positive = Field(description="the relative quality of communication that they need")


def _task_by_number(value: Any) -> Any:
    """Read the rcr of a task alone as the task, and anything else that is no mapping."""
    return value if isinstance(value, dict | TaskText) else {"rcr": value}


def _edge_by_list(value: Any) -> Any:
    """Read [task, task, rqoc] as an edge."""
    if not isinstance(value, list):
        return value
    if len(value) != 3:
        raise wrong(f"an edge has 3 entries, not {len(value)}", _EDGE_FORM)
    one, other, rqoc = value
    if isinstance(rqoc, bool) or not isinstance(rqoc, int | float) or not rqoc > 0:
        raise wrong(f"rqoc: {shown(rqoc)} is not a number above 0", _EDGE_FORM, 2)
    advice = quantity_advice(rqoc)
    if advice is not None:
        raise wrong(f"rqoc: {shown(rqoc)} is out of range", advice, 2)
    return {"between": [one, other], "rqoc": rqoc}


_Task = Annotated[TaskText, BeforeValidator(_task_by_number, json_schema_input_type=Positive | TaskText)]
_Edge = Annotated[
    EdgeText, BeforeValidator(_edge_by_list, json_schema_input_type=tuple[Name, Name, Positive] | EdgeText)
]
Tasks = Annotated[dict[Name, _Task], Field(min_length=1, max_length=TASKS_MAX)]
Edges = Annotated[tuple[_Edge, ...], Field(max_length=EDGES_MAX)]
ClusterNames = Annotated[tuple[Annotated[tuple[Name, ...], Field(min_length=1)], ...], Field(min_length=1)]

TASKS_WORDS = "the tasks by name, each with its rcr, such as {render: 1.0, encode: 2.5}"
EDGES_WORDS = "the pairs of tasks that communicate, each with its rqoc, such as [[render, encode, 3.0]]"
MCR_WORDS = "the minimal computational requirement of the application, in MFlop/s: what a task of rcr 1 needs"
CLUSTERS_WORDS = (
    "the clusters of tasks that belong together, by hand: [[render, encode], [mix]]; by default they are found"
)


def graph_of(tasks: Mapping[str, TaskText], edges: Sequence[EdgeText], mcr: float) -> TaskGraph:
    """Return the graph of valid tasks and edges."""
    rcr = {name: task.rcr for name, task in tasks.items()}
    return TaskGraph.of(rcr, [(*edge.between, edge.rqoc) for edge in edges], mcr)


def spawned_of(tasks: Mapping[str, TaskText], edges: Sequence[EdgeText]) -> SpawnedTasks:
    """Return valid tasks and edges as an addition to a running job."""
    rcr = {name: task.rcr for name, task in tasks.items()}
    return SpawnedTasks.of(rcr, [(*edge.between, edge.rqoc) for edge in edges])


def clusters_of(tasks: Mapping[str, TaskText], clusters: Sequence[Sequence[str]] | None) -> Clusters | None:
    """Return valid clusters, by the indexes of their tasks."""
    index = {name: task for task, name in enumerate(tasks)}
    return None if clusters is None else tuple(tuple(index[name] for name in cluster) for cluster in clusters)


def graph_values(graph: TaskGraph, clusters: Clusters) -> dict[str, Any]:
    """Return values that are read as this graph with these clusters; none if they are to be found."""
    values: dict[str, Any] = {"mcr": graph.mcr, "tasks": dict(zip(graph.names, graph.rcr, strict=True))}
    if graph.edges:
        values["edges"] = [[graph.names[one], graph.names[other], rqoc] for one, other, rqoc in graph.edges]
    if clusters:
        values["clusters"] = [[graph.names[task] for task in cluster] for cluster in clusters]
    return values


def graph_problems(
    document: Document[Any],
    tasks: Mapping[str, TaskText],
    edges: Sequence[EdgeText],
    clusters: Sequence[Sequence[str]] | None,
) -> Iterator[Problem]:
    """Yield the problems that no task, edge or cluster can detect alone."""
    yield from _edge_problems(document, tasks, edges)
    if clusters is not None:
        yield from _cluster_problems(document, tasks, clusters)


def spawned_problems(
    document: Document[Any],
    path: tuple[str | int, ...],
    tasks: Mapping[str, TaskText],
    edges: Sequence[EdgeText],
    there: Collection[str] | None = None,
) -> Iterator[Problem]:
    """Yield the same for tasks that are added to a running job: an edge may lead to an existing task.

    The existing tasks may not be known yet.
    """
    for name in tasks:
        if there is not None and name in there:
            yield document.problem(
                (*path, "tasks", name),
                f"the job has a task {shown(name)} already",
                "give the spawned one another name",
                at_key=True,
            )
    for index, edge in enumerate(edges):
        if not any(name in tasks for name in edge.between):
            yield document.problem(
                (*path, "edges", index),
                f"the edge between {' and '.join(map(shown, edge.between))} joins none of the new tasks",
                "name one of them: " + ", ".join(map(shown, list(tasks)[:NAMED_MAX])),
            )
    named = [name for edge in edges for name in edge.between] if there is None else [*tasks, *there]
    yield from _edge_problems(document, dict.fromkeys(named), edges, path)


def _edge_problems(
    document: Document[Any],
    tasks: Collection[str],
    edges: Sequence[EdgeText],
    path: tuple[str | int, ...] = (),
) -> Iterator[Problem]:
    seen: dict[frozenset[str], int] = {}
    for index, edge in enumerate(edges):
        unknown = [end for end, name in enumerate(edge.between) if name not in tasks]
        for end in unknown:
            # In the short form there is no "between" on the way, and the step is passed over.
            yield _unknown_task(document, (*path, "edges", index, "between", end), edge.between[end], tasks)
        both = frozenset(edge.between)
        if len(both) == 1 and not unknown:
            yield document.problem(
                (*path, "edges", index), f"the edge joins {shown(edge.between[0])} with itself", "leave it out"
            )
        elif both in seen:
            yield document.problem(
                (*path, "edges", index),
                f"the edge between {' and '.join(edge.between)} is given twice; first as entry {seen[both] + 1}",
                "write it once, with the sum of what both carry; an edge has no direction",
            )
        seen.setdefault(both, index)


def _cluster_problems(
    document: Document[Any], tasks: Mapping[str, TaskText], clusters: Sequence[Sequence[str]]
) -> Iterator[Problem]:
    seen: set[str] = set()
    for index, cluster in enumerate(clusters):
        for place, name in enumerate(cluster):
            path = ("clusters", index, place)
            if name not in tasks:
                yield _unknown_task(document, path, name, tasks)
            elif name in seen:
                yield document.problem(path, f"the task {shown(name)} is in a cluster already", "keep it in one")
            seen.add(name)
    missing = [name for name in tasks if name not in seen]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        yield document.problem(
            ("clusters",),
            f"the task {shown(missing[0])}{more} {'are' if more else 'is'} in no cluster",
            "put every task into one cluster, if need be of its own, or leave clusters out to have them found",
            at_key=True,
        )


def _unknown_task(document: Document[Any], path: tuple[str | int, ...], name: str, tasks: Collection[str]) -> Problem:
    return document.problem(path, f"there is no task {shown(name)}", nearest(name, list(tasks)))
