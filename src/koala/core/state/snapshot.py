"""The books of the core: everything that decides what it will do next, as one value that turns into JSON and back.

A scheduler that is made from its books goes on exactly like the one that wrote them. Here is only the form;
``books_writing`` fills it in and ``books_reading`` makes a scheduler's ledger of it. Sites stand in the books by
name, so that they can be read on a grid with more, fewer or reordered sites. (``gc=False``: pages hold only values.)
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from koala.core.lifecycle import JobState
from koala.core.state.job import ComponentPhase
from koala.core.state.sites import Trust
from koala.core.state.timers import Alarm
from koala.model.messages import Token, TransferId
from koala.model.request import FileName, JobId, Request, SiteName

# The form below. Books of a higher version were written by a later Koala, and are refused.
VERSION = 1
# So many jobs are encoded at once.
ENCODED_JOBS = 500

# JSON knows no infinity, and None already says "there is none".
Time: TypeAlias = float | Literal["infinite"]
# Detail of a line of a job's story; sites in it are numbered as in ``Books.sites``.
Detail: TypeAlias = int | float | str | tuple[int, ...]
StoryEntry: TypeAlias = tuple[float, str, tuple[Detail, ...]]

INFINITY = float("inf")


def to_time(number: float) -> Time:
    return "infinite" if number == INFINITY else number


def from_time(time: Time) -> float:
    return INFINITY if isinstance(time, str) else time


class SnapshotError(ValueError):
    """Books that cannot be read, or that do not go with the grid or the policies; nothing has been changed."""

    def __init__(self, problem: str, cure: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.cure = cure

    def for_user(self) -> str:
        """What is wrong, and what to do."""
        return f"{self.problem}; {self.cure}"


class Page(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """A part of the books."""


class JobPage(Page, frozen=True, kw_only=True):
    """One job; the fields are those of ``koala.core.state.job.Job``.

    ``places`` and ``task_parts`` are its spots, ``earmarks`` the components with one, ``claims`` the tokens of what
    it still holds, ``refused_idle`` a number in ``Books.idles`` and ``refused_demand`` one in ``Books.link_demands``.
    What it asks of links follows from its request and its places.
    """

    id: JobId
    request: Request
    state: JobState
    submitted_at: float
    waiting_since: float
    claim_fraction: float
    ended_at: float | None = None
    story: tuple[StoryEntry, ...] = ()
    placement_tries: int = 0
    refused_idle: int | None = None
    refused_demand: int | None = None
    places: tuple[tuple[SiteName, int], ...] = ()
    task_parts: tuple[tuple[int, ...], ...] = ()
    placed_at: float | None = None
    started_at: float | None = None
    start_estimate: Time | None = None
    first_start_estimate: Time | None = None
    claims: tuple[Token | None, ...] = ()
    earmarks: tuple[int, ...] = ()
    transfers: tuple[TransferId, ...] = ()
    needs: tuple[tuple[TransferId, ...], ...] = ()
    ready: int = 0
    outstanding: int = 0
    observed: bool = False
    deadline: Time = 0.0
    claim_resumed: bool = False
    rests: int = 0
    claiming_tries: int = 0
    claiming_tries_in_row: int = 0
    runs: int = 0
    starts: int = 0
    failures: int = 0
    application_failures: int = 0
    preemptions: int = 0
    barred: tuple[tuple[SiteName, str], ...] = ()


class ClaimPage(Page, frozen=True, kw_only=True):
    """One start of one component whose end is not confirmed; its job may have ended before."""

    token: Token
    job: JobId
    part: int
    site: SiteName
    processors: int
    phase: ComponentPhase = ComponentPhase.SENT
    moved: bool = False
    aborting: bool = False
    abort_tries: int = 0


class SitePage(Page, frozen=True, kw_only=True):
    """One site. ``processors`` is None until the site has told its number itself: until then the grid's counts.

    What is held, promised and earmarked there follows from claims and jobs; ``waiters`` are in their order.
    """

    name: SiteName
    idle: int
    processors: int | None = None
    others: int = 0
    trust: Trust = Trust.USABLE
    drained: bool = False
    errors: int = 0
    probe_job: JobId | None = None
    waiters: tuple[JobId, ...] = ()


class LinkPage(Page, frozen=True, kw_only=True):
    """What was learned of a link. It is forgotten when the grid no longer says of it what it said then."""

    between: tuple[SiteName, SiteName]
    described_bytes_per_s: float
    bytes_per_s: float


class FilePage(Page, frozen=True, kw_only=True):
    """A file of which something was told since the grid was read; one without replicas is forgotten."""

    name: FileName
    size_bytes: int = 0
    replicas: tuple[SiteName, ...] = ()


class TransferPage(Page, frozen=True, kw_only=True):
    """A file, or a piece of it, on its way or there. ``source`` may be None for one that is there."""

    id: TransferId
    file: FileName
    target: SiteName
    source: SiteName | None
    size_bytes: int
    started_at: float
    estimate_s: Time
    jobs: tuple[JobId, ...]
    tries: int
    chunk: tuple[int, int] | None = None
    done: bool = False
    failed_sources: tuple[SiteName, ...] = ()


class PlacePage(Page, frozen=True, kw_only=True):
    """A job's place in its placement queue; None where nothing limits its tries."""

    job: JobId
    position: int
    entered_scan: int
    joined_after_scan: int
    exhausted_at_scan: int | None = None


