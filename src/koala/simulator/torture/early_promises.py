"""Promises about the times of plans: early claims stay within the budget and are returned, and predicted starts can
be true."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from koala.core import Scheduler
from koala.core.encoded import INFINITY
from koala.model.messages import AnyEvent
from koala.model.request import JobId
from koala.policies.interface import staging_s

WITHIN = "what is held stays within the budget"
GIVEN_BACK = "what is held early is given back"
TOLD = "a told start can be true"
# Sums of floating-point numbers: a smaller value counts as zero.
LITTLE_S = 1e-3
# Far more than the rounding errors of as many sums as a storm has events.
NEAR_S = 10.0


class EarlyClaimPromises:
    """Adds up independently what components keep; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._ledger = scheduler.ledger
        self._fail = fail
        self._processors = sum(site.processors for site in scheduler.grid.sites)
        self._holding: dict[JobId, int] = {}
        self._since = 0.0
        self._kept: deque[tuple[float, JobId, float]] = deque()  # until when, who, and how much processor time
        self._about: dict[JobId, float] = {}  # the sum of these by job, except for accumulated rounding errors

    def after(self, event: AnyEvent) -> None:
        """Add up until now, and find who keeps what from now on."""
        ledger, parameters = self._ledger, self._ledger.parameters
        for job_id, processors in self._holding.items():
            kept_s = processors * (event.at - self._since)
            self._kept.append((event.at, job_id, kept_s))
            self._about[job_id] = self._about.get(job_id, 0.0) + kept_s
        self._since = event.at
        while self._kept and self._kept[0][0] <= event.at - parameters.hold_window_s:
            _, job_id, kept_s = self._kept.popleft()
            self._about[job_id] -= kept_s
        if self._holding and self._is_near():
            self._is_within()
        self._holding = {}
        for job in ledger.jobs.values():
            until = job.early_until
            if until is not None:
                if event.at > until + LITTLE_S:
                    self._fail(GIVEN_BACK, f"job {job.id} is {job.state} and was to give all back")
                self._holding[job.id] = sum(claim.processors for claim in job.claims if not claim.aborting)

    def _is_near(self) -> bool:
        """Return True if a budget may have been exceeded, so that everything must be added up."""
        parameters = self._ledger.parameters
        all_s = self._processors * parameters.hold_window_s
        most_s = max(self._about[job_id] for job_id in self._holding)
        return (
            most_s > parameters.hold_budget_per_job * all_s - NEAR_S
            or sum(self._about.values()) > parameters.hold_budget * all_s - NEAR_S
        )

    def _is_within(self) -> None:
        parameters = self._ledger.parameters
        all_s = self._processors * parameters.hold_window_s
        by_job: dict[JobId, float] = {}
        for _, job_id, kept_s in self._kept:
            by_job[job_id] = by_job.get(job_id, 0.0) + kept_s
        for job_id, kept_s in by_job.items():
            if kept_s > parameters.hold_budget_per_job * all_s + LITTLE_S:
                self._fail(WITHIN, f"job {job_id} has kept {kept_s:.0f} s of processor time")
        if sum(by_job.values()) > parameters.hold_budget * all_s + LITTLE_S:
            self._fail(WITHIN, f"{sum(by_job.values()):.0f} s of processor time were kept")


# One in this many new plans is asked about.
ASKED_EVERY = 5


class ToldPromises:
    """Asks about some of the jobs that have new plans, since an answer examines all plans. ``fail`` is as above."""

    def __init__(self, scheduler: Scheduler, fail: Callable[[str, str], None]) -> None:
        self._scheduler = scheduler
        self._fail = fail
        self._asked: dict[JobId, float | None] = {}
        self._new = 0  # the number of new plans

    def after(self) -> None:
        """Check the answers about plans that have changed."""
        planned = self._scheduler.ledger.planned
        if not planned and not self._asked:
            return
        for job_id, job in planned.items():
            if self._asked.get(job_id) != job.plan_at:
                if self._new % ASKED_EVERY == 0:
                    self._check(job_id)
                self._new += 1
        self._asked = {job_id: job.plan_at for job_id, job in planned.items()}

    def _check(self, job_id: JobId) -> None:
        ledger = self._scheduler.ledger
        expected, demand = self._scheduler.expected_start(job_id), ledger.jobs[job_id].demand
        if expected is None or demand is None:
            self._fail(TOLD, f"job {job_id} has a plan, and nothing is told of it")
            return
        files_s = staging_s(demand, expected.spots, ledger.sites.view) if demand.has_files else 0.0
        earliest = ledger.now + (files_s if files_s < INFINITY else 0.0)
        latest = INFINITY if expected.latest_at is None else expected.latest_at
        if not earliest - LITTLE_S <= expected.at <= latest + LITTLE_S:
            self._fail(
                TOLD,
                f"job {job_id} is expected at {expected.at:.3f} and at the latest at {latest:.3f}; its files can be "
                f"there at {earliest:.3f}",
            )
        for other in expected.ends_before:
            if other not in ledger.jobs or other == job_id:
                self._fail(TOLD, f"job {job_id} is told to wait for the end of job {other}")
