"""Requests as Globus RSL, the reverse of ``reader``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from koala.descriptions.fields import memory_value
from koala.descriptions.job.order import after_values, moment_value
from koala.descriptions.job.outputs import output_values
from koala.descriptions.job.required import NOTHING_REQUIRED, required_by
from koala.model.request import Communication, Component, InputMode, InvalidRequestError, JobType, Priority, Request

# Text that every reader of RSL takes as one word without quotes.
_SAFE = re.compile(r"[A-Za-z0-9_./:,@%~-]+", re.ASCII)


def write_rsl(request: Request) -> str:
    """Return RSL that ``read_rsl`` reads as this request. RSL has no escapes, so the text may not hold NUL.

    Raises ``InvalidRequestError`` for what RSL cannot express: tasks, a checkpoint, licences.
    """
    if request.checkpoint is not None:
        raise InvalidRequestError("checkpoint", "RSL has no words for a checkpoint; write the job in YAML")
    if request.licenses:
        raise InvalidRequestError("licenses", "RSL has no words for licences; write the job in YAML")
    if request.tasks is not None:
        raise InvalidRequestError("tasks", "RSL has no words for a task graph; write the job in YAML")
    subrequests = [[*_component_relations(component)] for component in request.components]
    subrequests[0] += _job_relations(request)
    if len(subrequests) == 1:
        return "&" + "\n ".join(subrequests[0]) + "\n"
    return "".join(["+", *("(&" + "\n  ".join(relations) + "\n)\n" for relations in subrequests)])


def _component_relations(component: Component) -> Iterable[str]:
    application = component.application
    yield f"(count={component.processors})"
    if component.site is not None:
        yield f"(resourceManagerContact={_quoted(component.site)})"
    for attribute, text in (
        ("executable", application.executable),
        ("koalaScript", application.script),
        ("directory", application.directory),
        ("stdin", application.stdin),
        ("stdout", application.stdout),
        ("stderr", application.stderr),
        ("koalaImage", application.image),
        ("queue", application.partition),
    ):
        if text is not None:
            yield f"({attribute}={_quoted(text)})"
    if application.requires != required_by(application.script, application.executable, application.arguments):
        yield f"(koalaRequires={_list(application.requires or (NOTHING_REQUIRED,))})"
    if application.arguments:
        yield f"(arguments={_list(application.arguments)})"
    if application.environment:
        yield f"(environment={_groups(application.environment)})"
    if application.processors_per_task != 1:
        yield f"(koalaProcessorsPerTask={application.processors_per_task})"
    needs = component.needs
    if needs is not None:
        if needs.memory_bytes:
            yield f"(koalaTaskMemory={_quoted(memory_value(needs.memory_bytes))})"
        if needs.gpus:
            yield f"(koalaTaskGpus={needs.gpus})"
        if needs.gpu:
            yield f"(koalaTaskGpu={_quoted(needs.gpu)})"
        if needs.constraint:
            yield f"(koalaTaskConstraint={_quoted(needs.constraint)})"
    if component.input_files:
        files = [(file.name,) if file.path is None else (file.name, file.path) for file in component.input_files]
        yield f"(fileStageIn={_groups(files)})"
    if component.outputs:
        yield f"(fileStageOut={_groups(_outputs(component))})"
    chunks = [file.name for file in component.input_files if file.mode is InputMode.CHUNK]
    if chunks:
        yield f"(koalaChunkFiles={_list(chunks)})"


def _outputs(component: Component) -> Iterable[tuple[str, ...]]:
    """Yield a path and its target for each output; RSL cannot express its size in a simulation."""
    for output in output_values(component.outputs, component.application.directory):
        values = {"path": output} if isinstance(output, str) else output
        yield (values["path"], values["to"]) if "to" in values else (values["path"],)


def _job_relations(request: Request) -> Iterable[str]:
    yield f"(koalaName={_quoted(request.name)})"
    if request.priority is not Priority.LOW:
        yield f"(koalaPriority={request.priority})"
    if request.policy is not None:
        yield f"(koalaPolicy={_quoted(request.policy)})"
    if request.job_type is not JobType.PLAIN:
        yield f"(jobType={request.job_type})"
    if request.walltime_s is not None:
        yield _walltime(request.walltime_s)
    if request.flexible is not None:
        yield "(koalaFlexible=yes)"
        yield f"(koalaComponentMin={request.flexible.component_min})"
        if request.flexible.components_max is not None:
            yield f"(koalaComponentsMax={request.flexible.components_max})"
        if request.flexible.splits:
            yield f"(koalaSplits={_groups(map(str, split) for split in request.flexible.splits)})"
    for attribute, limit in (
        ("koalaPlacementTries", request.placement_tries_max),
        ("koalaClaimingTries", request.claiming_tries_max),
        ("koalaRestarts", request.restarts_max),
    ):
        if limit is not None:
            yield f"({attribute}={limit})"
    for attribute, codes in (("koalaRetryOn", request.retry_on), ("koalaNeverOn", request.never_on)):
        if codes:
            yield f"({attribute}={_list(map(str, codes))})"
    if request.after:
        groups = after_values(request.after).items()
        yield f"(koalaAfter={_groups((condition, *map(str, numbers)) for condition, numbers in groups)})"
    begin = moment_value(request.begin_at, request.begin_in_s)
    if begin is not None:
        yield f"(koalaBegin={_quoted(str(begin))})"
    if request.hold:
        yield "(koalaHold=yes)"
    if request.array is not None:
        yield f"(koalaArray={_quoted(str(request.array))})"
    if request.keep_for_s is not None:
        yield f"(koalaKeepFor={_number(request.keep_for_s)})"
    if request.keep_outputs_for_s is not None:
        yield f"(koalaKeepOutputsFor={_number(request.keep_outputs_for_s)})"
    if request.home is not None:
        yield f"(koalaHome={_quoted(request.home)})"
    if request.communication is not None:
        yield from _communication_relations(request.communication)


def _communication_relations(communication: Communication) -> Iterable[str]:
    yield f"(koalaPattern={communication.pattern})"
    for attribute, number in (
        ("koalaBisectionMbit", communication.bisection_mbit_s),
        ("koalaPerProcessorMbit", communication.per_processor_mbit_s),
        ("koalaCommunicationShare", communication.share),
    ):
        if number is not None:
            yield f"({attribute}={_number(number)})"
    yield f"(koalaDimensions={communication.dimensions})"


def _walltime(walltime_s: float) -> str:
    """Return whole minutes in the attribute of Globus, anything else in seconds."""
    if walltime_s % 60 == 0:
        return f"(maxWallTime={int(walltime_s // 60)})"
    return f"(koalaWalltimeSeconds={_number(walltime_s)})"


def _number(number: float) -> str:
    # A + in the exponent would need quotes.
    return _quoted(repr(float(number)))


def _quoted(text: str) -> str:
    if _SAFE.fullmatch(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def _list(texts: Iterable[str]) -> str:
    return " ".join(_quoted(text) for text in texts)


def _groups(groups: Iterable[Iterable[str]]) -> str:
    return "".join(f"({_list(group)})" for group in groups)
