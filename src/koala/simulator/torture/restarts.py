"""Restarts in a storm: at drawn moments a twin of the scheduler is made from a snapshot of it, as after a restart.

From then on the twin hears the same events and must answer with the same commands, until the next restart; and when
it goes, its snapshot and explanations are those of the scheduler that never stopped. The storm itself is not changed.
"""

from __future__ import annotations

from functools import cached_property

import msgspec

from koala.core import JobExplanation, Scheduler, Snapshot, SnapshotError, decode_snapshot, encode_snapshot
from koala.model.facts import Turn
from koala.model.messages import AnyEvent
from koala.model.request import JobId
from koala.simulator.torture.order import catalogue_with_orders
from koala.simulator.torture.promises import PromiseBrokenError
from koala.simulator.workloads.draws import stream

# How many events pass between two restarts, on average: some twins see one event, some the rest of the storm.
EVENTS_BETWEEN_RESTARTS = (1.0, 10.0, 100.0, 400.0)


class _Known:
    """What the scheduler knows at a moment."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.snapshot = scheduler.snapshot()
        self.written = encode_snapshot(self.snapshot)

    @cached_property
    def explained(self) -> dict[JobId, JobExplanation | None]:
        """Every job that has not ended, explained."""
        return {job: self._scheduler.explain(job) for job in self._scheduler.ledger.jobs}


class Twin:
    """Follows one run; ``after`` is called when the scheduler has handled an event."""

    def __init__(self, scheduler: Scheduler, seed: int) -> None:
        self._scheduler = scheduler
        self._rng = stream(seed, "restarts")
        self._twin: Scheduler | None = None
        self._events_left = self._draw_events()

    def _draw_events(self) -> int:
        return 1 + int(self._rng.expovariate(1.0 / self._rng.choice(EVENTS_BETWEEN_RESTARTS)))

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Let the twin answer too; raises PromiseBrokenError where it differs."""
        if self._twin is not None:
            self._compare(event, turn, self._twin.handle(event))
        self._events_left -= 1
        if self._events_left <= 0:
            ours = _Known(self._scheduler)
            self.compare_snapshots(ours)
            self._restart(ours)
            self._events_left = self._draw_events()

    def compare_snapshots(self, ours: _Known | None = None) -> None:
        """What the twin knows by now is what the scheduler knows."""
        if self._twin is None:
            return
        ours = ours or _Known(self._scheduler)
        theirs = self._twin.snapshot()
        if ours.written != encode_snapshot(theirs):
            self._fail(f"the snapshots differ in {_difference(ours.snapshot, theirs)}")
        for job, one in ours.explained.items():
            other = self._twin.explain(job)
            if one != other:
                self._fail(f"job {job} is explained as {other} after a restart, as {one} without")

    def _restart(self, ours: _Known) -> None:
        try:
            self._twin = Scheduler.from_snapshot(
                self._scheduler.grid, catalogue_with_orders(), decode_snapshot(ours.written)
            )
        except SnapshotError as error:
            self._fail(f"the snapshot cannot be read: {error}")
        self.compare_snapshots(ours)

    def _compare(self, event: AnyEvent, ours: Turn, theirs: Turn) -> None:
        if ours != theirs:
            self._fail(f"to {type(event).__name__} the restarted scheduler answers {theirs} and the other one {ours}")
        if self._twin is not None and self._twin.due_at != self._scheduler.due_at:
            due = f"{self._twin.due_at}, the other one at {self._scheduler.due_at}"
            self._fail(f"after {type(event).__name__} the restarted scheduler is due at {due}")

    def _fail(self, detail: str) -> None:
        raise PromiseBrokenError("a restart changes nothing", self._scheduler.ledger.now, detail)


def _difference(ours: Snapshot, theirs: Snapshot) -> str:
    """The first field that differs, with both values."""
    for field in Snapshot.__struct_fields__:
        one, other = getattr(ours, field), getattr(theirs, field)
        if one != other:
            return f"{field}: {_shown(other)} after a restart, {_shown(one)} without"
    return "nothing but their form"


def _shown(value: object) -> str:
    return msgspec.json.encode(value).decode()
