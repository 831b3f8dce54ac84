"""Jobs in the API: submissions, changes, listings and explanations."""

from __future__ import annotations

from typing import Literal

from koala.model.api.common import Answer
from koala.model.api.files import OutputInfo
from koala.model.network import bandwidth_text
from koala.model.nodes import memory_text, processor_time_text


class Place(Answer, frozen=True, kw_only=True):
    """Processors at a site."""

    site: str
    processors: int


class ElementCountsInfo(Answer, frozen=True, kw_only=True):
    """The states of the elements of an array. ``indices`` is the array as its user wrote it. The element at position
    P, counted from 0 in the order of the indices, is the job with the number of the array + 1 + P. ``running``
    elements have started. ``waiting`` includes elements that have places but have not started, and elements that are
    not jobs yet."""

    indices: str
    size: int
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def in_words(self) -> str:
        """The counts in words: ``58 waiting, 10 running, 32 done``."""
        states = ("waiting", "running", "done", "failed", "cancelled")
        return ", ".join(f"{getattr(self, each)} {each}" for each in states if getattr(self, each))


class JobOnRecord(Answer, frozen=True, kw_only=True):
    """The fields that the record of a job and its listing share."""

    id: int
    name: str
    owner: str
    state: str
    priority: str
    job_type: str
    kind: str
    policy: str
    processors: int
    submitted_at: float
    since: float
    started_at: float | None = None
    ended_at: float | None = None
    reason: str = ""
    exit_code: int | None = None
    stderr_line: str = ""
    runs: int = 0
    failures: int = 0
    preemptions: int = 0
    array: int | None = None
    array_index: int | None = None
    elements: ElementCountsInfo | None = None


class JobSummary(JobOnRecord, frozen=True, kw_only=True):
    """A job in a list. ``exit_code`` is the exit code of the application of an ended job: of the component that
    failed, or else of the first one. ``stderr_line`` is the last line that the failed component wrote to standard
    error. ``since`` is the time at which the job entered its state, ``places`` are its places, or its last ones. An
    element has the number of its ``array`` and its index there; an array has counts of its ``elements``.
    ``begins_at`` is the time before which the job is not tried. ``standing`` is the state for people: an array whose
    elements are under way is `running` while an element runs, and `waiting` otherwise."""

    places: list[Place] = []
    place_in_line: int | None = None
    begins_at: float | None = None
    standing: str = ""


class TaskInfo(Answer, frozen=True, kw_only=True):
    """Equal tasks of a job, and what each of them holds. ``gpu`` is the kind of its GPUs, empty for any kind."""

    tasks: int
    processors: int
    memory_bytes: int = 0
    gpus: int = 0
    gpu: str = ""
    constraint: str = ""


class ComponentOnRecord(Answer, frozen=True, kw_only=True):
    """The fields that the record of a start of a component and its listing share."""

    token: str
    run: int = 1
    part: int
    site: str
    processors: int
    claimed_at: float
    ready_at: float | None = None
    released_at: float | None = None
    ended_at: float | None = None
    outcome: str | None = None
    exit_code: int | None = None
    fault: str | None = None
    reason: str = ""
    stderr_line: str = ""
    processor_s: float | None = None
    peak_memory_bytes: int | None = None


