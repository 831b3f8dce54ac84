"""Callers that wait for the end of a job or for the next journal entry. They are woken, they never poll."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from koala.model.request import JobId


class Waiters:
    """The waiting callers, by event. Each is woken to look for itself whether its wait is over."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, set[asyncio.Future[None]]] = {}
        self._journal: set[asyncio.Future[None]] = set()

    async def job_ends(self, job: JobId) -> None:
        """Wait until ``wake`` names the job."""
        waiting = self._jobs.setdefault(job, set())
        try:
            await _wait(waiting)
        finally:
            if not waiting and self._jobs.get(job) is waiting:
                del self._jobs[job]

    async def journal_grows(self) -> None:
        """Wait until ``wake`` is called."""
        await _wait(self._journal)

    def wake(self, ended: Iterable[JobId]) -> None:
        """Wake those who wait for the journal, and for the end of these jobs."""
        for job in list(ended):
            _wake(self._jobs.get(job, ()))
        _wake(self._journal)

    def wake_all(self) -> None:
        """Wake everybody, to look again."""
        self.wake(self._jobs)


async def _wait(waiting: set[asyncio.Future[None]]) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting.add(future)
    try:
        await future
    finally:
        waiting.discard(future)


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    for future in list(waiting):
        if not future.done():
            future.set_result(None)
