"""Jobs in the API: what is submitted and changed, and what is told of them."""

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
    """How the elements of an array stand. ``indices`` is how the array was written; the element at position P,
    counted from 0 in the order of the indices, is the job with the number of the array + 1 + P. Those that
    run have started; those that wait include those that have places and have not started, and those that are no jobs
    yet."""

    indices: str
    size: int
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def in_words(self) -> str:
        """How many stand how: ``58 waiting, 10 running, 32 done``."""
        states = ("waiting", "running", "done", "failed", "cancelled")
        return ", ".join(f"{getattr(self, each)} {each}" for each in states if getattr(self, each))


class JobOnRecord(Answer, frozen=True, kw_only=True):
    """What is on record of a job, and on a list of jobs."""

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
    """A job as a list shows it. ``exit_code`` is that of the application once the job has ended: of its first
    component, or of the one that failed, whose last line of standard error is ``stderr_line``. ``since`` is when it
    came into its state, ``places`` where it is or was last placed. An element has the number of its ``array`` and its
    index there; an array tells of its ``elements``. A job that is not tried before its time tells it (``begins_at``).
    ``standing`` is its state for people: of an array whose elements are under way it is `running` where one of them
    runs, and else `waiting`."""

    places: list[Place] = []
    place_in_line: int | None = None
    begins_at: float | None = None
    standing: str = ""


class TaskInfo(Answer, frozen=True, kw_only=True):
    """So many equal tasks of a job, and what each of them holds. ``gpu`` is the kind of its GPUs, empty for any."""

    tasks: int
    processors: int
    memory_bytes: int = 0
    gpus: int = 0
    gpu: str = ""
    constraint: str = ""


