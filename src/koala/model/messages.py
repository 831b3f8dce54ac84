"""The messages between a driver and the core: events (what happened) and commands (what a driver must do).

Both are frozen values that turn into JSON and back. The core sees nothing else of the world, so a driver is
complete when it performs every command and reports every event below. (``gc=False``: a message holds only values,
never a cycle, so Python need not search it for one. ``omit_defaults``: JSON omits fields with their default values.)

The contract that both drivers keep:

- A **token** names one start of one component, for ever: a site that gets ``StartComponent`` twice with the
  same token starts one component. ``AbortComponent`` may come at any time, also for a token that the site has
  never received; the site then remembers it and refuses a later start with that token.
- Every answer may come late, more than once, or never. The core asks again (``AskSite``) when it has waited
  too long, and the site then repeats the newest event of each token in the question; for a token that it
  has never received and will never start, it answers ``ComponentEnded`` with ``Outcome.ABSENT``.
- A command is complete: to perform it, a driver needs the command, the request of its job, which the driver keeps by
  the job's id, and the site, but nothing of the core's state.
- Processors of a component are held from the moment ``StartComponent`` is performed until ``ComponentEnded``.
- No application starts before ``ReleaseBarrier`` names its token. A component that is aborted before that
  never runs its application, however late the abort arrives.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

from koala.model.checkpoint import CheckpointSource
from koala.model.errors import Fault
from koala.model.nodes import NamedNode, NodeClass
from koala.model.outputs import JobOutput, MadeOutput
from koala.model.request import FileName, JobId, Licenses, Priority, Request, SiteName
from koala.model.task_graph import SpawnedTasks

Token: TypeAlias = str
TransferId: TypeAlias = str


class Outcome(enum.StrEnum):
    """How a component ended."""

    DONE = "done"  # the application returned success
    FAILED = "failed"  # the application returned failure
    SITE_FAILED = "site_failed"  # the site, its batch system or a node broke it
    TIMED_OUT = "timed_out"  # it ran longer than its walltime
    ABORTED = "aborted"  # Koala ended it
    REFUSED = "refused"  # the site would not take it; it never held processors
    ABSENT = "absent"  # the site does not know it and will never start it
    UNSUITABLE = "unsuitable"  # the site will never run such a request, as too long; it never held processors


ENDED_NODES_MAX = 16  # nodes in the report of an ended component
# The last line on standard error of a failed component is cut after this many bytes.
STDERR_LINE_BYTES_MAX = 400
# A site reports at most this many kinds of machines; the last one counts all others.
MACHINE_CLASSES_MAX = 32
PROBE_BYTES = 8_000_000  # the most that a probe of a link sends
# The outcomes of components that never held anything at their site.
NEVER_HELD = frozenset({Outcome.REFUSED, Outcome.ABSENT, Outcome.UNSUITABLE})


class JobOutcome(enum.StrEnum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over the whole life of a job. ``runs`` counts how often its barrier opened.

    Two fields count processor time before its runs, which late claims gain and early claims waste:
    ``gained_processor_s`` from the placement until components held their processors, ``wasted_processor_s`` from then
    until the barrier opened or the component was given up. ``gpu_s`` is GPU time: the GPUs of each component, from
    the start of a run until the component ended.
    """

    placement_tries: int = 0
    claiming_tries: int = 0
    runs: int = 0
    failures: int = 0
    preemptions: int = 0
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    gpu_s: float = 0.0


class EndedJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How a job ended, and whether it ever started. A job that has started and not ended has no outcome."""

    job: JobId
    outcome: JobOutcome | None
    started: bool


# ---------------------------------------------------------------------------------------------- events


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag=True, tag_field="event"):
    """Something that happened, at a time in seconds since the driver's epoch."""

    at: float


class JobSubmitted(Event, frozen=True, kw_only=True, tag=True):
    """A user submitted a job. The driver gives ids in increasing order, each once; the ids after that of an array
    belong to its elements.

    The job of a ``guest`` is never placed at a site that is closed to guests. ``defect`` is the error that the job
    raised in the core before: such a job goes into quarantine and is not tried. ``owner`` is its user: the failures
    of one user's programs count less against a site than those of several users. ``ended`` are its dependencies that
    are over, because the core forgets ended jobs.
    """

    job: JobId
    request: Request
    guest: bool = False
    owner: str = ""
    defect: str = ""
    ended: tuple[EndedJob, ...] = ()


