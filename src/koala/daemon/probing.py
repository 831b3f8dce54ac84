"""Asking the sites for their state, every few seconds: the core hears of it when something has changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container, Mapping

from koala.daemon.desk import SITE_CALL_S, Desk
from koala.messages import SiteReported
from koala.model import SiteName
from koala.sites import Site, SiteError

_log = logging.getLogger(__name__)

# How often a site is asked, how rarely one under a batch system while there are no jobs, and how rarely one that does
# not answer.
PROBE_S = 5.0
PROBE_IDLE_S = 30.0
PROBE_MOST_S = 60.0
# How soon a site that was left in peace is asked when a job has come.
_LOOK_S = 0.5
_WHO = "probes"


class Prober:
    """Asks every site in a task of its own; those ``under_batch_systems`` more rarely while there are no jobs."""

    def __init__(
        self, desk: Desk, sites: Mapping[SiteName, Site], under_batch_systems: Container[SiteName] = ()
    ) -> None:
        self._desk = desk
        self._sites = sites
        self._under_batch_systems = under_batch_systems
        self._tasks: list[asyncio.Task[None]] = []
        self.reported_at: dict[SiteName, float] = {}

    def start(self) -> None:
        """Begin to ask."""
        self._tasks = [
            asyncio.create_task(self._keep_asking(site), name=f"probe {name}") for name, site in self._sites.items()
        ]

    async def stop(self) -> None:
        """Ask no more."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_asking(self, site: Site) -> None:
        wait_s = PROBE_S
        while True:
            report = await self.ask(site.name)
            if report is not None and self._is_news(report):
                self._desk.report(report)
            if report is None:
                wait_s = min(2 * wait_s, PROBE_MOST_S)
                await asyncio.sleep(wait_s)
            else:
                wait_s = PROBE_S
                await asyncio.sleep(PROBE_S)
                if site.name in self._under_batch_systems:
                    await self._rest_without_jobs()

    async def _rest_without_jobs(self) -> None:
        """Asking is work for a batch system, and of little use where nothing is to be placed."""
        rested_s = PROBE_S
        while rested_s < PROBE_IDLE_S and not self._desk.scheduler.ledger.jobs:
            await asyncio.sleep(_LOOK_S)
            rested_s += _LOOK_S

    async def ask(self, name: SiteName) -> SiteReported | None:
        """What the site says now; None when it does not answer, which the core then hears."""
        try:
            async with asyncio.timeout(SITE_CALL_S):
                report = await self._sites[name].probe()
        except Exception as error:
            if not isinstance(error, OSError | SiteError):
                _log.exception("site %s could not be asked", name)
            reason = error.message if isinstance(error, SiteError) else str(error) or "it does not answer"
            self._desk.silent(name, _WHO, reason)
            return None
        self._desk.answered(name, _WHO)
        self.reported_at[name] = self._desk.now()
        return report

    def _is_news(self, report: SiteReported) -> bool:
        ledger = self._desk.scheduler.ledger
        belief = ledger.sites.sites[ledger.index[report.site]]
        return (report.processors, report.others) != (belief.processors, belief.others)
