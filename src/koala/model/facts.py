"""What the core has decided or brought about, for the record: facts. With commands they make a turn.

Nobody performs a fact. It stands in the journal, and in the log of a simulation, among the commands of its event,
where it became true. On record it bears the same mark as a command (``command``), which tells both from events.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, TypeVar

import msgspec

from koala.model.dependency import Dependency
from koala.model.messages import AnyCommand, Command, JobOutcome
from koala.model.outputs import MadeOutput
from koala.model.request import FileName, JobId, SiteName


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag=True, tag_field="command"):
    """Something that is true from now on, since the core decided it or brought it about."""


class JobPlaced(Fact, frozen=True, kw_only=True, tag=True):
    """The job has places. One (site, processors) a component, in order."""

    job: JobId
    places: tuple[tuple[SiteName, int], ...]


class TasksSpawned(Fact, frozen=True, kw_only=True, tag=True):
    """These tasks are part of the job from now on, in new components behind those that it has, one
    (site, processors) each. With a ``reason`` they are not: they were refused, or withdrawn before they began."""

    job: JobId
    tasks: tuple[str, ...]
    places: tuple[tuple[SiteName, int], ...] = ()
    reason: str = ""


class JobRequeued(Fact, frozen=True, kw_only=True, tag=True):
    """The job has lost its places and returns to its placement queue, and why."""

    job: JobId
    reason: str


class ElementMade(Fact, frozen=True, kw_only=True, tag=True):
    """An element of an array is a job of its own from now on, with the request of the array."""

    job: JobId
    array: JobId
    index: int


class OutputRegistered(Fact, frozen=True, kw_only=True, tag=True):
    """An output of the job is a file of the replica catalogue now, with replicas at these sites, the
    one where it was made first. After ``kept_until`` the driver forgets it, unless a job is to read it."""

    job: JobId
    part: int
    file: FileName
    output: MadeOutput
    sites: tuple[SiteName, ...]
    kept_until: float | None = None


class JobHeld(Fact, frozen=True, kw_only=True, tag=True):
    """The job is not tried yet, and what keeps it back: somebody holds it, it waits for others, or
    for its time. It is told each time that one of the others has come, so that only the first of those that are left
    are named, and the ``more`` are counted. ``held_by`` says in words who holds it and why."""

    job: JobId
    held: bool = False
    held_by: str = ""
    waits_for: tuple[Dependency, ...] = ()
    more: int = 0
    begins_at: float | None = None


class JobUnheld(Fact, frozen=True, kw_only=True, tag=True):
    """Nothing keeps the job back any more, and it is in its placement queue."""

    job: JobId


class SiteDistrusted(Fact, frozen=True, kw_only=True, tag=True):
    """The site has lost its trust, and why; nothing goes there until it has cooled down."""

    site: SiteName
    reason: str


class JobEnded(Fact, frozen=True, tag=True):
    """The job is over and the core forgets it. ``reason`` is for its user.

    Times are absolute; a job that never was placed or started has None there. ``placed_at`` belongs to the
    last placement, ``first_start_estimate`` and ``last_start_estimate`` are the JST of the first and the last.
    ``runs`` counts how often its barrier opened: more than once when it was started again. Its last fields are those
    of ``JobCounts``, in that order.
    """

    job: JobId
    outcome: JobOutcome
    reason: str
    submitted_at: float
    placed_at: float | None
    started_at: float | None
    ended_at: float
    first_start_estimate: float | None
    last_start_estimate: float | None
    places: tuple[tuple[SiteName, int], ...]
    placement_tries: int
    claiming_tries: int
    runs: int
    failures: int
    preemptions: int
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    gpu_s: float = 0.0


AnyFact: TypeAlias = (
    JobPlaced
    | TasksSpawned
    | JobRequeued
    | ElementMade
    | OutputRegistered
    | JobHeld
    | JobUnheld
    | SiteDistrusted
    | JobEnded
)
TurnEntry: TypeAlias = AnyCommand | AnyFact

T_contra = TypeVar("T_contra", contravariant=True)


class Adds(Protocol[T_contra]):
    """A list to which entries of one kind are added, and nothing else is done."""

    def append(self, entry: T_contra, /) -> None:
        """Add it at the end."""


class Turn(msgspec.Struct):
    """What one event has led to, in order: commands, which a driver must perform, and facts, which have happened."""

    entries: list[TurnEntry] = []

    @property
    def commands(self) -> list[AnyCommand]:
        """What must be performed now."""
        return [entry for entry in self.entries if isinstance(entry, Command)]

    @property
    def facts(self) -> list[AnyFact]:
        """What has happened."""
        return [entry for entry in self.entries if isinstance(entry, Fact)]
