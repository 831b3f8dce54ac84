"""The life of a job as one literal table: which states there are, and every way from one to the next.

Nothing else decides whether a change of state is allowed, and the state diagram in the documentation is drawn
from this table.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from koala.model.request import JobId


class State(enum.StrEnum):
    """Where a job is. ``WAITING`` jobs are in their placement queue, ``PLACED`` and ``CLAIMING`` ones in the
    claiming queue, all others in no queue."""

    WAITING = "waiting"
    PLACED = "placed"
    CLAIMING = "claiming"
    STARTING = "starting"
    RUNNING = "running"
    UNWINDING = "unwinding"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


MEANING: dict[State, str] = {
    State.WAITING: "in its placement queue; no places have been found yet",
    State.PLACED: "every component has a place and files are on their way; nothing is claimed yet",
    State.CLAIMING: "some components hold their processors at the barrier, others are still to be claimed",
    State.STARTING: "every component is claimed; the barrier opens when all have reported and all files are there",
    State.RUNNING: "the application runs on all sites",
    State.UNWINDING: "the run has ended early; the job waits until every site has let go of its components",
    State.DONE: "every component returned success",
    State.FAILED: "given up: a limit of tries, restarts or time was reached",
    State.CANCELLED: "its user or an operator cancelled it",
}

# state -> next state -> what brings the job there
TRANSITIONS: dict[State, dict[State, str]] = {
    State.WAITING: {
        State.PLACED: "the policy found places for all components",
        State.FAILED: "placement or claiming tries used up, or the request names what does not exist",
        State.CANCELLED: "cancel",
    },
    State.PLACED: {
        State.CLAIMING: "some components were claimed",
        State.STARTING: "all components were claimed",
        State.WAITING: "not all claimed at the job start time, a file could not be brought, or preempted",
        State.FAILED: "claiming tries used up",
        State.CANCELLED: "cancel",
    },
    State.CLAIMING: {
        State.STARTING: "the last components were claimed",
        State.WAITING: "not all claimed at the job start time, a component failed, or preempted",
        State.FAILED: "claiming tries used up",
        State.CANCELLED: "cancel",
    },
    State.STARTING: {
        State.RUNNING: "all components reported and all files arrived: the barrier opens",
        State.CLAIMING: "a site did not take a component and there is time to claim it again",
        State.WAITING: "a component failed or did not reach the barrier in time, or preempted",
        State.FAILED: "claiming tries or restarts used up",
        State.CANCELLED: "cancel",
    },
    State.RUNNING: {
        State.DONE: "the last component returned success",
        State.UNWINDING: "a component failed, or preempted",
        State.FAILED: "restarts used up, or the walltime passed",
        State.CANCELLED: "cancel",
    },
    State.UNWINDING: {
        State.WAITING: "no site holds a component of it any more",
        State.CANCELLED: "cancel",
    },
    State.DONE: {},
    State.FAILED: {},
    State.CANCELLED: {},
}

IN_CLAIMING_QUEUE = frozenset({State.PLACED, State.CLAIMING})
ENDED = frozenset({State.DONE, State.FAILED, State.CANCELLED})


class InvalidTransitionError(RuntimeError):
    """The core tried to move a job where the table has no way: a defect of ours, shown with the job's story."""

    def __init__(self, job: JobId, state: State, target: State, story: Sequence[str]) -> None:
        told = "\n".join(f"  {line}" for line in story)
        super().__init__(f"job {job} cannot go from {state} to {target}; its story:\n{told}")
        self.job = job
        self.state = state
        self.target = target


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> waiting: submit"]
    for state, ways in TRANSITIONS.items():
        lines += [f"    {state} --> {target}: {label.replace(':', ' -')}" for target, label in ways.items()]
        if not ways:
            lines.append(f"    {state} --> [*]")
    return "\n".join(lines)
