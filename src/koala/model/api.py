"""The schema of the API: the questions and answers that daemon and client share, without behaviour.

Times are seconds since 1970 (UTC). An answer may gain fields in a later version, so a reader ignores what it does not
know; a question with an unknown field is refused, since it was probably meant. What checks an answer is built when
it is first used, since a caller uses few of these.
"""

from __future__ import annotations

import enum
from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from koala.model.request import Priority
from koala.model.travelling import MANIFEST_CHARACTERS_MAX

# Limits on what one call may ask for.
DESCRIPTION_BYTES_MAX = 1_048_576
CLIENT_TOKEN_CHARACTERS_MAX = 128
PAGE_ITEMS_MAX = 1_000
PAGE_ITEMS_DEFAULT = 100
WAIT_S_MAX = 60.0
WALLTIME_S_MAX = 1e9
OUTPUT_BYTES_MAX = 1_048_576

Item = TypeVar("Item")


class Answer(BaseModel):
    """What the daemon answers."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Question(BaseModel):
    """The body of a client's request."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Scope(enum.StrEnum):
    """What a token allows. Each is granted by itself."""

    READ = "read"  # see the grid, and one's own jobs
    SUBMIT = "submit"  # submit jobs, cancel one's own
    PRIORITY = "priority"  # give one's own jobs high priority
    OPERATE = "operate"  # see and cancel everybody's jobs; drain, resume and probe sites; change files


class Page(Answer, Generic[Item]):
    """Some of a long list; ``next`` is the cursor to ask for the following ones with, None at the end."""

    items: list[Item]
    next: str | None = None


class ProblemAt(Answer):
    """One thing that is wrong with a description."""

    line: int | None = None
    column: int | None = None
    message: str
    cure: str = ""


class ErrorBody(Answer):
    """Why a call failed. ``code`` is for programs, ``message`` names the thing, what is wrong with it
    and what to do."""

    code: str
    message: str
    problems: list[ProblemAt] = []


class ErrorAnswer(Answer):
    """The body of every answer that is not a success."""

    error: ErrorBody


# ------------------------------------------------------------------------------------------------ jobs


class Place(Answer):
    """Processors at a site."""

    site: str
    processors: int


class ElementCountsInfo(Answer):
    """How the elements of an array stand. ``indices`` is how the array was written; the element at position P,
    counted from 0 in the order of the indices, is the job with the number of the array + 1 + P. Those that wait
    include those that are no jobs yet."""

    indices: str
    size: int
    waiting: int = 0
    running: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0


class JobSummary(Answer):
    """A job as a list shows it. ``exit_code`` is that of the application once the job has ended: of its first
    component, or of the one that failed. ``since`` is when it came into its state, ``places`` where it is or was last
    placed. An element has the number of its ``array`` and its index there; an array tells of its ``elements``."""

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
    places: list[Place] = []
    runs: int = 0
    failures: int = 0
    preemptions: int = 0
    array: int | None = None
    array_index: int | None = None
    elements: ElementCountsInfo | None = None
    place_in_line: int | None = None


class ComponentRun(Answer):
    """One start of one component: claimed, ready at the barrier, released into its application, ended. ``run`` is the
    opening of the barrier that it belongs to, counted from 1."""

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
    reason: str = ""


class TransferInfo(Answer):
    """A transfer of a file, or of a chunk of it, to a site for the jobs that need it there; running, or ended."""

    id: str
    file: str
    source: str
    target: str
    size_bytes: int
    brought_bytes: int
    started_at: float
    ended_at: float | None = None
    ok: bool | None = None
    reason: str = ""
    jobs: list[int] = []


class JobFile(Answer):
    """A file that travels with a job. ``kind``: file, directory or link; ``mode``: its permissions, in octal."""

    path: str
    kind: str = "file"
    size_bytes: int = 0
    checksum: str = ""
    mode: str = "0644"
    link: str = ""


class JobDetail(JobSummary):
    """Everything about a job but its story. ``description`` is the job in YAML, as Koala understood it; ``files``
    travel with it."""

    description: str
    placement_tries: int = 0
    claiming_tries: int = 0
    components: list[ComponentRun] = []
    transfers: list[TransferInfo] = []
    files: list[JobFile] = []


