"""Several jobs in one YAML text, with names by which they wait for each other: ``jobs: {make: ..., solve: ...}``."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field

from koala.descriptions.errors import DescriptionError, Problem, printable, refuse_any
from koala.descriptions.fields import ANY_NAMES, Description, KnownNames, Label
from koala.descriptions.job.form import JobText, job_request, unknown_names
from koala.descriptions.job.order import NUMBER_MAX, AfterText, JobNumber, both_ends, both_ends_of_numbers, job_number
from koala.descriptions.yaml.nodes import Composed, compose
from koala.descriptions.yaml.problems import nearest, wrong
from koala.descriptions.yaml.text import Document, read_composed
from koala.model.dependency import DEPENDENCIES_MAX, Condition, Dependency
from koala.model.outputs import ARCHIVE_ENDING, OUTPUT_PREFIX, OutputOfGraph, job_of_output
from koala.model.request import GRAPH_JOBS_MAX, GraphJob, Request

_ELEMENT = re.compile(r"(.+)_([0-9]{1,10})", re.DOTALL)
_REFERENCE_ADVICE = (
    "write the name of a job of this file, NAME_3 for an element of an array, or the number of a job, such as 17 or "
    "17_3"
)


def _read_reference(value: Any) -> JobNumber | str:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= NUMBER_MAX:
        return JobNumber(value)
    if not isinstance(value, str) or not value:
        raise wrong("this is no job", _REFERENCE_ADVICE)
    return job_number(value) or value


References = Annotated[
    tuple[
        Annotated[
            JobNumber | str,
            BeforeValidator(
                _read_reference,
                json_schema_input_type=Annotated[int, Field(ge=1, le=NUMBER_MAX)]
                | Annotated[str, Field(min_length=1)],
            ),
        ],
        ...,
    ],
    Field(max_length=DEPENDENCIES_MAX),
]


class GraphAfterText(Description):
    """The jobs that a job of a graph waits for: others of the graph by name, or any by number."""

    done: References = Field(default=(), description="jobs that must be done: every component returned success")
    ended: References = Field(default=(), description="jobs that must have ended, in whatever way")
    started: References = Field(default=(), description="jobs that must have started")
    failed: References = Field(default=(), description="jobs that must have failed")


class GraphJobText(JobText):
    """A job of a graph: as in a file of its own, but that it may wait for others of the graph by name. Its own name
    is the one in the graph, unless it says otherwise."""

    after: GraphAfterText = Field(  # type: ignore[assignment]
        default=GraphAfterText(), description="the jobs that it waits for before it is tried"
    )


class JobGraphText(Description):
    """Several jobs that are submitted together, all or none, and wait for each other."""

    jobs: Annotated[dict[Label, GraphJobText], Field(min_length=1, max_length=GRAPH_JOBS_MAX)] = Field(
        description="the jobs, each with its name"
    )


def read_graph_yaml(text: str, source: str, known: KnownNames = ANY_NAMES) -> tuple[GraphJob, ...]:
    """Return the jobs of a graph, each before its dependents, otherwise in the order of the text.

    Raises DescriptionError with all problems if it is invalid, each with the name of its job.
    """
    composed = compose(text, source)
    try:
        return _read(composed, source, known)
    except DescriptionError as error:
        names = _JobNames(composed)
        raise error.reworded(names.told) from None


def place_of_job(text: str, source: str, name: str, number: JobNumber | None = None) -> tuple[int, int]:
    """Return the line and the column of a job of a graph or, if given, of a number that it waits for."""
    return _JobNames(compose(text, source)).place(name, number)


class _JobNames:
    """The start of each job of a graph, by its name."""

    def __init__(self, composed: Composed) -> None:
        self._content = composed.content
        root = composed.root.content
        jobs = root["jobs"][1].content if isinstance(root, dict) and "jobs" in root else None
        self._jobs = jobs if isinstance(jobs, dict) else {}
        found = {name: key.index for name, (key, _) in self._jobs.items()}
        self._indices = dict(sorted(found.items(), key=lambda each: each[1]))

    def place(self, name: str, number: JobNumber | None = None) -> tuple[int, int]:
        index = None if number is None else self._number_index(name, number)
        at = self._content.problem(self._indices[name] if index is None else index, "", "")
        return at.line or 1, at.column or 1

    def _number_index(self, name: str, number: JobNumber) -> int | None:
        """Return where the job names this number under ``after``."""
        job = self._jobs[name][1].content
        after = job["after"][1].content if isinstance(job, dict) and "after" in job else None
        for _, listed in after.values() if isinstance(after, dict) else ():
            for each in listed.content if isinstance(listed.content, list) else ():
                if job_number(each.raw) == number:
                    return each.index
        return None

    def told(self, problem: Problem) -> str:
        """Return the message with the job that has the problem, if any."""
        names = [*self._indices]
        where = bisect_right(names, (problem.line or 0, problem.column or 0), key=self.place)
        return f"job {printable(names[where - 1])}: {problem.message}" if where else problem.message


def _read(composed: Composed, source: str, known: KnownNames) -> tuple[GraphJob, ...]:
    document = read_composed(composed, JobGraphText)
    refuse_any(source, _reference_problems(document))
    order = _in_order(document)
    parts = {name: _part(document, name) for name in document.model.jobs}
    requests = {name: job_request(parts[name]) for name in order}
    refuse_any(source, (problem for part in parts.values() for problem in unknown_names(part, known)))
    positions = {name: position for position, name in enumerate(order)}
    graph = []
    for name in order:
        within = [
            Dependency(job=positions[other], condition=condition, index=index)
            for condition, other, index, _ in _within(document, name)
        ]
        refuse_any(source, _output_problems(document, name, positions, requests))
        reads = dict.fromkeys(output for output, _ in _outputs(document, name, positions))
        graph.append(
            GraphJob(name=name, request=requests[name], within=tuple(dict.fromkeys(within)), reads=tuple(reads))
        )
    refuse_any(source, _number_problems(document, graph))
    return tuple(graph)


def _part(document: Document[JobGraphText], name: str) -> Document[JobText]:
    """Return one of the jobs as a document of its own, without its dependencies in the graph."""
    text = document.model.jobs[name]
    outside = {
        str(condition): tuple(each for each in getattr(text.after, str(condition)) if isinstance(each, JobNumber))
        for condition in Condition
    }
    changes: dict[str, Any] = {"after": AfterText().model_copy(update=outside)}
    if "name" not in text.model_fields_set:
        changes["name"] = name
    part: Document[JobText] = Document(document.content, document.find(("jobs", name)).node)
    part.model = text.model_copy(update=changes)
    return part


def _within(
    document: Document[JobGraphText], name: str
) -> Iterator[tuple[Condition, str, int | None, tuple[str | int, ...]]]:
    """Yield what a job waits for in the graph: the condition, the other job, its element, and the place in the text.

    A job that reads an output of another waits until that one is done.
    """
    jobs = document.model.jobs
    for condition in Condition:
        for place, each in enumerate(getattr(jobs[name].after, str(condition))):
            if isinstance(each, JobNumber):
                continue
            found = None if each in jobs else _ELEMENT.fullmatch(each)
            other, index = (each, None) if found is None else (found[1], int(found[2]))
            yield condition, other, index, ("jobs", name, "after", str(condition), place)
    for read in _reads(document, name):
        other, index, _ = _maker(jobs, read.told)
        yield Condition.DONE, other, index, read.where


def _reference_problems(document: Document[JobGraphText]) -> Iterator[Problem]:
    from koala.model.job_array import read_array

    jobs = document.model.jobs
    for name in jobs:
        failing = _failing(document, name)
        after = jobs[name].after
        for place, problem in both_ends_of_numbers(after.done, after.failed):
            yield document.problem(("jobs", name, "after", "failed", place), *problem)
        for condition, other, index, where in _within(document, name):
            shown = printable(other)
            if other not in jobs:
                yield document.problem(where, f"there is no job {shown!r} in this graph", nearest(other, [*jobs]))
            elif other == name:
                yield document.problem(where, f"{shown} waits for itself", "take it out: it would never start")
            elif condition is Condition.DONE and (other, index) in failing:
                yield document.problem(where, *both_ends(shown if index is None else f"{shown}_{index}"))
            elif index is not None:
                array = jobs[other].array
                if array is None or read_array(array).position_of(index) is None:
                    indices = "it is no array" if array is None else f"its indices are {array}"
                    yield document.problem(
                        where, f"{shown} has no element {index}", f"{indices}; name one that it has"
                    )


def _failing(document: Document[JobGraphText], name: str) -> set[tuple[str, int | None]]:
    """Return the jobs of the graph that must have failed before a job is tried."""
    if not document.model.jobs[name].after.failed:
        return set()
    return {(other, index) for condition, other, index, _ in _within(document, name) if condition is Condition.FAILED}


def _number_problems(document: Document[JobGraphText], graph: Iterable[GraphJob]) -> Iterator[Problem]:
    """Yield problems with the number of dependencies: this limit covers all lists of a job, names
    and numbers together."""
    for job in graph:
        count = len(job.request.after) + len(job.within)
        if count > DEPENDENCIES_MAX:
            yield document.problem(
                ("jobs", job.name, "after"),
                f"{printable(job.name)} waits for {count} jobs, more than {DEPENDENCIES_MAX} (DEPENDENCIES_MAX)",
                f"name at most {DEPENDENCIES_MAX} in all, or put a job between that waits for some of them",
            )


class _Read(NamedTuple):
    """An input that another job makes: the file and the job as written, and its place."""

    file: str
    told: str
    where: tuple[str | int, ...]


def _reads(document: Document[JobGraphText], name: str) -> Iterator[_Read]:
    """Yield the inputs of a job that are named after another one.

    The names are jobs/NAME/..., for component 2 jobs/NAME.2/..., for an element jobs/NAME_3/... A path that begins
    with a job number is an output of that job.
    """
    job = document.model.jobs[name]
    named: list[tuple[tuple[str | int, ...], Any]] = [(("jobs", name, "input_files"), job.input_files)]
    for place, component in enumerate(job.components or ()):
        named.append((("jobs", name, "components", place, "input_files"), component.input_files or ()))
    for where, files in named:
        for place, file in enumerate(files):
            if file.name.startswith(OUTPUT_PREFIX) and job_of_output(file.name) is None:
                told = file.name.removeprefix(OUTPUT_PREFIX).partition("/")[0]
                yield _Read(file.name, told, (*where, place))


def _maker(jobs: Collection[str], told: str) -> tuple[str, int | None, int]:
    """Return the job that is named like this, its element and its component."""
    part = 0
    if told not in jobs:
        head, dot, end = told.rpartition(".")
        if dot and end.isascii() and end.isdecimal() and len(end) <= 9:
            told, part = head, int(end)
    found = None if told in jobs else _ELEMENT.fullmatch(told)
    return (told, None, part) if found is None else (found[1], int(found[2]), part)


def _outputs(
    document: Document[JobGraphText], name: str, positions: dict[str, int]
) -> Iterator[tuple[OutputOfGraph, tuple[str | int, ...]]]:
    """Yield what a job reads of the outputs of others, and where that stands."""
    for read in _reads(document, name):
        maker, index, part = _maker(document.model.jobs, read.told)
        path = read.file.removeprefix(f"{OUTPUT_PREFIX}{read.told}/")
        found = OutputOfGraph(file=read.file, job=positions[maker], index=index, part=part, path=path)
        yield found, read.where


def _output_problems(
    document: Document[JobGraphText], name: str, positions: dict[str, int], requests: dict[str, Request]
) -> Iterator[Problem]:
    """Yield problems with inputs that the other job does not make."""
    names = [*positions]
    for output, where in _outputs(document, name, positions):
        maker = names[output.job]
        request = requests[maker]
        told = printable(maker)
        if output.index is None and request.array is not None:
            yield document.problem(
                where,
                f"{told} is an array, whose elements make outputs of their own",
                f"name one of them, as {OUTPUT_PREFIX}{told}_{request.array.index_at(0)}/{printable(output.path)}",
            )
            continue
        made = [each.path for each in request.outputs_of(output.part)]
        if output.path not in {*made, *(f"{path}{ARCHIVE_ENDING}" for path in made)}:
            has = f"it makes {', '.join(map(printable, made))}" if made else "it names no outputs"
            yield document.problem(
                where,
                f"{told} does not make {printable(output.path)!r}: {has}",
                f"name it among the outputs of {told}; a directory is {ARCHIVE_ENDING} after its name",
            )


def _in_order(document: Document[JobGraphText]) -> list[str]:
    """Return the names so that each comes after its dependencies, otherwise in the order of the text.

    Raises DescriptionError for a cycle, with its path.
    """
    jobs = document.model.jobs
    waits = {name: [other for _, other, _, _ in _within(document, name)] for name in jobs}
    order: dict[str, None] = {}
    for first in jobs:
        # The path from the first job to the current one, and which of its dependencies come next.
        way: dict[str, Iterator[str]] = {} if first in order else {first: iter(waits[first])}
        while way:
            name = next(reversed(way))
            other = next((each for each in way[name] if each not in order), None)
            if other is None:
                order[name] = None
                del way[name]
            elif other in way:
                names = [*way]
                circle = [*names[names.index(other) :], other]
                told = ", which waits for ".join(printable(each) for each in circle)
                raise document.error(
                    ("jobs", name, "after"),
                    f"a circle: {told}",
                    "take one of these out: none of them would ever start",
                )
            else:
                way[other] = iter(waits[other])
    return [*order]
