"""The life of a job as one literal table: all states, and every transition between them.

Nothing else decides which changes of state are allowed, and the state diagram in the documentation is drawn
from this table.
"""

from __future__ import annotations

import enum

from koala.model.request import JobId


class JobState(enum.StrEnum):
    """The state of a job.

    ``WAITING`` jobs are in their placement queue, ``PLACED`` and ``CLAIMING`` jobs in the claiming queue, all others
    in no queue.
    """

    HELD = "held"
    WAITING = "waiting"
    PLACED = "placed"
    CLAIMING = "claiming"
    STARTING = "starting"
    RUNNING = "running"
    COLLECTING = "collecting"
    UNWINDING = "unwinding"
    UNFOLDING = "unfolding"
    QUARANTINED = "quarantined"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


# state -> next state -> the cause of the transition
TRANSITIONS: dict[JobState, dict[JobState, str]] = {
    JobState.HELD: {
        JobState.WAITING: "what it waits for has come, and nobody holds it",
        JobState.CANCELLED: "cancel, or what it waits for can never come",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.WAITING: {
        JobState.HELD: "it waits for other jobs or for its time, or somebody holds it",
        JobState.PLACED: "the policy found places for all components",
        JobState.UNFOLDING: "it is an array",
        JobState.FAILED: "placement or claiming tries used up, or the request names what does not exist",
        JobState.CANCELLED: "cancel",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.PLACED: {
        JobState.CLAIMING: "some components were claimed",
        JobState.STARTING: "all components were claimed",
        JobState.WAITING: "not all claimed at the job start time, a file could not be brought, or preempted",
        JobState.FAILED: "claiming tries used up",
        JobState.CANCELLED: "cancel",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.CLAIMING: {
        JobState.STARTING: "the last components were claimed",
        JobState.WAITING: "not all claimed at the job start time, a component failed, or preempted",
        JobState.FAILED: "claiming tries used up",
        JobState.CANCELLED: "cancel",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.STARTING: {
        JobState.RUNNING: "all components reported and all files arrived: the barrier opens",
        JobState.CLAIMING: "a site did not take a component and there is time to claim it again",
        JobState.WAITING: "a component failed or did not reach the barrier in time, or preempted",
        JobState.FAILED: "claiming tries or restarts used up",
        JobState.CANCELLED: "cancel",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.RUNNING: {
        JobState.DONE: "the last component returned success",
        JobState.COLLECTING: "the last component returned success, and the job has outputs",
        JobState.UNWINDING: "a component failed, or preempted",
        JobState.FAILED: "restarts used up, or the walltime passed",
        JobState.CANCELLED: "cancel",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.COLLECTING: {
        JobState.DONE: "every output is registered where it was made",
        JobState.WAITING: "the site of an output is lost, or requeued",
        JobState.FAILED: "an output was not made, or cannot be had",
        JobState.CANCELLED: "cancel",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.UNWINDING: {
        JobState.WAITING: "no site holds a component of it any more",
        JobState.CANCELLED: "cancel",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.UNFOLDING: {
        JobState.HELD: "somebody holds it: no more elements are made",
        JobState.DONE: "every element is done",
        JobState.FAILED: "all elements have ended, and some failed",
        JobState.CANCELLED: "cancel, or all have ended and some were cancelled",
        JobState.QUARANTINED: "an error inside Koala",
    },
    JobState.QUARANTINED: {
        JobState.WAITING: "put back",
        JobState.CANCELLED: "cancel",
    },
    JobState.DONE: {},
    JobState.FAILED: {},
    JobState.CANCELLED: {},
}

IN_CLAIMING_QUEUE = frozenset({JobState.PLACED, JobState.CLAIMING})
# Jobs in these states have known places, and hold nothing there any more.
GIVEN_BACK = frozenset({JobState.UNWINDING, JobState.COLLECTING})
ENDED = frozenset({JobState.DONE, JobState.FAILED, JobState.CANCELLED})


class StateCounts:
    """How many jobs are in each state: one count for each transition of the table, as moves are frequent
    and queries rare."""

    __slots__ = ("began", "moves")

    def __init__(self) -> None:
        self.began = dict.fromkeys(JobState, 0)
        self.moves = {state: dict.fromkeys(ways, 0) for state, ways in TRANSITIONS.items()}

    def __getitem__(self, state: JobState) -> int:
        came = sum(moves.get(state, 0) for moves in self.moves.values())
        return self.began[state] + came - sum(self.moves[state].values())


class InvalidTransitionError(RuntimeError):
    """The core tried a transition that the table does not have: a defect of ours."""

    def __init__(self, job: JobId, state: JobState, target: JobState) -> None:
        super().__init__(f"job {job} cannot go from {state} to {target}")
        self.job = job
        self.state = state
        self.target = target


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> waiting: submit"]
    for state, ways in TRANSITIONS.items():
        lines += [f"    {state} --> {target}: {label.replace(':', ' -')}" for target, label in ways.items()]
        if not ways:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines)