class ShortageInfo(Answer):
    """What one site lacked at the last try, and what would cure it there. The numbers are processors, or tasks where
    these are more than a processor; ``resource`` is what lacked: processors, memory, a kind of GPU."""

    site: str
    wanted: int
    idle: int
    missing: int
    cure: str
    resource: str = "processors"


class RefusalInfo(Answer):
    """Why no places were found. ``permanent``: idle processors alone will never help."""

    policy: str
    reason: str
    cure: str
    component: int | None = None
    shortages: list[ShortageInfo] = []
    permanent: bool = False


class StoryLine(Answer):
    """One decision about a job."""

    at: float
    text: str


class PlanInfo(Answer):
    """When and where a job that cannot start now is to start, if all keep to their walltimes. Of a job of another
    user only the time is told, but to operators."""

    job: int | None
    expected_at: float
    expected_sites: list[str]


class WaitedForInfo(Answer):
    """What a job waits for before it is tried: that the job is `done`, has `ended`, `started` or `failed`."""

    job: int
    condition: str


class Explanation(Answer):
    """Where a job stands and why.

    ``expected_at`` and ``expected_sites`` are when and where a job that has a plan is likely to start, by how long
    jobs of their users took lately, if nobody comes before; ``latest_at`` is when if every job uses its whole
    walltime. ``ends_before`` are those of the caller's jobs, for an operator all, that end last before it.
    ``planned_before`` are the plans of jobs before it for which what is idle is kept. A job that somebody holds
    (``held``), that ``waits_for`` others or that has not come to its time (``begins_at``) is not tried yet.
    """

    job: int
    state: str
    meaning: str
    since: float
    waiting_since: float | None = None
    placement_tries: int
    claiming_tries: int
    runs: int
    failures: int
    preemptions: int
    place_in_line: int | None = None
    queue_length: int | None = None
    refusal: RefusalInfo | None = None
    expected_at: float | None = None
    expected_sites: list[str] = []
    latest_at: float | None = None
    ends_before: list[int] = []
    planned_before: list[PlanInfo] = []
    held: bool = False
    waits_for: list[WaitedForInfo] = []
    begins_at: float | None = None
    places: list[Place] = []
    story: list[StoryLine] = []

    @property
    def named_jobs(self) -> list[int]:
        """The other jobs that it names: those whose plans come before it, and those that it waits for."""
        return [*(plan.job for plan in self.planned_before if plan.job is not None), *self.ends_before]


class Submission(Question):
    """A job to submit. The same ``client_token`` again gives the same job, and no second one."""

    description: Annotated[str, Field(min_length=1, max_length=DESCRIPTION_BYTES_MAX)]
    source: Annotated[
        str, Field(min_length=1, max_length=255, description="file name; its ending tells the format")
    ] = "job"
    client_token: Annotated[str, Field(min_length=1, max_length=CLIENT_TOKEN_CHARACTERS_MAX)] | None = None
    files: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=MANIFEST_CHARACTERS_MAX,
                description="the files that travel with the job: a JSON text, a list of objects with path, "
                "size_bytes, checksum (SHA-256) and mode; or directory: true; or link, its target",
            ),
        ]
        | None
    ) = None


class JobChange(Question):
    """What to change of a job that waits for a place; what is left out stays as it is."""

    walltime_s: (
        Annotated[float, Field(gt=0, le=WALLTIME_S_MAX, allow_inf_nan=False, description="how long it may run")]
        | None
    ) = None
    priority: Priority | None = None


class ContentQuestion(Question):
    """Which contents are still to be sent? ``files`` is a list of files as in a submission."""

    files: Annotated[str, Field(min_length=1, max_length=MANIFEST_CHARACTERS_MAX)]


class ContentState(Answer):
    """How much of a content the caller has sent."""

    checksum: str
    size_bytes: int
    received_bytes: int
    complete: bool