class Wish(Event, frozen=True, kw_only=True):
    """Somebody's wish about a job or a site. ``by`` is the name of the person, ``reason`` is in their own words; both
    are for the record and for the owner of the job, and empty where not given."""

    by: str = ""
    reason: str = ""

    @property
    def by_whom(self) -> str:
        """Person and reason as they follow the deed, such as `` by anna: disk change``."""
        return (f" by {self.by}" if self.by else "") + (f": {self.reason}" if self.reason else "")

    def asked_by(self, owner: str) -> str:
        """Return ``by_whom`` for the owner of the job, who is called "its owner"."""
        own = self.by != "" and self.by == owner
        return (msgspec.structs.replace(self, by="its owner") if own else self).by_whom


class HoldAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody wants the job held: it is not tried until the hold ends. A job that has places and has not started
    gives them back; a running or ended job does not change."""

    job: JobId


class UnholdAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody ends the hold of a job. It still waits for other jobs, and for its time."""

    job: JobId


class CancelAsked(Wish, frozen=True, kw_only=True, tag=True):
    """A user wants the job gone, whatever its state. Nothing changes for an ended job."""

    job: JobId


class JobQuarantined(Event, frozen=True, kw_only=True, tag=True):
    """Koala's own code raised an error while it handled the job: the job is set aside, and gives back all that it
    holds.

    This event is handled before anything that is due, because that may have raised the error.
    """

    job: JobId
    reason: str


class RequeueAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody wants a job out of quarantine and back in its placement queue; with ``hold`` it is held there. Nothing
    changes for a job that is not in quarantine, or while a site still holds a component of the job."""

    job: JobId
    hold: bool = False


class RestartAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody wants a job that has places, or runs, back in its placement queue. Its places are given back and its
    components are ended, which counts as nobody's failure. With ``hold`` the job is held there, even if it waits
    already."""

    job: JobId
    hold: bool = False


class ChangeAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody wants another walltime or priority for a job that has no places yet; None keeps the present value.
    Nothing changes for a job that has places or has ended."""

    job: JobId
    walltime_s: float | None = None
    priority: Priority | None = None


class SpawnAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody adds tasks to a running job of tasks, from now on and in every later run. They are placed near the
    tasks that they exchange data with, which stay where they are. ``TasksSpawned`` answers it for a job that is
    known."""

    job: JobId
    tasks: SpawnedTasks


class ComponentAccepted(Event, frozen=True, kw_only=True, tag=True):
    """The site took the component and has not started it yet: it waits in the site's own queue."""

    token: Token


class ComponentStarting(Event, frozen=True, kw_only=True, tag=True):
    """A component that waited in the site's own queue has its processors and is on its way to the barrier. Sites
    report it where they see it; only the patience with their queues depends on it."""

    token: Token


class ComponentReady(Event, frozen=True, kw_only=True, tag=True):
    """The component holds its processors and waits at the barrier."""

    token: Token


class ComponentRunning(Event, frozen=True, kw_only=True, tag=True):
    """The component has passed the barrier and its application runs. Sent only as an answer to a question."""

    token: Token


class ComponentEnded(Event, frozen=True, kw_only=True, tag=True):
    """The component holds nothing any more, and never will under this token. ``fault`` is who caused its failure, in
    the judgement of the driver; None where that is unknown, which counts as the site's fault before the barrier.
    ``nodes`` are the nodes of the site that it ran on, by their names in the batch system, at most
    ``ENDED_NODES_MAX``. ``stderr_line`` is the last line that a failed component wrote to standard error, made
    printable and cut after ``STDERR_LINE_BYTES_MAX``; empty where it is unknown. ``processor_s`` and
    ``peak_memory_bytes`` are what its application used, as its own script measured it; None where it could not be
    measured."""

    token: Token
    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    fault: Fault | None = None
    nodes: tuple[str, ...] = ()
    stderr_line: str = ""
    processor_s: float | None = None
    peak_memory_bytes: int | None = None


class CheckpointBrought(Event, frozen=True, kw_only=True, tag=True):
    """A component continues from the checkpoint that an earlier run left at the ``source``; without a source it
    begins anew. ``saved_by`` is the component that left it, and ``saved_at`` the time of its last save, by the clock
    of its site, where that is known. ``reason`` explains why a later checkpoint could not be used."""

    token: Token
    source: SiteName | None = None
    size_bytes: int = 0
    reason: str = ""
    saved_by: Token = ""
    saved_at: float | None = None


class OutputsCollected(Event, frozen=True, kw_only=True, tag=True):
    """The outputs that an ended component made are in its site's file area. A ``problem`` means that they are lost
    for good. A site that cannot be reached is no such problem: the event then waits until the site can be reached."""

    job: JobId
    token: Token
    outputs: tuple[MadeOutput, ...] = ()
    problem: str = ""


class TransferEnded(Event, frozen=True, kw_only=True, tag=True):
    """A transfer arrived whole, or broke and left nothing behind; ``fault`` is who caused that."""

    transfer: TransferId
    ok: bool
    reason: str = ""
    fault: Fault | None = None


