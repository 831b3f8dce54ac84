"""``koala map --running``: an earlier answer, whose tasks stay where they run while those that came since move in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from koala.cli.errors import UserError, advice

if TYPE_CHECKING:
    from koala.mapping.result import TaskMapping
    from koala.model.dendrogram import Dendrogram
    from koala.model.task_graph import TaskGraph


class _Answer(msgspec.Struct, kw_only=True):
    """What is needed of what ``koala map --json`` prints."""

    mapping: dict[str, str]
    clusters: list[list[str]]
    homes: list[str]
    affinities: dict[str, float]
    method: str
    scarce: bool = False


class RunningTasks(NamedTuple):
    """The graph with the tasks that run before those that come, and where they run."""

    graph: TaskGraph
    mapping: TaskMapping


def read_running(path: Path, graph: TaskGraph, dendrogram: Dendrogram) -> RunningTasks:
    """The answer in a file, for a graph that has its tasks and more. Raises ``UserError`` where it does not fit."""
    from koala.mapping.result import TaskMapping

    answer = _read(path)
    where = f"--running {path}"
    machine_index = {name: machine for machine, name in enumerate(dendrogram.flat.machine_names)}
    known = set(graph.names)
    for task, machine in answer.mapping.items():
        if task not in known:
            raise UserError(f"{where}: the task {task} is not in APP; keep the tasks that run in it")
        if machine not in machine_index:
            raise UserError(f"{where}: the task {task} is on the machine {machine}, which is not in the grid")
    unknown = [lan for lan in answer.homes if lan not in dendrogram.flat.lan_index]
    if unknown:
        raise UserError(f"{where}: a cluster is at home in the LAN {unknown[0]}, which is not in the grid")
    clustered = sorted(task for tasks in answer.clusters for task in tasks)
    if (
        clustered != sorted(answer.mapping)
        or answer.affinities.keys() != answer.mapping.keys()
        or len(answer.homes) != len(answer.clusters)
        or not all(answer.clusters)
    ):
        raise UserError(f"{where}: its mapping, clusters, homes and affinities are not of the same tasks; map again")
    index = {task: place for place, task in enumerate(answer.mapping)}
    mapping = TaskMapping(
        method=answer.method,
        clusters=tuple(tuple(index[task] for task in tasks) for tasks in answer.clusters),
        machines=tuple(machine_index[machine] for machine in answer.mapping.values()),
        affinities=tuple(answer.affinities[task] for task in answer.mapping),
        homes=tuple(dendrogram.flat.lan_index[lan] for lan in answer.homes),
        scarce=answer.scarce,
    )
    return RunningTasks(_running_first(graph, list(answer.mapping)), mapping)


def _read(path: Path) -> _Answer:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Answer)
    except OSError as error:
        raise UserError(f"--running {path}: {error.strerror}; {advice(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UserError(f"--running {path}: this is no mapping as koala map --json prints it: {error}") from None


def _running_first(graph: TaskGraph, running: list[str]) -> TaskGraph:
    from koala.model.task_graph import TaskGraph

    rcr = dict(zip(graph.names, graph.rcr, strict=True))
    ordered = {name: rcr[name] for name in [*running, *(name for name in graph.names if name not in set(running))]}
    edges = [(graph.names[one], graph.names[other], rqoc) for one, other, rqoc in graph.edges]
    return TaskGraph.of(ordered, edges, graph.mcr)
