"""The accuracy of reported start times: when each planned job was to start, and when it did.

A job is asked about once, when it first has a plan: the answer is what its user would have read then. The error is
the start minus the reported time, so it is positive for a job that started later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from koala.core import Scheduler
from koala.model.facts import JobEnded
from koala.model.request import JobId
from koala.simulator.result import percentile

# Computing a time costs more the more jobs run: at most twice this many jobs, evenly spread, are kept.
TOLD_KEPT = 2_000


class ToldTime(NamedTuple):
    """The report about a job when it first had a plan, and its start, once it has started. Some jobs have no latest
    time."""

    expected_at: float
    latest_at: float | None
    started_at: float | None = None


class ToldTimes:
    """The times that a scheduler reports in a run. ``planned`` contains the jobs that have just had their first
    plan."""

    def __init__(self, scheduler: Scheduler, kept: int = TOLD_KEPT) -> None:
        self._scheduler = scheduler
        self._kept = kept
        self.planned: list[JobId] = []
        scheduler.ledger.first_planned = self.planned
        self._count = 0
        self._every = 1  # one in this many is asked about
        self._told: dict[JobId, ToldTime] = {}
        self._numbers: dict[JobId, int] = {}

    def ask(self) -> None:
        """Ask about the jobs that have just been planned."""
        for job in self.planned:
            self._count += 1
            if self._count % self._every == 0:
                found = self._scheduler.told(job)
                if found is not None:
                    self._told[job] = ToldTime(*found)
                    self._numbers[job] = self._count
        self.planned.clear()
        while len(self._told) > 2 * self._kept:
            self._every *= 2
            for job, number in list(self._numbers.items()):
                if number % self._every:
                    del self._told[job], self._numbers[job]

    def ended(self, command: JobEnded) -> None:
        """Record that a job is over. The start of a job that had to run again was never predicted."""
        told = self._told.get(command.job)
        if told is not None and command.runs == 1:
            self._told[command.job] = told._replace(started_at=command.started_at)

    def as_json(self) -> dict[str, Any]:
        """Return how many jobs had a plan, how many starts were measured, and the errors."""
        return {"planned": self._count, **errors(list(self._told.values()))}


def errors(told: Sequence[ToldTime]) -> dict[str, Any]:
    """Return the errors of both times over the jobs that have started, and how many of them started after the latest
    time."""
    started = [each for each in told if each.started_at is not None]
    expected = [each.started_at - each.expected_at for each in started if each.started_at is not None]
    latest = [
        each.started_at - each.latest_at
        for each in started
        if each.started_at is not None and each.latest_at is not None
    ]
    return {
        "measured": len(started),
        "expected_error_s": _summary(expected),
        "latest_error_s": _summary(latest),
        "after_latest": sum(error > 0 for error in latest),
    }


def _summary(found: Sequence[float]) -> dict[str, float] | None:
    if not found:
        return None
    signed, absolute = sorted(found), sorted(map(abs, found))
    return {
        "median": percentile(signed, 0.5),
        "p90": percentile(signed, 0.9),
        "absolute_median": percentile(absolute, 0.5),
        "absolute_p90": percentile(absolute, 0.9),
    }