class MissingContents(Answer):
    """The contents of a list of files that the caller has still to send."""

    missing: list[ContentState]


class Submitted(Answer):
    """The job is safely on record. ``new`` is false when its client token had been used before."""

    job: JobSummary
    new: bool


class DryRunFile(Answer):
    """Where a component would get an input file from, and how long that is estimated to take."""

    name: str
    source: str
    transfer_s: float


class DryRunPlace(Answer):
    """Where a component would go."""

    component: int
    site: str
    processors: int
    files: list[DryRunFile] = []


class DryRun(Answer):
    """Where a job would go if it were alone in the queue now: places, or the reason why there are none."""

    policy: str
    places: list[DryRunPlace] = []
    refusal: RefusalInfo | None = None


class Output(Answer):
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


# ------------------------------------------------------------------------------------------- the grid


class GpuCount(Answer):
    """GPUs of one kind at a site, in all and those that nobody holds; ``kind`` is empty where the site names none."""

    kind: str
    total: int
    idle: int


class SiteInfo(Answer):
    """What Koala knows of a site. ``usable`` processors are those within its quota. ``trust``: usable, unusable (too
    many errors, or failures of applications that did well elsewhere), probing. ``distrusted`` is why it is not
    usable, ``accusations`` are failures of applications held against it.
    ``silent_reason`` is empty while the site answers; ``misconfigured`` says why one that
    answers cannot be used as the grid file describes it. ``lost`` says why it was declared lost, until it is used
    again, and ``fenced`` counts what it must end before that. ``problem`` is what is wrong at present and what to do,
    in words; empty where nothing is. ``jobs_to_restart`` would start again elsewhere were the site declared lost.
    ``set_aside`` are commands that an error inside Koala keeps from being performed, for operators: no fault of the
    site. ``gpus`` are counted by kind, and memory in bytes, null where the site does not tell."""

    name: str
    kind: str
    processors: int
    usable: int
    ours: int
    others: int
    idle: int
    earmarked: int
    trust: str
    drained: bool
    errors: int
    distrusted: str = ""
    accusations: list[str] = []
    silent_since: float | None = None
    silent_reason: str = ""
    misconfigured: str = ""
    lost: str = ""
    fenced: int = 0
    last_error: str = ""
    problem: str = ""
    jobs_to_restart: list[int] = []
    set_aside: list[str] = []
    reported_at: float | None = None
    jobs: list[int] = []
    gpus: list[GpuCount] = []
    memory_bytes: int | None = None
    memory_idle_bytes: int | None = None


class UsagePoint(Answer):
    """Who held how much of a site from this time on."""

    at: float
    processors: int
    ours: int
    others: int


class SiteHistory(Answer):
    """A site's use over a stretch of time, as steps."""

    site: str
    from_at: float
    to_at: float
    points: list[UsagePoint]


class LinkInfo(Answer):
    """The way between two sites, and the bandwidth that transfers have seen there lately."""

    between: tuple[str, str]
    bandwidth_mbit_s: float
    believed_mbit_s: float
    latency_s: float


class LinkMeasurement(Answer):
    """What was measured once, by a ``probe``, a ``transfer`` or one that is ``overdue``; its weight is 1 at most."""

    at: float
    value: float
    weight: float
    size_bytes: int
    by: str


class LinkQuantity(Answer):
    """What is believed of one thing about a link. ``origin`` says by whom: ``declared`` by the grid file,
    ``forecast`` from measurements, or ``way back`` where only the other direction was measured. ``predictor`` made
    the forecast, and was wrong by ``error`` on average; ``measurements`` of this direction are kept, the last one is
    ``measured``."""

    declared: float
    believed: float
    origin: str
    predictor: str = ""
    error: float = 0.0
    measurements: int = 0
    measured: float | None = None
    measured_at: float | None = None
    measured_by: str = ""


class LinkState(Answer):
    """One direction of a link between two sites. ``not_probed`` says why it is never probed by itself. The last probe
    ended at ``probed_at``; ``probe_failure`` is why it could not be made, after so many failures in a row."""

    source: str
    target: str
    bandwidth_mbit_s: LinkQuantity
    latency_s: LinkQuantity
    not_probed: str = ""
    probed_at: float | None = None
    probe_failure: str = ""
    probe_failures: int = 0


