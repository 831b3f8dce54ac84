"""Asking the sites for their state.

An embedded site is asked every few seconds. For a batch system an answer is work, so that one is asked as often only
where a job waits for processors and something was done or has changed a short while ago; then ever more rarely.
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

# How often a site is asked, how rarely one under a batch system where nothing changes or no job waits for processors,
# and how rarely one that does not answer.
PROBE_S = 5.0
PROBE_IDLE_S = 30.0
PROBE_MOST_S = 60.0
# After something was done or has changed, so many waits are short before the next ones grow.
PROBES_BRISK = 6
# How soon it shows that a batch system is to be asked again.
_LOOK_S = 0.5
# Processors are claimed by what was heard shortly before.
_CLAIM_AHEAD_S = 2.0
# How long a new job waits for the answers of sites that were not asked lately.
FRESHEN_S = 2.0
_CALLER = "probes"
_WHAT = "question for its state"


class SiteActivity(NamedTuple):
    """What makes it worth to ask a site under a batch system: whether a job waits for processors or may in a moment,
    when processors are claimed next, and ``changes``, which is another value after each start and end of ours there,
    after each job that has begun to wait, and when calls of it begin to fail."""

    waits: bool
    claims_at: float
    changes: object


class SitePoller:
    """Asks every site in a task of its own; those ``under_batch_systems`` ever more rarely while nothing changes.

    ``activity`` tells what goes on that a site is of use for.
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
        """Ask no more."""
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
        """Until what is known of a batch system is too old; whoever asked it last, that was the last time."""
        while self._engine.now() < self.reported_at[name] + self._wait_s(name):
            await asyncio.sleep(_LOOK_S)
        self._backoffs[name].grow()

    def _wait_s(self, name: SiteName) -> float:
        """How old may be what is known of a batch system, as things are now.

        However many jobs run, it is of little use to ask where nothing is to be placed or claimed, or may be in a
        moment. Where a job waits, it is asked briskly after each change, and before processors are claimed.
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
        """Ask the sites under batch systems of which nothing was heard lately, so that a job that comes now is placed
        by what is so now, and all of them briskly from now on. The core hears of it first, unless a site takes longer
        than ``freshen_s``; one that is silent is not waited for."""
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
        """Ask a site, and tell the core; whether it answered."""
        report = await self.ask(name)
        if report is not None:
            self._engine.report(report)
        return report is not None

    async def ask(self, name: SiteName) -> SiteReported | None:
        """What the site says now; None when it does not answer, which the core then hears."""
        try:
            async with asyncio.timeout(self._call_s):
                report = await self._sites[name].probe()
        except (OSError, SiteError) as error:
            reason = error.message if isinstance(error, SiteError) else str(error) or "it does not answer"
            self._silences.failed(name, _CALLER, reason, answers=isinstance(error, SiteError))
            self._silent.add(name)
            self._poll_soon(name)  # once it answers
            return None
        except Exception as error:  # ours, and no word on the site
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