class FileChanged(Wish, frozen=True, kw_only=True, tag=True):
    """The replicas of a file in the catalogue have changed. A file without replicas is gone; with ``time_is_over`` it
    stays while jobs read it."""

    file: FileName
    size_bytes: int
    replicas: tuple[SiteName, ...]
    time_is_over: bool = False


class LinkProbed(Event, frozen=True, kw_only=True, tag=True):
    """The result of a probe from one site to another: the latency in one direction, and the bandwidth, for which
    ``size_bytes`` were sent. With a ``reason`` the probe failed and measured nothing, which is no error of a site."""

    source: SiteName
    target: SiteName
    latency_s: float | None = None
    bytes_per_s: float | None = None
    size_bytes: int = 0
    reason: str = ""


class TrafficMeasured(Event, frozen=True, kw_only=True, tag=True):
    """The traffic that a running component has exchanged with the components of its job at other sites, in the period
    that ended ``elapsed_s`` after its start; the latest report counts. With a ``reason`` nothing could be measured,
    which is nobody's error. Reports are rare, and never come from sites that do not measure."""

    token: Token
    elapsed_s: float = 0.0
    sent_bit_s: float = 0.0
    received_bit_s: float = 0.0
    reason: str = ""


class SiteReported(Event, frozen=True, kw_only=True, tag=True):
    """A site's report on itself: its working processors, and how many of them other users hold now.

    ``releases`` are (time, processors): the latest times at which jobs of other users will give back processors, as
    far as the site knows, at most ``RELEASES_MAX`` of them.

    ``nodes`` are its working nodes by class, with their free resources; empty where the site does not report them.
    ``shown`` are our components whose resources ``nodes`` shows as taken. After the end of such a component a site
    reports again. A site that knows the nodes of each of these components lists them in the classes (``held``), for
    all or for none: plans for tasks with shapes then know which nodes become free, and when. For ``named`` see
    ``few_alike``.
    """

    site: SiteName
    processors: int
    others: int
    releases: tuple[tuple[float, int], ...] = ()
    nodes: tuple[NodeClass, ...] = ()
    shown: tuple[Token, ...] = ()
    named: tuple[NamedNode, ...] = ()


class SiteMachines(Event, frozen=True, kw_only=True, tag=True):
    """The measured machines of a site, for jobs of tasks: (processors, power in MFlop/s, load of others from 0 to 1),
    at most ``MACHINE_CLASSES_MAX`` of them. An empty list means that nothing is known and the grid file's values
    count. These take precedence in any case: where they give nodes or a power, only the rest is taken from here."""

    site: SiteName
    machines: tuple[tuple[int, float, float], ...] = ()


class SiteSilent(Event, frozen=True, kw_only=True, tag=True):
    """The driver could not reach the site. Nothing is known of what it holds; it counts as an error of the site.

    Nothing new goes to the site before it reports. A driver repeats the event while the site stays silent. With
    ``answers`` the site is there and explains why its setup cannot be used: that is no silence, and never makes a
    site lost.
    """

    site: SiteName
    reason: str
    answers: bool = False


class SiteLost(Wish, frozen=True, kw_only=True, tag=True):
    """An operator declares the site lost: nobody waits for what it holds. Jobs with components there start elsewhere.
    The components that the site still has are fenced: they count for nothing, and are ended before its next use."""

    site: SiteName


class SiteDrained(Wish, frozen=True, kw_only=True, tag=True):
    """An operator takes the site out: nothing new goes there, and its running components continue."""

    site: SiteName


class SiteResumed(Wish, frozen=True, kw_only=True, tag=True):
    """An operator puts the site back; its errors are forgotten."""

    site: SiteName


class Tick(Event, frozen=True, kw_only=True, tag=True):
    """Time has passed. The driver sends a tick when the scheduler is due (``Scheduler.due_at``). Extra ticks do no
    harm."""


AnyEvent: TypeAlias = (
    JobSubmitted
    | HoldAsked
    | UnholdAsked
    | CancelAsked
    | JobQuarantined
    | RequeueAsked
    | RestartAsked
    | ChangeAsked
    | SpawnAsked
    | ComponentAccepted
    | ComponentStarting
    | ComponentReady
    | ComponentRunning
    | ComponentEnded
    | CheckpointBrought
    | OutputsCollected
    | TransferEnded
    | FileChanged
    | LinkProbed
    | SiteMachines
    | TrafficMeasured
    | SiteReported
    | SiteSilent
    | SiteLost
    | SiteDrained
    | SiteResumed
    | Tick
)


# -------------------------------------------------------------------------------------------- commands


class Command(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag=True, tag_field="command"):
    """Something that the driver must do. Performing it twice does it once."""


