"""Asks the sites for their state.

An embedded site is asked every few seconds. A batch system has work with an answer, so it is asked as often only
while a job waits for processors and something changed a short while ago; then ever more rarely.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

from koala.daemon.perform.interface import SITE_CALL_S, EngineInterface, Silences, SiteDefects
from koala.model.messages import SiteReported
from koala.model.request import SiteName
from koala.sites import LiveSite, SiteError
from koala.sites.backoff import Backoff

_log = logging.getLogger(__name__)

# The usual interval; the interval for a batch system while nothing changes or no job waits for processors; and the
# interval for a site that does not answer.
PROBE_S = 5.0
PROBE_IDLE_S = 30.0
PROBE_MOST_S = 60.0
# After a change, this many waits are short before they grow.
PROBES_BRISK = 6
# A batch system that needs asking again is noticed after at most this long.
_LOOK_S = 0.5
# Processors are claimed by a report from at most this long before.
_CLAIM_AHEAD_S = 2.0
# A new job waits at most this long for the answers of sites that were not asked lately.
FRESHEN_S = 2.0
_CALLER = "probes"
_WHAT = "question for its state"


class SiteActivity(NamedTuple):
    """The reasons to ask a site under a batch system: a job waits for processors or may do so soon, the time of the
    next claim, and ``changes``, a value that differs after each start and end of ours there, after each job that
    begins to wait, and when its calls begin to fail."""

    waits: bool
    claims_at: float
    changes: object


class SitePoller:
    """Asks every site in a task of its own; sites ``under_batch_systems`` ever more rarely while nothing changes.

    ``activity`` returns the current reasons to ask a site.
    """

    def __init__(
        self,
        engine: EngineInterface,
        sites: Mapping[SiteName, LiveSite],
        silences: Silences,
        defects: SiteDefects,
        activity: Callable[[SiteName], SiteActivity],
        under_batch_systems: Collection[SiteName] = (),
        *,
        poll_s: float = PROBE_S,
        freshen_s: float = FRESHEN_S,
        call_s: float = SITE_CALL_S,
    ) -> None:
        self._engine = engine
        self._sites = sites
        self._silences = silences
        self._defects = defects
        self._activity = activity
        self._poll_s = poll_s
        self._freshen_s = freshen_s
        self._call_s = call_s
        self._backoffs = {
            name: Backoff(poll_s, PROBE_IDLE_S, steady=PROBES_BRISK - 1) for name in under_batch_systems
        }
        self._last_reports: dict[SiteName, tuple[int, int]] = {}
        self._changes: dict[SiteName, object] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._asking: dict[SiteName, asyncio.Task[None]] = {}
        self._silent: set[SiteName] = set()
        self.reported_at: dict[SiteName, float] = {}

    def start(self) -> None:
        """Begin to ask."""
        self._tasks = [
            asyncio.create_task(self._keep_asking(site), name=f"probe {name}") for name, site in self._sites.items()
        ]

    async def stop(self) -> None:
        """Stop asking."""
        tasks, self._tasks = [*self._tasks, *self._asking.values()], []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _keep_asking(self, site: LiveSite) -> None:
        wait_s = self._poll_s
        while True:
            if not await self._hear(site.name):
                wait_s = min(2 * wait_s, PROBE_MOST_S)
                await asyncio.sleep(wait_s)
            else:
                wait_s = self._poll_s
                await asyncio.sleep(self._poll_s)
                if site.name in self._backoffs:
                    await self._until_outdated(site.name)

    async def _until_outdated(self, name: SiteName) -> None:
        """Wait until the last report of a batch system, to any caller, is too old."""
        while self._engine.now() < self.reported_at[name] + self._wait_s(name):
            await asyncio.sleep(_LOOK_S)
        self._backoffs[name].grow()

    def _wait_s(self, name: SiteName) -> float:
        """Return how old the last report of a batch system may be, as things are now.

        However many jobs run, asking is of little use if nothing is to be placed or claimed now or soon. While a job
        waits, the system is asked at short intervals after each change, and before processors are claimed.
        """
        activity = self._activity(name)
        changes = activity.waits, activity.changes
        if changes != self._changes.get(name):
            self._changes[name] = changes
            self._backoffs[name].reset()
        if activity.claims_at <= self._engine.now() + _CLAIM_AHEAD_S:
            return self._poll_s
        return self._backoffs[name].wait_s if activity.waits else PROBE_IDLE_S

    async def freshen(self) -> None:
        """Ask the batch systems that have not reported lately, so that a new job is placed by their current state,
        and all of them at short intervals from now on. The core gets the reports first, unless a site takes longer
        than ``freshen_s``; silent sites are not waited for."""
        for backoff in self._backoffs.values():
            backoff.reset()
        lately = self._engine.now() - self._poll_s
        names = [
            name for name in self._backoffs if name not in self._silent and self.reported_at.get(name, 0.0) < lately
        ]
        for name in names:
            if name not in self._asking:
                self._asking[name] = asyncio.create_task(self._freshen(name), name=f"freshen {name}")
        if names:
            await asyncio.wait([self._asking[name] for name in names], timeout=self._freshen_s)

    async def _freshen(self, name: SiteName) -> None:
        try:
            await self._hear(name)
        finally:
            del self._asking[name]

    async def _hear(self, name: SiteName) -> bool:
        """Ask a site, and report to the core. Returns True if the site answered."""
        report = await self.ask(name)
        if report is not None:
            self._engine.report(report)
        return report is not None

    async def ask(self, name: SiteName) -> SiteReported | None:
        """Return what the site reports now; None if it does not answer, which the core then counts."""
        try:
            async with asyncio.timeout(self._call_s):
                report = await self._sites[name].probe()
        except (OSError, SiteError) as error:
            reason = error.message if isinstance(error, SiteError) else str(error) or "it does not answer"
            self._silences.failed(name, _CALLER, reason, answers=isinstance(error, SiteError))
            self._silent.add(name)
            self._poll_soon(name)  # once it answers
            return None
        except Exception as error:  # ours, and says nothing about the site
            _log.exception("site %s could not be asked", name)
            self._defects.raised(name, _WHAT, error)
            return None
        self._defects.worked(name, _WHAT)
        self._silences.answered(name, _CALLER)
        self._silent.discard(name)
        self.reported_at[name] = self._engine.now()
        state = report.processors, report.others
        if self._last_reports.get(name, state) != state:
            self._poll_soon(name)
        self._last_reports[name] = state
        return report

    def _poll_soon(self, name: SiteName) -> None:
        if name in self._backoffs:
            self._backoffs[name].reset()
