"""Logs a line whenever a site's condition changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable

from koala.core.state.site_belief import SiteBelief, Trust

_log = logging.getLogger("koala.daemon.sites")

# The interval between looks: a site has at most one line in this time.
WATCH_S = 5.0


def condition(site: SiteBelief) -> str:
    """Describe the core's opinion of a site. Whether the site answers is logged elsewhere."""
    if site.lost:
        return f"is lost: {site.lost}; it is used again once it answers and has ended what it had of ours"
    if site.drained:
        return f"is drained{site.drained_by}"
    if site.trust is Trust.UNUSABLE:
        last = f", the last: {site.last_error}" if site.errors and site.last_error else ""
        return f"is not trusted: {site.record.distrusted or 'too many errors'}{last}"
    if site.trust is Trust.PROBING:
        return "is tried again with one job"
    return "is used"


class SiteConditionLog:
    """Watches the sites as the core sees them. ``start`` and ``stop`` it once."""

    def __init__(self, sites: Callable[[], Iterable[SiteBelief]], *, watch_s: float = WATCH_S) -> None:
        self._sites = sites
        self._watch_s = watch_s
        self._told: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch."""
        self._task = asyncio.create_task(self._watch(), name="watch the sites")

    async def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    def look(self) -> None:
        """Log every change; a site that is used as usual needs no line at first."""
        for site in self._sites():
            now = condition(site)
            if now != self._told.get(site.name, "is used"):
                _log.log(logging.INFO if now == "is used" else logging.WARNING, "site %s %s", site.name, now)
            self._told[site.name] = now

    async def _watch(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(self._watch_s)
