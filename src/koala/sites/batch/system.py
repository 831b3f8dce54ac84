"""What a batch system is to Koala: shell scripts that use its commands, and parsers of what these print.

All of it is pure. Who runs the scripts, where and when, is in ``koala.sites.batch.site``; a batch system never knows.
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
    """A batch system printed something that makes no sense here; nothing may be concluded from it."""


class BatchState(enum.StrEnum):
    """Where a job is in its batch system."""

    PENDING = "pending"
    HELD = "held"  # it waits for somebody to let it go
    RUNNING = "running"  # it holds processors, also while it is suspended or being started
    ENDING = "ending"  # it is over or being ended, and may still hold processors
    OVER = "over"  # it holds nothing any more


class EndKind(enum.StrEnum):
    """Who ended a job, as far as its batch system tells."""

    ITSELF = "itself"  # it returned, with the exit code
    CANCELLED = "cancelled"
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    SITE = "site"  # a node, the batch system or its operator
    UNSUITABLE = "unsuitable"  # it could never start, as what it asks for is not given to any job
    UNKNOWN = "unknown"


class BatchEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a job ended. ``exit_code`` is that of its script, 128 + N for signal N, None where it is not told."""

    kind: EndKind
    exit_code: int | None = None
    reason: str = ""


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """One of our jobs as a listing shows it. ``token`` is its name, without the prefix. ``submitted`` is whatever the
    batch system tells of the time of submission: with ``id`` it tells a job from a later one that has its id.
    ``end`` is that of a job that is over, or says of one that waits why it will never start.
    """

    id: BatchId
    token: Token
    state: BatchState
    submitted: str = ""
    processors: int = 0
    reason: str = ""
    end: BatchEnd | None = None


class BatchListing(msgspec.Struct, frozen=True, kw_only=True):
    """What one listing of a batch system shows.

    ``jobs`` are ours that it still knows. ``processors`` are those that the site's users could get if nobody else
    were there: those of nodes that are down or drained, or beyond a quota, are not among them. ``others`` of these
    are in use by others, or will be taken by what waits ahead of us. ``job_limit_s`` is how long a job may hold
    processors there, None where nothing limits it. ``missing`` says what the grid file names and the cluster does not
    have, and what to do; then nothing can run there. ``releases`` are (seconds since the epoch, processors): when
    jobs of others that run reach their time limits, as far as it is known. ``nodes`` are the nodes by class with what
    nobody holds of them, none where they are not told; ``named`` are those of kinds of which there are few.
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
    """What is submitted: the file ``script`` of the directory ``home``, which is an absolute path at the site.

    ``limit_s`` is how long the job may hold processors in all. ``reservation`` is the one that it runs in.
    """

    launch: Launch
    home: str
    script: str
    log: str
    limit_s: float | None = None
    reservation: str | None = None


class WantedReservation(msgspec.Struct, frozen=True):
    """Processors that are to be kept for us under a name, from ``begin_s`` (since the epoch) on for ``length_s``.

    It may begin ``late_s`` later where jobs hold them until then, if the batch system can be told so. ``ending`` are
    those of our jobs, by their tokens, that end in time, whatever limits they have there.
    """

    name: str
    processors: int
    begin_s: float
    length_s: float
    late_s: float = 0.0
    ending: tuple[Token, ...] = ()


class BatchSystem(Protocol):
    """One kind of batch system, with the settings of one site.

    A script ends in a newline, reads no standard input and prints what its parser wants. Parsers raise
    ``BatchOutputError`` for anything that they do not understand, and never guess. Our jobs are known by their name,
    which is ``JOB_NAME_PREFIX`` and the token.
    """

    def submit(self, submission: BatchSubmission) -> str:
        """A script that submits a job; it exits with a code other than 0 when the batch system refused."""
        ...

    def parse_submitted(self, printed: str) -> BatchId: ...

    def refusal(self, code: int, printed: str, complaint: str) -> str | None:
        """Why the batch system will never take this submission, in its own words; None when trying again may help."""
        ...

    def has_no_room(self, code: int, printed: str, complaint: str) -> bool:
        """Whether a submission that is to be tried again was not taken because of too many jobs in the queue: the
        batch system answers, and will take it when some of them have ended."""
        ...

    def is_for_what_it_asks(self, refusal: str) -> bool:
        """Whether a refusal is for what this job asks for, such as too long a time: another one may be taken."""
        ...

    def cancel(self, token: Token, ids: Sequence[BatchId]) -> str:
        """A script that ends every job of that name, and these. Of what is gone it says nothing and exits with 0."""
        ...

    def listing(self) -> str:
        """A script that shows the batch system as it is now; the only one that is run at every poll."""
        ...

    def parse_listing(self, printed: str) -> BatchListing: ...

    def history(self, jobs: Sequence[BatchJob]) -> str:
        """A script that tells how jobs ended that a listing shows no more. It exits with 0 when the batch system
        answers, also when it does not know them."""
        ...

    def parse_history(self, printed: str, jobs: Sequence[BatchJob]) -> dict[BatchId, BatchEnd]:
        """The ends that are told; a job that the batch system positively does not know is not among them."""
        ...

    def on_node(self) -> str:
        """Two shell functions for a component's script. ``koala_nodes`` prints the job's nodes, a line of
        name and processors each, the one that the script runs on first. ``koala_on_node NAME COMMAND...`` becomes
        (exec) the command on that node, with this environment.
        """
        ...

    # Claims by reservation.

    def reserve(self, wanted: WantedReservation) -> str:
        """A script that reserves processors for us. For a name that there is already it changes nothing. It exits
        with a code other than 0 when the site refuses, and may leave one that does not do.
        """
        ...

    def parse_reserved(self, printed: str) -> str:
        """What a submission names to run in the reservation."""
        ...

    def unreserve(self, name: str) -> str:
        """A script that gives a reservation back; of one that is gone, or never was, it says nothing. It exits with a
        code other than 0 while the reservation may still be there.
        """
        ...

    def loads(self) -> str:
        """A script that tells of the load of the nodes that components may run on."""
        ...

    def parse_loads(self, printed: str) -> list[NodeLoad]:
        """The nodes of which a load is told, each once."""
        ...

    # For ``koala site check``.

    def version(self) -> str:
        """A script that prints the batch system's name and version in one line."""
        ...


# In front of the token in a job's name: Grid Engine takes no name that begins with a digit.
JOB_NAME_PREFIX = "koala-"
