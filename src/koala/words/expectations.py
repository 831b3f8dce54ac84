"""When and where a job is expected to start, in words. How a moment is written is the reader's: a terminal has the
clock of its user, a page that of everybody."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from koala.words.phrases import listed

if TYPE_CHECKING:
    from koala.model.api import DryRun, Explanation

Clock: TypeAlias = Callable[[float], str]
# Of a job that had to start by now if every job kept to its walltime.
LATE = "it should have started by now"
# Of one behind elements of arrays, which may have their turns in another order than is counted on.
NOT_PUT_OFF = "no element of an array that comes before puts its plan off"


def expected(at: float, sites: Sequence[str], now: float, clock: Clock) -> str:
    """A plan of a job: ``expected at 14:05:10 on delft and leiden``."""
    return f"expected {'' if at <= now else 'at '}{planned(at, sites, now, clock)}"


def planned(at: float, sites: Sequence[str], now: float, clock: Clock) -> str:
    """For when and where a job has a plan: ``14:05:10 on delft and leiden``. One whose time has come waits until what
    was to end has ended."""
    when = "any moment" if at <= now else clock(at)
    return f"{when} on {listed(sites)}" if sites else when


def with_its_time(why: str, at: float | None, clock: Clock) -> str:
    """What keeps a job back and, where that is known, the time for which it waits."""
    return why if at is None else f"{why}; its time is {clock(at)}"


def start_sentences(found: Explanation | DryRun, now: float, clock: Clock, elements_before: int = 0) -> list[str]:
    """When a job that waits is expected to start, when at the latest, and for whose ends it waits.
    ``elements_before`` elements of arrays, which are no jobs yet, come before it."""
    if found.expected_at is None:
        return []
    plan = expected(found.expected_at, found.expected_sites, now, clock)
    latest = ""
    if found.latest_at is not None and found.latest_at <= now:
        latest = f"; {LATE}"
    elif found.latest_at is not None:
        latest = f"; at the latest at {clock(found.latest_at)}, if every job uses its whole walltime"
        if elements_before:
            latest += f" and {NOT_PUT_OFF}"
    told = [f"{plan[:1].upper()}{plan[1:]}, if nobody comes before{latest}."]
    if found.ends_before:
        jobs = "job" if len(found.ends_before) == 1 else "jobs"
        told.append(f"It waits for the end of {jobs} {listed([str(job) for job in found.ends_before])}.")
    return told
