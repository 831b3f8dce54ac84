"""What a job may wait for before it is tried: the start or the end of other jobs.

Frozen values, valid once built, with no behaviour that needs a world.
"""

from __future__ import annotations

import enum

import msgspec

# A job waits for so many others at most.
DEPENDENCIES_MAX = 1_000
# So many of them are told, each time that one has come, of a job that still waits.
DEPENDENCIES_TOLD_MAX = 8
# What is said of what a job waits for, in the reason of its end, when nothing can bring it any more.
NEVER_COMES = "which can never come"


class Condition(enum.StrEnum):
    """What has to become of a job before another may start."""

    DONE = "done"  # it ended, and well
    ENDED = "ended"  # it ended, however
    STARTED = "started"  # its barrier has opened
    FAILED = "failed"  # it was given up


class Dependency(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """One thing to wait for: that this becomes of that job; with ``index`` of that element of the array, until a
    driver has put the element's own number there."""

    job: int
    condition: Condition = Condition.DONE
    index: int | None = None


def in_words(condition: Condition, job: str | int) -> str:
    """What is waited for, as it goes on after "waits for"."""
    return f"job {job} {_TO_BECOME[condition]}"


_TO_BECOME = {
    Condition.DONE: "to be done",
    Condition.ENDED: "to end",
    Condition.STARTED: "to start",
    Condition.FAILED: "to fail",
}