class ComponentOnRecord(Answer, frozen=True, kw_only=True):
    """What is on record of one start of a component, and shown of it."""

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
    opening of the barrier that it belongs to, counted from 1; ``workspace`` the directory at its site in which it
    started, as long as that is kept. ``stderr_line`` is what one that failed wrote last to its standard error;
    ``fault`` whose the failure is, where that is known: job, user, site or ours. ``processor_s`` is the processor
    time that its application has used, ``peak_memory_bytes`` what it had of memory at once at most: null until its
    end, and where it could not be measured."""

    workspace: str = ""

    @property
    def held_processor_s(self) -> float | None:
        """The processor time that it held from the start of its application to its end; none before that."""
        if self.released_at is None or self.ended_at is None:
            return None
        return self.processors * max(0.0, self.ended_at - self.released_at)

    @property
    def used_in_words(self) -> str:
        """The processor time that it used, and its share of what it held; empty before its end."""
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
    """What a job has used, by those of its ``components`` whose application has begun and that have ended, of all its
    runs. Of ``measured`` of them the processor time is known: that is ``processor_s``, of the ``held_processor_s``
    that these held from the start of the application to its end, and ``efficiency`` is the share. What a run had of
    memory at most is the sum of the peaks of its components; ``peak_memory_bytes`` is that of the run that had most,
    of those of which all is known, and ``asked_memory_bytes`` what the job asked for, 0 for nothing. Null is what
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
        """All of it in a line."""
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
    """What is on record of a transfer, and shown of it."""

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
    ``fault`` is whose it is that it broke, where that is known: job, user, site or ours."""

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
    """A site where what a job sends was not measured, and why."""

    site: str
    reason: str


class TrafficInfo(Answer, frozen=True, kw_only=True):
    """What a job at several sites sends between them, in all. ``believed`` is what counts when other jobs are placed,
    by what the job `declared`, what was `learned` of jobs of its name, or what was `measured` until so long after its
    start; or it is `unknown`."""

    declared_mbit_s: float | None = None
    measured_mbit_s: float | None = None
    measured_until_s: float | None = None
    believed_mbit_s: float
    belief: str
    unmeasured: list[UnmeasuredInfo] = []

    @property
    def in_words(self) -> str:
        """All of it in a sentence or two."""
        declared = "" if self.declared_mbit_s is None else f", and declared {bandwidth_text(self.declared_mbit_s)}"
        if self.measured_mbit_s is not None:
            counts = ""
            if abs(self.believed_mbit_s - self.measured_mbit_s) > 0.01 * self.measured_mbit_s:
                counts = f"; a link of it is full, so that {bandwidth_text(self.believed_mbit_s)} counts"
            sends = bandwidth_text(self.measured_mbit_s)
            told = f"It was measured to send {sends} between its sites{declared}{counts}."
        elif self.belief == "unknown":
            told = "What it sends between its sites is not known: it declared nothing."
        else:
            by = "by what it declared" if self.belief == "declared" else "by what was measured of jobs of its name"
            told = f"It counts as sending {bandwidth_text(self.believed_mbit_s)} between its sites, {by}."
        why = "; ".join(f"{', '.join(sites)}: {reason}" for reason, sites in self.reasons.items())
        return f"{told} Not measured at {why}." if why else told

    @property
    def reasons(self) -> dict[str, list[str]]:
        """Why nothing was measured, with the sites of each reason."""
        found: dict[str, list[str]] = {}
        for each in self.unmeasured:
            found.setdefault(each.reason, []).append(each.site)
        return found


class JobOnLinks(Answer, frozen=True, kw_only=True):
    """A job that runs at several sites, and what it sends between them."""

    job: int
    name: str
    sites: list[str]
    traffic: TrafficInfo


class SavedCheckpointInfo(Answer, frozen=True, kw_only=True):
    """The checkpoint that a component last went on from: the run that left it, its site, and when it was last saved
    to, by the clock of that site."""

    component: int
    run: int
    site: str
    size_bytes: int
    saved_at: float | None = None


class CheckpointInfo(Answer, frozen=True, kw_only=True):
    """What is known of the checkpoints of a job. ``work_lost_s`` is for how long it would have run in vain if it were
    ended now; null while it does not run."""

    saved: list[SavedCheckpointInfo] = []
    work_lost_s: float | None = None


class JobDetail(JobSummary, frozen=True, kw_only=True):
    """Everything about a job but its story. ``description`` is the job in YAML, as Koala understood it; ``files``
    travel with it, ``outputs`` are what it made that is registered. ``asked`` is what it asks for in words, and
    ``tasks`` in numbers, component by component. Processor seconds before its runs are ``gained_processor_s``, from
    the placement until components held their processors, and ``wasted_processor_s``, from there until the start.
    ``gpu_s`` are the GPU seconds of the components of its runs that have ended, ``usage`` is what their applications
    have used. ``traffic`` is what it sends between its sites while it has several; ``checkpoint`` is for a job that
    saves its state."""

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
    """What one site lacked at the last try, and what would cure it there. The numbers are processors, or tasks where
    these are more than a processor; ``resource`` is what lacked: processors, memory, a kind of GPU."""

    document_name = "ShortageInfo"

    site: str
    wanted: int
    idle: int
    missing: int
    cure: str
    resource: str = "processors"


class Refusal(Answer, frozen=True, kw_only=True):
    """Why no places were found: a value that the try itself makes. ``component`` is the first that found no place,
    none where the job as a whole did not fit; ``cure`` the least that would have to change anywhere for the same try
    to succeed. ``permanent``: idle processors alone will never help."""

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
    """When and where a job that cannot start now is to start, if all keep to their walltimes. Of a job of another
    user only the time is told, but to operators."""

    job: int | None
    expected_at: float
    expected_sites: list[str]


class WaitedForInfo(Answer, frozen=True, kw_only=True):
    """What a job waits for before it is tried: that the job is `done`, has `ended`, `started` or `failed`."""

    job: int
    condition: str


class JobSituation(Answer, frozen=True, kw_only=True):
    """Where a job stands, as the core knows it; ``Explanation`` says what it means."""

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

    Of an array ``next_element`` is the first of its elements that waits: what is said of places, plans and the queue
    is then true of that.

    ``expected_at`` and ``expected_sites`` are when and where a job that has a plan is likely to start, by how long
    jobs of their users took lately, if nobody comes before; ``latest_at`` is when if every job uses its whole
    walltime, unless very many elements of arrays come before. Neither is before the moment of the answer; where
    ``latest_at`` is that moment, the job should have started. Elements of arrays that come before are
    counted; where those of several arrays wait for their turns (``%N``) they may come in another order, and later.
    ``ends_before`` are those of the caller's jobs, for an operator all, that end last before it.
    ``place_in_line`` counts the jobs of its priority that wait, elements of arrays too, in the grid's ``order``, of
    ``queue_length``; ``order_problem`` says why the queue is first come, first served where that is not its order.
    ``planned_before`` are the plans of jobs before it for which what is idle is kept. ``elements_before`` elements of
    arrays, which are no jobs yet, come before it beside those in the queue. A job that somebody holds
    (``held``), that ``waits_for`` others or that has not come to its time (``begins_at``) is not tried yet.
    ``traffic`` is what one at several sites sends between them; ``checkpoint`` is for a job that saves its state.
    """

    since: float
    meaning: str
    queue_length: int | None = None
    order: str = ""
    order_problem: str = ""
    story: list[StoryLine] = []

    @property
    def named_jobs(self) -> list[int]:
        """The other jobs that it names: those whose plans come before it, and those that it waits for."""
        return [*(plan.job for plan in self.planned_before if plan.job is not None), *self.ends_before]


