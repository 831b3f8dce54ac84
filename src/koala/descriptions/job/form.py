"""Jobs in YAML: the form of the file, its way to a Request, and back.

The models below are also the JSON schema that ``koala schema job`` prints, so every field has its meaning.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec.structs import replace
from pydantic import BeforeValidator, ConfigDict, Field

from koala.descriptions.errors import DescriptionError, Problem, refuse_any
from koala.descriptions.fields import (
    ANY_NAMES,
    Count,
    CountOrZero,
    Description,
    Duration,
    FileLabel,
    JobName,
    KnownNames,
    Label,
    LicenseCounts,
    Name,
    PolicyName,
    Processors,
    SomeText,
    Text,
    Tries,
    Variable,
)
from koala.descriptions.job.checkpoint import CheckpointText, checkpoint_values
from koala.descriptions.job.communication import CommunicationText, communication_values
from koala.descriptions.job.invalid import told
from koala.descriptions.job.order import AfterText, ArrayText, MomentText, after_values, dependencies, moment_value
from koala.descriptions.job.outputs import Outputs, output_values, outputs_of
from koala.descriptions.job.required import required_by
from koala.descriptions.job.task import ShapeText, shape_values, sized
from koala.descriptions.job.task_graph import (
    CLUSTERS_WORDS,
    EDGES_WORDS,
    MCR_WORDS,
    TASKS_WORDS,
    ClusterNames,
    Edges,
    Positive,
    Tasks,
    clusters_of,
    graph_of,
    graph_problems,
    graph_values,
)
from koala.descriptions.yaml.problems import text_wanted
from koala.descriptions.yaml.text import Document, read_document
from koala.descriptions.yaml.writing import write_yaml
from koala.model.job_array import read_array
from koala.model.request import (
    COMPONENTS_MAX,
    EXIT_CODE_MAX,
    INPUT_FILES_MAX,
    SPLITS_MAX,
    Application,
    Component,
    Flexibility,
    InputFile,
    InputMode,
    InvalidRequestError,
    JobType,
    Priority,
    Request,
)
from koala.model.request_size import ARGUMENTS_MAX, REQUIRED_PROGRAMS_MAX, RESTARTS_MAX, VARIABLES_MAX, check_size
from koala.model.travelling import TRAVELLING_FILES_MAX, TravellingError, TravellingFile, named_path, roots


def _file_by_name(value: Any) -> Any:
    """Read the name of a file alone as the file."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, int | float):
        raise text_wanted()
    return value


class InputFileText(Description):
    """A file that a component reads."""

    name: FileLabel = Field(description="the file's logical name, as the grid's replica catalogue knows it")
    mode: InputMode = Field(
        default=InputMode.WHOLE, description="whole: each component gets all of it; chunk: each gets its own part"
    )
    path: SomeText | None = Field(
        default=None, description="where the copy appears, relative to the directory; by default the logical name"
    )


InputFiles = Annotated[
    tuple[Annotated[InputFileText, BeforeValidator(_file_by_name, json_schema_input_type=str | InputFileText)], ...],
    Field(max_length=INPUT_FILES_MAX),
]


class ApplicationText(Description):
    """What a component runs: an executable with arguments, or a script."""

    executable: Label | None = Field(default=None, description="the program to run")
    arguments: Annotated[tuple[Text, ...], Field(max_length=ARGUMENTS_MAX)] = Field(
        default=(), description="what the program gets as arguments, one entry each"
    )
    script: Text | None = Field(
        default=None, description="the text of a shell script to run instead of an executable"
    )
    directory: SomeText | None = Field(default=None, description="where to run it, at the site")
    environment: Annotated[dict[Variable, Text], Field(max_length=VARIABLES_MAX)] = Field(
        default={}, description="environment variables and their values"
    )
    stdin: SomeText | None = Field(default=None, description="the file that is its standard input")
    stdout: SomeText | None = Field(
        default=None,
        description="the file for its standard output; %j in it is the job's number, %A that of its array, %a its "
        "index there, %x its name, %N its first node, %% a percent sign",
    )
    stderr: SomeText | None = Field(default=None, description="the file for its standard error")
    processors_per_task: Processors = Field(
        default=1,
        description="how many of the processors belong to one task, an MPI rank or a worker of torchrun; "
        "OMP_NUM_THREADS is set to it unless the environment says otherwise",
    )
    image: SomeText | None = Field(
        default=None,
        description="the container image to run it in; the job goes only to sites that say how they run images",
    )
    partition: Label | None = Field(
        default=None,
        description="the partition or queue that it asks for; used at sites whose `partitions` name it",
    )
    requires: Annotated[tuple[Name, ...], Field(max_length=REQUIRED_PROGRAMS_MAX)] | None = Field(
        default=None,
        description="programs without which it cannot run, such as [srun]: the job goes only to sites that provide "
        "them, or that it names; by default srun or qrsh where its script or command calls it; [] goes anywhere",
    )


