"""What a driver and the core say to each other: events (what happened) and commands (what a driver must do).

Both are frozen values that turn into JSON and back. The core sees nothing else of the world, so a driver is
complete when it performs every command and reports every event below. (``gc=False``: a message holds only values,
never a cycle, so Python need not search it for one. ``omit_defaults``: JSON shows what is not as usual.)

The contract that both drivers keep:

- A **token** names one start of one component, for ever: a site that gets ``StartComponent`` twice with the
  same token starts one component. ``AbortComponent`` may come at any time, also for a token that the site has
  never heard of; the site then remembers it and a later start with that token is refused.
- Every answer may come late, more than once, or never. The core asks again (``AskSite``) when it has waited
  too long, and the site then repeats the newest event of each token it is asked about; for a token that it
  has never heard of and will never start, it answers ``ComponentEnded`` with ``Outcome.ABSENT``.
- A command is complete: whoever performs it needs the command, the request of its job, which the driver keeps by the
  job's id, and the site, but nothing of what the core knows.
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
from koala.model.request import FileName, JobId, Priority, Request, SiteName
from koala.model.task_graph import SpawnedTasks

Token: TypeAlias = str
TransferId: TypeAlias = str


class Outcome(enum.StrEnum):
    """How a component ended."""

    DONE = "done"  # the application returned success
    FAILED = "failed"  # the application returned failure
    SITE_FAILED = "site_failed"  # the site, its batch system or a node broke it
    TIMED_OUT = "timed_out"  # it ran longer than its walltime
    ABORTED = "aborted"  # we asked for it
    REFUSED = "refused"  # the site would not take it; it never held processors
    ABSENT = "absent"  # the site has never heard of it and will never start it
    UNSUITABLE = "unsuitable"  # the site will never run what is asked for, as too long; it never held processors


ENDED_NODES_MAX = 16  # nodes that are told of a component that ended
# Of the line that a component that failed wrote last to its standard error, so many bytes are told at most.
STDERR_LINE_BYTES_MAX = 400
# So many kinds of machines a site tells of at most; of more the rest count as the last one.
MACHINE_CLASSES_MAX = 32
PROBE_BYTES = 8_000_000  # that a probe of a link sends at most
# Of a component that ended so, nothing was ever at its site.
NEVER_HELD = frozenset({Outcome.REFUSED, Outcome.ABSENT, Outcome.UNSUITABLE})


class JobOutcome(enum.StrEnum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class JobCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What is counted over the whole life of a job. ``runs``: how often its barrier opened.

    Processor time before its runs, which claiming late gains and claiming early wastes: ``gained_processor_s`` is
    from the placement until components held their processors, ``wasted_processor_s`` from there until the barrier
    opened, or the component was given up. ``gpu_s`` is GPU time: of each component its GPUs, from the start of a run
    until it ended or was ended.
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
    """How a job ended, and whether it ever started; no outcome for one that has started and not ended."""

    job: JobId
    outcome: JobOutcome | None
    started: bool


# ---------------------------------------------------------------------------------------------- events


class Event(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag=True, tag_field="event"):
    """Something that happened, at a time in seconds since the driver's epoch."""

    at: float


class JobSubmitted(Event, frozen=True, kw_only=True, tag=True):
    """A user submitted a job. The driver gives ids in increasing order, each once; the ids after that of an array are
    those of its elements, as many as it has.

    The job of a ``guest`` is never placed at a site that is closed to guests. ``defect`` says what was raised when
    the core took it before: then it goes into quarantine and is not tried. ``owner`` is whose it is: what one user's
    programs say of a site weighs less than what several users' say. ``ended`` are those of the jobs that it waits for
    that are over: the core forgets jobs that have ended.
    """

    job: JobId
    request: Request
    guest: bool = False
    owner: str = ""
    defect: str = ""
    ended: tuple[EndedJob, ...] = ()


