"""What the core holds of a job between its submission and its end.

A job consists of what never changes (``JobIdentity``), what it has consumed so far (``JobTotals``), what it has
learned (``JobMemory``), and its one current phase. A record holds the fields of these
classes, see ``koala.core.encoded``.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from koala.core.changes import Changes
from koala.core.encoded import NO_ENTRIES, NO_ITEMS, encoded
from koala.core.life.claiming import Claiming
from koala.core.life.collecting import Collecting
from koala.core.life.component import ComponentClaim
from koala.core.life.ended import Cancelled, Done, Ended, Failed
from koala.core.life.held import Held
from koala.core.life.phase import AwaitsClaims, BeforeBarrier, HasBegun, Phase
from koala.core.life.placed import Placed
from koala.core.life.places import JobPlaces
from koala.core.life.quarantined import Quarantined
from koala.core.life.running import Running
from koala.core.life.starting import Starting
from koala.core.life.states import InvalidTransitionError, JobState, StateCounts
from koala.core.life.unfolding import ArrayElements, Unfolding
from koala.core.life.unwinding import Unwinding
from koala.core.life.waiting import StartPlan, Waiting
from koala.core.timers import Timer
from koala.model.dependency import Condition
from koala.model.job_array import ArraySpec
from koala.model.messages import JobCounts, Token, Wish
from koala.model.request import JobId, Priority, Request, SiteName
from koala.model.task_graph import SpawnedTasks
from koala.policies.interface import Demand, with_spawned

_HIGH = Priority.HIGH
_WAITING = JobState.WAITING
# Jobs in these states have a separate record of their run.
_WITH_RUN_RECORDS = frozenset({JobState.RUNNING, JobState.COLLECTING})
_counts_of = attrgetter(*JobCounts.__struct_fields__)


class _JobLinks:
    __slots__ = (
        "asks",
        "changes",
        "described",
        "element_states",
        "high",
        "phase",
        "placement",
        "request",
        "state",
        "states",
    )
    described: Request  # as it was submitted; ``request`` also has the tasks that were spawned since
    request: Request
    phase: Phase
    state: JobState  # the state of its phase
    placement: JobPlaces | None  # the places of its phase: where it has places, or had them when it ended
    states: StateCounts  # of all jobs of its scheduler
    changes: Changes  # of the whole state of its scheduler
    high: bool
    asks: Demand | None  # None if unknown: the job is set aside, or asks for an unknown policy
    element_states: dict[JobState, int]  # how many elements that have not ended are in each state of its array


class MissingPartError(LookupError):
    """The core asked a job for a part that a job in its state does not have: a defect of ours."""

    def __init__(self, job: JobId, part: str, state: str) -> None:
        super().__init__(f"job {job}, which is {state}, has no {part}")


# The counts of a job that is no element.
_NO_STATES: dict[JobState, int] = {}


# All phases by their states.
PHASES: dict[JobState, type[Phase]] = {
    each.state: each
    for each in (
        Held,
        Waiting,
        Placed,
        Claiming,
        Starting,
        Running,
        Collecting,
        Unwinding,
        Unfolding,
        Quarantined,
        Done,
        Failed,
        Cancelled,
    )
}


@encoded
class JobIdentity(_JobLinks):
    """The fields that never change."""

    id: JobId
    submitted_at: float
    number: int = 0  # its place among all jobs ever known
    submitter: str = ""  # the user that it belongs to
    guest: bool = False  # True if it must not go to sites that are closed to guests
    array: JobId = 0  # the array of an element
    index: int | None = None  # the index of an element in its array


@encoded
class JobTotals(JobIdentity):
    """The fields that only grow."""

    placement_tries: int = 0
    claiming_tries: int = 0
    runs: int = 0
    starts: int = 0
    failures: int = 0
    application_failures: int = 0
    preemptions: int = 0
    gained_processor_s: float = 0.0
    wasted_processor_s: float = 0.0
    gpu_s: float = 0.0
    victims: int = 0  # how many jobs it has preempted for its places
    restart_rests: int = 0  # how often it has rested after a run that failed


@encoded
class JobMemory(JobTotals):
    """The fields that outlive a phase: what the job has learned, and what was asked or recorded about it."""

    claim_fraction: float = 0.0
    waiting_since: float = 0.0
    arrival: int = -1  # its first position in its queue, to which it returns where plans are made
    # The times of its plans: for its last places, and for its first.
    first_plan_at: float | None = None
    estimate_s: float | None = None  # the run time that plans assume, where that is not its walltime
    placed_at: float | None = None
    start_estimate: float | None = None
    first_start_estimate: float | None = None
    # How its recent tries went.
    rests: int = 0
    rest_s: float = 0.0  # how long it rests when it returns to its queue
    claiming_tries_in_row: int = 0  # since it last ran or was sent back for another reason: a limit counts these
    breaks_in_row: int = 0  # failures without an exit status since its application last returned one
    broke_at: SiteName | None = None  # the site at which one of its components first broke while it ran
    to_blame: str = ""  # why such failures count against its application, once they do
    barred: dict[SiteName, str] = NO_ENTRIES  # sites that will never run it, and why
    avoided: dict[SiteName, float] = NO_ENTRIES  # sites where a run of it failed, and until when it avoids them
    avoiding: tuple[SiteName, ...] = ()  # the avoided sites that its demand leaves out now
    failed_nodes: dict[SiteName, dict[str, float]] = NO_ENTRIES  # nodes that it is kept off, and until when
    checkpoint_runs: list[tuple[tuple[SiteName, Token], ...]] = NO_ITEMS  # by component, last run first
    # By component: the site, the run, the bytes and the time of the checkpoint that it last resumed from.
    went_on_from: dict[int, tuple[SiteName, int, int, float | None]] = NO_ENTRIES
    # What keeps it back.
    held: bool = False  # somebody holds it
    held_by: str = ""  # who holds it and why, in words, as ``asked_by`` has them
    waits_for: list[tuple[Condition, JobId]] = NO_ITEMS  # conditions that are not met yet
    begins_at: float | None = None  # its earliest start, until that has come
    # What was added or changed after its submission; None if it is as its request says.
    spawned: list[SpawnedTasks] = NO_ITEMS  # tasks that were spawned while it ran
    changed_walltime_s: float | None = None
    changed_priority: Priority | None = None
    # Fields of arrays.
    ahead: bool = False  # True if it counts as an element that is made ahead
    unfolds: ArrayElements | None = None  # of an array


@encoded
class Job(JobMemory):
    """A job between its submission and its end."""

    timer: Timer | None = None

    def __post_init__(self) -> None:
        """Begin in the waiting phase."""
        self.phase = Waiting()
        self.state = _WAITING
        self.placement = None

    @classmethod
    def submitted(cls, job_id: JobId, request: Request, at: float, claim_fraction: float) -> Job:
        """Return a new job."""
        job = cls(job_id, at, claim_fraction=claim_fraction, waiting_since=at)
        job.bind(request, StateCounts(), Changes())
        return job

    def bind(self, request: Request, states: StateCounts, changes: Changes) -> None:
        """Link the job to its request; nothing is claimed or transferred for it.

        Its changes of state are counted in ``states``, and its parts to be written are noted in ``changes``.
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
        """Join this array as an element; the array counts it from now on in its current state."""
        array.elements.live += 1
        array.elements.ahead += self.ahead
        self.element_states = array.elements.states
        self.element_states[self.state] += 1

    @property
    def walltime_s(self) -> float | None:
        """How long it may run; None if its user sets no limit."""
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
        """The demand of the job, in numbers."""
        demand = self.asks
        if demand is None:
            raise MissingPartError(self.id, "demand", str(self.state))
        return demand

    @property
    def waiting(self) -> Waiting:
        """The phase of a job that waits."""
        phase = self.phase
        if not isinstance(phase, Waiting):
            raise MissingPartError(self.id, "place in line", str(self.state))
        return phase

    @property
    def awaiting_claims(self) -> AwaitsClaims:
        """The phase of a job in the claiming queue."""
        phase = self.phase
        if not isinstance(phase, AwaitsClaims):
            raise MissingPartError(self.id, "claiming time", str(self.state))
        return phase

    @property
    def starting(self) -> Starting:
        """The phase of a job whose components are coming to the barrier."""
        phase = self.phase
        if not isinstance(phase, Starting):
            raise MissingPartError(self.id, "barrier", str(self.state))
        return phase

    @property
    def running(self) -> Running:
        """The phase of a job that runs."""
        phase = self.phase
        if not isinstance(phase, Running):
            raise MissingPartError(self.id, "run", str(self.state))
        return phase

    @property
    def position(self) -> int:
        """Its position in its queue; -1 if it does not stand in line."""
        phase = self.phase
        return phase.position if isinstance(phase, Waiting) else -1

    @property
    def plan(self) -> StartPlan | None:
        """The expected start and its places; None for a job without a plan."""
        phase = self.phase
        return phase.plan if isinstance(phase, Waiting) else None

    @property
    def planned(self) -> StartPlan:
        """The plan of a job that has one."""
        plan = self.plan
        if plan is None:
            raise MissingPartError(self.id, "plan", str(self.state))
        return plan

    @property
    def plan_at(self) -> float | None:
        """The planned start; None for a job without a plan."""
        plan = self.plan
        return None if plan is None else plan.at

    @property
    def placed(self) -> JobPlaces:
        """The places of a job that has some."""
        placement = self.placement
        if placement is None:
            raise MissingPartError(self.id, "places", str(self.state))
        return placement

    @property
    def places(self) -> tuple[tuple[SiteName, int], ...]:
        """By component, the site and its processors; empty for a job without places."""
        return () if self.placement is None else self.placement.places

    @property
    def claims(self) -> list[ComponentClaim]:
        """The claims of its components, in their order; empty for a job without places."""
        placement = self.placement
        return [] if placement is None else [claim for claim in placement.claims if claim is not None]

    @property
    def holder(self) -> tuple[JobId, int]:
        """Who holds its licences: the job at its present places."""
        return self.id, self.placed.number

    def has_licenses_at(self, site: int) -> bool:
        """Return True if a component of it was claimed at the site with the job's licences."""
        return any(claim.licensed and claim.site == site for claim in self.claims)

    @property
    def started_at(self) -> float | None:
        """When the barrier opened for its run; None if it has not begun."""
        phase = self.phase
        return phase.started_at if isinstance(phase, HasBegun | Ended) else None

    @property
    def joining(self) -> int:
        """How many of its last components are on their way with spawned tasks."""
        phase = self.phase
        return phase.joining if isinstance(phase, Running) else 0

    @property
    def deadline(self) -> float:
        """When the components that are on their way must be at the barrier."""
        phase = self.phase
        if not isinstance(phase, Starting | Running):
            raise MissingPartError(self.id, "deadline", str(self.state))
        return phase.deadline

    @property
    def early_until(self) -> float | None:
        """Until when it keeps what it claimed before its planned start; None if it claimed nothing early."""
        phase = self.phase
        return phase.early_until if isinstance(phase, BeforeBarrier | Ended) else None

    @property
    def claims_early(self) -> bool:
        """True if it keeps what it claimed before its planned start."""
        return self.early_until is not None

    @property
    def earmarks(self) -> dict[int, int]:
        """By component that waits for preempted processors, the site that frees them."""
        phase = self.phase
        return phase.earmarks if isinstance(phase, AwaitsClaims) else NO_ENTRIES

    @property
    def ended_at(self) -> float | None:
        """When it ended; None if it has not."""
        phase = self.phase
        return phase.ended_at if isinstance(phase, Ended) else None

    @property
    def why(self) -> str:
        """Why it ended or was set aside."""
        phase = self.phase
        return phase.why if isinstance(phase, Ended | Quarantined) else ""

    def plan_is_barred(self) -> bool:
        """True if its plan has a site that it must not use any more."""
        demand, plan = self.asks, self.plan
        if demand is None or plan is None or not demand.barred:
            return False
        return not set(demand.barred).isdisjoint(plan.spots.sites)

    @property
    def is_kept_back(self) -> bool:
        """True if there is a reason not to try it yet."""
        return self.held or bool(self.waits_for) or self.begins_at is not None

    def asked_by(self, wish: Wish) -> str:
        """Return who asked for this and why, to follow the words for what was done; the job's own user
        is not named."""
        return wish.asked_by(self.submitter)

    def hold(self, by: str) -> None:
        """Hold the job; ``by`` names the holder and the reason, in words."""
        self.held, self.held_by = True, by

    def become(self, phase: Phase) -> None:
        """Enter the next phase if the table of states allows it; otherwise raise."""
        state, target = self.state, phase.state
        moves = self.states.moves[state]
        if target not in moves:
            raise InvalidTransitionError(self.id, state, target)
        moves[target] += 1
        self.changes.jobs[self.id] = None
        if state in _WITH_RUN_RECORDS:
            self.changes.runs[self.id] = None
        if self.element_states:
            self.element_states[state] -= 1
            self.element_states[target] += 1
        self.restore(phase)

    def restore(self, phase: Phase) -> None:
        """Enter this phase from a record."""
        self.phase = phase
        self.state = phase.state
        self.placement = phase.placement if phase.has_places else None

    def changed(self) -> None:
        """Note that the job must be written again."""
        self.changes.jobs[self.id] = None

    def changed_all(self) -> None:
        """Note that all its records must be written again."""
        changes = self.changes
        changes.jobs[self.id] = changes.places[self.id] = changes.runs[self.id] = None

    def next_token(self) -> Token:
        """Return a name for the next start of a component, never used before or after."""
        self.starts += 1
        return f"{self.id}.{self.starts}"

    def count_claiming_try(self) -> None:
        self.claiming_tries += 1
        self.claiming_tries_in_row += 1

    def counts(self) -> tuple[Any, ...]:
        """Return the values of ``JobCounts``, in its order."""
        counts: tuple[Any, ...] = _counts_of(self)
        return counts

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancelled = True
            self.timer = None
