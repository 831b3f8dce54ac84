"""Submissions to the engine: the same client token of an owner gives the same job, and there are only so many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from koala.daemon.engine.inbox import InboxItem, half_characters
from koala.daemon.engine.projection import Submitter
from koala.model.errors import TooManyError, UnavailableError
from koala.model.messages import EndedJob
from koala.model.request import JobId, Request
from koala.store import Store, StoredJob, StoreError
from koala.store.requests import is_utf8


class Submissions:
    """Those that are on their way into the record. ``live_jobs`` are the jobs on record that have not ended;
    ``prepare`` is awaited before a job is ``put`` into the engine's inbox."""

    def __init__(
        self,
        store: Store,
        live_jobs: Callable[[], Mapping[JobId, StoredJob]],
        *,
        check_able: Callable[[], None],
        prepare: Callable[[], Awaitable[None]],
        put: Callable[[InboxItem], Awaitable[StoredJob | None]],
        jobs_live_max: int,
    ) -> None:
        self._store = store
        self._live_jobs = live_jobs
        self._check_able = check_able
        self._prepare = prepare
        self._put = put
        self._jobs_live_max = jobs_live_max
        self._submitting: dict[tuple[str, str], asyncio.Task[tuple[StoredJob, bool]]] = {}
        self._waiting = 0  # to be put on record

    async def submit(
        self, request: Request, submitter: Submitter, ended: tuple[EndedJob, ...]
    ) -> tuple[StoredJob, bool]:
        """The job's row once it is durable, and whether it is new."""
        if not await asyncio.to_thread(is_utf8, request):
            raise half_characters("the job")
        if submitter.client_token is None:
            return await self._submit(request, submitter, ended), True
        key = (submitter.owner, submitter.client_token)
        task = self._submitting.get(key)
        if task is None:
            task = asyncio.create_task(self._submit_once(request, submitter, ended))
            self._submitting[key] = task
            task.add_done_callback(lambda done: self._submitted(key, done))
            return await asyncio.shield(task)
        row, _ = await asyncio.shield(task)
        return row, False

    def _submitted(self, key: tuple[str, str], done: asyncio.Task[tuple[StoredJob, bool]]) -> None:
        del self._submitting[key]
        if not done.cancelled():
            done.exception()  # every caller may have given up waiting for it

    async def _submit_once(
        self, request: Request, submitter: Submitter, ended: tuple[EndedJob, ...]
    ) -> tuple[StoredJob, bool]:
        assert submitter.client_token is not None
        self._check_able()
        try:
            known = await asyncio.to_thread(self._store.job_by_client_token, submitter.owner, submitter.client_token)
        except StoreError as error:
            raise UnavailableError(error.for_user()) from None
        if known is not None:
            return self._live_jobs().get(known.id, known), False
        return await self._submit(request, submitter, ended), True

    async def _submit(self, request: Request, submitter: Submitter, ended: tuple[EndedJob, ...]) -> StoredJob:
        if len(self._live_jobs()) + self._waiting >= self._jobs_live_max:
            most = self._jobs_live_max
            raise TooManyError(f"there are {most} jobs already (JOBS_LIVE_MAX); wait until some have ended")
        self._waiting += 1
        try:
            await self._prepare()
            row = await self._put(InboxItem(request=request, submitter=submitter, ended=ended))
        finally:
            self._waiting -= 1
        assert row is not None, "a submission is answered with its row"
        return row