class Wish(Event, frozen=True, kw_only=True):
    """What somebody wants done to a job or a site. ``by`` is who it was, by name, and ``reason`` why, in their own
    words; both are for the record and for whom it concerns, and empty where nobody said."""

    by: str = ""
    reason: str = ""

    @property
    def by_whom(self) -> str:
        """Both behind what was done, such as `` by anna: disk change``."""
        return (f" by {self.by}" if self.by else "") + (f": {self.reason}" if self.reason else "")

    def asked_by(self, owner: str) -> str:
        """The same to the owner of the job, who goes without a name."""
        own = self.by != "" and self.by == owner
        return (msgspec.structs.replace(self, by="its owner") if own else self).by_whom


class HoldAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody wants the job not to be tried until it is let go. One that has places and has not started gives them
    back; for one that runs, or has ended, it changes nothing."""

    job: JobId


class UnholdAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody lets the job go that was held. It still waits for other jobs, and for its time."""

    job: JobId


class CancelAsked(Wish, frozen=True, kw_only=True, tag=True):
    """A user wants the job gone, whatever it is doing. Asking about an ended job changes nothing."""

    job: JobId


class JobQuarantined(Event, frozen=True, kw_only=True, tag=True):
    """Our own code raised while it handled the job: the job is set aside, and gives back all that it holds.

    It is handled before anything that is due, since that may be what raised.
    """

    job: JobId
    reason: str


class RequeueAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody wants a job out of quarantine and back in its placement queue; with ``hold`` it is held there. While a
    site still holds a component of the job, and for a job that is not in quarantine, it changes nothing."""

    job: JobId
    hold: bool = False


class RestartAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody wants a job that has places, or runs, back in its placement queue: what it has is given back and what
    runs is ended, and that is no failure of anybody. With ``hold`` it is held there, or where it waits already."""

    job: JobId
    hold: bool = False


