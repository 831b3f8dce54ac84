"""Facts: what the core has decided or brought about, for the record. With commands they make a turn.

Nobody performs a fact. In the journal, and in the log of a simulation, it stands among the commands of its event, at
the point where it became true. It has the same mark on record as a command (``command``), which distinguishes both
from events.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias, TypeVar

import msgspec

from koala.model.dependency import Condition, Dependency
from koala.model.messages import AnyCommand, Command, JobOutcome
from koala.model.outputs import MadeOutput
from koala.model.request import FileName, JobId, SiteName


class Fact(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True, tag=True, tag_field="command"):
    """Something that is true from now on, because the core decided it or brought it about."""


class JobPlaced(Fact, frozen=True, kw_only=True, tag=True):
    """The job has places: one (site, processors) for each component, in order."""

    job: JobId
    places: tuple[tuple[SiteName, int], ...]


class TasksSpawned(Fact, frozen=True, kw_only=True, tag=True):
    """These tasks are part of the job from now on, in new components behind its present ones, with one (site,
    processors) for each. A ``reason`` means that they are not: they were refused, or withdrawn before they began."""

    job: JobId
    tasks: tuple[str, ...]
    places: tuple[tuple[SiteName, int], ...] = ()
    reason: str = ""


class JobRequeued(Fact, frozen=True, kw_only=True, tag=True):
    """The job has lost its places and returns to its placement queue; ``reason`` explains why."""

    job: JobId
    reason: str


class ElementMade(Fact, frozen=True, kw_only=True, tag=True):
    """An element of an array is a job from now on, with the request of the array."""

    job: JobId
    array: JobId
    index: int


class OutputRegistered(Fact, frozen=True, kw_only=True, tag=True):
    """An output of the job is now a file of the replica catalogue, with replicas at these sites; the first is the one
    that made it. The driver forgets it after ``kept_until``, unless a job is to read it."""

    job: JobId
    part: int
    file: FileName
    output: MadeOutput
    sites: tuple[SiteName, ...]
    kept_until: float | None = None


class JobHeld(Fact, frozen=True, kw_only=True, tag=True):
    """The job is not tried yet: somebody holds it, it waits for others, or for its time. The fact is repeated each
    time that a dependency is satisfied, so it names only the first of the remaining ones and counts ``more``.
    ``held_by`` states in words who holds the job and why."""

    job: JobId
    held: bool = False
    held_by: str = ""
    waits_for: tuple[Dependency, ...] = ()
    more: int = 0
    begins_at: float | None = None


class JobUnheld(Fact, frozen=True, kw_only=True, tag=True):
    """Nothing keeps the job back any more; it is in its placement queue."""

    job: JobId


class SiteDistrusted(Fact, frozen=True, kw_only=True, tag=True):
    """The site has lost its trust, for the given ``reason``; nothing goes there until it has cooled down."""

    site: SiteName
    reason: str


class JobEnded(Fact, frozen=True, tag=True):
    """The job is over and the core forgets it. ``reason`` is for its user.

    Times are absolute; they are None for a job that was never placed or started. ``placed_at`` belongs to the last
    placement; ``first_start_estimate`` and ``last_start_estimate`` are the JST of the first and the last. ``runs``
    counts how often its barrier opened: more than once after restarts. The last fields are those of ``JobCounts``, in
    that order.
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


# ------------------------------------------------------------------------------------ facts for stories only


class StoryFact(Fact, frozen=True, kw_only=True, tag=True):
    """A fact about a job that only its story tells. The core makes such facts only where stories are recorded."""

    job: JobId


