"""Outputs whose time is over: forgotten some at a time, but none that a job reads which has not ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from koala.daemon.engine.loop import Engine
from koala.daemon.service.data.files import FileService
from koala.model.api import FORGOTTEN_AT_ONCE_MAX
from koala.model.errors import ClientError
from koala.model.request import FileName

_log = logging.getLogger(__name__)

# So often it is looked whether the time of any is over, and this is said of those that are forgotten.
LOOK_S = 60.0
REASON = "it was kept as long as its job or the grid says"


class OutputExpiry:
    """Looks from ``start`` to ``stop``."""

    def __init__(
        self,
        engine: Engine,
        catalogue: FileService,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._keep_looking(), name="expiry of outputs")

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_looking(self) -> None:
        while True:
            try:
                while await self.step():
                    pass
            except ClientError as error:
                _log.warning("outputs whose time is over could not be forgotten yet: %s", error.for_user())
            except Exception:
                _log.exception("outputs whose time is over could not be forgotten")
            await self._sleep(LOOK_S)

    async def step(self) -> list[FileName]:
        """Forget some whose time is over; which."""
        now, readers = self._engine.now(), self._engine.scheduler.ledger.readers
        over = [
            entry.name
            for entry in self._engine.entries.values()
            if entry.kept_until is not None and entry.kept_until <= now and entry.name not in readers
        ][:FORGOTTEN_AT_ONCE_MAX]
        if over:
            await self._catalogue.forget(over, None, force=False, reason=REASON)
        return over
