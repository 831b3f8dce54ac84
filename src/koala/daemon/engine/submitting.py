"""Submissions to the engine: an owner's client token always gives the same job, and the number of jobs is limited."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from koala.daemon.engine.inbox import InboxItem, SubmissionGroup, half_characters
from koala.daemon.engine.projection import Submitter
from koala.model.errors import InvalidError, TooManyError, UnavailableError
from koala.model.messages import EndedJob
from koala.model.outputs import job_of_output
from koala.model.request import GraphJob, InvalidRequestError, JobId, Request, numbered_from
from koala.store import Store, StoredJob, StoreError
from koala.store.requests import is_utf8


@dataclass(slots=True)
class _Turn:
    """The calls with one client token of one owner; one is under way."""

    callers: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


def _check_graph(graph: Sequence[GraphJob]) -> None:
    """Raise ``InvalidError`` for jobs that could not be put on record: an error in the engine's loop would affect
    everybody."""
    if not all(is_utf8(job.request) for job in graph):
        raise half_characters("a job of the graph")
    checked = 0
    try:
        for _ in numbered_from(1 + max(_numbers_named(graph), default=0), graph):
            checked += 1
    except InvalidRequestError as error:
        raise InvalidError(f"job {graph[checked].name}: {error}; change it and submit the graph again") from None


def _numbers_named(graph: Sequence[GraphJob]) -> Iterator[JobId]:
    """Yield the jobs on record that a graph waits for or reads from: its own jobs get later numbers."""
    for job in graph:
        yield from (each.job for each in job.request.after)
        for component in job.request.components:
            yield from (job_of_output(file.name) or 0 for file in component.input_files)


class Submissions:
    """Submissions on their way into the record. ``live_jobs`` are the jobs on record that have not ended; ``prepare``
    is awaited before a job is ``put`` into the engine's inbox, or several ``put_together``."""

    def __init__(
        self,
        store: Store,
        live_jobs: Callable[[], Mapping[JobId, StoredJob]],
        *,
        check_able: Callable[[], None],
        prepare: Callable[[], Awaitable[None]],
        put: Callable[[InboxItem], Awaitable[StoredJob | None]],
        put_together: Callable[[Sequence[InboxItem]], Awaitable[list[StoredJob]]],
        jobs_live_max: int,
    ) -> None:
        self._store = store
        self._live_jobs = live_jobs
        self._check_able = check_able
        self._prepare = prepare
        self._put = put
        self._put_together = put_together
        self._jobs_live_max = jobs_live_max
        self._submitting: dict[tuple[str, str], asyncio.Task[tuple[StoredJob, bool]]] = {}
        self._turns: dict[tuple[str, str], _Turn] = {}
        self._waiting = 0  # jobs that are still to be put on record

    async def submit(
        self, request: Request, submitter: Submitter, ended: tuple[EndedJob, ...]
    ) -> tuple[StoredJob, bool]:
        """Return the job's row once it is durable, and True if it is new."""
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
            done.exception()  # every caller may have stopped waiting for it

    async def _submit_once(
        self, request: Request, submitter: Submitter, ended: tuple[EndedJob, ...]
    ) -> tuple[StoredJob, bool]:
        assert submitter.client_token is not None
        async with self._alone_with(submitter):
            self._check_able()
            try:
                known = await asyncio.to_thread(
                    self._store.job_by_client_token, submitter.owner, submitter.client_token
                )
            except StoreError as error:
                raise UnavailableError(error.for_user()) from None
            if known is not None:
                return self._live_jobs().get(known.id, known), False
            return await self._submit(request, submitter, ended), True

    async def submit_together(
        self, graph: Sequence[GraphJob], submitter: Submitter, ended: Sequence[tuple[EndedJob, ...]]
    ) -> tuple[list[StoredJob], bool]:
        """Return the rows of all jobs once they are durable, in one transaction, and True if they are new. The first
        job has the client token: the numbers of the others follow from its own."""
        await asyncio.to_thread(_check_graph, graph)
        if submitter.client_token is None:
            return await self._submit_together(graph, submitter, ended), True
        async with self._alone_with(submitter):
            return await self._submit_together_once(graph, submitter, ended)

    @contextlib.asynccontextmanager
    async def _alone_with(self, submitter: Submitter) -> AsyncIterator[None]:
        """Admit one call with a client token at a time: the next finds what the one before has put on record."""
        assert submitter.client_token is not None
        key = (submitter.owner, submitter.client_token)
        turn = self._turns.setdefault(key, _Turn())
        turn.callers += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.callers -= 1
            if not turn.callers:
                del self._turns[key]

    async def _submit_together_once(
        self, graph: Sequence[GraphJob], submitter: Submitter, ended: Sequence[tuple[EndedJob, ...]]
    ) -> tuple[list[StoredJob], bool]:
        assert submitter.client_token is not None
        self._check_able()
        try:
            known = await asyncio.to_thread(self._store.job_by_client_token, submitter.owner, submitter.client_token)
            rows = [] if known is None else await asyncio.to_thread(self._known_together, known, graph)
        except StoreError as error:
            raise UnavailableError(error.for_user()) from None
        if known is not None:
            return rows, False
        return await self._submit_together(graph, submitter, ended), True

    def _known_together(self, first: StoredJob, graph: Sequence[GraphJob]) -> list[StoredJob]:
        """Return the jobs submitted with the first; fewer if another graph was submitted then."""
        rows, number = [], first.id
        for job in graph:
            row = self._store.job(number)
            if row is None or row.owner != first.owner:
                break
            rows.append(self._live_jobs().get(number, row))
            number += 1 + (0 if job.request.array is None else job.request.array.size)
        return rows

    async def _submit_together(
        self, graph: Sequence[GraphJob], submitter: Submitter, ended: Sequence[tuple[EndedJob, ...]]
    ) -> list[StoredJob]:
        if len(self._live_jobs()) + self._waiting + len(graph) > self._jobs_live_max:
            most = self._jobs_live_max
            raise TooManyError(f"with these there would be more than {most} jobs (JOBS_LIVE_MAX); submit them later")
        group, others = SubmissionGroup(), Submitter(submitter.owner, None, submitter.guest)
        items = [
            InboxItem(
                request=job.request,
                submitter=others if position else submitter,
                ended=ended[position],
                group=group,
                position=position,
                within=job.within,
                reads=job.reads,
            )
            for position, job in enumerate(graph)
        ]
        self._waiting += len(items)
        try:
            await self._prepare()
            return await self._put_together(items)
        finally:
            self._waiting -= len(items)

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
