"""The record of a job, for callers who may see it; for others the job does not exist."""

from __future__ import annotations

from collections.abc import Iterable

from koala.core.life.states import JobState
from koala.daemon.engine.loop import Engine
from koala.daemon.offload import query
from koala.daemon.service.answers import job_summary
from koala.daemon.service.principal import Principal
from koala.model.api import JobSummary, Scope, StoryLine
from koala.model.errors import NotFoundError
from koala.model.facts import ElementMade
from koala.model.messages import JobSubmitted
from koala.model.outputs import job_of_output
from koala.model.request import FileName, Request
from koala.store import NUMBER_MAX
from koala.store.rows import ComponentRow, StoredJob
from koala.words.facts import STORY_KINDS
from koala.words.stories import story


class JobRecords:
    """Jobs on record, ended ones included."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def row(self, who: Principal, job: int) -> StoredJob:
        """Return the job, if it exists for this caller."""
        row = None
        if 0 < job <= NUMBER_MAX:
            row = self._engine.live_row(job) or await query(self._engine.store.job, job)
        if row is None and (array := self._engine.scheduler.ledger.array_of(job)) is not None:
            await self.row(who, array.id)
            raise NotFoundError(
                f"job {job} is an element of array {array.id} whose turn has not come yet; wait for it, or name the "
                f"array, job {array.id}"
            )
        if row is None or not (who.sees_all or row.owner == who.name):
            raise NotFoundError(f"there is no job {job}; look at the list of jobs")
        return row

    async def own_row(self, who: Principal, job: int) -> StoredJob:
        """Return the job, if the caller may change it."""
        if not who.may(Scope.OPERATE):
            who.need(Scope.SUBMIT)
        return await self.row(who, job)

    async def own_makers(self, who: Principal, files: Iterable[FileName]) -> set[int]:
        """Return the caller's jobs among those that made these files."""
        makers = {job for name in files if (job := job_of_output(name)) is not None}
        return await query(self._engine.store.jobs_of, who.name, makers) if makers else set()

    async def request_of(self, job: int) -> Request:
        """Return the request of a job on record."""
        request = await query(self._engine.store.request, job)
        assert request is not None, "a job is recorded with its request"
        return request

    async def story(self, row: StoredJob) -> list[StoryLine]:
        """Return the history of the job, as far back as the journal goes."""
        request = await self.request_of(row.id)
        found = await query(self._engine.store.story, row.id, STORY_KINDS)
        first, last = ([(line.at, line.body) for line in lines] for lines in (found.first, found.last))
        goes_back = bool(first) and isinstance(first[0][1], JobSubmitted | ElementMade)
        written = story(request, row.submitted_at, first, found.left_out, last, owner=row.owner, goes_back=goes_back)
        return [StoryLine(at=each.at, text=each.text) for each in written]

    async def components(self, job: int) -> list[ComponentRow]:
        if self._engine.live_row(job) is not None:
            return self._engine.components_of(job)
        return await query(self._engine.store.components, job)

    def summary(self, row: StoredJob) -> JobSummary:
        """Return the job as a list shows it."""
        return job_summary(row, self._engine.scheduler.ledger, self.place_in_line(row))

    def place_in_line(self, row: StoredJob) -> int | None:
        ledger = self._engine.scheduler.ledger
        job = ledger.jobs.get(row.id)
        if job is None or job.state is not JobState.WAITING or row.state != JobState.WAITING:
            return None
        return ledger.queue_of(job).place_in_line(job)

    def placement_tries(self, row: StoredJob) -> int:
        """Count the job's tries, including those since it entered its queue, which the core counts only on demand."""
        ledger = self._engine.scheduler.ledger
        job = ledger.jobs.get(row.id)
        if job is None:
            return row.placement_tries
        return job.placement_tries + (ledger.tries_in_queue(job) if job.state is JobState.WAITING else 0)
