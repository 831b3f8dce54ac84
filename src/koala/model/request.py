"""What a user asks for and what a policy answers: requests, components, placements.

Everything here is a frozen value, valid once built. Only ``koala.descriptions`` turns text into these values.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import msgspec

from koala.model.checkpoint import Checkpoint
from koala.model.dependency import DEPENDENCIES_MAX, Dependency
from koala.model.job_array import ArraySpec
from koala.model.nodes import TaskNeeds, TaskShape, gpus_text
from koala.model.outputs import (
    ARCHIVE_ENDING,
    OUTPUTS_MAX,
    JobOutput,
    OutputOfGraph,
    output_name,
    output_problem,
)
from koala.model.task_graph import TaskGraph
from koala.model.travelling import TravellingFile

JobId: TypeAlias = int
# What a job holds of floating licences, or a pool has: how many of each name, in the order of the names.
Licenses: TypeAlias = tuple[tuple[str, int], ...]
SiteName: TypeAlias = str
FileName: TypeAlias = str

# The largest integer of the databases.
JOB_ID_MAX = 2**63 - 1
# The default name of a job.
JOB_NAME = "job"
# Limits on one request. A description that exceeds one is refused, with the limit's name in the message.
COMPONENTS_MAX = 1_000
PROCESSORS_MAX = 10_000_000
# A program returns no more than a byte to its parent.
EXIT_CODE_MAX = 255
SPLITS_MAX = 1_000
INPUT_FILES_MAX = 1_000
TEXT_CHARACTERS_MAX = 65_536
# The largest bandwidth that is accepted, a petabit per second: a larger number is a mistake in the unit.
BANDWIDTH_MBIT_S_MAX = 1_000_000_000
CUBE_DIMENSIONS_MAX = 8
# The scheduler clusters the tasks of a job itself, and must not take long for it.
JOB_TASKS_MAX = 1_000
JOB_EDGES_MAX = 100_000
# Limits on the names of licences that a job or a pool has, and on the number of each.
LICENSES_MAX = 100
LICENSE_COUNT_MAX = 1_000_000
# The latest time that is accepted, the end of the year 9999 in seconds since 1970: more is a mistake in the unit.
TIME_S_MAX = 253_402_300_799.0
# The longest time for which a job's workspaces are kept after its end.
KEEP_FOR_S_MAX = 365 * 86_400.0


class Priority(enum.StrEnum):
    """Two levels, as in KOALA: a high-priority job is scanned more often and may preempt low-priority ones."""

    HIGH = "high"
    LOW = "low"


class InputMode(enum.StrEnum):
    """How an input file reaches the components: each gets the whole of it, or each gets its own chunk."""

    WHOLE = "whole"
    CHUNK = "chunk"


class JobType(enum.StrEnum):
    """The runner that starts the application: a plain program, one MPI world over all components, torchrun."""

    PLAIN = "plain"
    MPI = "mpi"
    TORCHRUN = "torchrun"


class Pattern(enum.StrEnum):
    """The communication pattern of a job: every processor with all others, with its neighbours in a ring or in a
    torus (a k-ary n-cube), every worker with the first processor, or none."""

    ALL_TO_ALL = "all-to-all"
    RING = "ring"
    CUBE = "cube"
    MASTER_WORKER = "master-worker"
    NONE = "none"

    @property
    def number(self) -> int:
        """Its number in the functions of ``koala.model.network``."""
        return _PATTERN_NUMBERS[self]


_PATTERN_NUMBERS = {pattern: number for number, pattern in enumerate(Pattern)}
# A graph has at most this many jobs.
GRAPH_JOBS_MAX = 1_000


class InvalidRequestError(ValueError):
    """A request that contradicts itself. ``field`` names the part; the message says what to write."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}")
        self.field = field
        self.message = message


class InputFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A logical file that a component reads; the replica catalogue lists the sites with copies.

    ``path`` is where the copy appears, relative to the component's directory; the default is the logical name.
    """

    name: FileName
    mode: InputMode = InputMode.WHOLE
    path: str | None = None


class Application(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a component runs: an executable with arguments, or the text of a script; never both.

    One task has ``processors_per_task`` of a component's processors: one rank of an MPI job, or one worker of
    torchrun, whose threads share them. ``image`` is the container image that it runs in, by a name that its site
    understands. ``partition`` is a partition of a batch system, by a name that the grid file translates for each
    site; without a translation the component goes to the site's usual one. ``requires`` are programs without which it
    cannot run.

    In the names of its streams ``%j`` stands for the number of the job, and so on, as in batch scripts, and ``%%``
    for a percent sign.
    """

    executable: str | None = None
    arguments: tuple[str, ...] = ()
    script: str | None = None
    directory: str | None = None
    environment: tuple[tuple[str, str], ...] = ()
    stdin: str | None = None
    stdout: str | None = None
    stderr: str | None = None
    processors_per_task: int = 1
    image: str | None = None
    partition: str | None = None
    requires: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.processors_per_task <= PROCESSORS_MAX:
            raise InvalidRequestError(
                "processors_per_task",
                f"{self.processors_per_task} is not a number of processors; write 1 to {PROCESSORS_MAX}",
            )
        if self.executable is not None and self.script is not None:
            raise InvalidRequestError("application", "give an executable or a script, not both")
        if self.script is not None and self.arguments:
            raise InvalidRequestError("arguments", "arguments belong to an executable; a script has none")
        names = [name for name, _ in self.environment]
        if len(set(names)) != len(names):
            raise InvalidRequestError("environment", "the same variable is set twice; set it once")

    @property
    def name(self) -> str:
        """A short name for tables and for the lookup of an execution-time model: the executable's last part."""
        if self.executable is None:
            return "script"
        return self.executable.rsplit("/", 1)[-1]


