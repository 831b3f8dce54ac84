"""Workload files in YAML: their form, and every check that needs no grid.

The models below are also the JSON schema that ``koala schema workload`` prints, so every field has its meaning. The
simulator draws the jobs.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from koala.descriptions.errors import Problem, refuse_any, shown
from koala.descriptions.fields import (
    Count,
    Description,
    Duration,
    Fraction01,
    Label,
    Name,
    Number,
    PolicyName,
    Processors,
    Seconds,
    SecondsAboveZero,
    Size,
    SizeBytes,
    as_constant,
    exactly_one,
    in_order,
    schema_of,
)
from koala.descriptions.job.form import JobText, job_request
from koala.descriptions.job.task_graph import TASKS_WORDS, Edges, Tasks, spawned_of, spawned_problems
from koala.descriptions.mapping.spawned import SPAWNED_EDGES_WORDS
from koala.descriptions.workload.communication import GeneratedCommunicationText, Home
from koala.descriptions.yaml.problems import nearest, wrong
from koala.descriptions.yaml.text import Document, read_document
from koala.model.request import COMPONENTS_MAX, InputMode, Request
from koala.model.task_graph import InvalidTaskGraphError, TaskGraph

# Limits on one workload file.
GENERATED_JOBS_MAX = 100_000_000
LISTED_JOBS_MAX = 5_000
LISTED_SPAWNS_MAX = 100
MIX_MAX = 1_000


class DistributionText(Description):
    """A time that is always the same, or drawn."""

    constant: Seconds | None = Field(default=None, description="always this; a number alone means the same")
    uniform: tuple[Seconds, Seconds] | None = Field(default=None, description="[least, most], all equally likely")
    exponential: SecondsAboveZero | None = Field(default=None, description="exponential with this mean")

    @model_validator(mode="after")
    def _is_one_thing(self) -> DistributionText:
        exactly_one(self, "constant", "uniform", "exponential")
        in_order(self.uniform)
        return self


class Between(enum.StrEnum):
    """What to do with a size between two that a table names."""

    REFUSE = "refuse"
    LINEAR = "linear"


class ExecutionText(DistributionText):
    """An execution time on one cluster: fixed, drawn, or by the job's size."""

    by_size: Annotated[dict[Annotated[int, Field(ge=1)], SecondsAboveZero], Field(min_length=1)] | None = Field(
        default=None, description="seconds by the job's processors, such as {36: 240, 64: 300}"
    )
    between: Between = Field(
        default=Between.REFUSE, description="sizes between those of by_size are refused, or interpolated (linear)"
    )

    @model_validator(mode="after")
    def _is_one_thing(self) -> ExecutionText:
        exactly_one(self, "constant", "uniform", "exponential", "by_size")
        in_order(self.uniform)
        return self

    def covers(self, processors: int) -> bool:
        """Return True if it gives a time for a job of this size."""
        if self.by_size is None or processors in self.by_size:
            return True
        return self.between is Between.LINEAR and min(self.by_size) < processors < max(self.by_size)


Time = Annotated[DistributionText, BeforeValidator(as_constant, json_schema_input_type=float | DistributionText)]
Execution = Annotated[ExecutionText, BeforeValidator(as_constant, json_schema_input_type=float | ExecutionText)]


