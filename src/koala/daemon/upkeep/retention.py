"""Retention: sites forget ended components, including their checkpoints, after a while, in small steps; the rows in
the store remain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping

from koala.daemon.live_rows import LiveRows
from koala.daemon.perform.checkpoints import checkpoint_file
from koala.daemon.perform.interface import SITE_CALL_S, EngineInterface
from koala.daemon.upkeep.rounds import Rounds
from koala.files import FileArea
from koala.model.grid import WORKSPACES_KEPT_S
from koala.model.messages import Token
from koala.model.request import SiteName
from koala.sites import LiveSite, SiteError
from koala.store import Store, StoreError
from koala.store.rows import ComponentRow

_log = logging.getLogger(__name__)

# Output and directories of an ended component are kept this long, unless its job says otherwise (keep_for), and for
# at most this many components, whatever jobs say.
RETENTION_S = WORKSPACES_KEPT_S
RETENTION_COMPONENTS = 10_000
# How many are removed in one step, the pause between two steps, and the interval between searches.
STEP_COMPONENTS = 50
STEP_S = 1.0
LOOK_S = 600.0
# After this many failures the others wait until the next search.
FAILURES_MAX = 1_000


class Retention:
    """Forgets old components at their sites. Components of live jobs, by ``live_rows``, are never touched."""

    def __init__(
        self,
        engine: EngineInterface,
        store: Store,
        sites: Mapping[SiteName, LiveSite],
        live_rows: Callable[[], LiveRows],
        areas: Mapping[SiteName, FileArea] | None = None,
        *,
        retention_s: float = RETENTION_S,
        components_max: int = RETENTION_COMPONENTS,
        step_components: int = STEP_COMPONENTS,
        failures_max: int = FAILURES_MAX,
    ) -> None:
        self._engine = engine
        self._store = store
        self._sites = sites
        self._live_rows = live_rows
        self._areas = {} if areas is None else areas
        self._retention_s = retention_s
        self._components_max = components_max
        self._step_components = step_components
        self._failures_max = failures_max
        self._failed: set[Token] = set()  # since the last search
        self.more = False  # True if the last step has left any that are due
        self._rounds = Rounds(self._round, problem="old components could not be removed", retry_s=LOOK_S)
        self.start, self.stop = self._rounds.start, self._rounds.stop

    async def _round(self) -> float:
        try:
            await self.step()
        except StoreError as error:
            _log.warning("old components could not be removed: %s", error)
        return STEP_S if self.more else LOOK_S

    async def step(self) -> int:
        """Forget some components that are due. Returns how many. A component that its site cannot forget delays no
        other."""
        self.more = False
        live = self._live_rows()
        # Components of live jobs, and failed ones, may come first, and must not hide others.
        passed_over = sum(row.ended_at is not None for row in live.components.values()) + len(self._failed)
        due, most = await asyncio.to_thread(self._due, passed_over)
        live = self._live_rows()  # a recovery may have replaced it meanwhile
        chosen = [row for row in due if row.job not in live.jobs and row.token not in self._failed][:most]
        forgotten = []
        for row in chosen:
            try:
                await self._forget(row)
            except (OSError, SiteError) as error:
                _log.warning("component %s at %s could not be forgotten: %s", row.token, row.site, error)
                self._failed.add(row.token)
            except Exception:
                _log.exception("component %s at %s could not be forgotten", row.token, row.site)
                self._failed.add(row.token)
            else:
                forgotten.append(row.token)
        if forgotten:
            await asyncio.to_thread(self._store.mark_pruned, forgotten)
        self.more = len(chosen) == most and len(self._failed) < self._failures_max
        if not self.more:
            self._failed.clear()  # they are due again at the next search
        return len(forgotten)

    async def _forget(self, row: ComponentRow) -> None:
        site = self._sites.get(row.site)
        if site is not None:
            async with asyncio.timeout(SITE_CALL_S):
                await site.forget(row.token)
                area = self._areas.get(row.site)
                if area is not None:
                    await area.forget(checkpoint_file(row.token))

    def _due(self, passed_over: int) -> tuple[list[ComponentRow], int]:
        """Return the oldest ended components, plus as many as are skipped, and how many of them may go now."""
        now = self._engine.now()
        excess = self._store.ended_components_count() - self._components_max
        if excess > 0:
            most = min(excess, self._step_components)
            return self._store.ended_components(now, most + passed_over), most
        most = self._step_components
        return self._store.ended_components(now - self._retention_s, most + passed_over, now), most
