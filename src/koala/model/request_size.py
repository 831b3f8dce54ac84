"""Limits on one request: its lists, its numbers, the sum of its texts, and its least memory.

These limits hold for submissions. They are not part of what makes a ``Request`` valid, so that a job that was put on
record before a limit existed can still be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from koala.model.nodes import TASK_MEMORY_BYTES_MIN, memory_text
from koala.model.request import PROCESSORS_MAX, Application, InputFile, InvalidRequestError, Request

# The most restarts after failures of the application that a job may ask for.
RESTARTS_MAX = 1_000
# The most tries to place a job, and to claim its processors, that it may ask for.
TRIES_MAX = 1_000_000
ARGUMENTS_MAX = 10_000
VARIABLES_MAX = 1_000
# A job's name stands in every list of jobs.
JOB_NAME_CHARACTERS_MAX = 255
FILE_NAME_CHARACTERS_MAX = 1_024
# Input files of all components together: each is a transfer of its own.
JOB_INPUT_FILES_MAX = 10_000
# Shapes of tasks of all components: every try to place a job looks at the nodes of all sites for each of them.
JOB_SHAPES_MAX = 16
# Programs that all components together require: each is looked for at all sites.
REQUIRED_PROGRAMS_MAX = 16
# Arguments and variables of all components together.
JOB_ENTRIES_MAX = 100_000
# The parts of all splits of a flexible job together: every try to place it examines each of them.
SPLIT_PARTS_MAX = 10_000
# The whole job: every different text once, because it is stored once, plus the cost of each entry and each component.
REQUEST_CHARACTERS_MAX = 2_097_152
ENTRY_CHARACTERS = 8
COMPONENT_CHARACTERS = 64


class RequestSizeError(InvalidRequestError):
    """A request that is too large, or too small, in some respect. The message names the limit; ``advice`` says what
    to write."""

    def __init__(self, field: str, message: str, advice: str) -> None:
        super().__init__(field, message)
        self.advice = advice


def check_size(request: Request, *, characters_max: int = REQUEST_CHARACTERS_MAX) -> None:
    """Check the limits. Raises RequestSizeError for a request that is too large, or asks for too little."""
    _at_most("restarts_max", request.restarts_max, RESTARTS_MAX, "restarts", "RESTARTS_MAX")
    for field in ("placement_tries_max", "claiming_tries_max"):
        _at_most(field, getattr(request, field), TRIES_MAX, "tries", "TRIES_MAX")
    _at_most("name", len(request.name), JOB_NAME_CHARACTERS_MAX, "characters", "JOB_NAME_CHARACTERS_MAX")
    _at_most("processors", request.processors, PROCESSORS_MAX, "processors in all components", "PROCESSORS_MAX")
    files = sum(len(component.input_files) for component in request.components)
    _at_most("input_files", files, JOB_INPUT_FILES_MAX, "files in all components", "JOB_INPUT_FILES_MAX")
    applications = [component.application for component in request.components]
    entries = sum(len(each.arguments) + len(each.environment) for each in applications)
    what = "arguments and variables in all components"
    _at_most("arguments", entries, JOB_ENTRIES_MAX, what, "JOB_ENTRIES_MAX")
    for needs in {component.needs: None for component in request.components}:
        if needs is not None and 0 < needs.memory_bytes < TASK_MEMORY_BYTES_MIN:
            least = memory_text(TASK_MEMORY_BYTES_MIN)
            said = f"{memory_text(needs.memory_bytes)} a task, less than {least} (TASK_MEMORY_BYTES_MIN)"
            raise RequestSizeError("memory", said, f"write at least {least}, such as 1G, or leave it out")
    shapes = len({component.shape for component in request.components})
    if shapes > JOB_SHAPES_MAX:
        said = f"components with {shapes} different shapes of tasks, more than {JOB_SHAPES_MAX} (JOB_SHAPES_MAX)"
        raise RequestSizeError("components", said, "ask for the same for more of them, or submit several jobs")
    what = "programs in all components"
    _at_most("requires", len(request.required), REQUIRED_PROGRAMS_MAX, what, "REQUIRED_PROGRAMS_MAX")
    if request.flexible is not None:
        parts = sum(map(len, request.flexible.splits))
        _at_most("splits", parts, SPLIT_PARTS_MAX, "parts in all splits", "SPLIT_PARTS_MAX")
    for application in different_applications(request):
        _at_most("arguments", len(application.arguments), ARGUMENTS_MAX, "arguments", "ARGUMENTS_MAX")
        _at_most("environment", len(application.environment), VARIABLES_MAX, "variables", "VARIABLES_MAX")
    for file in different_files(request):
        _at_most("input_files", len(file.name), FILE_NAME_CHARACTERS_MAX, "characters", "FILE_NAME_CHARACTERS_MAX")
    size = request_characters(request)
    _at_most("application", size, characters_max, "characters in the whole job", "REQUEST_CHARACTERS_MAX")


def request_characters(request: Request) -> int:
    """Return the size of a request: every different text once, plus a cost for every component and entry of a
    list."""
    entries = sum(len(each.arguments) + 2 * len(each.environment) for each in different_applications(request))
    for files in {id(component.input_files): component.input_files for component in request.components}.values():
        entries += 2 * len(files)
    for made in {id(component.outputs): component.outputs for component in request.components}.values():
        entries += 2 * len(made)
    if request.flexible is not None:
        entries += sum(map(len, request.flexible.splits))
    entries += 4 * len(request.files)
    if request.tasks is not None:
        entries += len(request.tasks.names) + 3 * len(request.tasks.edges)
    texts = sum(map(len, set(texts_of(request))))
    return texts + COMPONENT_CHARACTERS * len(request.components) + ENTRY_CHARACTERS * entries


def different_applications(request: Request) -> dict[Application, None]:
    """Return the applications of the components, without duplicates, in order."""
    # Most components share one object, and comparing identities is much faster than comparing contents.
    objects = {id(component.application): component.application for component in request.components}
    return dict.fromkeys(objects.values())


def different_files(request: Request) -> dict[InputFile, None]:
    """Return the input files of the components, without duplicates, in order."""
    return dict.fromkeys(file for component in request.components for file in component.input_files)


def texts_of(request: Request) -> Iterator[str]:
    """Yield the texts of a request; those of equal components come once."""
    yield request.name
    for application in different_applications(request):
        yield from application.arguments
        yield from application.requires
        for name, value in application.environment:
            yield name
            yield value
        for text in (
            application.executable,
            application.image,
            application.script,
            application.directory,
            application.stdin,
            application.stdout,
            application.stderr,
        ):
            if text is not None:
                yield text
    for file in different_files(request):
        yield file.name
        if file.path is not None:
            yield file.path
    for output in dict.fromkeys(output for component in request.components for output in component.outputs):
        yield output.path
        if output.to is not None:
            yield output.to
    for sent in request.files:
        yield sent.path
        yield sent.checksum
        yield sent.link
    for needs in {component.needs for component in request.components}:
        if needs is not None:
            yield needs.gpu
            yield needs.constraint
    sites = {component.site for component in request.components} | {request.home, request.policy}
    yield from (site for site in sites if site is not None)
    if request.tasks is not None:
        yield from request.tasks.names


def _at_most(field: str, found: int | None, most: int, what: str, limit: str) -> None:
    if found is not None and found > most:
        raise RequestSizeError(field, f"{found} {what}, more than {most} ({limit})", f"write at most {most}")
