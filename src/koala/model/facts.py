"""What the core has decided or brought about, for the record: facts. With commands they make a turn.

Nobody performs a fact. It stands in the journal, and in the log of a simulation, among the commands of its event,
where it became true. On record it bears the same mark as a command (``command``), which tells both from events.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, TypeVar

import msgspec

from koala.model.dependency import Condition, Dependency
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


# ------------------------------------------------------------------------------------ what only a story tells


class StoryFact(Fact, frozen=True, kw_only=True, tag=True):
    """A fact about a job that only its story tells. The core gives it where somebody records stories."""

    job: JobId


class JobRefused(StoryFact, frozen=True, kw_only=True, tag=True):
    """No places were found at its first try. What each site had idle and, where its tasks have a ``shape``, for how
    many of them it had room."""

    idle: tuple[tuple[SiteName, int], ...]
    shape: str = ""
    room: tuple[tuple[SiteName, int], ...] = ()


class KeptForPlans(StoryFact, frozen=True, kw_only=True, tag=True):
    """Enough is idle for it at its first try, and kept for the plans of others."""


class SitesClosed(StoryFact, frozen=True, kw_only=True, tag=True):
    """It must not go to these sites, and why."""

    sites: tuple[SiteName, ...]
    reason: str


class JobPlanned(StoryFact, frozen=True, kw_only=True, tag=True):
    """It has a plan: within what time it starts, and where."""

    within_s: float
    places: tuple[tuple[SiteName, int], ...]


class PlanPutOff(StoryFact, frozen=True, kw_only=True, tag=True):
    """Its plan is later than it was, by how much and why."""

    by_s: float
    reason: str


class PlanLost(StoryFact, frozen=True, kw_only=True, tag=True):
    """Its plan is given up, and why."""

    reason: str


class LinkBelief(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What is believed of a link: the predictors, and how many measurements they had; without a predictor it is as
    the grid file says."""

    source: SiteName
    target: SiteName
    bytes_per_s: float
    rate_predictor: str = ""
    rates: int = 0
    latency_s: float
    latency_predictor: str = ""
    latencies: int = 0


class TransfersExpected(StoryFact, frozen=True, kw_only=True, tag=True):
    """How long the files of a job with new places take, and what is believed of the links that decided."""

    transfer_s: float = 0.0
    links: tuple[LinkBelief, ...] = ()


class ClaimPutOff(StoryFact, frozen=True, kw_only=True, tag=True):
    """Too few components could start now."""


class ClaimsEarly(StoryFact, frozen=True, kw_only=True, tag=True):
    """It claims its places before the time of its plan, and keeps them for so long at most."""

    within_s: float


class ComponentMoved(StoryFact, frozen=True, kw_only=True, tag=True):
    """A component goes from a site where it could not start to another."""

    component: int
    source: SiteName
    target: SiteName


class Preempts(StoryFact, frozen=True, kw_only=True, tag=True):
    """It preempts others: for a ``component`` at a ``site``, or for its places as a whole."""

    victims: tuple[JobId, ...]
    component: int | None = None
    site: SiteName = ""
    lost_s: float = 0.0


class FileArrived(StoryFact, frozen=True, kw_only=True, tag=True):
    """A file that it reads, or a piece of it, is at a site of its."""

    file: FileName
    site: SiteName


class TransferBroke(StoryFact, frozen=True, kw_only=True, tag=True):
    """The transfer of a file that it reads broke, and why."""

    file: FileName
    source: SiteName
    target: SiteName
    reason: str


class InputForgotten(StoryFact, frozen=True, kw_only=True, tag=True):
    """Somebody removed a file that it reads; ``by`` whom and why, in words."""

    file: FileName
    by: str = ""


class DependencyCame(StoryFact, frozen=True, kw_only=True, tag=True):
    """What it waited for became of another job."""

    condition: Condition
    other: JobId


class BeginTimeCame(StoryFact, frozen=True, kw_only=True, tag=True):
    """The time before which it must not begin has come."""


class ElementCancelled(StoryFact, frozen=True, kw_only=True, tag=True):
    """An element of the array was cancelled before it was made; ``by`` whom and why, in words."""

    element: JobId
    by: str = ""


class SpawnBegan(StoryFact, frozen=True, kw_only=True, tag=True):
    """Tasks that were spawned into the job have begun."""

    tasks: tuple[str, ...]


class TrafficKnown(StoryFact, frozen=True, kw_only=True, tag=True):
    """What it sends between its sites, as measured."""

    bit_s: float


class AskedToSave(StoryFact, frozen=True, kw_only=True, tag=True):
    """So many of its components are asked to save their state, and may run for a time of grace."""

    components: int
    grace_s: float


class OutputsAwaited(StoryFact, frozen=True, kw_only=True, tag=True):
    """Every component is done, and what it made is collected at these sites."""

    sites: tuple[SiteName, ...]


class Blamed(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job itself is to blame for its failures, and why."""

    reason: str


class FailsAlone(StoryFact, frozen=True, kw_only=True, tag=True):
    """Only jobs of its user fail at a site."""

    site: SiteName


class DistrustProved(StoryFact, frozen=True, kw_only=True, tag=True):
    """By how it ended a site has lost its trust, and why."""

    site: SiteName
    reason: str


class SiteTrusted(StoryFact, frozen=True, kw_only=True, tag=True):
    """By how it ended a site is trusted again."""

    site: SiteName


class NodesAllowed(StoryFact, frozen=True, kw_only=True, tag=True):
    """It may run on every node of a site, also where it failed, as there is no other way: this time, or from now
    on."""

    site: SiteName
    once: bool


class SitesAvoided(StoryFact, frozen=True, kw_only=True, tag=True):
    """It avoids these sites while there is another way; those that are ``closed`` have too few nodes left for it."""

    sites: tuple[SiteName, ...]
    closed: tuple[SiteName, ...] = ()


class JobRests(StoryFact, frozen=True, kw_only=True, tag=True):
    """It rests for so long before it is placed again."""

    rest_s: float


class NotGivenBack(StoryFact, frozen=True, kw_only=True, tag=True):
    """Something that it held could not be given back in order."""

    error: str


AnyStoryFact: TypeAlias = (
    JobRefused
    | KeptForPlans
    | SitesClosed
    | JobPlanned
    | PlanPutOff
    | PlanLost
    | TransfersExpected
    | ClaimPutOff
    | ClaimsEarly
    | ComponentMoved
    | Preempts
    | FileArrived
    | TransferBroke
    | InputForgotten
    | DependencyCame
    | BeginTimeCame
    | ElementCancelled
    | SpawnBegan
    | TrafficKnown
    | AskedToSave
    | OutputsAwaited
    | Blamed
    | FailsAlone
    | DistrustProved
    | SiteTrusted
    | NodesAllowed
    | SitesAvoided
    | JobRests
    | NotGivenBack
)
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
    | AnyStoryFact
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