class ChangeAsked(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody wants another walltime or priority for a job that has no places yet; None keeps what it has. For one
    that has places, or has ended, it changes nothing."""

    job: JobId
    walltime_s: float | None = None
    priority: Priority | None = None


class SpawnAsked(Wish, frozen=True, kw_only=True, tag=True):
    """More tasks for a job of tasks that runs, from now on and in every later run. They are placed near those that
    they exchange with, which stay where they are. Answered by ``TasksSpawned``, for a job that is known."""

    job: JobId
    tasks: SpawnedTasks


class ComponentAccepted(Event, frozen=True, kw_only=True, tag=True):
    """The site took the component and has not started it yet: it waits in the site's own queue."""

    token: Token


class ComponentStarting(Event, frozen=True, kw_only=True, tag=True):
    """A component that waited in the site's own queue has its processors and is on its way to the barrier. Sites tell
    it where they see it: nothing but patience with their queues hangs on it."""

    token: Token


class ComponentReady(Event, frozen=True, kw_only=True, tag=True):
    """The component holds its processors and waits at the barrier."""

    token: Token


class ComponentRunning(Event, frozen=True, kw_only=True, tag=True):
    """The component has passed the barrier and its application runs. Sent only when the site is asked."""

    token: Token


class ComponentEnded(Event, frozen=True, kw_only=True, tag=True):
    """The component holds nothing any more, and never will under this token. ``fault`` is whose it is that it failed,
    by the word of whoever saw it; None where nobody knows, which counts as the site's before the barrier. ``nodes``
    are those of the site that it ran on, as its batch system calls them, ``ENDED_NODES_MAX`` of them at most.
    ``stderr_line`` is the last line that one that failed wrote to its standard error, made printable and cut after
    ``STDERR_LINE_BYTES_MAX``; empty where nobody knows it. ``processor_s`` and ``peak_memory_bytes`` are what its
    application used, as its own script says; None where nobody could measure it."""

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
    """A component goes on from the checkpoint that a former run left at the ``source``; without one it begins anew.
    ``saved_by`` is the component that left it, ``saved_at`` when it last saved, by the clock of its site, where that
    is known. ``reason`` says why a later checkpoint could not be had."""

    token: Token
    source: SiteName | None = None
    size_bytes: int = 0
    reason: str = ""
    saved_by: Token = ""
    saved_at: float | None = None


class OutputsCollected(Event, frozen=True, kw_only=True, tag=True):
    """The outputs of a component that has ended are in its site's file area: those that it made, and no others. With
    a ``problem`` they cannot be had, and that is for good. A site that cannot be reached is no such problem: then
    nothing is told until it can be."""

    job: JobId
    token: Token
    outputs: tuple[MadeOutput, ...] = ()
    problem: str = ""


class TransferEnded(Event, frozen=True, kw_only=True, tag=True):
    """A transfer arrived whole, or broke and left nothing behind; ``fault`` is whose that is."""

    transfer: TransferId
    ok: bool
    reason: str = ""
    fault: Fault | None = None


class FileChanged(Wish, frozen=True, kw_only=True, tag=True):
    """The catalogue's word on a file; without replicas it is gone, at its ``time_is_over`` not while jobs read it."""

    file: FileName
    size_bytes: int
    replicas: tuple[SiteName, ...]
    time_is_over: bool = False


class LinkProbed(Event, frozen=True, kw_only=True, tag=True):
    """What a probe from one site to another has measured: the latency in one direction, and the bandwidth, for which
    ``size_bytes`` were sent. With a ``reason`` it could not be made, and nothing was measured; that is no error of a
    site."""

    source: SiteName
    target: SiteName
    latency_s: float | None = None
    bytes_per_s: float | None = None
    size_bytes: int = 0
    reason: str = ""


class TrafficMeasured(Event, frozen=True, kw_only=True, tag=True):
    """What a running component has sent to the components of its job at other sites, and received from them, in the
    stretch of time that ended ``elapsed_s`` after its start; of several the latest counts. With a ``reason`` nothing
    could be measured, which is no error of anybody. Told rarely, and never by sites that do not count."""

    token: Token
    elapsed_s: float = 0.0
    sent_bit_s: float = 0.0
    received_bit_s: float = 0.0
    reason: str = ""


class SiteReported(Event, frozen=True, kw_only=True, tag=True):
    """What a site says of itself: its working processors, and how many of them other users hold now.

    ``releases`` are (time, processors): when jobs of other users let go of processors at the latest, as far as the
    site knows, no more than ``RELEASES_MAX`` of them.

    ``nodes`` are its working nodes by class, with what nobody holds of them; none where it does not tell. ``shown``
    are those of our components that hold what these do not show as free. After the end of such a component a site
    reports again. A site that knows which nodes each of these is on says so in the classes (``held``), for all or for
    none: plans for tasks with shapes then know which nodes come free, and when. ``named``: see ``few_alike``.
    """

    site: SiteName
    processors: int
    others: int
    releases: tuple[tuple[float, int], ...] = ()
    nodes: tuple[NodeClass, ...] = ()
    shown: tuple[Token, ...] = ()
    named: tuple[NamedNode, ...] = ()


class SiteMachines(Event, frozen=True, kw_only=True, tag=True):
    """What was measured of the machines of a site, for jobs of tasks: (processors, power in MFlop/s, load of others
    from 0 to 1), no more than ``MACHINE_CLASSES_MAX`` of them. None of them means that nothing is known, and that the
    grid file's word counts. That goes first in any case: where it gives nodes or a power, only the rest is taken."""

    site: SiteName
    machines: tuple[tuple[int, float, float], ...] = ()


class SiteSilent(Event, frozen=True, kw_only=True, tag=True):
    """The driver could not reach the site. Nothing is known of what it holds; it counts as an error of the site.

    Nothing new goes to the site before it reports. A driver repeats it while the site stays silent. ``answers``: the
    site is there and says why it cannot be used, as it is set up: that is no silence, and never makes a site lost.
    """

    site: SiteName
    reason: str
    answers: bool = False


class SiteLost(Wish, frozen=True, kw_only=True, tag=True):
    """Somebody entitled to it declares the site lost: nobody waits for what it holds. Jobs with components there
    start elsewhere. What the site still has is fenced: it counts for nothing, and is ended before its next use."""

    site: SiteName


class SiteDrained(Wish, frozen=True, kw_only=True, tag=True):
    """An operator takes the site out: nothing new goes there, what runs there goes on."""

    site: SiteName


class SiteResumed(Wish, frozen=True, kw_only=True, tag=True):
    """An operator puts the site back, and its errors are forgotten."""

    site: SiteName


class Tick(Event, frozen=True, kw_only=True, tag=True):
    """Time has passed: the driver sends one when the scheduler is due (``Scheduler.due_at``). More do no harm."""


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
    """A command that must be performed also after a restart; the core gives any other anew where it still matters."""


class StartComponent(LastingCommand, frozen=True, kw_only=True, tag=True):
    """Give the component to the site's batch system; its script reports in and waits at the barrier.

    ``component`` is its index in the request (0 for every component of a flexible job, told apart by ``part``),
    ``parts`` how many components the job has now. ``tasks`` are those of a job of tasks that the component holds, by
    name, in the order of their ranks. ``begin_at`` is the job start time, and ``barrier_timeout_s`` how long the
    component waits at the barrier before it ends by itself: longer than the core ever waits for the others. ``run``
    is the run of the job that it is for, counted from 1: a run begins when the barrier opens. ``exclude_nodes`` are
    nodes of the site to keep it off, as its program failed there; a site on which it would find no room without them
    may use them all the same. ``walltime_s`` is how long it may run where that was changed after its submission.
    ``array`` and ``index`` tell an element of an array which it is.
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


class AskCheckpoint(LastingCommand, frozen=True, kw_only=True, tag=True):
    """Ask the component to save its state, as its job says how: it is ended soon. It is not answered, and may come
    too late: a component that ends by itself meanwhile says so as always."""

    site: SiteName
    token: Token


class AbortComponent(LastingCommand, frozen=True, kw_only=True, tag=True):
    """End the component, wherever it is, and let the site forget it. Answered by ``ComponentEnded``."""

    site: SiteName
    token: Token


class InputSource(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Where an input file of a component is at its site: the copy of a transfer, or the site's own replica; of that
    the ``chunk`` (offset and size in bytes), or all of it."""

    file: FileName
    transfer: TransferId | None = None
    chunk: tuple[int, int] | None = None


class ReleaseBarrier(LastingCommand, frozen=True, kw_only=True, tag=True):
    """All components are there: let every one of these start the application, at the same moment.

    ``inputs`` are the input files of each, in the order of the request; empty where none has any. ``checkpoints``
    are the components of former runs, the last first, from whose checkpoint each goes on; the first that has a whole
    one counts, and it begins anew where none has. Empty for a job without checkpoints. Answered by
    ``CheckpointBrought`` for each component where there was anything to bring.
    """

    job: JobId
    tokens: tuple[Token, ...]
    inputs: tuple[tuple[InputSource, ...], ...] = ()
    checkpoints: tuple[tuple[CheckpointSource, ...], ...] = ()


class CollectOutputs(LastingCommand, frozen=True, kw_only=True, tag=True):
    """Take what a component that has ended made into its site's file area, measured. ``part`` is the number of the
    component in its job, by which its outputs are named. Answered by ``OutputsCollected``. While a site does not
    answer it is tried again; commanded twice, it is done once."""

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
    """Stop the transfer, or delete what it brought: no job needs it any more. It is not answered."""

    transfer: TransferId


class ProbeLink(Command, frozen=True, kw_only=True, tag=True):
    """Measure the way from one site to another, with no more than ``size_bytes``. Answered by ``LinkProbed``; a
    driver that is stopped meanwhile need not do it again."""

    source: SiteName
    target: SiteName
    size_bytes: int = PROBE_BYTES


class AskSite(Command, frozen=True, kw_only=True, tag=True):
    """Ask the site what became of these tokens; it repeats the newest event of each."""

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