class ComponentRun(ComponentOnRecord, frozen=True, kw_only=True):
    """One start of one component: claimed, ready at the barrier, released into its application, ended. ``run`` is the
    opening of the barrier that it belongs to, counted from 1. ``workspace`` is the directory at its site in which it
    started, while that directory is kept. ``stderr_line`` is the last line that a failed component wrote to standard
    error; ``fault`` is who caused the failure, where that is known: job, user, site or ours. ``processor_s`` is the
    processor time that its application used, ``peak_memory_bytes`` its memory at the peak; both are null before its
    end and where they could not be measured."""

    workspace: str = ""

    @property
    def held_processor_s(self) -> float | None:
        """The processor time that it held from the start of its application to its end; None before that."""
        if self.released_at is None or self.ended_at is None:
            return None
        return self.processors * max(0.0, self.ended_at - self.released_at)

    @property
    def used_in_words(self) -> str:
        """The processor time that it used, with its share of the time held; empty before its end."""
        if self.held_processor_s is None:
            return ""
        if self.processor_s is None:
            return "not measured"
        share = f", {self.processor_s / self.held_processor_s:.0%}" if self.held_processor_s > 0 else ""
        return f"{self.processor_s:,.1f} s{share}"

    @property
    def memory_in_words(self) -> str:
        """Its memory at the peak; empty before its end."""
        if self.held_processor_s is None:
            return ""
        return "not measured" if self.peak_memory_bytes is None else memory_text(self.peak_memory_bytes)


class UsageInfo(Answer, frozen=True, kw_only=True):
    """What a job used in all its runs, summed over the ``components`` whose application started and that have ended.
    The processor time is known for ``measured`` of them: they used ``processor_s`` of the ``held_processor_s`` that
    they held from the start of the application to its end, and ``efficiency`` is the share. The memory of a run is
    the sum of the peaks of its components. ``peak_memory_bytes`` is the largest such sum among the runs that were
    measured completely. ``asked_memory_bytes`` is the memory that the job asked for, 0 for none. Null means that it
    could not be measured."""

    components: int
    measured: int
    processor_s: float | None = None
    held_processor_s: float = 0.0
    efficiency: float | None = None
    peak_memory_bytes: int | None = None
    asked_memory_bytes: int = 0

    @property
    def in_words(self) -> str:
        """Processor time and memory in one line."""
        told = "processor time not measured"
        if self.processor_s is not None:
            told = processor_time_text(self.processor_s, self.held_processor_s)
            if self.measured < self.components:
                told += f", measured for {self.measured} of {self.components} components"
        if self.peak_memory_bytes is None:
            return f"{told}; memory not measured"
        told += f"; {memory_text(self.peak_memory_bytes)} of memory at the peak"
        if self.asked_memory_bytes:
            share = self.peak_memory_bytes / self.asked_memory_bytes
            told += f", of {memory_text(self.asked_memory_bytes)} asked for ({share:.0%})"
        return told


class TransferOnRecord(Answer, frozen=True, kw_only=True):
    """The fields that the record of a transfer and its listing share."""

    id: str
    file: str
    source: str
    target: str
    size_bytes: int
    started_at: float
    ended_at: float | None = None
    ok: bool | None = None
    fault: str | None = None
    reason: str = ""


class TransferInfo(TransferOnRecord, frozen=True, kw_only=True):
    """A transfer of a file, or of a chunk of it, to a site for the jobs that need it there; running, or ended.
    ``fault`` is who caused it to break, where that is known: job, user, site or ours."""

    brought_bytes: int
    jobs: list[int] = []


class JobFile(Answer, frozen=True, kw_only=True):
    """A file that travels with a job. ``kind``: file, directory or link; ``mode``: its permissions, in octal."""

    path: str
    kind: str = "file"
    size_bytes: int = 0
    checksum: str = ""
    mode: str = "0644"
    link: str = ""


class UnmeasuredInfo(Answer, frozen=True, kw_only=True):
    """A site where the traffic of a job was not measured, and the reason."""

    site: str
    reason: str