class ComponentText(Description):
    """A part of the job that runs on one site."""

    processors: Processors | None = Field(
        default=None,
        description="how many processors this component needs; may be left out where its task has a count",
    )
    task: ShapeText | None = Field(
        default=None,
        description="what each of its tasks holds, and how many there are; each key given here replaces the job's",
    )
    site: Name | None = Field(default=None, description="the site where it must run; without it the policy chooses")
    count: Annotated[int, Field(strict=True, ge=1, le=COMPONENTS_MAX)] = Field(
        default=1, description="how many such components the job has"
    )
    application: ApplicationText | None = Field(
        default=None,
        description="what this component runs; each key given here replaces the job's, and an executable here "
        "replaces the job's script (or the other way round)",
    )
    input_files: InputFiles | None = Field(
        default=None, description="the files this component reads, instead of the job's"
    )
    outputs: Outputs | None = Field(default=None, description="what this component makes, instead of the job's")


class FlexibleText(Description):
    """A total that the scheduler divides over sites."""

    processors: Processors | None = Field(
        default=None,
        description="how many processors the job needs in all; may be left out where its task has a count",
    )
    component_min: Count = Field(default=1, description="the least processors in one component")
    components_max: Annotated[int, Field(strict=True, ge=1, le=COMPONENTS_MAX)] | None = Field(
        default=None, description="the most components; by default as many as there are sites"
    )
    splits: Annotated[tuple[tuple[Count, ...], ...], Field(max_length=SPLITS_MAX)] = Field(
        default=(), description="the allowed divisions, the best-liked first, such as [[18, 6], [12, 12]]"
    )


ExitCodes = Annotated[
    tuple[Annotated[int, Field(strict=True, ge=1, le=EXIT_CODE_MAX)], ...], Field(max_length=EXIT_CODE_MAX)
]


class LimitsText(Description):
    """When to give the job up; what is left out is as the grid says."""

    placement_tries: Tries | None = Field(default=None, description="the most tries to place it, one a scan")
    claiming_tries: Tries | None = Field(default=None, description="the most tries to claim its processors")
    restarts: Annotated[CountOrZero, Field(le=RESTARTS_MAX)] | None = Field(
        default=None, description="the most restarts after its application failed"
    )


def _one_given(*keys: str) -> list[Any]:
    """Return the branches of a JSON schema in which one of the keys is given; null counts as missing."""
    return [{"required": [key], "properties": {key: {"not": {"type": "null"}}}} for key in keys]


# The branch in which a task with a count is enough.
_COUNTED: Any = {
    "required": ["task"],
    "properties": {
        "task": {"required": ["count"]},
        **{key: {"type": "null"} for key in ("components", "flexible", "processors", "tasks")},
    },
}