class SizesText(Description):
    """The processors of a job: a number, or drawn."""

    constant: Processors | None = Field(default=None, description="always this; a number alone means the same")
    uniform: tuple[Processors, Processors] | None = Field(
        default=None, description="[least, most], every whole number between them equally likely"
    )

    @model_validator(mode="after")
    def _is_one_thing(self) -> SizesText:
        exactly_one(self, "constant", "uniform")
        in_order(self.uniform)
        return self

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the most processors that can be drawn."""
        if self.uniform is not None:
            return self.uniform
        assert self.constant is not None, "one of the two is given"
        return self.constant, self.constant


Sizes = Annotated[SizesText, BeforeValidator(as_constant, json_schema_input_type=int | SizesText)]


class SizeText(Description):
    """One size of job that a mix may draw, and into how many components it is divided."""

    processors: Sizes = Field(description="the job's processors in all, or {uniform: [10, 50]}")
    components: Annotated[
        tuple[Annotated[int, Field(strict=True, ge=1, le=COMPONENTS_MAX)], ...], Field(min_length=1)
    ] = Field(default=(1,), description="numbers of equal components, one of which is drawn")
    weight: Annotated[Number, Field(gt=0)] = Field(
        default=1.0, description="how often it is drawn, beside the others"
    )


class MixText(Description):
    """An application that a generator draws, and its sizes."""

    application: Label = Field(description="the application's name, as under applications")
    sizes: Annotated[tuple[SizeText, ...], Field(min_length=1, max_length=MIX_MAX)] = Field(
        description="the sizes, one of which is drawn"
    )
    weight: Annotated[Number, Field(gt=0)] = Field(
        default=1.0, description="how often it is drawn, beside the others"
    )


class ApplicationModelText(Description):
    """How long an application runs."""

    execution_s: Execution = Field(description="seconds on one cluster: a number, a distribution or by_size")
    per_extra_cluster: Annotated[Number, Field(ge=0)] = Field(
        default=0.0, description="by which fraction of it each further cluster lengthens it"
    )
    bandwidth_share: Fraction01 = Field(
        default=0.0, description="the part of that which goes with 1 / bandwidth of the worst link between clusters"
    )
    latency_share: Fraction01 = Field(
        default=0.0, description="the part of that which goes with the latency of the worst link between clusters"
    )

    @model_validator(mode="after")
    def _shares_make_a_whole(self) -> ApplicationModelText:
        if self.bandwidth_share + self.latency_share > 1.0:
            raise wrong(
                f"bandwidth_share and latency_share are {self.bandwidth_share + self.latency_share:g} together",
                "write two that add up to 1 at most",
                "latency_share",
            )
        return self


class RequestKind(enum.StrEnum):
    """Which of the three request structures a generator makes."""

    FIXED = "fixed"
    NON_FIXED = "non-fixed"
    FLEXIBLE = "flexible"


class PriorityText(Description):
    """How often each priority is drawn."""

    high: Annotated[Number, Field(ge=0)] = Field(default=0.0, description="the weight of high priority")
    low: Annotated[Number, Field(ge=0)] = Field(default=0.0, description="the weight of low priority")

    @model_validator(mode="after")
    def _draws_something(self) -> PriorityText:
        if self.high + self.low <= 0:
            raise wrong("both weights are zero", "write {high: 0.5, low: 0.5}")
        return self


class GeneratorText(Description):
    """Jobs drawn at random, one after the other."""

    jobs: Annotated[int, Field(strict=True, ge=1, le=GENERATED_JOBS_MAX)] = Field(description="how many")
    interarrival_s: Time = Field(description="the time between two, such as {exponential: 80}")
    start_s: Seconds = Field(default=0.0, description="the first comes one interarrival time after this")
    mix: Annotated[tuple[MixText, ...], Field(min_length=1, max_length=MIX_MAX)] = Field(
        description="the applications, one of which is drawn"
    )
    request: RequestKind = Field(
        default=RequestKind.NON_FIXED,
        description="fixed: on sites drawn at random; non-fixed: component sizes only; flexible: the total only",
    )
    component_max: Processors | None = Field(
        default=None, description="numbers of components that would make one larger than this are not drawn"
    )
    execution_s: Execution | None = Field(default=None, description="instead of the applications' execution_s")
    walltime: Duration | None = Field(default=None, description="the longest a job may run: 900, 15m, 2h ...")
    priority: PriorityText = Field(default=PriorityText(low=1.0), description="the weights of the priorities")
    input_files: tuple[Label, ...] = Field(default=(), description="files, one of which each job reads")
    input_mode: InputMode = Field(default=InputMode.WHOLE, description="whole or chunk, for every component")
    policy: PolicyName | None = Field(default=None, description="the placement policy; by default the grid's")
    home: Home = Field(
        default=None,
        description="where the jobs arrive: none: nowhere; drawn: at sites drawn at random; or sites with weights, "
        "such as {vu: 2, delft: 1}",
    )
    communication: GeneratedCommunicationText | None = Field(
        default=None, description="what the jobs ask of the links between their sites; without it, nothing"
    )


class SpawnsText(Description):
    """Tasks that a job of tasks spawns while it runs. They take part in the work that is left: its execution does not
    take longer by them."""

    after_s: Seconds = Field(description="how long after the first start of the job, in seconds")
    tasks: Tasks = Field(description=TASKS_WORDS)
    edges: Edges = Field(default=(), description=SPAWNED_EDGES_WORDS)


class ListedJobText(Description):
    """One job, given in full."""

    at_s: Seconds = Field(description="when it is submitted, in seconds")
    job: JobText = Field(description="the job, in the form of a job file")
    execution_s: Execution | None = Field(
        default=None, description="how long it runs on one cluster; by default as its application does"
    )
    per_extra_cluster: Annotated[Number, Field(ge=0)] | None = Field(
        default=None, description="by which fraction each further cluster lengthens it"
    )
    spawns: Annotated[tuple[SpawnsText, ...], Field(max_length=LISTED_SPAWNS_MAX)] = Field(
        default=(), description="for a job of tasks: more of them, which come while it runs"
    )


def _replicas(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return {"sites": value}
    return {"drawn": value}


class ReplicasText(Description):
    """The sites that hold a copy: listed, or a number of them drawn."""

    sites: Annotated[tuple[Name, ...], Field(min_length=1)] | None = None
    drawn: Count | None = None


class WorkloadFileText(Description):
    """A file that the workload brings along."""

    size: Size | None = Field(default=None, description="such as 500 MB, 4 GB (10^9 bytes) or 4 GiB (2^30 bytes)")
    size_bytes: SizeBytes | None = Field(default=None, description="the size in bytes, instead of size")
    replicas: Annotated[ReplicasText, BeforeValidator(_replicas, json_schema_input_type=int | list[str])] = Field(
        description="the sites that hold a copy, or how many sites, drawn at random"
    )

    @model_validator(mode="after")
    def _has_one_size(self) -> WorkloadFileText:
        exactly_one(self, "size", "size_bytes")
        return self

    @property
    def bytes(self) -> int:
        """The size in bytes, however it was written."""
        size = self.size_bytes if self.size is None else self.size
        assert size is not None, "one of the two is given"
        return size


class WorkloadText(Description):
    """Jobs for a simulation: drawn by generators, listed one by one, or both."""

    name: Label = Field(default="workload", description="a name for reports")
    hold_when_waiting: Count | None = Field(
        default=None, description="submissions are held back while the placement queues hold this many jobs"
    )
    files: dict[Label, WorkloadFileText] = Field(default={}, description="files that the grid does not have yet")
    applications: dict[Label, ApplicationModelText] = Field(
        default={}, description="how long each application runs, by the name of its executable"
    )
    jobs: Annotated[tuple[ListedJobText, ...], Field(max_length=LISTED_JOBS_MAX)] = Field(
        default=(), description="jobs listed one by one"
    )
    generate: Annotated[tuple[GeneratorText, ...], Field(max_length=MIX_MAX)] = Field(
        default=(), description="generators of jobs"
    )


class WorkloadFile(NamedTuple):
    """A workload file that was read and checked, for ``simulate``: its text, and the requests of the jobs it lists.

    >>> from koala.simulator import example_workload
    >>> example_workload("demo").requests[0].processors
    24
    """

    text: WorkloadText
    requests: tuple[Request, ...]


def workload_schema() -> dict[str, Any]:
    """Return the JSON schema of a workload file."""
    return schema_of(WorkloadText, "Koala workload")


def read_workload(text: str, source: str) -> WorkloadFile:
    """Return the workload that a YAML text describes; raise DescriptionError with all problems if it is invalid.

    >>> from koala.simulator import read_workload
    >>> file = read_workload("jobs: [{at_s: 0, execution_s: 60, job: {components: [{processors: 2}]}}]", "two.yaml")
    >>> len(file.requests)
    1
    """
    document: Document[WorkloadText] = read_document(text, source, WorkloadText)
    workload = document.model
    requests = tuple(_listed_request(document, index) for index in range(len(workload.jobs)))
    refuse_any(source, _contradictions(document, requests))
    return WorkloadFile(workload, requests)


def _listed_request(document: Document[WorkloadText], index: int) -> Request:
    part: Document[JobText] = Document(document.content, document.find(("jobs", index, "job")).node)
    part.model = document.model.jobs[index].job
    return job_request(part)


def _contradictions(document: Document[WorkloadText], requests: tuple[Request, ...]) -> Iterator[Problem]:
    """Yield the problems that no part of the document can detect alone."""
    workload = document.model
    if not workload.jobs and not workload.generate:
        yield document.problem((), "there are no jobs in it", "write jobs: or generate:")
    for index, (listed, request) in enumerate(zip(workload.jobs, requests, strict=True)):
        yield from _spawn_problems(document, index, listed, request.tasks)
        name = request.components[0].application.name
        if listed.execution_s is None and name not in workload.applications:
            yield document.problem(
                ("jobs", index),
                f"nothing says how long {shown(name)} runs",
                f"write execution_s: in this entry, or {name}: under applications",
            )
            continue
        execution = listed.execution_s or workload.applications[name].execution_s
        if not execution.covers(request.processors):
            yield _not_covered(document, ("jobs", index), name, request.processors)
    for index, generator in enumerate(workload.generate):
        for number, mix in enumerate(generator.mix):
            yield from _mix_problems(document, ("generate", index, "mix", number), generator, mix)


def _spawn_problems(
    document: Document[WorkloadText], index: int, listed: ListedJobText, graph: TaskGraph | None
) -> Iterator[Problem]:
    """Yield problems with spawned tasks, which come in this order, each with those before it in the job."""
    for number, spawns in enumerate(listed.spawns):
        path: tuple[str | int, ...] = ("jobs", index, "spawns", number)
        if graph is None:
            yield document.problem(path, "the job has no tasks", "write tasks: and mcr: in it, or leave spawns out")
            return
        problems = list(spawned_problems(document, path, spawns.tasks, spawns.edges, dict.fromkeys(graph.names)))
        yield from problems
        if problems:
            return
        try:
            graph = spawned_of(spawns.tasks, spawns.edges).join(graph)
        except InvalidTaskGraphError as error:
            message, _, advice = error.message.partition("; ")
            yield document.problem(path, f"{error.part}: {message}", advice)
            return


def _mix_problems(
    document: Document[WorkloadText], path: tuple[str | int, ...], generator: GeneratorText, mix: MixText
) -> Iterator[Problem]:
    applications = document.model.applications
    execution = generator.execution_s
    if execution is None:
        if mix.application not in applications:
            near = f"; {nearest(mix.application, list(applications))}" if applications else ""
            yield document.problem(
                (*path, "application"),
                f"nothing says how long {shown(mix.application)} runs",
                f"write execution_s: in the generator, or an entry under applications{near}",
            )
            return
        execution = applications[mix.application].execution_s
    for number, size in enumerate(mix.sizes):
        here = (*path, "sizes", number)
        least, most = size.processors.bounds
        for processors in (least, most) if execution.between is Between.LINEAR else range(least, most + 1):
            if not execution.covers(processors):
                yield _not_covered(document, (*here, "processors"), mix.application, processors)
                break
        if min(size.components) > least:
            yield document.problem(
                (*here, "components"),
                f"{least} processors cannot be divided into {min(size.components)} components",
                "write smaller numbers of components",
            )
        if generator.component_max is not None and -(-most // max(size.components)) > generator.component_max:
            yield document.problem(
                (*here, "components"),
                f"{most} processors in {max(size.components)} components are more than component_max "
                f"({generator.component_max}) in one",
                "write larger numbers of components, or a larger component_max",
            )


def _not_covered(
    document: Document[WorkloadText], path: tuple[str | int, ...], application: str, processors: int
) -> Problem:
    return document.problem(
        path,
        f"the execution time of {shown(application)} is not given for {processors} processors",
        f"add {processors} to its by_size, or between: linear for sizes between those in it",
    )