class TrafficInfo(Answer, frozen=True, kw_only=True):
    """The traffic that a job at several sites sends between them, in total. ``believed_mbit_s`` counts when other
    jobs are placed. ``belief`` is its origin: `declared` by the job, `learned` from jobs of its name, `measured`
    until ``measured_until_s`` after its start, or `unknown`."""

    declared_mbit_s: float | None = None
    measured_mbit_s: float | None = None
    measured_until_s: float | None = None
    believed_mbit_s: float
    belief: str
    unmeasured: list[UnmeasuredInfo] = []

    @property
    def in_words(self) -> str:
        """The traffic in a sentence or two."""
        declared = "" if self.declared_mbit_s is None else f", and declared {bandwidth_text(self.declared_mbit_s)}"
        if self.measured_mbit_s is not None:
            counts = ""
            if abs(self.believed_mbit_s - self.measured_mbit_s) > 0.01 * self.measured_mbit_s:
                counts = f"; one of its links is full, so that {bandwidth_text(self.believed_mbit_s)} counts"
            sends = bandwidth_text(self.measured_mbit_s)
            told = f"It was measured to send {sends} between its sites{declared}{counts}."
        elif self.belief == "unknown":
            told = "Its traffic between its sites is unknown: it declared nothing."
        else:
            by = "by what it declared" if self.belief == "declared" else "by measurements of jobs with its name"
            told = f"It counts as sending {bandwidth_text(self.believed_mbit_s)} between its sites, {by}."
        why = "; ".join(f"{', '.join(sites)}: {reason}" for reason, sites in self.reasons.items())
        return f"{told} Not measured at {why}." if why else told

    @property
    def reasons(self) -> dict[str, list[str]]:
        """The reasons why nothing was measured, each with its sites."""
        found: dict[str, list[str]] = {}
        for each in self.unmeasured:
            found.setdefault(each.reason, []).append(each.site)
        return found


class JobOnLinks(Answer, frozen=True, kw_only=True):
    """A job that runs at several sites, and the traffic that it sends between them."""

    job: int
    name: str
    sites: list[str]
    traffic: TrafficInfo


class SavedCheckpointInfo(Answer, frozen=True, kw_only=True):
    """The checkpoint that a component last continued from: the run that left it, its site, and the time of the last
    save, by the clock of that site."""

    component: int
    run: int
    site: str
    size_bytes: int
    saved_at: float | None = None


class CheckpointInfo(Answer, frozen=True, kw_only=True):
    """The checkpoints of a job. ``work_lost_s`` is the running time that would be lost if the job were ended now;
    null while it does not run."""

    saved: list[SavedCheckpointInfo] = []
    work_lost_s: float | None = None


class JobDetail(JobSummary, frozen=True, kw_only=True):
    """Everything about a job but its story. ``description`` is the job in YAML, as Koala understood it. ``files``
    travel with it; ``outputs`` are its registered outputs. ``asked`` is the request in words, ``tasks`` the same in
    numbers, component by component. Two fields count processor seconds before its runs: ``gained_processor_s`` from
    the placement until components held their processors, and ``wasted_processor_s`` from then until the start.
    ``gpu_s`` are the GPU seconds of its runs, counted for components that have ended; ``usage`` is what their
    applications used. ``traffic`` is the traffic between its sites, while it has several; ``checkpoint`` is for a job
    that saves its state."""

    description: str
    asked: str = ""
    tasks: list[TaskInfo] = []
    walltime_s: float | None = None
    placement_tries: int = 0
    claiming_tries: int = 0
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    gpu_s: float = 0.0
    usage: UsageInfo | None = None
    components: list[ComponentRun] = []
    transfers: list[TransferInfo] = []
    files: list[JobFile] = []
    traffic: TrafficInfo | None = None
    checkpoint: CheckpointInfo | None = None
    outputs: list[OutputInfo] = []


class Shortage(Answer, frozen=True, kw_only=True):
    """What one site lacked at the last try, and what would cure it there. The numbers count processors, or tasks
    where a task is more than a processor. ``resource`` is the lacking resource: processors, memory, a kind of GPU."""

    document_name = "ShortageInfo"

    site: str
    wanted: int
    idle: int
    missing: int
    cure: str
    resource: str = "processors"


class Refusal(Answer, frozen=True, kw_only=True):
    """Why no places were found: a value that the try itself makes. ``component`` is the first that found no place,
    None where the job as a whole did not fit. ``cure`` is the least change anywhere that would make the same try
    succeed. ``permanent`` means that idle processors alone will never help."""

    document_name = "RefusalInfo"

    policy: str
    reason: str
    cure: str
    component: int | None = None
    shortages: tuple[Shortage, ...] = ()
    permanent: bool = False


