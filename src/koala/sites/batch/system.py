"""The interface of a batch system: shell scripts that use its commands, and parsers of their output.

All of it is pure. ``koala.sites.batch.site`` decides where and when the scripts run.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Protocol, TypeAlias

import msgspec

from koala.model.launch import Launch
from koala.model.messages import Token
from koala.model.nodes import NamedNode, NodeClass

BatchId: TypeAlias = str


class BatchOutputError(ValueError):
    """A batch system printed something unintelligible; nothing may be concluded from it."""


class BatchState(enum.StrEnum):
    """The state of a job in its batch system."""

    PENDING = "pending"
    HELD = "held"  # it waits until a person releases it
    RUNNING = "running"  # it holds processors, also while it is suspended or being started
    ENDING = "ending"  # it is over or being ended, and may still hold processors
    OVER = "over"  # it holds nothing any more


class EndKind(enum.StrEnum):
    """Who ended a job, as far as its batch system reports it."""

    ITSELF = "itself"  # it returned, with the exit code
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    SITE = "site"  # a node, the batch system or its operator
    UNSUITABLE = "unsuitable"  # it could never start, since no job may have what it requests
    UNKNOWN = "unknown"


class BatchEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended. ``exit_code`` is its script's, 128 + N for signal N, None if it is unknown."""

    kind: EndKind
    exit_code: int | None = None
    reason: str = ""


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """One of our jobs in a listing. ``token`` is its name, without the prefix. ``submitted`` is the time of
    submission in the batch system's own form: together with ``id`` it distinguishes a job from a later one with the
    same id. ``end`` is set for a job that is over, or says why a waiting one will never start."""

    id: BatchId
    token: Token
    state: BatchState
    submitted: str = ""
    processors: int = 0
    reason: str = ""
    end: BatchEnd | None = None


class BatchListing(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one listing of a batch system.

    ``jobs`` are our jobs that it still knows. ``processors`` are those that the site's users could get in an empty
    cluster, without nodes that are down or drained and without processors beyond a quota. Other users hold ``others``
    of them, or will get them before us. ``job_limit_s`` is how long a job may hold processors there, None without a
    limit. ``missing`` says what the grid file names and the cluster lacks, with advice; then nothing can run there.
    ``releases`` are (seconds since the epoch, processors): when running jobs of others reach their time limits, as
    far as it is known. ``nodes`` are the nodes by class with their free resources, empty if unknown; ``named`` are
    the nodes of rare kinds.
    """

    jobs: tuple[BatchJob, ...]
    processors: int
    others: int
    job_limit_s: float | None = None
    missing: str = ""
    releases: tuple[tuple[float, int], ...] = ()
    nodes: tuple[NodeClass, ...] = ()
    named: tuple[NamedNode, ...] = ()


class NodeLoad(msgspec.Struct, frozen=True):
    """A node: its processors, how many of them jobs hold, and its load average."""

    processors: int
    held: int
    load: float


class BatchSubmission(msgspec.Struct, frozen=True, kw_only=True):
    """A submission: the file ``script`` of the directory ``home``, which is an absolute path at the site.

    ``limit_s`` is how long the job may hold processors in all. It runs in ``reservation``, if there is one.
    """

    launch: Launch
    home: str
    script: str
    log: str
    limit_s: float | None = None
    reservation: str | None = None


class WantedReservation(msgspec.Struct, frozen=True):
    """Processors to be reserved for us under a name, from ``begin_s`` (since the epoch) on for ``length_s``.

    The reservation may begin ``late_s`` later if jobs hold the processors until then and the batch system supports
    that. ``ending`` are our jobs, by their tokens, that end in time, whatever their limits there.
    """

    name: str
    processors: int
    begin_s: float
    length_s: float
    late_s: float = 0.0
    ending: tuple[Token, ...] = ()


class BatchSystem(Protocol):
    """One kind of batch system, with the settings of one site.

    A script ends in a newline, reads no standard input and prints what its parser needs. Parsers raise
    ``BatchOutputError`` for anything unintelligible, and never guess. Our jobs are recognised by their name, which is
    ``JOB_NAME_PREFIX`` and the token.
    """

    def submit(self, submission: BatchSubmission) -> str:
        """Return a script that submits a job; it exits with a code other than 0 if the batch system refused."""
        ...

    def parse_submitted(self, printed: str) -> BatchId: ...

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        """Return why the batch system will never accept this submission, in its own words; None if a retry may
        help."""
        ...

    def has_no_room(self, code: int, printed: str, complaint: str) -> bool:
        """Return True if a submission that is to be retried was refused because of too many jobs in the queue: the
        batch system answers, and will accept it when some of them have ended."""
        ...

    def is_for_what_it_asks(self, refusal: str) -> bool:
        """Return True if the refusal is specific to this job's request, such as too long a time: another job may be
        accepted."""
        ...

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        """Return a script that ends every job of that name, and these ids. It ignores jobs that are gone, and exits
        with 0."""
        ...

    def listing(self) -> str:
        """Return a script that shows the current state of the batch system; the only script that every poll runs."""
        ...

    def parse_listing(self, printed: str) -> BatchListing: ...

    def history(self, jobs: Sequence[BatchJob]) -> str:
        """Return a script that reports how jobs ended that a listing no longer shows. It exits with 0 if the batch
        system answers, even if it does not know them."""
        ...

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        """Return the reported ends, without jobs that the batch system definitely does not know."""
        ...

    def on_node(self) -> str:
        """Return two shell functions for a component's script. ``koala_nodes`` prints the job's nodes, a line of name
        and processors each, the script's own node first. ``koala_on_node NAME COMMAND...`` becomes (exec) the command
        on that node, with this environment."""
        ...

    # Claims by reservation.

    def reserve(self, wanted: WantedReservation) -> str:
        """Return a script that reserves processors for us. It changes nothing if the name exists already. It exits
        with a code other than 0 if the site refuses, and may then leave an unusable reservation."""
        ...

    def parse_reserved(self, printed: str) -> str:
        """Return the name with which a submission runs in the reservation."""
        ...

    def unreserve(self, name: str) -> str:
        """Return a script that cancels a reservation and ignores one that does not exist. It exits with a code other
        than 0 while the reservation may still exist."""
        ...

    def loads(self) -> str:
        """Return a script that prints the load of the nodes that components may run on."""
        ...

    def parse_loads(self, printed: str) -> list[NodeLoad]:
        """Return the nodes with a known load, each once."""
        ...

    # For ``koala site check``.

    def version(self) -> str:
        """Return a script that prints the batch system's name and version in one line."""
        ...


# Precedes the token in a job's name: Grid Engine accepts no name that begins with a digit.
JOB_NAME_PREFIX = "koala-"
