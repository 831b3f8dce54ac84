"""What the core knows of a job between its submission and its end.

A job is what it is from the beginning (``JobIdentity``), what it has had so far (``JobTotals``), what it has learned
(``JobMemory``), and the one phase that it is in. The fields of these classes are what a record holds of them, see
``koala.core.encoded``.
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
# What is known of these stands in a record of its own.
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
    described: Request  # as it was submitted; ``request`` has the tasks that were spawned since, too
    request: Request
    phase: Phase
    state: JobState  # that of its phase
    placement: JobPlaces | None  # that of its phase: where it has places, or had them when it ended
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
    """What never changes."""

    id: JobId
    submitted_at: float
    number: int = 0  # its place among all jobs ever known
    submitter: str = ""  # whose it is
    guest: bool = False  # whether it must not go to sites that are closed to guests
    array: JobId = 0  # of an element, its array
    index: int | None = None  # and its index there


@encoded
class JobTotals(JobIdentity):
    """What only grows."""

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
    """What outlives a phase: what it has learned, what was asked of it, and what is told of it."""

    claim_fraction: float = 0.0
    waiting_since: float = 0.0
    arrival: int = -1  # its first position in its queue, to which it returns where plans are made
    # Of its plans, of its last places, and of its first.
    first_plan_at: float | None = None
    estimate_s: float | None = None  # how long plans believe it to run, where that is not by its walltime
    placed_at: float | None = None
    start_estimate: float | None = None
    first_start_estimate: float | None = None
    # How its tries went lately.
    rests: int = 0
    rest_s: float = 0.0  # how long it rests when it returns to its queue
    claiming_tries_in_row: int = 0  # since it last ran or was sent back for another reason: what a limit counts
    breaks_in_row: int = 0  # failures without an exit status since its application last returned one
    broke_at: SiteName | None = None  # the site at which a component of it broke first, while it ran
    to_blame: str = ""  # why such failures count as those of its application, once they do
    barred: dict[SiteName, str] = NO_ENTRIES  # sites that will never run it, and why
    avoided: dict[SiteName, float] = NO_ENTRIES  # sites where a run of it failed, and until when
    avoiding: tuple[SiteName, ...] = ()  # those of them that its demand leaves out now
    failed_nodes: dict[SiteName, dict[str, float]] = NO_ENTRIES  # nodes it is kept off, until when
    checkpoint_runs: list[tuple[tuple[SiteName, Token], ...]] = NO_ITEMS  # last first, by component
    # By component: the site, the run, the bytes and the time of the checkpoint that it last went on from.
    went_on_from: dict[int, tuple[SiteName, int, int, float | None]] = NO_ENTRIES
    # What keeps it back.
    held: bool = False  # somebody holds it
    held_by: str = ""  # who does and why, in words, as ``asked_by`` has them
    waits_for: list[tuple[Condition, JobId]] = NO_ITEMS  # what has not come yet
    begins_at: float | None = None  # its time, until that has come
    # What came, or was changed, after its submission; None where it is as its request says.
    spawned: list[SpawnedTasks] = NO_ITEMS  # tasks that came while it ran
    changed_walltime_s: float | None = None
    changed_priority: Priority | None = None
    # Of arrays.
    ahead: bool = False  # whether it counts as an element that is made ahead
    unfolds: ArrayElements | None = None  # of an array


@encoded
class Job(JobMemory):
    """A job between its submission and its end."""

    timer: Timer | None = None

    def __post_init__(self) -> None:
        """It waits."""
        self.phase = Waiting()
        self.state = _WAITING
        self.placement = None

    @classmethod
    def submitted(cls, job_id: JobId, request: Request, at: float, claim_fraction: float) -> Job:
        """A new job."""
        job = cls(job_id, at, claim_fraction=claim_fraction, waiting_since=at)
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
        """The phase of a job whose components come to the barrier."""
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
        """Its position in its queue; -1 where it does not stand in line."""
        phase = self.phase
        return phase.position if isinstance(phase, Waiting) else -1

    @property
    def plan(self) -> StartPlan | None:
        """When and where it is expected to start; None for a job without a plan."""
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
        """When it is planned to start; None for a job without a plan."""
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
        """By component the site and its processors; empty for a job without places."""
        return () if self.placement is None else self.placement.places

    @property
    def claims(self) -> list[ComponentClaim]:
        """The claims of its components, in their order; none for a job without places."""
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
        """When the barrier opened for its run; None where it has not begun."""
        phase = self.phase
        return phase.started_at if isinstance(phase, HasBegun | Ended) else None

    @property
    def joining(self) -> int:
        """How many of its last components are on their way with tasks that were spawned."""
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
        """Until when it keeps what it claimed before the time of its plan; None where it claimed nothing early."""
        phase = self.phase
        return phase.early_until if isinstance(phase, BeforeBarrier | Ended) else None

    @property
    def claims_early(self) -> bool:
        """True if it keeps what it claimed before the time of its plan."""
        return self.early_until is not None

    @property
    def earmarks(self) -> dict[int, int]:
        """By component that waits for preempted processors the site that frees them."""
        phase = self.phase
        return phase.earmarks if isinstance(phase, AwaitsClaims) else NO_ENTRIES

    @property
    def ended_at(self) -> float | None:
        """When it ended; None for one that has not."""
        phase = self.phase
        return phase.ended_at if isinstance(phase, Ended) else None

    @property
    def why(self) -> str:
        """Why it is over, or was set aside."""
        phase = self.phase
        return phase.why if isinstance(phase, Ended | Quarantined) else ""

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

    def become(self, phase: Phase) -> None:
        """Go to the next phase by the table of states, or fail."""
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
        """Be in this phase, as a record has it."""
        self.phase = phase
        self.state = phase.state
        self.placement = phase.placement if phase.has_places else None

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
