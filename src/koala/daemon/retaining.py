"""Retention: what sites keep of ended components goes after a while, in small steps; the rows in the store stay."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from koala.daemon.desk import SITE_CALL_S, Desk
from koala.model import SiteName
from koala.sites import Site, SiteError
from koala.store import Store, StoreError
from koala.store.rows import ComponentRow

_log = logging.getLogger(__name__)

# Output and directories of an ended component are kept for so long, and for so many of them.
RETENTION_S = 7 * 86_400.0
RETENTION_COMPONENTS = 10_000
# How many are removed in one step, the pause between two steps, and how often it is looked whether there is any.
STEP_COMPONENTS = 50
STEP_S = 1.0
LOOK_S = 600.0


class Retention:
    """Forgets old components at their sites. Those of jobs that have not ended are never touched."""

    def __init__(
        self,
        desk: Desk,
        store: Store,
        sites: Mapping[SiteName, Site],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._desk = desk
        self._store = store
        self._sites = sites
        self._sleep = sleep
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._keep_looking(), name="retention")

    async def stop(self) -> None:
        """Look no more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_looking(self) -> None:
        while True:
            try:
                forgotten = await self.step()
            except (StoreError, OSError, SiteError) as error:
                _log.warning("old components could not be removed: %s", error)
                forgotten = 0
            except Exception:
                _log.exception("old components could not be removed")
                forgotten = 0
            await self._sleep(STEP_S if forgotten == STEP_COMPONENTS else LOOK_S)

    async def step(self) -> int:
        """Forget some components that are due; how many."""
        live = self._desk.rows
        # Those of live jobs may stand first, and must not keep others from being found.
        kept = sum(row.ended_at is not None for row in live.components.values())
        due = await asyncio.to_thread(self._due, STEP_COMPONENTS + kept)
        forgotten = []
        for row in [row for row in due if row.job not in self._desk.rows.jobs][:STEP_COMPONENTS]:
            site = self._sites.get(row.site)
            if site is not None:
                async with asyncio.timeout(SITE_CALL_S):
                    await site.forget(row.token)
            forgotten.append(row.token)
        if forgotten:
            await asyncio.to_thread(self._store.mark_pruned, forgotten)
        return len(forgotten)

    def _due(self, limit: int) -> list[ComponentRow]:
        now = self._desk.now()
        excess = self._store.ended_components_count() - RETENTION_COMPONENTS
        if excess > 0:
            return self._store.ended_components(now, min(excess, limit))
        return self._store.ended_components(now - RETENTION_S, limit)