class LastingCommand(Command, frozen=True, kw_only=True):
    """A command that must be performed also after a restart. The core repeats any other command where it still
    matters."""


class StartComponent(LastingCommand, frozen=True, kw_only=True, tag=True):
    """Give the component to the site's batch system; its script reports in and waits at the barrier.

    ``component`` is its index in the request: 0 for every component of a flexible job, which differ by ``part``.
    ``parts`` is the number of the job's components now. ``tasks`` are the names of the component's tasks in a job of
    tasks, in the order of their ranks. ``begin_at`` is the job start time. ``barrier_timeout_s`` is how long the
    component waits at the barrier before it ends by itself: longer than the core ever waits for the others. ``run``
    is the run of the job that it is for, counted from 1: a run begins when the barrier opens. ``exclude_nodes`` are
    nodes of the site that its program failed on; a site that has no room without them may use them all the same.
    ``walltime_s`` is its walltime where that was changed after its submission. ``array`` and ``index`` identify an
    element of an array. ``licenses`` are those that it holds of the pools of its site, for all components of the job
    there.
    """

    job: JobId
    token: Token
    site: SiteName
    processors: int
    component: int
    part: int
    parts: int
    tasks: tuple[str, ...] = ()
    begin_at: float | None = None
    barrier_timeout_s: float | None = None
    run: int = 1
    exclude_nodes: tuple[str, ...] = ()
    walltime_s: float | None = None
    array: JobId | None = None
    index: int | None = None
    licenses: Licenses = ()


class AskCheckpoint(LastingCommand, frozen=True, kw_only=True, tag=True):
    """Ask the component to save its state in the way that its job describes, because it will be ended soon. There is
    no answer, and the request may come too late: a component that ends by itself meanwhile reports that as usual."""

    site: SiteName
    token: Token


class AbortComponent(LastingCommand, frozen=True, kw_only=True, tag=True):
    """End the component, wherever it is, and let the site forget it. ``ComponentEnded`` answers it."""

    site: SiteName
    token: Token


class InputSource(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Where an input file of a component is at its site: the copy of a transfer, or the site's own replica. With a
    ``chunk`` (offset and size in bytes) only that part is read."""

    file: FileName
    transfer: TransferId | None = None
    chunk: tuple[int, int] | None = None


class ReleaseBarrier(LastingCommand, frozen=True, kw_only=True, tag=True):
    """All components are ready: let all of them start the application, at the same moment.

    ``inputs`` are the input files of each component, in the order of the request; empty if no component has any.
    ``checkpoints`` lists for each component the components of earlier runs, the last first; it continues from the
    first whole checkpoint among them, and begins anew if there is none. Empty for a job without checkpoints.
    ``CheckpointBrought`` answers it for each component that had anything to bring.
    """

    job: JobId
    tokens: tuple[Token, ...]
    inputs: tuple[tuple[InputSource, ...], ...] = ()
    checkpoints: tuple[tuple[CheckpointSource, ...], ...] = ()


class CollectOutputs(LastingCommand, frozen=True, kw_only=True, tag=True):
    """Measure the outputs of an ended component and move them into its site's file area. ``part`` is the number of
    the component in its job, which names its outputs. ``OutputsCollected`` answers it. The driver tries again while a
    site does not answer; a repeated command is performed once."""

    job: JobId
    token: Token
    site: SiteName
    part: int
    outputs: tuple[JobOutput, ...]


class StartTransfer(LastingCommand, frozen=True, kw_only=True, tag=True):
    """Bring a file (or ``size_bytes`` of it, when ``chunk`` is not None) from one site to another.

    ``chunk`` is (offset, size) in bytes.
    """

    transfer: TransferId
    file: FileName
    source: SiteName
    target: SiteName
    size_bytes: int
    chunk: tuple[int, int] | None = None


class CancelTransfer(LastingCommand, frozen=True, kw_only=True, tag=True):
    """Stop the transfer, or delete its copy: no job needs it any more. There is no answer."""

    transfer: TransferId


class ProbeLink(Command, frozen=True, kw_only=True, tag=True):
    """Measure the link from one site to another, with at most ``size_bytes``. ``LinkProbed`` answers it; a driver
    that is stopped meanwhile need not repeat it."""

    source: SiteName
    target: SiteName
    size_bytes: int = PROBE_BYTES


class AskSite(Command, frozen=True, kw_only=True, tag=True):
    """Ask the site for the state of these tokens; it repeats the newest event of each."""

    site: SiteName
    tokens: tuple[Token, ...]


AnyCommand: TypeAlias = (
    StartComponent
    | AskCheckpoint
    | AbortComponent
    | ReleaseBarrier
    | CollectOutputs
    | StartTransfer
    | CancelTransfer
    | ProbeLink
    | AskSite
)