class Component(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a job that runs on one site. The user may choose the ``site``; otherwise the policy does.

    It consists of equal tasks, each with ``application.processors_per_task`` processors; ``needs`` is what each task
    needs beside them, None for nothing. ``outputs`` are the results that are kept when the job is done.
    """

    processors: int
    application: Application = Application()
    input_files: tuple[InputFile, ...] = ()
    site: SiteName | None = None
    needs: TaskNeeds | None = None
    outputs: tuple[JobOutput, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= self.processors <= PROCESSORS_MAX:
            raise InvalidRequestError(
                "processors", f"{self.processors} is not a number of processors; write 1 to {PROCESSORS_MAX}"
            )
        per_task = self.application.processors_per_task
        if self.processors % per_task != 0:
            raise InvalidRequestError(
                "processors_per_task",
                f"{self.processors} processors do not make whole tasks of {per_task}; write a divisor of "
                f"{self.processors}",
            )
        if self.needs is not None and (problem := self.needs.problem()) is not None:
            raise InvalidRequestError(*problem)
        if len(self.input_files) > INPUT_FILES_MAX:
            raise InvalidRequestError("input_files", f"more than {INPUT_FILES_MAX} files (INPUT_FILES_MAX)")
        names = [file.name for file in self.input_files]
        if len(set(names)) != len(names):
            raise InvalidRequestError("input_files", "the same file is named twice; name it once")
        if self.outputs:
            self._check_outputs()

    def reading(self, names: Mapping[FileName, FileName | None]) -> Component:
        """Return the component with other names for some of its input files, which keep their paths; None removes a
        file."""
        if not any(file.name in names for file in self.input_files):
            return self
        files = []
        for file in self.input_files:
            name = names.get(file.name, file.name)
            if name is not None:
                path = file.name if file.path is None else file.path
                files.append(file if name == file.name else msgspec.structs.replace(file, name=name, path=path))
        return msgspec.structs.replace(self, input_files=tuple(files))

    def _check_outputs(self) -> None:
        if len(self.outputs) > OUTPUTS_MAX:
            raise InvalidRequestError("outputs", f"more than {OUTPUTS_MAX} outputs (OUTPUTS_MAX)")
        paths = [output.path for output in self.outputs]
        for path in paths:
            if (problem := output_problem(path)) is not None:
                raise InvalidRequestError("outputs", f"{path[:80]!r} {problem[0]}; {problem[1]}")
        if len(set(paths)) != len(paths):
            raise InvalidRequestError("outputs", "the same output is named twice; name it once")
        for path in paths:
            if f"{path}{ARCHIVE_ENDING}" in paths:
                raise InvalidRequestError(
                    "outputs", f"{path!r} as a directory would have the name of {path}{ARCHIVE_ENDING}; rename one"
                )
        if self.application.directory is not None and self.application.directory.startswith("/"):
            raise InvalidRequestError(
                "outputs",
                f"the application runs in {self.application.directory[:80]!r}, outside its workspace; take directory "
                "out, or let the job transfer its results itself",
            )

    @property
    def shape(self) -> TaskShape | None:
        """The shape of its tasks; None for plain tasks of one processor and nothing else."""
        if self.needs is None and self.application.processors_per_task == 1:
            return None
        return TaskShape.of(self.application.processors_per_task, self.needs)


class Flexibility(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a flexible request's total may be divided.

    Either bounds (at least ``component_min`` processors in each part, at most ``components_max`` parts, by default
    the number of sites) or ``splits``: the allowed divisions, in order of preference.
    """

    component_min: int = 1
    components_max: int | None = None
    splits: tuple[tuple[int, ...], ...] = ()


class Communication(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the processors of a job talk to each other, which loads the links between its sites.

    ``bisection_mbit_s`` is the bandwidth over the middle of the job, cut into halves; ``per_processor_mbit_s`` is the
    bandwidth of each processor. Exactly one of the two is given, or none where no processors communicate. ``share``
    is the fraction of the execution time that is communication on one site; only that part takes longer where a link
    is too narrow.
    """

    pattern: Pattern = Pattern.ALL_TO_ALL
    bisection_mbit_s: float | None = None
    per_processor_mbit_s: float | None = None
    share: float = 0.3
    dimensions: int = 2

    def __post_init__(self) -> None:
        given = [field for field in ("bisection_mbit_s", "per_processor_mbit_s") if getattr(self, field) is not None]
        if len(given) == 2:
            raise InvalidRequestError(
                "per_processor_mbit_s", "bisection_mbit_s and per_processor_mbit_s are given together; keep one"
            )
        if not given and self.pattern is not Pattern.NONE:
            raise InvalidRequestError(
                "bisection_mbit_s", "the bandwidth is missing; write bisection_mbit_s or per_processor_mbit_s"
            )
        for field in given:
            mbit_s: float = getattr(self, field)
            if not 0 <= mbit_s <= BANDWIDTH_MBIT_S_MAX:
                raise InvalidRequestError(field, f"{mbit_s:g} is not a bandwidth; write 0 to {BANDWIDTH_MBIT_S_MAX}")
        if not 0 <= self.share <= 1:
            raise InvalidRequestError("share", f"{self.share:g} is not a fraction; write 0 to 1")
        if not 1 <= self.dimensions <= CUBE_DIMENSIONS_MAX:
            raise InvalidRequestError(
                "dimensions", f"{self.dimensions} is not a number of dimensions; write 1 to {CUBE_DIMENSIONS_MAX}"
            )


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One rigid parallel job.

    - fixed: every component names its site;
    - non-fixed: no component does (some may: those are fixed, the rest are placed);
    - flexible: one component, whose processors are the total, and ``flexible`` says how it may be divided.
      The parts that the scheduler makes all run that component's application.

    ``retry_on`` are the exit codes of its application after which the job is started again, all codes if empty;
    ``never_on`` are the codes after which it is not. Such an end is the application's own, and blames no site.

    ``home`` is the site where the job arrived, which some policies try first; ``communication`` is its demand on the
    links between its sites, None for no demand.

    ``tasks`` are the tasks of a flexible job whose processors are not all alike: one task for each processor.
    ``task_clusters`` are tasks that belong together, by index, with every task in one cluster; if empty, the
    scheduler finds them.

    ``files`` travel with the job, from the daemon's machine to the work directory of each component. ``keep_for_s``
    is how long its workspaces are kept after its end, ``keep_outputs_for_s`` its outputs; None is the grid's value.

    ``after`` are the jobs that it waits for before it is tried. It is not tried before ``begin_at`` either, in
    seconds since the driver's epoch, nor before ``begin_in_s`` have passed since its submission; with ``hold`` it
    is not tried before somebody ends the hold.

    ``checkpoint`` is how its components save their state, and get it back in the job's next run.

    ``licenses`` are the floating licences that it holds, sorted by name: once from the pool that all sites share, and
    once from the pool of each site where it has components.

    With ``array`` it stands for many equal jobs, one for each index; all of the above applies to the array as a
    whole.
    """

    components: tuple[Component, ...]
    name: str = JOB_NAME
    flexible: Flexibility | None = None
    priority: Priority = Priority.LOW
    policy: str | None = None
    job_type: JobType = JobType.PLAIN
    walltime_s: float | None = None
    placement_tries_max: int | None = None
    claiming_tries_max: int | None = None
    restarts_max: int | None = None
    retry_on: tuple[int, ...] = ()
    never_on: tuple[int, ...] = ()
    home: SiteName | None = None
    communication: Communication | None = None
    tasks: TaskGraph | None = None
    task_clusters: tuple[tuple[int, ...], ...] = ()
    files: tuple[TravellingFile, ...] = ()
    after: tuple[Dependency, ...] = ()
    begin_at: float | None = None
    begin_in_s: float | None = None
    hold: bool = False
    array: ArraySpec | None = None
    checkpoint: Checkpoint | None = None
    licenses: Licenses = ()
    keep_for_s: float | None = None
    keep_outputs_for_s: float | None = None

    def __post_init__(self) -> None:
        if not self.components:
            raise InvalidRequestError("components", "a job needs at least one component")
        if len(self.components) > COMPONENTS_MAX:
            raise InvalidRequestError("components", f"more than {COMPONENTS_MAX} components (COMPONENTS_MAX)")
        if self.walltime_s is not None and not 0 < self.walltime_s < float("inf"):
            raise InvalidRequestError("walltime_s", f"{self.walltime_s} is not a time above zero")
        for field in ("placement_tries_max", "claiming_tries_max"):
            tries: int | None = getattr(self, field)
            if tries is not None and tries < 1:
                raise InvalidRequestError(field, f"{tries} tries are too few; write 1 or more, or leave it out")
        for field, kept_s in (("keep_for", self.keep_for_s), ("keep_outputs_for", self.keep_outputs_for_s)):
            if kept_s is not None and not 0 <= kept_s <= KEEP_FOR_S_MAX:
                why = f"{kept_s:g} s is not a time up to {KEEP_FOR_S_MAX:g} s (KEEP_FOR_S_MAX)"
                raise InvalidRequestError(field, why)
        if self.restarts_max is not None and self.restarts_max < 0:
            raise InvalidRequestError("restarts_max", "write 0 or more, or leave it out")
        for field in ("retry_on", "never_on"):
            codes: tuple[int, ...] = getattr(self, field)
            for code in codes:
                if not 1 <= code <= EXIT_CODE_MAX:
                    raise InvalidRequestError(
                        field, f"{code} is not the exit code of a failure; write 1 to {EXIT_CODE_MAX}"
                    )
                if codes.count(code) > 1 or (field == "never_on" and code in self.retry_on):
                    raise InvalidRequestError(field, f"the exit code {code} is listed twice; keep one of the two")
        if self.licenses:
            _check_licenses(self.licenses)
        self._check_order()
        if self.checkpoint is not None and (problem := self.checkpoint.problem(self.walltime_s)) is not None:
            raise InvalidRequestError(*problem)
        if self.flexible is not None:
            self._check_flexible(self.flexible)
        if self.tasks is not None:
            self._check_tasks(self.tasks)
        elif self.task_clusters:
            raise InvalidRequestError("clusters", "there are clusters and no tasks; name the tasks or leave both out")

    def _check_order(self) -> None:
        """Check the jobs and times that it waits for."""
        if len(self.after) > DEPENDENCIES_MAX:
            raise InvalidRequestError("after", f"more than {DEPENDENCIES_MAX} jobs (DEPENDENCIES_MAX)")
        if len(set(self.after)) != len(self.after):
            raise InvalidRequestError("after", "the same job is named twice with one condition; name it once")
        for each in self.after:
            if each.job < 0:
                raise InvalidRequestError("after", f"{each.job} is not the number of a job")
        for field in ("begin_at", "begin_in_s"):
            at: float | None = getattr(self, field)
            if at is not None and not 0 <= at <= TIME_S_MAX:
                raise InvalidRequestError(
                    field, f"{at:g} is not a time; write 0 to {TIME_S_MAX:g} seconds (TIME_S_MAX)"
                )

    def _check_tasks(self, tasks: TaskGraph) -> None:
        if len(tasks.names) > JOB_TASKS_MAX:
            raise InvalidRequestError("tasks", f"more than {JOB_TASKS_MAX} tasks (JOB_TASKS_MAX)")
        if len(tasks.edges) > JOB_EDGES_MAX:
            raise InvalidRequestError("edges", f"more than {JOB_EDGES_MAX} edges (JOB_EDGES_MAX)")
        if sum(len(name) + 1 for name in tasks.names) > TEXT_CHARACTERS_MAX:
            raise InvalidRequestError(
                "tasks", f"their names have more than {TEXT_CHARACTERS_MAX} characters in all (TEXT_CHARACTERS_MAX)"
            )
        if not self.is_total or self.flexible != Flexibility():
            raise InvalidRequestError("tasks", "a job of tasks is divided by them alone; it has no other structure")
        if self.components[0].shape is not None:
            raise InvalidRequestError("task", "each task of a job of tasks has one processor and nothing else")
        if self.components[0].processors != len(tasks.names):
            raise InvalidRequestError("tasks", f"each has one processor, so the job has {len(tasks.names)} of them")
        clustered = sorted(task for cluster in self.task_clusters for task in cluster)
        if self.task_clusters and (clustered != [*range(len(tasks.names))] or not all(self.task_clusters)):
            raise InvalidRequestError("clusters", "every task is in one cluster, and no cluster is empty")

    def _check_flexible(self, flexible: Flexibility) -> None:
        if len(self.components) != 1:
            raise InvalidRequestError("flexible", "a flexible job has one component, which the scheduler divides")
        if self.components[0].site is not None:
            raise InvalidRequestError("site", "a flexible job names no site; the scheduler chooses them")
        total = self.components[0].processors
        if not 1 <= flexible.component_min <= total:
            raise InvalidRequestError(
                "component_min", f"{flexible.component_min} is not between 1 and the job's {total} processors"
            )
        if flexible.components_max is not None and not 1 <= flexible.components_max <= COMPONENTS_MAX:
            raise InvalidRequestError("components_max", f"write 1 to {COMPONENTS_MAX}, or leave it out")
        if len(flexible.splits) > SPLITS_MAX:
            raise InvalidRequestError("splits", f"more than {SPLITS_MAX} splits (SPLITS_MAX)")
        for split in flexible.splits:
            if not split or len(split) > COMPONENTS_MAX or min(split) < 1 or sum(split) != total:
                parts = "+".join(map(str, split)) or "an empty split"
                raise InvalidRequestError(
                    "splits", f"{parts} does not divide {total} processors into parts of 1 or more"
                )
        self._check_whole_tasks(flexible)

    def _check_whole_tasks(self, flexible: Flexibility) -> None:
        """Check that no division that the user lists cuts a task in two; the scheduler's own divisions do not."""
        per_task = self.components[0].application.processors_per_task
        if per_task == 1:
            return
        for split in flexible.splits:
            if any(part % per_task != 0 for part in split):
                parts = "+".join(map(str, split))
                raise InvalidRequestError(
                    "splits", f"{parts} cuts a task in two; write multiples of {per_task}, its processors_per_task"
                )

    @property
    def processors(self) -> int:
        """The job's size: the processors of all components."""
        return sum(component.processors for component in self.components)

    @property
    def in_words(self) -> str:
        """The request in words: ``8 processors``, or ``2 tasks of 4 processors, 16 GiB and 1 a100``."""
        if not self.is_shaped:
            return _counted(self.processors, "processor")
        counts: dict[TaskShape | None, int] = {}
        for component in self.components:
            shape = component.shape
            tasks = component.processors // (1 if shape is None else shape.processors)
            counts[shape] = counts.get(shape, 0) + tasks
        return " and ".join(
            _counted(count, "processor") if shape is None else f"{_counted(count, 'task')} of {shape}"
            for shape, count in counts.items()
        )

    def part_in_words(self, part: int, processors: int) -> str:
        """Format the processors of one part: ``8``, or ``2 tasks with 2 a100`` where its tasks have a shape."""
        shape = self.shape_of(part)
        if shape is None:
            return str(processors)
        tasks = processors // shape.processors
        gpus = f" with {gpus_text(tasks * shape.gpus, shape.gpu)}" if shape.gpus else ""
        return f"{_counted(tasks, 'task')}{gpus}"

    @property
    def is_shaped(self) -> bool:
        """True if any of its tasks is more than one processor."""
        return any(component.shape is not None for component in self.components)

    def shape_of(self, part: int) -> TaskShape | None:
        """Return the shape of the tasks of a component, or of a part that was made of it; None for plain tasks, and
        for a part that the job does not have."""
        part = 0 if self.flexible is not None else part
        return self.components[part].shape if part < len(self.components) else None

    def checkpoint_part(self, part: int) -> int:
        """Return the component whose checkpoint this one continues from: the first where they share one, as the parts
        of a flexible job always do."""
        shares = self.flexible is not None or (self.checkpoint is not None and self.checkpoint.shared)
        return 0 if shares else part

    def outputs_of(self, part: int) -> tuple[JobOutput, ...]:
        """Return the outputs that a component, or a part that was made of it, is to make."""
        part = 0 if self.flexible is not None else part
        return self.components[part].outputs if part < len(self.components) else ()

    @property
    def has_outputs(self) -> bool:
        """True if any component has outputs that are kept."""
        return any(component.outputs for component in self.components)

    @property
    def has_image(self) -> bool:
        """True if any component runs in a container image."""
        return any(component.application.image is not None for component in self.components)

    @property
    def required(self) -> tuple[str, ...]:
        """The programs that its components require, each once."""
        return tuple(dict.fromkeys(each for component in self.components for each in component.application.requires))

    @property
    def is_total(self) -> bool:
        """True if the scheduler divides it freely: it is flexible, and lists no splits."""
        return self.flexible is not None and not self.flexible.splits

    @property
    def kind(self) -> Literal["fixed", "non-fixed", "flexible"]:
        """Which of the three request structures this is; a request with some sites named is non-fixed."""
        if self.flexible is not None:
            return "flexible"
        return "fixed" if all(component.site is not None for component in self.components) else "non-fixed"


def _check_licenses(licenses: Licenses) -> None:
    if len(licenses) > LICENSES_MAX:
        raise InvalidRequestError("licenses", f"more than {LICENSES_MAX} names (LICENSES_MAX)")
    if len(dict(licenses)) != len(licenses):
        raise InvalidRequestError("licenses", "the same licence is named twice; name it once")
    for name, count in licenses:
        if not 1 <= count <= LICENSE_COUNT_MAX:
            why = f"{count} of {name} is no number of licences; write 1 to {LICENSE_COUNT_MAX}"
            raise InvalidRequestError("licenses", why)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


class GraphJob(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One job of a graph. ``within`` are its dependencies in the graph, and ``reads`` are its inputs that other jobs
    of the graph make. Both name the other ``job``, which comes earlier, by its position until a driver has put its
    number there."""

    name: str
    request: Request
    within: tuple[Dependency, ...] = ()
    reads: tuple[OutputOfGraph, ...] = ()

    def numbered(self, numbers: dict[int, int], requests: dict[int, Request]) -> Request:
        """Return the request with the numbers of the earlier jobs, given by position."""
        if not self.within:
            return self.request
        after = [_numbered(each, numbers[each.job], requests[each.job]) for each in self.within]
        names = {}
        for each in self.reads:
            maker = _numbered(Dependency(job=each.job, index=each.index), numbers[each.job], requests[each.job])
            names[each.file] = output_name(maker.job, each.part, each.path)
        return msgspec.structs.replace(
            self.request,
            components=tuple(component.reading(names) for component in self.request.components),
            after=tuple(dict.fromkeys((*self.request.after, *after))),
        )

    def alone(self) -> Request:
        """Return the request without the inputs that other jobs of the graph make, because these do not exist yet."""
        gone = dict.fromkeys(each.file for each in self.reads)
        return msgspec.structs.replace(
            self.request, components=tuple(component.reading(gone) for component in self.request.components)
        )


def numbered_from(first: int, graph: Sequence[GraphJob]) -> Iterator[Request]:
    """Yield the requests of a graph whose first job has this number, in order; the elements of an array take up
    numbers as well. Raises ``InvalidRequestError`` where one of them would be no valid request."""
    numbers: dict[int, int] = {}
    requests: dict[int, Request] = {}
    number = first
    for position, job in enumerate(graph):
        numbers[position], requests[position] = number, job.numbered(numbers, requests)
        number += 1 + (0 if job.request.array is None else job.request.array.size)
        yield requests[position]


def _numbered(dependency: Dependency, number: int, request: Request) -> Dependency:
    if dependency.index is None:
        return msgspec.structs.replace(dependency, job=number)
    position = None if request.array is None else request.array.position_of(dependency.index)
    assert position is not None, "the reader has seen to it that the array has this element"
    return msgspec.structs.replace(dependency, job=number + 1 + position, index=None)


class FileSource(msgspec.Struct, frozen=True, kw_only=True):
    """The replica that a placed component reads an input file from, and the estimated time of the transfer."""

    name: FileName
    site: SiteName
    transfer_s: float


class PlacedComponent(msgspec.Struct, frozen=True, kw_only=True):
    """One component with its site; ``index`` is its place in the request, or among the parts made.

    ``tasks`` are the names of its tasks in a job of tasks, in the order of their ranks.
    """

    index: int
    site: SiteName
    processors: int
    sources: tuple[FileSource, ...] = ()
    tasks: tuple[str, ...] = ()


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Where every component of a job goes. All or nothing: a placement is never partial."""

    policy: str
    components: tuple[PlacedComponent, ...]

    @property
    def sites(self) -> tuple[SiteName, ...]:
        """The sites of the placement, each once, in the order of the components."""
        return tuple(dict.fromkeys(component.site for component in self.components))