class JobRefused(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job found no places at its first try. ``idle`` counts idle processors by site; where its tasks have a
    ``shape``, ``room`` counts the tasks that fit at each site."""

    idle: tuple[tuple[SiteName, int], ...]
    shape: str = ""
    room: tuple[tuple[SiteName, int], ...] = ()


class KeptForPlans(StoryFact, frozen=True, kw_only=True, tag=True):
    """At the job's first try enough is idle, but it is kept for the plans of others."""


class SitesClosed(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job must not go to these sites, for the given ``reason``."""

    sites: tuple[SiteName, ...]
    reason: str


class JobPlanned(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job has a plan: it starts within this time, at these places."""

    within_s: float
    places: tuple[tuple[SiteName, int], ...]


class PlanPutOff(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job's plan moves to a later time, by ``by_s``, for the given ``reason``."""

    by_s: float
    reason: str


class PlanLost(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job's plan is given up, for the given ``reason``."""

    reason: str


class LinkBelief(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The believed speed and latency of a link, with the predictors and their numbers of measurements; without a
    predictor the values are those of the grid file."""

    source: SiteName
    target: SiteName
    bytes_per_s: float
    rate_predictor: str = ""
    rates: int = 0
    latency_s: float
    latency_predictor: str = ""
    latencies: int = 0


class TransfersExpected(StoryFact, frozen=True, kw_only=True, tag=True):
    """How long the transfers of a newly placed job take, and the beliefs about the links that decided."""

    transfer_s: float = 0.0
    links: tuple[LinkBelief, ...] = ()


class ClaimPutOff(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job does not claim yet, because too few components could start now."""


class ClaimsEarly(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job claims its places before the time of its plan, and keeps them for at most this time."""

    within_s: float


class ComponentMoved(StoryFact, frozen=True, kw_only=True, tag=True):
    """A component moves from a site where it could not start to another."""

    component: int
    source: SiteName
    target: SiteName


class Preempts(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job preempts others: for a ``component`` at a ``site``, or for its places as a whole."""

    victims: tuple[JobId, ...]
    component: int | None = None
    site: SiteName = ""
    lost_s: float = 0.0


class FileArrived(StoryFact, frozen=True, kw_only=True, tag=True):
    """An input file of the job, or a piece of it, has arrived at one of its sites."""

    file: FileName
    site: SiteName


class TransferBroke(StoryFact, frozen=True, kw_only=True, tag=True):
    """The transfer of an input file of the job broke, for the given ``reason``."""

    file: FileName
    source: SiteName
    target: SiteName
    reason: str


class InputForgotten(StoryFact, frozen=True, kw_only=True, tag=True):
    """Somebody removed an input file of the job; ``by`` states in words who and why."""

    file: FileName
    by: str = ""


class DependencyCame(StoryFact, frozen=True, kw_only=True, tag=True):
    """A dependency of the job is satisfied."""

    condition: Condition
    other: JobId


class BeginTimeCame(StoryFact, frozen=True, kw_only=True, tag=True):
    """The time has come before which the job must not begin."""


class ElementCancelled(StoryFact, frozen=True, kw_only=True, tag=True):
    """An element of the array was cancelled before it was made; ``by`` states in words who and why."""

    element: JobId
    by: str = ""


class SpawnBegan(StoryFact, frozen=True, kw_only=True, tag=True):
    """Spawned tasks of the job have begun."""

    tasks: tuple[str, ...]


class TrafficKnown(StoryFact, frozen=True, kw_only=True, tag=True):
    """The measured traffic between the sites of the job."""

    bit_s: float


class AskedToSave(StoryFact, frozen=True, kw_only=True, tag=True):
    """This many components of the job are asked to save their state, and may run on for a time of grace."""

    components: int
    grace_s: float


class OutputsAwaited(StoryFact, frozen=True, kw_only=True, tag=True):
    """Every component is done, and their outputs are collected at these sites."""

    sites: tuple[SiteName, ...]


class Blamed(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job itself is to blame for its failures, for the given ``reason``."""

    reason: str


class FailsAlone(StoryFact, frozen=True, kw_only=True, tag=True):
    """Only jobs of this job's user fail at a site."""

    site: SiteName


class DistrustProved(StoryFact, frozen=True, kw_only=True, tag=True):
    """The end of the job has cost a site its trust, for the given ``reason``."""

    site: SiteName
    reason: str


class SiteTrusted(StoryFact, frozen=True, kw_only=True, tag=True):
    """The end of the job has restored the trust in a site."""

    site: SiteName


class NodesAllowed(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job may run on every node of a site, even where it failed, because there is no other way; ``once`` limits
    this to one try."""

    site: SiteName
    once: bool


class SitesAvoided(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job avoids these sites while others have room; the ``closed`` ones have too few nodes left for it."""

    sites: tuple[SiteName, ...]
    closed: tuple[SiteName, ...] = ()


class JobRests(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job rests for this time before it is placed again."""

    rest_s: float


class NotGivenBack(StoryFact, frozen=True, kw_only=True, tag=True):
    """The job held something that could not be given back properly."""

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
    """A list that entries of one kind are appended to; it offers nothing else."""

    def append(self, entry: T_contra, /) -> None:
        """Append the entry."""


class Turn(msgspec.Struct):
    """The result of one event, in order: commands that a driver must perform, and facts."""

    entries: list[TurnEntry] = []

    @property
    def commands(self) -> list[AnyCommand]:
        """The commands, which must be performed now."""
        return [entry for entry in self.entries if isinstance(entry, Command)]

    @property
    def facts(self) -> list[AnyFact]:
        """The facts."""
        return [entry for entry in self.entries if isinstance(entry, Fact)]