class JobText(Description):
    """One parallel job for Koala. Give exactly one of components, flexible, processors and tasks; a task with a count
    stands for processors too."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [*_one_given("components", "flexible", "processors", "tasks"), _COUNTED]}
    )

    name: JobName = Field(default="job", description="a name for tables; it need not be unique")
    priority: Priority = Field(
        default=Priority.LOW, description="high jobs are tried more often and may preempt low ones"
    )
    policy: PolicyName | None = Field(
        default=None, description="the placement policy; by default the grid's, or for a total one that divides"
    )
    type: JobType = Field(default=JobType.PLAIN, description="which runner starts the application")
    walltime: Duration | None = Field(
        default=None, description='the longest the job may run: seconds, 15m, 2h, 1h30m or "HH:MM:SS"'
    )
    application: ApplicationText = Field(
        default=ApplicationText(), description="what the components run, unless they say otherwise"
    )
    input_files: InputFiles = Field(default=(), description="the files each component reads, unless it names its own")
    outputs: Outputs = Field(
        default=(),
        description="what each component makes, unless it names its own: files and directories that are collected "
        "when all are done, and registered as jobs/ID/PATH where they were made; one component at least makes each",
    )
    keep_for: Duration | None = Field(
        default=None, description="how long its workspaces are kept after its end; by default as the grid says"
    )
    keep_outputs_for: Duration | None = Field(
        default=None,
        description="how long its outputs are kept after its end, and longer while a job is to read them; by default "
        "as the grid says",
    )
    files: Annotated[tuple[SomeText, ...], Field(max_length=TRAVELLING_FILES_MAX)] = Field(
        default=(),
        description="programs and other files, or directories, beside the description that travel with the job: "
        "koala submit sends them, and they are in the directory where each component starts",
    )
    components: Annotated[tuple[ComponentText, ...], Field(min_length=1, max_length=COMPONENTS_MAX)] | None = Field(
        default=None, description="the components, with or without their sites"
    )
    flexible: FlexibleText | None = Field(default=None, description="a total that the scheduler divides")
    processors: Processors | None = Field(default=None, description="the size of a job of one component")
    task: ShapeText | None = Field(
        default=None,
        description="what each of the equal tasks of a component holds (processors, memory, GPUs), and how many "
        "there are; without it a task is one processor",
    )
    tasks: Tasks | None = Field(default=None, description=f"for a job of tasks: {TASKS_WORDS}; one processor each")
    edges: Edges = Field(default=(), description=f"for a job of tasks: {EDGES_WORDS}")
    mcr: Positive | None = Field(default=None, description=f"for a job of tasks: {MCR_WORDS}")
    clusters: ClusterNames | None = Field(default=None, description=f"for a job of tasks: {CLUSTERS_WORDS}")
    home: Name | None = Field(
        default=None, description="the site where the job arrives, which some policies try before all others"
    )
    communication: CommunicationText | None = Field(
        default=None, description="what it asks of the links between its sites; without it, nothing"
    )
    limits: LimitsText = Field(default=LimitsText(), description="when to give the job up")
    retry_on: ExitCodes = Field(
        default=(),
        description="exit codes of the application after which the job is started again, up to its restarts; without "
        "any, all that are not in never_on",
    )
    never_on: ExitCodes = Field(
        default=(), description="exit codes of the application after which the job fails at once"
    )
    after: AfterText = Field(
        default=AfterText(), description="the jobs that it waits for before it is tried, by what must become of them"
    )
    begin_at: MomentText | None = Field(
        default=None,
        description="it is not tried before: a time with its zone such as 2030-01-31T08:00:00Z, now+2h, or seconds "
        "since 1970",
    )
    hold: bool = Field(default=False, description="it is not tried before koala job release lets it go")
    array: ArrayText | None = Field(
        default=None,
        description="the job is an array: one job for each index, such as 0-99, 1,5,9 or 0-20:4; %10 after it lets "
        "no more than ten be under way. Each is told its index as KOALA_ARRAY_INDEX",
    )
    checkpoint: CheckpointText | None = Field(
        default=None, description="where its components save what they have done, so that its next run goes on there"
    )
    licenses: LicenseCounts = Field(
        default={},
        description="the floating licences that it holds, such as {ansys: 2}: once at each site where it runs, and "
        "once of a pool that all sites share",
    )


_STRUCTURES = ("components", "flexible", "processors", "tasks")
_OF_TASKS = ("edges", "mcr", "clusters")
_ADVICE = {"application": "keep the executable or the script, and remove the other"}


def read_job_yaml(text: str, source: str, known: KnownNames = ANY_NAMES) -> Request:
    """Return the Request that a YAML text describes; raise DescriptionError with all problems if it is invalid."""
    document = read_document(text, source, JobText)
    request = job_request(document)
    refuse_any(source, unknown_names(document, known))
    return request


def unknown_names(document: Document[JobText], known: KnownNames) -> Iterator[Problem]:
    """Yield problems with unknown policies and sites."""
    job = document.model
    if job.policy is not None and (problem := known.policy_problem(job.policy)):
        yield document.problem(("policy",), *problem)
    if job.home is not None and (problem := known.site_problem(job.home)):
        yield document.problem(("home",), *problem)
    for index, component in enumerate(job.components or ()):
        if component.site is not None and (problem := known.site_problem(component.site)):
            yield document.problem(("components", index, "site"), *problem)
        for number, output in enumerate(component.outputs or ()):
            if output.to is not None and "://" not in output.to and (problem := known.site_problem(output.to)):
                yield document.problem(("components", index, "outputs", number, "to"), *problem)
    for number, output in enumerate(job.outputs):
        if output.to is not None and "://" not in output.to and (problem := known.site_problem(output.to)):
            yield document.problem(("outputs", number, "to"), *problem)


def job_request(document: Document[JobText]) -> Request:
    """Return the Request of a document that was read; the document may be a part of a larger one, such
    as a workload."""
    job = document.model
    given = [key for key in _STRUCTURES if getattr(job, key) is not None]
    if not given and job.task is not None and job.task.count is not None:
        given = ["task"]
    if len(given) != 1:
        both = f"{' and '.join(given)} are given together" if given else "the job does not say its size"
        problem = document.problem(
            given[1:2], both, "write exactly one of components, flexible, processors and tasks", at_key=True
        )
        raise DescriptionError(document.content.source, [problem])
    refuse_any(document.content.source, _task_problems(document))
    try:
        request = _request(job, document)
        check_size(request)
        return request
    except InvalidRequestError as error:
        raise _positioned(error, document, ((given[0],), ())) from None


def _task_problems(document: Document[JobText]) -> Iterator[Problem]:
    job = document.model
    if job.tasks is not None:
        if job.mcr is None:
            yield document.problem(("tasks",), "'mcr' is missing", f"write 'mcr: ...': {MCR_WORDS}", at_key=True)
        yield from graph_problems(document, job.tasks, job.edges, job.clusters)
        return
    for key in _OF_TASKS:
        if key in job.model_fields_set:
            yield document.problem(
                (key,), f"{key}: there are no tasks", "name the tasks, or take it out", at_key=True
            )


def _request(job: JobText, document: Document[JobText]) -> Request:
    flexible = tasks = None
    clusters: tuple[tuple[int, ...], ...] = ()
    if job.components is not None:
        components = _components(job, job.components, document)
    elif job.tasks is not None:
        assert job.mcr is not None, "tasks without mcr were refused before"
        components = _components(job, (ComponentText(processors=len(job.tasks)),), document)
        flexible, tasks = Flexibility(), graph_of(job.tasks, job.edges, job.mcr)
        clusters = clusters_of(job.tasks, job.clusters) or ()
    else:
        total = job.flexible.processors if job.flexible is not None else job.processors
        components = _components(job, (ComponentText(processors=total),), document)
    if job.flexible is not None:
        flexible = Flexibility(
            component_min=job.flexible.component_min,
            components_max=job.flexible.components_max,
            splits=job.flexible.splits,
        )
    return Request(
        components=components,
        name=job.name,
        flexible=flexible,
        priority=job.priority,
        policy=job.policy,
        job_type=job.type,
        walltime_s=job.walltime,
        placement_tries_max=job.limits.placement_tries,
        claiming_tries_max=job.limits.claiming_tries,
        restarts_max=job.limits.restarts,
        retry_on=job.retry_on,
        never_on=job.never_on,
        home=job.home,
        communication=None if job.communication is None else job.communication.communication(),
        tasks=tasks,
        task_clusters=clusters,
        files=_named_files(job, document),
        after=dependencies(job.after),
        begin_at=None if job.begin_at is None else job.begin_at.at,
        begin_in_s=None if job.begin_at is None else job.begin_at.in_s,
        hold=job.hold,
        array=None if job.array is None else read_array(job.array),
        checkpoint=None if job.checkpoint is None else job.checkpoint.checkpoint(),
        keep_for_s=job.keep_for,
        keep_outputs_for_s=job.keep_outputs_for,
        licenses=tuple(sorted(job.licenses.items())),
    )


def _named_files(job: JobText, document: Document[JobText]) -> tuple[TravellingFile, ...]:
    named: dict[str, TravellingFile] = {}
    for index, path in enumerate(job.files):
        try:
            plain = named_path(path)
        except TravellingError as error:
            message, _, advice = error.message.partition("; ")
            raise document.error(("files", index), f"{path!r} {message}", advice) from None
        named[plain] = TravellingFile(path=plain)
    return tuple(named[path] for path in sorted(named))


def _components(job: JobText, texts: tuple[ComponentText, ...], document: Document[JobText]) -> tuple[Component, ...]:
    total = sum(text.count for text in texts)
    if total > COMPONENTS_MAX:
        raise document.error(
            ("components",),
            f"the counts make {total} components, more than {COMPONENTS_MAX} (COMPONENTS_MAX)",
            "lower the counts",
        )
    components: list[Component] = []
    files = _files(job.input_files)
    shared: Application | None = None  # by all components that have no application of their own
    for index, text in enumerate(texts):
        try:
            if text.application is not None:
                application = _application(job.application, text.application)
            elif shared is None:
                application = shared = _application(job.application, None)
            else:
                application = shared
            shape = job.task if text.task is None else text.task.over(job.task)
            if shape is not None:
                per_task = shape.per_task(_own_per_task(job, text, application))
                if per_task != application.processors_per_task:
                    application = replace(application, processors_per_task=per_task)
            component = Component(
                processors=sized(text.processors, shape, application.processors_per_task),
                site=text.site,
                application=application,
                input_files=files if text.input_files is None else _files(text.input_files),
                needs=None if shape is None else shape.needs(),
                outputs=outputs_of(job.outputs if text.outputs is None else text.outputs, application.directory),
            )
        except InvalidRequestError as error:
            raise _positioned(error, document, (("components", index), ())) from None
        components += [component] * text.count
    return tuple(components)


def _own_per_task(job: JobText, text: ComponentText, application: Application) -> int | None:
    """Return the processors of a task from its application, if it declares them."""
    own = text.application is not None and "processors_per_task" in text.application.model_fields_set
    said = own or "processors_per_task" in job.application.model_fields_set
    return application.processors_per_task if said else None


def _files(files: tuple[InputFileText, ...]) -> tuple[InputFile, ...]:
    return tuple(InputFile(name=file.name, mode=file.mode, path=file.path) for file in files)


def _application(default: ApplicationText, own: ApplicationText | None) -> Application:
    """Return the component's application: its own keys replace the job's, and drop job keys that they exclude."""
    values = {key: getattr(default, key) for key in default.model_fields_set}
    if own is not None:
        if own.script is not None:
            values = {key: value for key, value in values.items() if key not in {"executable", "arguments"}}
        if own.executable is not None:
            values.pop("script", None)
        values |= {key: getattr(own, key) for key in own.model_fields_set}
    values["environment"] = tuple(values.get("environment", {}).items())
    requires = values.get("requires")
    if requires is None:
        requires = required_by(values.get("script"), values.get("executable"), values.get("arguments", ()))
    return Application(**values | {"requires": tuple(dict.fromkeys(requires))})


def _positioned(
    error: InvalidRequestError, document: Document[JobText], roots: tuple[tuple[str | int, ...], ...]
) -> DescriptionError:
    """Return the error at its part of the document: below the first root that has it, else at the first."""
    message, advice = told(error, _ADVICE)
    for root in roots:
        for steps in (
            (error.field,),
            ("task", error.field),
            ("checkpoint", error.field.removeprefix("checkpoint_")),
            ("application", error.field),
            ("limits", error.field.removesuffix("_max")),
        ):
            if len(document.find((*root, *steps)).steps) == len(root) + len(steps):
                return document.error((*root, *steps), message, advice)
    return document.error(roots[0], f"{error.field}: {message}", advice)


def write_job_yaml(request: Request) -> str:
    """Return YAML that ``read_job_yaml`` reads as this request."""
    job: dict[str, Any] = {"name": request.name}
    if request.priority is not Priority.LOW:
        job["priority"] = str(request.priority)
    if request.policy is not None:
        job["policy"] = request.policy
    if request.job_type is not JobType.PLAIN:
        job["type"] = str(request.job_type)
    if request.walltime_s is not None:
        job["walltime"] = _number(request.walltime_s)
    applications = {component.application for component in request.components}
    files = {component.input_files for component in request.components}
    if len(applications) == 1:
        job |= _if_any("application", _application_values(request.components[0].application))
    if len({component.needs for component in request.components}) == 1:
        job |= _if_any("task", shape_values(request.components[0]))
    if len(files) == 1:
        job |= _if_any("input_files", _file_values(request.components[0].input_files))
    made = {component.outputs for component in request.components}
    if len(made) == 1:
        job |= _if_any("outputs", _outputs_of(request.components[0]))
    if request.keep_for_s is not None:
        job["keep_for"] = _number(request.keep_for_s)
    if request.keep_outputs_for_s is not None:
        job["keep_outputs_for"] = _number(request.keep_outputs_for_s)
    job |= _if_any("files", list(roots(request.files)))
    job |= _size_values(request, own_application=len(applications) > 1, own_files=len(files) > 1)
    if request.home is not None:
        job["home"] = request.home
    if request.communication is not None:
        job["communication"] = communication_values(request.communication)
    limits = {
        "placement_tries": request.placement_tries_max,
        "claiming_tries": request.claiming_tries_max,
        "restarts": request.restarts_max,
    }
    job |= _if_any("limits", {key: value for key, value in limits.items() if value is not None})
    job |= _if_any("retry_on", list(request.retry_on)) | _if_any("never_on", list(request.never_on))
    job |= _if_any("after", after_values(request.after))
    begin = moment_value(request.begin_at, request.begin_in_s)
    if begin is not None:
        job["begin_at"] = begin
    if request.hold:
        job["hold"] = True
    if request.array is not None:
        job["array"] = str(request.array)
    if request.checkpoint is not None:
        job["checkpoint"] = checkpoint_values(request.checkpoint)
    job |= _if_any("licenses", dict(request.licenses))
    return write_yaml(job)


def _size_values(request: Request, *, own_application: bool, own_files: bool) -> dict[str, Any]:
    first = request.components[0]
    if request.tasks is not None:
        return graph_values(request.tasks, request.task_clusters)
    if request.flexible is not None:
        flexible: dict[str, Any] = {"processors": first.processors}
        if request.flexible.component_min != 1:
            flexible["component_min"] = request.flexible.component_min
        if request.flexible.components_max is not None:
            flexible["components_max"] = request.flexible.components_max
        flexible |= _if_any("splits", [list(split) for split in request.flexible.splits])
        return {"flexible": flexible}
    if len(request.components) == 1 and first.site is None:
        return {"processors": first.processors}
    entries = []
    own_task = len({component.needs for component in request.components}) > 1
    own_outputs = len({component.outputs for component in request.components}) > 1
    for component in request.components:
        entry: dict[str, Any] = {"processors": component.processors}
        if component.site is not None:
            entry["site"] = component.site
        if own_task:
            entry |= _if_any("task", shape_values(component))
        if own_application:
            entry |= _if_any("application", _application_values(component.application))
        if own_files:
            entry |= _if_any("input_files", _file_values(component.input_files))
        if own_outputs:
            entry |= _if_any("outputs", _outputs_of(component))
        entries.append(entry)
    return {"components": entries}


def _application_values(application: Application) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key in Application.__struct_fields__:
        value = getattr(application, key)
        if key in ("processors_per_task", "requires"):
            continue
        if key == "arguments":
            values |= _if_any(key, list(value))
        elif key == "environment":
            values |= _if_any(key, dict(value))
        elif value is not None:
            values[key] = value
    if application.requires != required_by(application.script, application.executable, application.arguments):
        values["requires"] = list(application.requires)
    if application.processors_per_task != 1:
        values["processors_per_task"] = application.processors_per_task
    return values


def _outputs_of(component: Component) -> list[Any]:
    return output_values(component.outputs, component.application.directory)


def _file_values(files: tuple[InputFile, ...]) -> list[Any]:
    values: list[Any] = []
    for file in files:
        value: dict[str, Any] = {"name": file.name}
        if file.mode is not InputMode.WHOLE:
            value["mode"] = str(file.mode)
        if file.path is not None:
            value["path"] = file.path
        values.append(file.name if len(value) == 1 else value)
    return values


def _if_any(key: str, value: Any) -> dict[str, Any]:
    return {key: value} if value else {}


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else value
