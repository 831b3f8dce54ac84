"""Finds the job or event that our own code raised on. It is set aside, so that everything else goes on.

The batch that raised is discarded, and the core's state is read again from the record. These go into the inbox next:
an event that quarantines the jobs that were being handled, a tick, and the discarded events, each in a batch of its
own, to identify the one that raises again.
"""

from __future__ import annotations

import logging

from koala.core import HandlingError, JobState
from koala.core.state.ledger import Ledger
from koala.daemon.engine.inbox import InboxItem
from koala.daemon.perform.interface import REASON_CHARACTERS_MAX
from koala.model.errors import UnavailableError
from koala.model.messages import JobQuarantined, JobSubmitted, Tick
from koala.model.request import JobId
from koala.sites.backoff import Backoff

_log = logging.getLogger(__name__)


class Quarantine:
    """Narrows down the cause. The next ``singly`` items of the inbox are handled one at a time."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._backoff = Backoff(first_s, most_s, growth=2.0)
        self.singly = 0

    def plan(
        self, defect: HandlingError, items: list[InboxItem], current: InboxItem | None, ledger: Ledger
    ) -> list[InboxItem] | None:
        """Return the items to handle instead, one at a time, in this order, by the recorded state of the core.

        ``current`` is the item that raised, None for the tick after them. Returns None if nothing can be set aside:
        handling what is due raises, and the job is unknown.
        """
        reason = told(defect)
        self.singly = max(0, self.singly - len(items))  # these were taken; the remaining items are counted below
        first = [
            InboxItem(event=JobQuarantined(at=0.0, job=job, reason=reason))
            for job in dict.fromkeys(_on_record(job, ledger) for job in defect.jobs)
            if job in ledger.jobs and ledger.jobs[job].state is not JobState.QUARANTINED
        ]
        if not first:
            is_tick = current is None or isinstance(current.event, Tick)
            # A group goes on record in one transaction, so its items cannot be handled one by one.
            group = items[0].group if items else None
            whole = group is not None and all(item.group is group for item in items)
            alone = len(items) + (current is None) <= 1 or (whole and current is not None)
            if is_tick and alone:
                return None
            if current is not None and not is_tick:
                self._set_aside(defect, reason, items, current, alone=alone)
        for item in first:
            assert isinstance(item.event, JobQuarantined)
            _log.error("job %s goes into quarantine: %s", item.event.job, reason)
        planned = [*first, InboxItem(event=Tick(at=0.0)), *items]
        self.singly += len(planned)
        return planned

    def _set_aside(
        self, defect: HandlingError, reason: str, items: list[InboxItem], current: InboxItem, *, alone: bool
    ) -> None:
        """Set aside a cause that is no job on record: a job being submitted, or the event itself."""
        event = defect.event
        if isinstance(event, JobSubmitted) and _is_about(event, defect) and not current.defect:
            current.defect = reason
        elif alone:
            _log.error("%s is passed over: %s", type(event).__name__, reason)
            refused = [current] if current.group is None else list(items)
            for item in refused:
                items.remove(item)
                item.refuse(UnavailableError(f"{reason}; the daemon's log has the whole story"))

    def handled(self, items: int, *, ticked: bool) -> None:
        """Count items that are on record; a tick among them proves that what is due no longer raises."""
        self.singly = max(0, self.singly - items)
        if ticked:
            self._backoff.reset()

    def give_up(self) -> float:
        """Return the delay before the next try when nothing can be set aside, longer each time until a tick works."""
        self.singly = 1  # the next item is a tick
        wait_s = self._backoff.wait_s
        self._backoff.grow()
        return wait_s


def _on_record(job: JobId, ledger: Ledger) -> JobId:
    """Return the job to set aside: for an element that is being made, its array, which then makes no more."""
    if job in ledger.jobs:
        return job
    array = ledger.array_of(job)
    return job if array is None else array.id


def _is_about(event: JobSubmitted, defect: HandlingError) -> bool:
    """Return True if the error is about the submitted job, or about an element of it."""
    size = 0 if event.request.array is None else event.request.array.size
    return any(event.job <= job <= event.job + size for job in defect.jobs)


def told(defect: HandlingError) -> str:
    """Describe an error for people: its kind, its text and the event."""
    error = defect.error
    words = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
    if len(words) > REASON_CHARACTERS_MAX:
        words = f"{words[:REASON_CHARACTERS_MAX]} ..."
    return f"an error inside Koala ({words}) while it handled {type(defect.event).__name__}"