class StoryLine(Answer, frozen=True, kw_only=True):
    """One decision about a job."""

    at: float
    text: str


class PlanInfo(Answer, frozen=True, kw_only=True):
    """When and where a job that cannot start now will start, if all jobs keep to their walltimes. For jobs of other
    users only operators see more than the time."""

    job: int | None
    expected_at: float
    expected_sites: list[str]


class WaitedForInfo(Answer, frozen=True, kw_only=True):
    """A job that another one waits for, and the condition: that it is `done`, has `ended`, `started` or `failed`."""

    job: int
    condition: str


class JobSituation(Answer, frozen=True, kw_only=True):
    """Where a job stands, as the core has it; ``Explanation`` adds what it means."""

    job: int
    state: str
    next_element: int | None = None
    waiting_since: float | None = None
    placement_tries: int
    claiming_tries: int
    runs: int
    failures: int
    preemptions: int
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    gpu_s: float = 0.0
    place_in_line: int | None = None
    elements_before: int = 0
    refusal: Refusal | None = None
    expected_at: float | None = None
    expected_sites: list[str] = []
    latest_at: float | None = None
    ends_before: list[int] = []
    planned_before: list[PlanInfo] = []
    held: bool = False
    waits_for: list[WaitedForInfo] = []
    begins_at: float | None = None
    places: list[Place] = []
    traffic: TrafficInfo | None = None
    checkpoint: CheckpointInfo | None = None


class Explanation(JobSituation, frozen=True, kw_only=True):
    """Where a job stands and why.

    For an array, ``next_element`` is its first waiting element: places, plans and the position in the queue are those
    of this element.

    ``expected_at`` and ``expected_sites`` are when and where a job that has a plan is likely to start, judged by the
    recent running times of each user, if no job comes before it. ``latest_at`` is the start if every job uses its
    whole walltime, unless very many elements of arrays come before. Neither is earlier than the moment of the answer;
    where ``latest_at`` is that moment, the job should have started. Elements of arrays that come before are counted;
    where the elements of several arrays wait for their turns (``%N``), they may come in another order, and later.
    ``ends_before`` are the last jobs to end before it, among those of the caller, or among all jobs for an operator.
    ``place_in_line`` is the position among the ``queue_length`` waiting jobs of its priority, elements of arrays
    included, in the grid's ``order``; ``order_problem`` explains why the queue is first come, first served instead.
    ``planned_before`` are the plans of jobs before it for which idle processors are kept. ``elements_before`` counts
    elements of arrays that come before it and are not jobs yet, in addition to those in the queue. A job is not tried
    yet while somebody holds it (``held``), while it ``waits_for`` others, or before its time (``begins_at``).
    ``traffic`` is the traffic between its sites, while it has several; ``checkpoint`` is for a job that saves its
    state.
    """

    since: float
    meaning: str
    queue_length: int | None = None
    order: str = ""
    order_problem: str = ""
    story: list[StoryLine] = []

    @property
    def named_jobs(self) -> list[int]:
        """The other jobs that it names: those whose plans come before it, and those that end before it."""
        return [*(plan.job for plan in self.planned_before if plan.job is not None), *self.ends_before]


class SpawnedComponent(Answer, frozen=True, kw_only=True):
    """A component that holds spawned tasks: its number in the job, its site, and the tasks by name."""

    part: int
    site: str
    tasks: list[str]


class Spawned(Answer, frozen=True, kw_only=True):
    """The new components of a job. Their tasks belong to the job from now on, and begin when all these components are
    ready."""

    job: JobSummary
    components: list[SpawnedComponent]


class ContentState(Answer, frozen=True, kw_only=True):
    """How much of a file's content the daemon has received from the caller."""

    checksum: str
    size_bytes: int
    received_bytes: int
    complete: bool


