"""Sentences on when and where a job is expected to start. The reader decides the form of a time: a terminal uses its
user's clock, a page a common one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from koala.words.phrases import listed

if TYPE_CHECKING:
    from koala.model.api import DryRun, Explanation

Clock: TypeAlias = Callable[[float], str]
# For a job that should have started by now if every job kept to its walltime.
LATE = "it should have started by now"
# For a job behind elements of arrays, whose turns may come in another order than expected.
NOT_PUT_OFF = "no element of an array that comes before puts its plan off"


def expected(at: float, sites: Sequence[str], now: float, clock: Clock) -> str:
    """Format a job's plan: ``expected at 14:05:10 on delft and leiden``."""
    return f"expected {'' if at <= now else 'at '}{planned(at, sites, now, clock)}"


def planned(at: float, sites: Sequence[str], now: float, clock: Clock) -> str:
    """Format the time and places of a plan: ``14:05:10 on delft and leiden``. A job whose time has come waits for
    jobs that should have ended."""
    when = "any moment" if at <= now else clock(at)
    return f"{when} on {listed(sites)}" if sites else when


def with_its_time(why: str, at: float | None, clock: Clock) -> str:
    """Return the reason that keeps a job back and, if known, the time that it waits for."""
    return why if at is None else f"{why}; its time is {clock(at)}"


def start_sentences(found: Explanation | DryRun, now: float, clock: Clock, elements_before: int = 0) -> list[str]:
    """Return sentences on when a waiting job is expected to start, when at the latest, and whose ends it waits for.
    ``elements_before`` elements of arrays, which are not jobs yet, come before it."""
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
