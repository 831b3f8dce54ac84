"""Changes of a job by callers: cancel, hold and release, change, requeue.

Each needs ``submit`` for a job of one's own, and ``operate`` for another user's. When a call returns, the wish is
durable, and on record with its author and reason.
"""

from __future__ import annotations

from collections.abc import Collection

from koala.core.life.states import JobState
from koala.core.tasks.spawning import refused_last
from koala.daemon.engine.loop import Engine
from koala.daemon.offload import query
from koala.daemon.service.job_records import JobRecords
from koala.daemon.service.principal import Principal
from koala.daemon.service.submissions import check_priority
from koala.model.api import JobSummary, Scope, Spawned, SpawnedComponent
from koala.model.api.questions import JobChange
from koala.model.errors import NO_PLACE, ConflictError, InvalidError
from koala.model.messages import (
    CancelAsked,
    ChangeAsked,
    HoldAsked,
    RequeueAsked,
    RestartAsked,
    SpawnAsked,
    UnholdAsked,
)
from koala.model.task_graph import SpawnedTasks


class JobChanges:
    """Changes of jobs on record."""

    def __init__(self, engine: Engine, records: JobRecords) -> None:
        self._engine = engine
        self._records = records

    async def cancel(self, who: Principal, job: int, *, reason: str = "") -> JobSummary:
        """Request the job's end; when this returns the wish is durable. Needs ``submit`` for a job of one's own, and
        ``operate`` for another user's. Cancelling a job that has ended changes nothing."""
        array = self._engine.scheduler.ledger.array_of(job)
        if array is not None and self._engine.live_row(job) is None:
            # An element that was never made, and now never will be, or one that has ended.
            row = await query(self._engine.store.job, job)
            if row is None:
                await self._records.own_row(who, array.id)
                await self._engine.tell(who.signed(CancelAsked(at=self._engine.now(), job=job), reason))
                row = await self._records.row(who, array.id)
                return self._records.summary(row)
        row = await self._records.own_row(who, job)
        if row.ended_at is None:
            await self._engine.tell(who.signed(CancelAsked(at=self._engine.now(), job=job), reason))
            row = await self._records.row(who, job)
        return self._records.summary(row)

    async def hold(self, who: Principal, job: int, *, reason: str = "") -> JobSummary:
        """Keep a job that has not started from being tried until it is released. Rights as for ``cancel``.
        Idempotent."""
        row = await self._records.own_row(who, job)
        if row.state in (JobState.RUNNING, JobState.COLLECTING, JobState.UNWINDING) or row.ended_at is not None:
            advice = "submit it again" if row.ended_at is not None else f"write koala job requeue --hold {job}"
            raise ConflictError(f"job {job} is {row.state}: only a job that has not started can be held; {advice}")
        return await self._tell(who, HoldAsked(at=self._engine.now(), job=job), reason)

    async def unhold(self, who: Principal, job: int, *, reason: str = "") -> JobSummary:
        """Release a held job; any other stays as it is. Rights as for ``cancel``."""
        row = await self._records.own_row(who, job)
        if row.ended_at is not None:
            raise ConflictError(f"job {job} is {row.state}: nothing holds it any more")
        return await self._tell(who, UnholdAsked(at=self._engine.now(), job=job), reason)

    async def change(self, who: Principal, job: int, wish: JobChange, *, reason: str = "") -> JobSummary:
        """Give a job that has no places yet another walltime or priority. Rights as for ``cancel``."""
        row = await self._records.own_row(who, job)
        check_priority(who, wish.priority)
        if wish.walltime_s is None and wish.priority is None:
            raise InvalidError("there is nothing to change: name a walltime or a priority")
        if row.state not in (JobState.HELD, JobState.WAITING, JobState.QUARANTINED):
            raise ConflictError(
                f"job {job} is {row.state}: only a job that waits for a place can be changed; "
                f"koala job requeue {job} puts back a job that has not ended"
            )
        now = self._engine.now()
        asked = ChangeAsked(at=now, job=job, walltime_s=wish.walltime_s, priority=wish.priority)
        return await self._tell(who, asked, reason)

    async def spawn(self, who: Principal, job: int, tasks: SpawnedTasks) -> Spawned:
        """Add tasks to a running job of tasks; they are placed when this returns, or ``ConflictError`` explains why
        not. Rights as for ``cancel``. Repeating the same tasks changes nothing."""
        row = await self._records.own_row(who, job)
        scheduler, ledger = self._engine.scheduler, self._engine.scheduler.ledger
        if row.ended_at is not None or (live := ledger.jobs.get(job)) is None:
            raise ConflictError(f"job {job} is {row.state}: tasks are spawned into a job that runs; submit it again")
        if tasks not in live.spawned:
            why_not = scheduler.why_not_spawned(job, tasks)
            if why_not is not None:
                code = NO_PLACE if why_not.lacks_places else None
                raise ConflictError(f"job {job}: {why_not.reason}", code=code)
            await self._engine.tell(who.signed(SpawnAsked(at=self._engine.now(), job=job, tasks=tasks), ""))
            ledger = self._engine.scheduler.ledger  # of another core, if the engine recovered meanwhile
            if (live := ledger.jobs.get(job)) is None:
                raise ConflictError(f"job {job}: it has ended; submit it again")
        if tasks not in live.spawned or live.placement is None or live.request.tasks is None:
            raise ConflictError(f"job {job}: {refused_last(live, tasks)}")
        spots = live.placement.spots
        names = live.request.tasks.names
        components = [
            SpawnedComponent(part=part, site=ledger.names[spots.sites[part]], tasks=held)
            for part, here in enumerate(spots.tasks)
            if (held := [names[task] for task in here if names[task] in tasks.names])
        ]
        row = await self._records.row(who, job)
        return Spawned(job=self._records.summary(row), components=components)

    async def names_beside(self, who: Principal, job: int, tasks: SpawnedTasks) -> Collection[str] | None:
        """Return the names of a live job's tasks, if it does not have these tasks yet; None for any other job."""
        await self._records.own_row(who, job)
        live = self._engine.scheduler.ledger.jobs.get(job)
        if live is None or live.request.tasks is None or tasks in live.spawned:
            return None
        return dict.fromkeys(live.request.tasks.names)

    async def _tell(
        self, who: Principal, event: HoldAsked | UnholdAsked | ChangeAsked | RestartAsked, reason: str
    ) -> JobSummary:
        await self._engine.tell(who.signed(event, reason))
        row = await self._records.row(who, event.job)
        return self._records.summary(row)

    async def requeue(self, who: Principal, job: int, *, hold: bool = False, reason: str = "") -> JobSummary:
        """Return a job that has places or runs to its placement queue, and ``hold`` it there; its components are
        ended. Rights as for ``cancel``; only callers who may ``operate`` put back a job in quarantine."""
        row = await self._records.own_row(who, job)
        if row.ended_at is not None:
            raise ConflictError(f"job {job} is {row.state}; submit it again")
        if row.state != JobState.QUARANTINED:
            if row.state in (JobState.WAITING, JobState.HELD) and not hold:
                raise ConflictError(f"job {job} is {row.state} already; there is nothing to put back")
            return await self._tell(who, RestartAsked(at=self._engine.now(), job=job, hold=hold), reason)
        who.need(Scope.OPERATE)
        claims = self._engine.scheduler.ledger.claims
        held = [
            each
            for each in self._engine.components_of(job)
            if each.ended_at is None and not (each.token in claims and claims[each.token].fenced)
        ]
        if held:
            where = ", ".join(sorted({each.site for each in held}))
            raise ConflictError(
                f"job {job}: {where} still has components of its last run, which are being ended; try again when "
                f"koala job show {job} says that all have ended"
            )
        await self._engine.tell(who.signed(RequeueAsked(at=self._engine.now(), job=job, hold=hold), reason))
        row = await self._records.row(who, job)
        return self._records.summary(row)