class MissingContents(Answer, frozen=True, kw_only=True):
    """The contents that the caller still has to send."""

    missing: list[ContentState]


class Submitted(Answer, frozen=True, kw_only=True):
    """The job is on record. ``new`` is false when its client token had been used before. ``notes`` list options of a
    batch script that have no effect. ``warning`` explains why the job ends at once: what it waits for can never come.
    ``never_fits`` explains why the job, or each element of an array, would find no places even if all sites were
    idle: it waits for a larger grid."""

    job: JobSummary
    new: bool
    notes: list[str] = []
    warning: str = ""
    never_fits: Refusal | None = None


class SubmittedGraphJob(Answer, frozen=True, kw_only=True):
    """One job of a graph that is on record, with its name in the graph. ``notes``, ``warning`` and ``never_fits`` are
    the same as for a job that is submitted alone."""

    name: str
    job: JobSummary
    notes: list[str] = []
    warning: str = ""
    never_fits: Refusal | None = None


class SubmittedGraph(Answer, frozen=True, kw_only=True):
    """All jobs of a graph are on record; each follows the jobs that it waits for. ``new`` is false when the client
    token had been used before."""

    jobs: list[SubmittedGraphJob]
    new: bool


class DryRunFile(Answer, frozen=True, kw_only=True):
    """The site that an input file of a component would come from, and the estimated time of the transfer."""

    name: str
    source: str
    transfer_s: float


class DryRunPlace(Answer, frozen=True, kw_only=True):
    """The place of one component."""

    component: int
    site: str
    processors: int
    files: list[DryRunFile] = []


class DryRun(Answer, frozen=True, kw_only=True):
    """Where a job would go if it were alone in the queue now: its places, or the reason why there are none. A job of
    high priority may take the places of other jobs: ``preempts`` lists those that the caller may see,
    ``preempts_others`` counts those of other users, and ``lost_processor_s`` is the work that would be lost.
    ``kept_back`` explains why the job would not be tried yet even where there is room: it waits for other jobs, for
    its time (``begins_at``), or for its user to release it. ``expected_at`` is when it would start: when its files
    are there, or by the plan that it would get; then ``expected_sites``, ``latest_at`` and ``ends_before`` are as in
    an explanation. A job that would wait would be number ``place_in_line`` of its queue. These fields are empty for a
    job that is kept back, unless only its time keeps it back and it has places now. ``notes`` are the same as for a
    submission."""

    policy: str
    places: list[DryRunPlace] = []
    preempts: list[int] = []
    preempts_others: int = 0
    lost_processor_s: float = 0.0
    refusal: Refusal | None = None
    kept_back: str = ""
    begins_at: float | None = None
    expected_at: float | None = None
    expected_sites: list[str] = []
    latest_at: float | None = None
    ends_before: list[int] = []
    place_in_line: int | None = None
    notes: list[str] = []


class DryRunGraphJob(Answer, frozen=True, kw_only=True):
    """Where one job of a graph would go if it were alone and nothing kept it back, and the number of processors that
    it, or each of its ``elements``, asks for. ``waits_for`` lists the jobs of the graph that it waits for, and
    ``after`` the same jobs by condition: ``done``, ``ended``, ``started``, ``failed``."""

    name: str
    waits_for: list[str] = []
    after: dict[str, list[str]] = {}
    processors: int = 0
    elements: int = 0
    dry_run: DryRun


class DryRunGraph(Answer, frozen=True, kw_only=True):
    """Where the jobs of a graph would go; each follows the jobs that it waits for."""

    jobs: list[DryRunGraphJob]


class Output(Answer, frozen=True, kw_only=True):
    """Output of a component, from byte ``offset`` on. Bytes that are not UTF-8 are replaced. The next call continues
    at ``next_offset``; ``complete`` means that no more output will come."""

    token: str
    part: int
    site: str
    stream: Literal["stdout", "stderr"]
    offset: int
    next_offset: int
    text: str
    complete: bool
