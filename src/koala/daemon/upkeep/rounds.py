"""Periodic work in a task of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


class Rounds:
    """Calls ``look`` from ``start`` to ``stop``; it returns how many seconds pass before the next call.

    A round that raises is logged as ``problem``, and the next one comes after ``retry_s``.
    """

    def __init__(
        self, look: Callable[[], Awaitable[float]], *, problem: str, retry_s: float, first_s: float = 0.0
    ) -> None:
        self._look = look
        self._problem = problem
        self._retry_s = retry_s
        self._first_s = first_s
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, after ``first_s``."""
        self._task = asyncio.create_task(self._go_on(), name=self._problem)

    async def stop(self) -> None:
        """Stop. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _go_on(self) -> None:
        wait_s = self._first_s
        while True:
            await asyncio.sleep(wait_s)
            try:
                wait_s = await self._look()
            except Exception:
                _log.exception("%s", self._problem)
                wait_s = self._retry_s
