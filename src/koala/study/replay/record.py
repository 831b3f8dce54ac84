"""The record of a replay's jobs from the daemon's journal: when each was placed, started and ended, and what it held.

It receives entries as they come, and asks for nothing. ``result`` evaluates the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from koala.model.api import JournalEntry
from koala.model.facts import JobEnded
from koala.model.messages import NEVER_HELD, Outcome
from koala.model.request import JobId, SiteName

_NEVER_HELD = frozenset(map(str, NEVER_HELD))


@dataclass(slots=True, kw_only=True)
class ComponentRecord:
    """One start of a component. Times are the daemon's; None marks what has not happened."""

    job: JobId
    site: SiteName
    processors: int
    claimed_at: float
    ready_at: float | None = None
    released_at: float | None = None
    ended_at: float | None = None
    outcome: str = ""

    @property
    def held(self) -> bool:
        """True if it had its processors, or may have them yet."""
        return self.outcome not in _NEVER_HELD

    def barrier_processor_s(self, now: float) -> float:
        """Return its processor time at the barrier: from its readiness to the release, or to the end if it was never
        released."""
        if self.ready_at is None:
            return 0.0
        until = self.released_at if self.released_at is not None else self.ended_at
        return self.processors * max(0.0, (now if until is None else until) - self.ready_at)

    def lost_processor_s(self) -> float:
        """Return its wasted processor time: from its release to an unsuccessful end."""
        if self.released_at is None or self.ended_at is None or self.outcome == Outcome.DONE:
            return 0.0
        return self.processors * max(0.0, self.ended_at - self.released_at)


@dataclass(slots=True, kw_only=True)
class JobRecord:
    """One job in the journal."""

    submitted_at: float
    entries: int = 0
    placed: bool = False
    started: bool = False
    ended: JobEnded | None = None
    components: dict[str, ComponentRecord] = field(default_factory=dict)


class ReplayRecord:
    """The replay's jobs. A job submitted meanwhile is also kept until its owner is known.

    ``waiting`` are those of the replay's jobs that have no places, ``running`` those whose barrier is open, and
    ``unended`` those that have not ended.
    """

    def __init__(self) -> None:
        self.jobs: dict[JobId, JobRecord] = {}
        self.waiting: set[JobId] = set()
        self.running: set[JobId] = set()
        self.unended: set[JobId] = set()
        self._unclaimed: dict[JobId, JobRecord] = {}
        self._open: set[str] = set()

    def own(self, job: JobId, submitted_at: float) -> None:
        """Mark this job as the replay's, whether or not it has appeared in the journal.

        Numbers only grow and the replay's jobs come in order, so all others below it are not its own.
        """
        self.jobs[job] = self._unclaimed.pop(job, JobRecord(submitted_at=submitted_at))
        self._unclaimed = {number: record for number, record in self._unclaimed.items() if number > job}
        self._sort(job)

    def take(self, entry: JournalEntry) -> bool:
        """Take the next entry of the journal; return True if it may concern the replay's jobs."""
        if entry.job is None:
            return False
        job = self.jobs.get(entry.job) or self._unclaimed.get(entry.job)
        if job is None:
            if entry.what != "JobSubmitted":
                return False
            job = self._unclaimed[entry.job] = JobRecord(submitted_at=entry.at)
        job.entries += 1
        _note(job, entry)
        if entry.job in self.jobs:
            self._sort(entry.job)
        return True

    def _sort(self, number: JobId) -> None:
        job = self.jobs[number]
        ended = job.ended is not None
        for kind, belongs in (
            (self.waiting, not job.placed and not ended),
            (self.running, job.started and not ended),
            (self.unended, not ended),
        ):
            if belongs:
                kind.add(number)
            else:
                kind.discard(number)
        for token, component in job.components.items():
            if component.ended_at is None:
                self._open.add(token)
            else:
                self._open.discard(token)

    @property
    def holds_something(self) -> bool:
        """True if some component of the replay still has its processors."""
        return bool(self._open)

    def entries(self) -> int:
        """Return the number of entries about the replay's jobs."""
        return sum(job.entries for job in self.jobs.values())

    def components(self) -> list[ComponentRecord]:
        """Return every start of a component of the replay's jobs, by job."""
        return [each for job in self.jobs.values() for each in job.components.values()]


def _note(job: JobRecord, entry: JournalEntry) -> None:
    data = entry.data
    match entry.what:
        case "JobPlaced":
            job.placed = True
        case "JobRequeued":
            job.placed = job.started = False
        case "StartComponent":
            claimed = ComponentRecord(
                job=data["job"], site=data["site"], processors=data["processors"], claimed_at=entry.at
            )
            job.components.setdefault(data["token"], claimed)
        case "ComponentReady":
            component = job.components.get(data["token"])
            if component is not None and component.ready_at is None:
                component.ready_at = entry.at
        case "ReleaseBarrier":
            job.started = True
            for token in data["tokens"]:
                component = job.components.get(token)
                if component is not None and component.released_at is None:
                    component.released_at = entry.at
        case "ComponentEnded":
            component = job.components.get(data["token"])
            if component is not None and component.ended_at is None:
                component.ended_at, component.outcome = entry.at, data["outcome"]
        case "JobEnded":
            job.ended = msgspec.convert(data, JobEnded)
