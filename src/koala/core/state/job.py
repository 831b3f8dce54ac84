"""What the core knows of a job, of its places and of its claimed components.

The fields of these classes are what a record holds of them, see ``encoded``.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import field
from heapq import nsmallest
from operator import attrgetter
from typing import Any, TypeAlias

from koala.core.lifecycle import InvalidTransitionError, JobState, StateCounts
from koala.core.state.changes import Changes
from koala.core.state.encoded import INFINITY, NO_ENTRIES, NO_ITEMS, Time, encoded
from koala.core.state.timers import Timer
from koala.model.dependency import Condition
from koala.model.job_array import ArraySpec
from koala.model.messages import JobCounts, JobOutcome, Token, TransferId, Wish
from koala.model.outputs import MadeOutput
from koala.model.request import JobId, Priority, Request, SiteName
from koala.model.task_graph import SpawnedTasks
from koala.policies.interface import Demand, Spots, with_spawned

_HIGH = Priority.HIGH
_counts_of = attrgetter(*JobCounts.__struct_fields__)

# What a try to place a job saw: idle processors by site, and bit/s by link where jobs asked any. A plain pair, since
# one is made for nearly every try, and a tuple with names takes several times as long.
Seen: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


# A transfer that is late is never believed to be there at once.
LATE_S_MIN = 1.0

# A file, the piece of it (offset and size in bytes; None for all of it), and the index of the site that needs it.
TransferKey: TypeAlias = tuple[str, tuple[int, int] | None, int]


def job_of_token(token: Token) -> JobId:
    """The job that a component is of."""
    return int(token.partition(".")[0])


class ComponentPhase(enum.IntEnum):
    """How far a claimed component is known to have come."""

    SENT = 0
    ACCEPTED = 1
    READY = 2
    RUNNING = 3


class _ClaimLinks:
    __slots__ = ("job",)
    job: Job


@encoded
class ComponentClaim(_ClaimLinks):
    """One start of one component: from the command until the site says that it holds nothing any more.

    A claim outlives its job's interest in it: an aborted one counts against its site until its end is
    confirmed, so no processor is ever believed idle while something may still sit on it.
    """

    token: Token
    job_id: JobId
    component: int
    site: int
    processors: int
    phase: ComponentPhase = ComponentPhase.SENT
    moved: bool = False  # whether it was claimed here since the component waited too long elsewhere
    kept_off: bool = False  # whether it must not run on some nodes of its site
    given_up: bool = False  # whether the job has another claim for the component, or has lost its places
    aborting: bool = False
    abort_tries: int = 0
    due_at: Time = 0.0  # when it is due to let go, where plans are made
    placed_at: Time = INFINITY  # since when its processors were promised and not held
    held_at: Time = INFINITY  # since when it holds them and does no work, if that is to be counted
    fenced: bool = False  # whether its site was declared lost: it counts for nothing, and nobody waits for its end
    number: int = 0  # its place among all claims ever made
    timer: Timer | None = None

    def bind(self, job: Job) -> None:
        """Tie it to its job."""
        self.job = job

    def changed(self) -> None:
        """Note that it must be written again."""
        self.job.changes.claims[self.token] = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@encoded
class FileTransfer:
    """One file, or one piece of it, on its way to one site for the jobs that need it there, or there already."""

    key: TransferKey
    size_bytes: int
    id: TransferId = ""
    source: int = -1
    started_at: float = 0.0
    estimate_s: Time = 0.0
    jobs: dict[JobId, None] = field(default_factory=dict)  # in the order in which they came
    done: bool = False
    tries: int = 0
    failed_sources: list[int] = field(default_factory=list)
    timer: Timer | None = None

    def remaining_s(self, now: float) -> float:
        """How long it will still take: as estimated, or, once it is late, as long again as it is late by now."""
        if self.done:
            return 0.0
        remaining_s = self.started_at + self.estimate_s - now
        return remaining_s if remaining_s >= 0.0 else max(LATE_S_MIN, -remaining_s)


@encoded
class JobRun:
    """What is known of the run of a job, also while its components are being ended and its outputs collected."""

    started_at: float
    outstanding: int  # components that have not ended
    joining: int = 0  # of a job of tasks: how many of its last components are on their way with tasks that came later
    # What each component sends to other sites, as measured until so long after its start; or why nobody knows.
    sent: dict[int, tuple[float, float]] = NO_ENTRIES
    unmeasured: dict[int, str] = NO_ENTRIES
    # Of a job with outputs: by component what it ran as, once it is done; what was collected of it.
    workspaces: dict[int, Token] = NO_ENTRIES
    collected: dict[int, tuple[MadeOutput, ...]] = NO_ENTRIES
    collect_tries: int = 0
    spawn_refused: tuple[tuple[str, ...], str] | None = None  # the tasks that it was refused last, and why


class _PlacesLinks:
    __slots__ = ("claims", "link_demands", "transfers", "transfers_open")
    claims: list[ComponentClaim | None]  # by component
    transfers: dict[TransferKey, FileTransfer]  # those in ``needs``, in their order
    transfers_open: int
    link_demands: list[tuple[int, int]]  # (link, bit/s), while they count


@encoded
class JobPlaces(_PlacesLinks):
    """Where each component goes, what is claimed and brought there, and the run once the barrier has opened.

    Of a job that is ``UNWINDING`` or ``COLLECTING`` it says where the components ran; nothing is held there any more.
    """

    spots: Spots
    places: tuple[tuple[SiteName, int], ...]  # the same by the names of the sites
    start_at: Time  # the job start time
    hold_until: Time = 0.0  # when the job is due to end
    early_until: float | None = None  # until when it keeps what it has claimed before the time of its plan
    earmarks: dict[int, int] = NO_ENTRIES  # component -> site
    needs: list[tuple[TransferKey, ...]] = NO_ITEMS  # by component, its transfers
    ready: int = 0  # how many components wait at the barrier
    deadline: Time = 0.0  # when those must be there that are claimed
    # In the claiming queue.
    claim_at: Time = 0.0
    claim_sequence: int = 0
    claim_resumed: bool = False  # the next try goes on with the last one: preempted processors came free
    # What it sends between its sites.
    observed: bool = False  # whether its bandwidth counts in what was observed
    observed_bisection_bit_s: float = 0.0  # and as what
    # What one processor sends: as measured, and as it is believed where that is not what the job declares.
    measured_bit_s: float | None = None
    believed_bit_s: float | None = None
    belief: str = ""  # where that is from: measured, or learned of jobs of its name
    run: JobRun | None = None

    def __post_init__(self) -> None:
        """Nothing is claimed or brought yet."""
        self.claims = [None] * len(self.spots.sites)
        self.transfers = NO_ENTRIES
        self.transfers_open = 0
        self.link_demands = NO_ITEMS

    def at(self, component: int) -> tuple[int, int]:
        """The site of a component, and how many processors it has there."""
        return self.spots.sites[component], self.spots.sizes[component]


@encoded
class StartPlan:
    """When and where a waiting job is to start; ``told_at`` is what its story tells of that by now."""

    at: float
    spots: Spots
    told_at: float = 0.0


class _ElementsLinks:
    __slots__ = ("ahead", "live", "not_done_as", "not_made", "spec", "states")
    spec: ArraySpec
    states: dict[JobState, int]  # how many elements that have not ended are in each state
    not_done_as: Counter[str]  # how many of those that are not done ended so
    not_made: int  # of these: how many were to be made after those that were
    live: int  # how many have not ended
    ahead: int  # of these: how many wait for their first places


@encoded
class ArrayElements(_ElementsLinks):
    """What has become of the elements of an array."""

    made: int = 0
    started: int = 0
    not_done: dict[int, str] = field(default_factory=dict)  # by position how it ended

    def bind(self, spec: ArraySpec) -> None:
        """Tie it to the indices of the array; no element is counted yet."""
        self.spec = spec
        self.live = self.ahead = 0
        self.states = dict.fromkeys(JobState, 0)
        self.not_done_as = Counter(self.not_done.values())
        self.not_made = sum(position >= self.made for position in self.not_done)

    @property
    def running(self) -> int:
        """How many run, or have run and are collected from."""
        return self.states[JobState.RUNNING] + self.states[JobState.COLLECTING]

    @property
    def to_come(self) -> int:
        """How many are still to be made."""
        return self.spec.size - self.made - self.not_made

    @property
    def all_made(self) -> bool:
        """True if every element was made, or will not be."""
        return self.made >= self.spec.size

    @property
    def at_limit(self) -> bool:
        """True if as many live as may."""
        return self.spec.limit is not None and self.live >= self.spec.limit

    def note_not_done(self, position: int, outcome: str) -> None:
        """The element at this position has ended so, made or not."""
        self.not_done[position] = outcome
        self.not_done_as[outcome] += 1
        self.not_made += position >= self.made

    def failed(self, named_max: int) -> str:
        """The indices of the first elements that failed, in words."""
        failed = (position for position, outcome in self.not_done.items() if outcome == JobOutcome.FAILED)
        first = [str(self.spec.index_at(position)) for position in nsmallest(named_max, failed)]
        more = self.not_done_as[str(JobOutcome.FAILED)] - len(first)
        named = f"{'index' if len(first) == 1 else 'indices'} {', '.join(first)}"
        return f"{named} and {more} more" if more else named

    def next(self) -> int | None:
        """The position of the next element, which counts as made; None where it is not to be."""
        position = self.made
        self.made += 1
        if position in self.not_done:
            self.not_made -= 1
            return None
        return position


class _JobLinks:
    __slots__ = (
        "asks",
        "changes",
        "described",
        "element_states",
        "high",
        "request",
        "states",
    )
    described: Request  # as it was submitted; ``request`` has the tasks that were spawned since, too
    request: Request
    states: StateCounts  # of all jobs of its scheduler
    changes: Changes  # of all that its scheduler knows
    high: bool
    asks: Demand | None  # None where that cannot be said: it is set aside, or asks for a policy that is not known
    element_states: dict[JobState, int]  # how many elements that have not ended are in each state of its array


class MissingPartError(LookupError):
    """The core asked a job for what a job in its state does not have: a defect of ours."""

    def __init__(self, job: JobId, part: str, state: str) -> None:
        super().__init__(f"job {job}, which is {state}, has no {part}")


# What a job that is no element counts in.
_NO_STATES: dict[JobState, int] = {}


@encoded
class Job(_JobLinks):
    """A job between its submission and its end."""

    id: JobId
    submitted_at: float
    waiting_since: float
    claim_fraction: float
    number: int = 0  # its place among all jobs ever known
    state: JobState = JobState.WAITING
    timer: Timer | None = None
    ended_at: float | None = None
    why: str = ""  # why it is over, or was set aside
    # In the placement queue: its position there, the scan at which its tries are used up, what its first try saw.
    position: int = -1
    entered_scan: int = 0
    joined_after_scan: int = 0
    exhausted_at_scan: int | None = None
    placement_tries: int = 0
    refused: Seen | None = None
    arrival: int = -1  # its first position, to which it returns where plans are made
    # Its plan, where it has one: when and where it is expected to start.
    plan: StartPlan | None = None
    first_plan_at: float | None = None
    estimate_s: float | None = None  # how long plans believe it to run, where that is not by its walltime
    # Where it has places, or had them when it ended.
    placement: JobPlaces | None = None
    # Of its last places, and of its first.
    placed_at: float | None = None
    start_estimate: float | None = None
    first_start_estimate: float | None = None
    # Over its whole life.
    rests: int = 0
    claiming_tries: int = 0
    claiming_tries_in_row: int = 0  # since it last ran or was sent back for another reason: what a limit counts
    runs: int = 0
    starts: int = 0
    failures: int = 0
    application_failures: int = 0
    breaks_in_row: int = 0  # failures without an exit status since its application last returned one
    preemptions: int = 0
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    gpu_s: float = 0.0
    victims: int = 0  # how many jobs it has preempted for its places
    barred: dict[SiteName, str] = NO_ENTRIES  # sites that will never run it, and why
    avoided: dict[SiteName, float] = NO_ENTRIES  # sites where a run of it failed, and until when
    avoiding: tuple[SiteName, ...] = ()  # those of them that its demand leaves out now
    failed_nodes: dict[SiteName, dict[str, float]] = NO_ENTRIES  # nodes it is kept off, until when
    rest_s: float = 0.0  # how long it rests when it returns to its queue
    restart_rests: int = 0  # how often it has rested after a run that failed
    checkpoint_runs: list[tuple[tuple[SiteName, Token], ...]] = NO_ITEMS  # last first, by component
    # By component: the site, the run, the bytes and the time of the checkpoint that it last went on from.
    went_on_from: dict[int, tuple[SiteName, int, int, float | None]] = NO_ENTRIES
    broke_at: SiteName | None = None  # the site at which a component of it broke first, while it ran
    to_blame: str = ""  # why such failures count as those of its application, once they do
    submitter: str = ""  # whose it is
    guest: bool = False  # whether it must not go to sites that are closed to guests
    # Why it is not tried yet.
    held: bool = False  # somebody holds it
    held_by: str = ""  # who does and why, in words, as ``asked_by`` has them
    waits_for: list[tuple[Condition, JobId]] = NO_ITEMS  # what has not come yet
    begins_at: float | None = None  # its time, until that has come
    # Of an element: its array, its index there, and whether it counts as one that is made ahead.
    array: JobId = 0
    index: int | None = None
    ahead: bool = False
    unfolds: ArrayElements | None = None  # of an array
    # Of a job of tasks: those that came while it ran.
    spawned: list[SpawnedTasks] = NO_ITEMS
    # What was changed after its submission; None where it is as its request says.
    changed_walltime_s: float | None = None
    changed_priority: Priority | None = None

    @classmethod
    def submitted(cls, job_id: JobId, request: Request, at: float, claim_fraction: float) -> Job:
        """A new job."""
        job = cls(job_id, at, at, claim_fraction)
        job.bind(request, StateCounts(), Changes())
        return job

    def bind(self, request: Request, states: StateCounts, changes: Changes) -> None:
        """Tie it to its request; nothing is claimed or transferred for it.

        Its changes of state are counted in ``states``, and those that must be written are noted in ``changes``.
        """
        self.changes = changes
        self.described = request
        self.request = with_spawned(request, self.spawned) if self.spawned else request
        self.states = states
        self.high = (self.changed_priority or request.priority) is _HIGH
        self.asks = None
        self.element_states = _NO_STATES
        if request.array is not None:
            if self.unfolds is None and not self.array:
                self.unfolds = ArrayElements()
            if self.unfolds is not None:
                self.unfolds.bind(request.array)

    def join_array(self, array: Job) -> None:
        """Be an element of this array, which counts it from now on in the state that it is in."""
        array.elements.live += 1
        array.elements.ahead += self.ahead
        self.element_states = array.elements.states
        self.element_states[self.state] += 1

    @property
    def walltime_s(self) -> float | None:
        """How long it may run; None where its user does not say."""
        return self.request.walltime_s if self.changed_walltime_s is None else self.changed_walltime_s

    @property
    def spec(self) -> ArraySpec | None:
        """The indices of an array; None for an element and for any other job."""
        return None if self.array else self.request.array

    @property
    def elements(self) -> ArrayElements:
        """The elements of an array."""
        if self.unfolds is None:
            raise MissingPartError(self.id, "elements", str(self.state))
        return self.unfolds

    @property
    def demand(self) -> Demand:
        """What it asks for, in numbers."""
        demand = self.asks
        if demand is None:
            raise MissingPartError(self.id, "demand", str(self.state))
        return demand

    @property
    def planned(self) -> StartPlan:
        """The plan of a job that has one."""
        if self.plan is None:
            raise MissingPartError(self.id, "plan", str(self.state))
        return self.plan

    @property
    def plan_at(self) -> float | None:
        """When it is planned to start; None for a job without a plan."""
        return None if self.plan is None else self.plan.at

    @property
    def placed(self) -> JobPlaces:
        """The places of a job that has some."""
        placement = self.placement
        if placement is None:
            raise MissingPartError(self.id, "places", str(self.state))
        return placement

    @property
    def run(self) -> JobRun:
        """The run of a job that has passed its barrier."""
        placement = self.placement
        run = None if placement is None else placement.run
        if run is None:
            raise MissingPartError(self.id, "run", str(self.state))
        return run

    @property
    def places(self) -> tuple[tuple[SiteName, int], ...]:
        """By component the site and its processors; empty for a job without places."""
        return () if self.placement is None else self.placement.places

    @property
    def claims(self) -> list[ComponentClaim]:
        """The claims of its components, in their order; none for a job without places."""
        placement = self.placement
        return [] if placement is None else [claim for claim in placement.claims if claim is not None]

    @property
    def started_at(self) -> float | None:
        """When the barrier opened for the run that goes on; None where none does."""
        placement = self.placement
        return None if placement is None or placement.run is None else placement.run.started_at

    @property
    def joining(self) -> int:
        """How many of its last components are on their way with tasks that were spawned."""
        placement = self.placement
        return 0 if placement is None or placement.run is None else placement.run.joining

    @property
    def claims_early(self) -> bool:
        """True if it keeps what it claimed before the time of its plan."""
        return self.placement is not None and self.placement.early_until is not None

    def plan_is_barred(self) -> bool:
        """Whether its plan has a site that it must not go to any more."""
        demand, plan = self.asks, self.plan
        if demand is None or plan is None or not demand.barred:
            return False
        return not set(demand.barred).isdisjoint(plan.spots.sites)

    @property
    def is_kept_back(self) -> bool:
        """Whether there is a reason not to try it yet."""
        return self.held or bool(self.waits_for) or self.begins_at is not None

    def asked_by(self, wish: Wish) -> str:
        """Who asked for this and why, in words behind what was done; the job's own user goes without a name."""
        return wish.asked_by(self.submitter)

    def hold(self, by: str) -> None:
        """Somebody holds it from now on: ``by`` whom and why, in words."""
        self.held, self.held_by = True, by

    def move(self, target: JobState) -> None:
        """Change state by the table, or fail."""
        state = self.state
        moves = self.states.moves[state]
        if target not in moves:
            raise InvalidTransitionError(self.id, state, target)
        moves[target] += 1
        self.changes.jobs[self.id] = None
        if self.element_states:
            self.element_states[state] -= 1
            self.element_states[target] += 1
        self.state = target

    def changed(self) -> None:
        """Note that it must be written again."""
        self.changes.jobs[self.id] = None

    def changed_all(self) -> None:
        """Note that all its records must be written again."""
        changes = self.changes
        changes.jobs[self.id] = changes.places[self.id] = changes.runs[self.id] = None

    def next_token(self) -> Token:
        """A name for the next start of a component, never used before or after."""
        self.starts += 1
        return f"{self.id}.{self.starts}"

    def count_claiming_try(self) -> None:
        self.claiming_tries += 1
        self.claiming_tries_in_row += 1

    def counts(self) -> tuple[Any, ...]:
        """All that ``JobCounts`` tells of it, in that order."""
        counts: tuple[Any, ...] = _counts_of(self)
        return counts

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancelled = True
            self.timer = None