class QueuePage(Page, frozen=True, kw_only=True):
    """A placement queue: those in line head to tail, those that rest, and what its last scans saw.

    ``scans_so_far`` is the number of scans as it was counted when the books were written; ``seen`` are a position, a
    number in ``Books.idles``, and one in ``Books.link_demands`` where something was on the links.
    """

    in_line: tuple[PlacePage, ...] = ()
    resting: tuple[JobId, ...] = ()
    scan_due_at: Time = "infinite"
    scanned_helped: int = 0
    scanned_changed: int = 0
    passed_changed: int = 0
    next_position: int = 0
    untried: bool = False
    scans: int = 0
    scans_so_far: int = 0
    seen: tuple[tuple[int, ...], ...] = ()


class ClaimingPage(Page, frozen=True, kw_only=True):
    """A job's place in the claiming queue."""

    job: JobId
    at: Time
    sequence: int


class AlarmPage(Page, frozen=True, kw_only=True):
    """A living alarm and whom it concerns: a job, the token of a claim, a transfer or the name of a site."""

    at: Time
    what: Alarm
    whom: JobId | str


class Books(Page, frozen=True, kw_only=True):
    """Everything, at one moment between two events. Alarms, claims and queues are in their order.

    ``grid`` is the digest of the grid that they were written on; ``gone`` are the jobs that have ended while a site
    has not let go of all their components. What the driver was asked to bring (``WakeAt``) is not here: whoever
    reads the books sends a ``Tick`` first. ``observations`` jobs make up the observed mean of bandwidths.
    """

    version: int
    grid: str
    now: float
    last_job: JobId
    sites: tuple[SitePage, ...]
    helped: int = 0
    changed: int = 0
    idles: tuple[tuple[int, ...], ...] = ()
    link_demands: tuple[tuple[int, ...], ...] = ()
    observations: int = 0
    observed_bisection_bit_s: float = 0.0
    jobs: tuple[JobPage, ...] = ()
    gone: tuple[JobPage, ...] = ()
    claims: tuple[ClaimPage, ...] = ()
    transfers: tuple[TransferPage, ...] = ()
    transfers_started: int = 0
    links: tuple[LinkPage, ...] = ()
    files: tuple[FilePage, ...] = ()
    high: QueuePage = QueuePage()
    low: QueuePage = QueuePage()
    claiming: tuple[ClaimingPage, ...] = ()
    claiming_sequence: int = 0
    alarms: tuple[AlarmPage, ...] = ()


class _Version(msgspec.Struct):
    version: int


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Books)
_version_decoder = msgspec.json.Decoder(_Version)


def encode_books(books: Books) -> bytes:
    """The books as JSON; equal books give equal bytes.

    Jobs are encoded some at a time, so that other threads of the interpreter have their turn in between.
    """
    jobs = books.jobs
    rest = _encoder.encode(msgspec.structs.replace(books, jobs=()))
    if not jobs:
        return rest
    steps = range(0, len(jobs), ENCODED_JOBS)
    pages = b",".join([_encoder.encode(jobs[start : start + ENCODED_JOBS])[1:-1] for start in steps])
    # Defaults are left out, so that the rest does not name the jobs.
    return b'%b,"jobs":[%b]}' % (rest[:-1], pages)


def decode_books(text: bytes | str) -> Books:
    """Books from their JSON, exactly as they were. Raises SnapshotError for what is no such thing, or too new."""
    try:
        check_version(_version_decoder.decode(text).version)
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise damaged(str(error)) from error


def check_version(version: int) -> None:
    if version != VERSION:
        raise SnapshotError(
            f"the books of the scheduler have the form {version}, and this Koala reads the form {VERSION}",
            "start the Koala that wrote them, or a later one",
        )


def damaged(problem: str) -> SnapshotError:
    return SnapshotError(
        f"the books of the scheduler are damaged: {problem}", "put back a copy of the state that was made before"
    )
