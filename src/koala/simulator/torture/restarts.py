"""Restarts in a storm: at random moments a twin of the scheduler is built from its records, as after a crash.

The records are kept as a store keeps them: only reported changes are written. So a crash may come between any two
events. From then on the twin receives the same events and must answer with the same commands, until the next restart;
at its end, its records and explanations must equal those of the scheduler that never stopped. The storm itself does
not change.
"""

from __future__ import annotations

import json
from typing import Any

from koala.core import JobExplanation, Kind, KnownJob, Record, RecordsError, Scheduler
from koala.model.facts import Turn
from koala.model.messages import AnyEvent
from koala.model.request import JobId
from koala.simulator.torture.order import catalogue_with_orders
from koala.simulator.torture.promises import PromiseBrokenError
from koala.simulator.workloads.draws import stream

# The mean number of events between two restarts: some twins see one event, some the rest of the storm.
EVENTS_BETWEEN_RESTARTS = (1.0, 10.0, 100.0, 400.0)

Bodies = dict[tuple[Kind, str], bytes]


class KeptRecords:
    """The records of a scheduler as a store has them."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.bodies: Bodies = {}
        self.write()

    def write(self) -> None:
        """Write all changes."""
        for kind, key, body in self.scheduler.changed_records():
            if body is None:
                self.bodies.pop((kind, key), None)
            else:
                self.bodies[kind, key] = body

    def missed(self) -> str:
        """Return what has changed and was not written; empty if nothing was missed."""
        return difference(bodies_of(self.scheduler), self.bodies, "in memory", "on record")

    def restarted(self, scheduler: Scheduler) -> Scheduler:
        """Return the scheduler that a restart builds from the records."""
        records = [Record(kind, key, body) for (kind, key), body in self.bodies.items()]
        return Scheduler.from_records(scheduler.grid, catalogue_with_orders(), records, known_jobs(scheduler))


class Twin:
    """Follows one run; call ``after`` when the scheduler has handled an event."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self._scheduler = scheduler
        self._kept = KeptRecords(scheduler)
        self._rng = stream(seed, "restarts")
        self._twin: Scheduler | None = None
        self._events_left = self._draw_events()

    def _draw_events(self) -> int:
        return 1 + int(self._rng.expovariate(1.0 / self._rng.choice(EVENTS_BETWEEN_RESTARTS)))

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Let the twin answer too; raise PromiseBrokenError if it differs."""
        if self._twin is not None:
            self._compare(event, turn, self._twin.handle(event))
        self._kept.write()
        self._events_left -= 1
        if self._events_left <= 0:
            self.compare()
            self._restart()
            self._events_left = self._draw_events()

    def compare(self) -> None:
        """Check that the records and the twin's state equal the scheduler's state."""
        if missed := self._kept.missed():
            self._fail(f"a change was not written: {missed}")
        if self._twin is None:
            return
        if found := difference(self._kept.bodies, bodies_of(self._twin), "without a restart", "after it"):
            self._fail(f"the records differ: {found}")
        for job, one in _explained(self._scheduler).items():
            other = self._twin.explain(job)
            if one != other:
                self._fail(f"job {job} is explained as {other} after a restart, as {one} without")
        self._kept.write()  # explaining drops what has expired

    def _restart(self) -> None:
        try:
            self._twin = self._kept.restarted(self._scheduler)
        except RecordsError as error:
            self._fail(f"the records cannot be loaded: {error}")
        assert self._twin is not None
        if self._twin.damaged:
            self._fail(f"a record was set aside: {self._twin.damaged[0]}")
        self.compare()

    def _compare(self, event: AnyEvent, ours: Turn, theirs: Turn) -> None:
        if ours != theirs:
            self._fail(f"to {type(event).__name__} the restarted scheduler answers {theirs} and the other one {ours}")
        if self._twin is not None and self._twin.due_at != self._scheduler.due_at:
            due = f"{self._twin.due_at}, the other one at {self._scheduler.due_at}"
            self._fail(f"after {type(event).__name__} the restarted scheduler is due at {due}")

    def _fail(self, detail: str) -> None:
        raise PromiseBrokenError("a restart changes nothing", self._scheduler.ledger.now, detail)


def bodies_of(scheduler: Scheduler) -> Bodies:
    """Return all records of a scheduler."""
    return {(kind, key): body for kind, key, body in scheduler.records() if body is not None}


def known_jobs(scheduler: Scheduler) -> dict[JobId, KnownJob]:
    """Return what a driver keeps about each job in addition to its record."""
    ledger = scheduler.ledger
    jobs = {**ledger.jobs, **{claim.job_id: claim.job for claim in ledger.claims.values()}}
    return {
        job.id: KnownJob(
            request=job.described,
            owner=job.submitter,
            submitted_at=job.submitted_at,
            state=str(job.state),
            array=job.array,
            index=job.index,
        )
        for job in jobs.values()
    }


def difference(ours: Bodies, theirs: Bodies, one: str, other: str) -> str:
    """Return the first record that differs, and how; empty if none does."""
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            ours_is, theirs_is = _differing(*(json.loads(each.get(name, b"null")) for each in (ours, theirs)))
            return f"the {name[0]} {name[1]} has {ours_is} {one}, {theirs_is} {other}"
    return ""


def _differing(ours: Any, theirs: Any) -> tuple[Any, Any]:
    """Return the fields that differ."""
    if not isinstance(ours, dict) or not isinstance(theirs, dict):
        return ours, theirs
    names = [name for name in sorted(ours.keys() | theirs.keys()) if ours.get(name) != theirs.get(name)]
    return {name: ours.get(name) for name in names}, {name: theirs.get(name) for name in names}


def _explained(scheduler: Scheduler) -> dict[JobId, JobExplanation | None]:
    """Return the explanation of every live job."""
    return {job: scheduler.explain(job) for job in scheduler.ledger.jobs}
