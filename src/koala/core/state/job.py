"""What the core remembers of a job while it lives, and the story of everything it decided about it."""

from __future__ import annotations

import enum
from typing import Any, TypeAlias

from koala.core.lifecycle import TRANSITIONS, InvalidTransitionError, JobState
from koala.core.state.timers import Timer
from koala.core.state.transfer import FileTransfer, Key
from koala.model.messages import Token
from koala.model.request import JobId, Priority, Request, SiteName
from koala.policies.front_door import Demand, Spots

# The longest story that is kept of one job; beyond it the middle is left out.
STORY_LINES_MAX = 400
STORY_HEAD_LINES = 20

# What a try to place a job saw: idle processors by site, and bit/s by link where jobs asked any. A plain pair, since
# one is made for nearly every try, and a tuple with names takes several times as long.
Seen: TypeAlias = tuple[tuple[int, ...], tuple[int, ...]]


class ComponentPhase(enum.IntEnum):
    """How far a claimed component is known to have come."""

    SENT = 0
    ACCEPTED = 1
    READY = 2
    RUNNING = 3


class ComponentClaim:
    """One start of one component: from the command until the site says that it holds nothing any more.

    A claim outlives its job's interest in it: an aborted one counts against its site until its end is
    confirmed, so no processor is ever believed idle while something may still sit on it.
    """

    __slots__ = (
        "abort_tries",
        "aborting",
        "component",
        "job",
        "moved",
        "phase",
        "processors",
        "site",
        "timer",
        "token",
    )

    def __init__(self, token: Token, job: Job, component: int, site: int, processors: int) -> None:
        self.token = token
        self.job = job
        self.component = component
        self.site = site
        self.processors = processors
        self.phase = ComponentPhase.SENT
        self.moved = False  # whether it was claimed here since the component waited too long elsewhere
        self.aborting = False
        self.abort_tries = 0
        self.timer: Timer | None = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class Job:
    """A job between its submission and its end."""

    __slots__ = (
        "application_failures",
        "barred",
        "claim_at",
        "claim_fraction",
        "claim_resumed",
        "claim_sequence",
        "claiming_tries",
        "claiming_tries_in_row",
        "claims",
        "deadline",
        "demand",
        "earmarks",
        "ended_at",
        "entered_scan",
        "failures",
        "first_start_estimate",
        "has_limit",
        "high",
        "id",
        "joined_after_scan",
        "link_demands",
        "needs",
        "observed",
        "outstanding",
        "placed_at",
        "placement_tries",
        "places",
        "position",
        "preemptions",
        "ready",
        "refused",
        "request",
        "rests",
        "runs",
        "spots",
        "start_estimate",
        "started_at",
        "starts",
        "state",
        "story",
        "submitted_at",
        "task_parts",
        "timer",
        "transfers",
        "transfers_open",
        "waiting_since",
    )

    def __init__(self, job_id: JobId, request: Request, at: float, claim_fraction: float) -> None:
        self.id = job_id
        self.request = request
        self.high = request.priority is Priority.HIGH
        self.state = JobState.WAITING
        self.demand: Demand | None = None
        self.submitted_at = at
        self.waiting_since = at
        self.ended_at: float | None = None
        self.story: list[tuple[Any, ...]] = []
        # In the placement queue: its position there, and what its last own try saw.
        self.position = -1
        self.entered_scan = 0
        self.has_limit = False
        self.joined_after_scan = 0
        self.placement_tries = 0
        self.refused: Seen | None = None
        # Since its last placement.
        self.spots: Spots | None = None
        self.places: tuple[tuple[SiteName, int], ...] = ()
        self.task_parts: tuple[tuple[int, ...], ...] = ()  # of a job of tasks: what each component holds
        self.placed_at: float | None = None
        self.started_at: float | None = None
        self.start_estimate: float | None = None
        self.first_start_estimate: float | None = None
        self.claims: list[ComponentClaim | None] = []
        self.earmarks: dict[int, int] = {}
        self.transfers: dict[Key, FileTransfer] = {}
        self.needs: list[tuple[Key, ...]] = []  # what each component needs of them
        self.transfers_open = 0
        self.link_demands: list[tuple[int, int]] = []  # (link, bit/s), while they are booked
        self.observed = False  # whether its bandwidth counts in what was observed
        self.ready = 0
        self.outstanding = 0
        self.deadline = 0.0
        self.timer: Timer | None = None
        # In the claiming queue.
        self.claim_at = 0.0
        self.claim_sequence = 0
        self.claim_resumed = False  # the next try goes on with the last one: preempted processors came free
        # Over its whole life.
        self.claim_fraction = claim_fraction
        self.rests = 0
        self.claiming_tries = 0
        self.claiming_tries_in_row = 0  # since it last ran or was sent back for another reason: what a limit counts
        self.runs = 0
        self.starts = 0
        self.failures = 0
        self.application_failures = 0
        self.preemptions = 0
        self.barred: dict[SiteName, str] = {}  # sites that will never run it, and why

    def move(self, target: JobState) -> None:
        """Change state by the table, or fail with the job's story."""
        if target not in TRANSITIONS[self.state]:
            raise InvalidTransitionError(self.id, self.state, target, [repr(entry) for entry in self.story])
        self.state = target

    def tell(self, at: float, what: str, *details: Any) -> None:
        """Add a line to the story: kept as data, turned into words only when somebody asks.

        A very long story keeps its beginning and its end.
        """
        self.story.append((at, what, *details))
        if len(self.story) > STORY_LINES_MAX:
            cut = slice(STORY_HEAD_LINES, STORY_HEAD_LINES + STORY_LINES_MAX // 2)
            gone = self.story[cut]
            lines = sum(entry[2] if entry[1] == "left_out" else 1 for entry in gone)
            self.story[cut] = [(gone[0][0], "left_out", lines)]

    def next_token(self) -> Token:
        """A name for the next start of a component, never used before or after."""
        self.starts += 1
        return f"{self.id}.{self.starts}"

    def count_claiming_try(self) -> None:
        self.claiming_tries += 1
        self.claiming_tries_in_row += 1

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancelled = True
            self.timer = None
