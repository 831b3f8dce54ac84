"""Reads the texts of submissions: a request, the jobs of a graph or tasks, or all problems in them.

A worker process runs these functions, and imports this module for them: it imports little.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec

from koala.daemon.launches import check_launch
from koala.descriptions import DescriptionError, place_of_job, read_graph, read_job
from koala.descriptions.job.order import JobNumber
from koala.descriptions.mapping.spawned import read_spawned
from koala.model.api import ProblemAt
from koala.model.api.questions import SpawnWish, Submission
from koala.model.launch import LaunchError
from koala.model.request import GraphJob, InvalidRequestError, Request
from koala.model.request_size import REQUEST_CHARACTERS_MAX, check_size, request_characters
from koala.model.task_graph import SpawnedTasks
from koala.model.travelling import TravellingError, TravellingFile, read_manifest, unsent
from koala.policies.tasks.wase import ClusteredTasks


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The problems of a text that describes no job that can be run."""

    message: str
    problems: list[ProblemAt]


def read_submission(wish: Submission, sites: Collection[str], policies: Collection[str]) -> Request | Unreadable:
    """Return the request that the text describes, or every problem found in it; slow for a large text."""
    try:
        request = read_job(wish.description, wish.source, known_sites=sites, known_policies=policies)
        request = _with_files(request, _files_of(wish))
        check_launch(request)
    except DescriptionError as error:
        return _unreadable(error)
    except TravellingError as error:
        return Unreadable(error.for_user(), [ProblemAt(message=error.for_user())])
    except InvalidRequestError as error:
        return Unreadable(f"the job is too large: {error}", [ProblemAt(message=str(error))])
    except LaunchError as error:
        return Unreadable(f"the job cannot be run: {error.for_user()}", [ProblemAt(message=error.for_user())])
    return request


def read_spawned_submission(wish: SpawnWish, there: Collection[str] | None = None) -> SpawnedTasks | Unreadable:
    """Return the tasks that the text names, or every problem found in it; slow for a large text."""
    try:
        return read_spawned(wish.description, wish.source, there)
    except DescriptionError as error:
        return _unreadable(error)


def read_graph_submission(
    wish: Submission, sites: Collection[str], policies: Collection[str]
) -> tuple[GraphJob, ...] | Unreadable:
    """Return the jobs of a graph, or every problem found in it. Travelling files travel with each of them."""
    name = ""
    try:
        files = _files_of(wish)  # one list for all of them: it is read once, and pickled once
        graph, characters = [], 0
        for job in read_graph(wish.description, wish.source, known_sites=sites, known_policies=policies):
            name = job.name
            request = _with_files(job.request, files)
            check_launch(request)
            characters += request_characters(request)
            if characters > REQUEST_CHARACTERS_MAX:
                return _graph_too_large(wish, name)
            graph.append(msgspec.structs.replace(job, request=request))
        return tuple(graph)
    except DescriptionError as error:
        return _unreadable(error)
    except (TravellingError, LaunchError) as error:
        if not name:
            return Unreadable(error.for_user(), [ProblemAt(message=error.for_user())])
        return in_graph(wish, name, error.for_user())
    except InvalidRequestError as error:
        return in_graph(wish, name, f"it is too large: {error}")


def in_graph(
    wish: Submission, name: str, message: str, cure: str = "", number: JobNumber | None = None
) -> Unreadable:
    """Return the problem of one job in a graph, at the job's place, or at that of a number that it waits for."""
    line, column = place_of_job(wish.description, wish.source, name, number)
    described = f"job {name}: {message}"
    whole = "; ".join(filter(None, (f"{wish.source}:{line}:{column}: {described}", cure)))
    return Unreadable(whole, [ProblemAt(line=line, column=column, message=described, cure=cure)])


def _graph_too_large(wish: Submission, name: str) -> Unreadable:
    problem = (
        f"with it the jobs of the graph have more than {REQUEST_CHARACTERS_MAX} characters together "
        "(REQUEST_CHARACTERS_MAX), the list of files counted for each; send fewer files, or submit several graphs"
    )
    return in_graph(wish, name, problem)


def _files_of(wish: Submission) -> tuple[TravellingFile, ...]:
    return () if wish.files is None else read_manifest(wish.files)


def _with_files(request: Request, files: tuple[TravellingFile, ...]) -> Request:
    """Return the request with the files that were sent, which must include those that its text names."""
    for path in unsent(request.files, files):
        raise TravellingError(path, "is named in the job and was not sent; koala submit sends it from this machine")
    request = msgspec.structs.replace(request, files=files)
    check_size(request)
    return request


def with_clusters(request: Request) -> Request:
    """Return the request with the clusters of its tasks, which are then on record and found once; slow for many
    tasks."""
    tasks = ClusteredTasks.of(request)
    return request if tasks is None else msgspec.structs.replace(request, task_clusters=tasks.clusters)


def lacks_clusters(request: Request) -> bool:
    return request.tasks is not None and not request.task_clusters


def all_clusters(requests: Sequence[Request]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the clusters of the tasks of each request."""
    return [with_clusters(request).task_clusters for request in requests]


def _unreadable(error: DescriptionError) -> Unreadable:
    problems = [
        ProblemAt(line=problem.line, column=problem.column, message=problem.message, cure=problem.advice)
        for problem in error.problems
    ]
    place = error.source if error.line is None else f"{error.source}:{error.line}:{error.column}"
    more = len(problems) - 1 + error.problems_unreported
    others = "" if more == 0 else f" (and {more} more {'problem' if more == 1 else 'problems'})"
    return Unreadable(f"{place}: {error.message}; {error.advice}{others}", problems)
