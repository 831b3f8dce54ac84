"""The conditions that a job waits for before it is tried: the start or the end of other jobs.

Frozen values, valid once built.
"""

from __future__ import annotations

import enum

import msgspec

# A job waits for at most this many others.
DEPENDENCIES_MAX = 1_000
# At most this many remaining dependencies are listed each time that one of them is satisfied.
DEPENDENCIES_TOLD_MAX = 8
# Ends the reason of a job that ends because what it waits for can never happen.
NEVER_COMES = "which can never come"


class Condition(enum.StrEnum):
    """What has to happen to a job before another may start."""

    DONE = "done"  # it succeeded
    ENDED = "ended"  # it ended, in whatever way
    STARTED = "started"  # its barrier has opened
    FAILED = "failed"  # it was given up


class Dependency(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One thing to wait for: a condition of a job. ``index`` selects an element of an array, until a driver has put
    the element's own number into ``job``."""

    job: int
    condition: Condition = Condition.DONE
    index: int | None = None


def in_words(condition: Condition, job: str | int) -> str:
    """Return the dependency in words that follow "waits for"."""
    return f"job {job} {_TO_BECOME[condition]}"


_TO_BECOME = {
    Condition.DONE: "to be done",
    Condition.ENDED: "to end",
    Condition.STARTED: "to start",
    Condition.FAILED: "to fail",
}