class SpawnedComponent(Answer, frozen=True, kw_only=True):
    """A component that holds spawned tasks: its number in the job, its site, and the tasks by name."""

    part: int
    site: str
    tasks: list[str]


class Spawned(Answer, frozen=True, kw_only=True):
    """The tasks are part of the job from now on, in these new components. They begin when all of these are there."""

    job: JobSummary
    components: list[SpawnedComponent]


class ContentState(Answer, frozen=True, kw_only=True):
    """How much of a content the caller has sent."""

    checksum: str
    size_bytes: int
    received_bytes: int
    complete: bool


class MissingContents(Answer, frozen=True, kw_only=True):
    """The contents of a list of files that the caller has still to send."""

    missing: list[ContentState]


class Submitted(Answer, frozen=True, kw_only=True):
    """The job is safely on record. ``new`` is false when its client token had been used before. ``notes`` are on what
    its description says without effect: options of a batch script. ``warning`` says why the job ends at once, as what
    it waits for can never come; ``never_fits`` why it, or each element of an array, would have no places if all sites
    were idle: it waits for a larger grid."""

    job: JobSummary
    new: bool
    notes: list[str] = []
    warning: str = ""
    never_fits: Refusal | None = None


class SubmittedGraphJob(Answer, frozen=True, kw_only=True):
    """One job of a graph that is on record, by its name in the graph; ``notes``, ``warning`` and ``never_fits``
    are as of a job that is submitted alone."""

    name: str
    job: JobSummary
    notes: list[str] = []
    warning: str = ""
    never_fits: Refusal | None = None


class SubmittedGraph(Answer, frozen=True, kw_only=True):
    """All jobs of a graph are safely on record, those that others wait for first. ``new`` is false when the client
    token had been used before."""

    jobs: list[SubmittedGraphJob]
    new: bool


class DryRunFile(Answer, frozen=True, kw_only=True):
    """Where a component would get an input file from, and how long that is estimated to take."""

    name: str
    source: str
    transfer_s: float


class DryRunPlace(Answer, frozen=True, kw_only=True):
    """Where a component would go."""

    component: int
    site: str
    processors: int
    files: list[DryRunFile] = []


class DryRun(Answer, frozen=True, kw_only=True):
    """Where a job would go if it were alone in the queue now: places, or the reason why there are none. A job of high
    priority may take places of other jobs: ``preempts`` are those of them that the caller sees, with which
    ``lost_processor_s`` of work is lost, and ``preempts_others`` is how many more there are, of other users.
    ``kept_back`` says why it would not be tried yet, wherever there is room: for other jobs, for its time, which is
    ``begins_at``, or for a word of its user. ``expected_at`` is when it would start: when its files are there, or by
    the plan that it would get; then ``expected_sites``, ``latest_at`` and ``ends_before`` are as in an explanation. A
    job that would wait would be number ``place_in_line`` of its queue. None of these is told of a job that is kept
    back, but for one that only its time keeps back and that has places now. ``notes`` as of a submission."""

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
    """Where one job of a graph would go if it were alone and nothing kept it back, and how many processors it, or
    each of its ``elements``, asks for. ``waits_for`` are those of the graph that it waits for, and ``after`` the same
    by what must become of them: ``done``, ``ended``, ``started``, ``failed``."""

    name: str
    waits_for: list[str] = []
    after: dict[str, list[str]] = {}
    processors: int = 0
    elements: int = 0
    dry_run: DryRun


class DryRunGraph(Answer, frozen=True, kw_only=True):
    """Where the jobs of a graph would go, those that others wait for first."""

    jobs: list[DryRunGraphJob]


class Output(Answer, frozen=True, kw_only=True):
    """What a component wrote, from byte ``offset`` on. Bytes that are not UTF-8 are replaced. Ask on at
    ``next_offset``; ``complete`` says that no more will come."""

    token: str
    part: int
    site: str
    stream: Literal["stdout", "stderr"]
    offset: int
    next_offset: int
    text: str
    complete: bool