class NetworkInfo(Answer):
    """What is known of the links between sites: of all, or in a large grid of those that are not as the default."""

    now: float
    sites: list[str]
    default_bandwidth_mbit_s: float
    default_latency_s: float
    links: list[LinkState]


class LinkHistory(Answer):
    """One direction of a link, with what was measured there, the oldest first."""

    now: float
    link: LinkState
    bandwidth_mbit_s: list[LinkMeasurement]
    latency_s: list[LinkMeasurement]


class Overview(Answer):
    """The whole grid at one moment: what the dashboard and ``koala top`` draw. ``last_seq`` is the newest entry of
    the journal: who follows it from there misses nothing."""

    grid: str
    version: str
    now: float
    started_at: float
    policy: str
    plan_depth: int = 0
    sites: list[SiteInfo]
    links: list[LinkInfo]
    transfers: list[TransferInfo]
    waiting_high: list[JobSummary]
    waiting_low: list[JobSummary]
    claiming: list[JobSummary]
    active: list[JobSummary]
    held: list[JobSummary] = []
    counts: dict[str, int]
    last_seq: int = 0


# ---------------------------------------------------------------------------------------------- files


class ReplicaInfo(Answer):
    """A copy of a file at a site: in the site's own area, or at a URL."""

    site: str
    url: str | None = None


class FileInfo(Answer):
    """A logical file in the replica catalogue."""

    name: str
    size_bytes: int
    checksum: str
    replicas: list[ReplicaInfo]


class Registration(Question):
    """A file to register, or another replica of one: copied from a path of the daemon's machine or, written as
    SITE:/path, of the site, or left at a URL."""

    name: Annotated[str, Field(min_length=1, max_length=1_024)]
    site: Annotated[str, Field(min_length=1, max_length=255)]
    path: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None
    url: Annotated[str, Field(min_length=1, max_length=4_096)] | None = None


class Replication(Question):
    """Copy a replica of a known file to a site, from any site that has one."""

    name: Annotated[str, Field(min_length=1, max_length=1_024)]
    site: Annotated[str, Field(min_length=1, max_length=255)]


class Forgetting(Question):
    """Forget one replica, or with no site all of them and the file."""

    name: Annotated[str, Field(min_length=1, max_length=1_024)]
    site: Annotated[str, Field(min_length=1, max_length=255)] | None = None


# --------------------------------------------------------------------------------------------- journal


class JournalEntry(Answer):
    """One thing that happened or was decided. ``kind`` is ``event`` or ``command``, ``what`` its type."""

    seq: int
    at: float
    kind: Literal["event", "command"]
    what: str
    job: int | None = None
    site: str | None = None
    text: str
    data: dict[str, Any] = {}


# ------------------------------------------------------------------------------------- service and tokens


class Health(Answer):
    """Whether the daemon works; ``warnings`` are what an operator should see to while it does."""

    status: Literal["ok", "unavailable"]
    version: str
    reason: str = ""
    warnings: list[str] = []


class Whoami(Answer):
    """Who the daemon takes the caller for."""

    name: str
    scopes: list[Scope]
    owner: bool


class TokenWish(Question):
    """A token to create for a user."""

    user: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$")]
    scopes: Annotated[list[Scope], Field(min_length=1)]
    note: Annotated[str, Field(max_length=200)] = ""


class TokenInfo(Answer):
    """A token as it is listed; the secret is never shown again."""

    id: str
    user: str
    scopes: list[Scope]
    note: str = ""
    created_at: float
    used_at: float | None = None
    revoked_at: float | None = None


class NewToken(Answer):
    """A token just created, with its secret. ``notice`` says what its holder's jobs may do, or where they may not run
    at all."""

    token: TokenInfo
    secret: str
    notice: str = ""


class Login(Answer):
    """A link that opens the dashboard once, until it expires; None where the daemon listens on no address."""

    url: str | None
    expires_at: float
