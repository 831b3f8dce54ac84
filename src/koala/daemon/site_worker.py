"""One site's commands, performed one after the other by a task of its own: a slow site holds up no other.

A command that fails is repeated, ever more rarely, before any later one is tried: a site must hear of a component
before it is asked about it. After a failure the site is asked about everything that it should hold.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TypeAlias

from koala.daemon.desk import SITE_CALL_S, Desk, until_it_works
from koala.daemon.launches import launch_for
from koala.grid import SchedulerParameters
from koala.grid import Site as SiteDescription
from koala.launching import LaunchError
from koala.messages import AbortComponent, AskSite, ComponentEnded, Outcome, StartComponent
from koala.runners import component_script
from koala.sites import Site, SiteError

_log = logging.getLogger(__name__)


class _Settlement:
    """Instead of a command: ask the site about all that it should hold, and end what it should not."""


SiteCommand: TypeAlias = StartComponent | AbortComponent | AskSite
_Task: TypeAlias = tuple[int | None, SiteCommand | _Settlement]


class SiteWorker:
    """Performs what is put into its queue. ``run`` goes on until it is cancelled, which may happen at any point."""

    def __init__(self, site: Site, desk: Desk, parameters: SchedulerParameters) -> None:
        self._site = site
        self._desk = desk
        self._parameters = parameters
        self._queue: deque[_Task] = deque()
        self._wake = asyncio.Event()
        self._failing = False

    def put(self, seq: int | None, command: SiteCommand) -> None:
        """Perform a command after those before it. Questions to a site that does not answer are left out: it is
        asked about everything when it does again."""
        if self._failing and isinstance(command, AskSite):
            return
        self._queue.append((seq, command))
        self._wake.set()

    def settle_difference(self) -> None:
        """After the commands so far: ask about all that the site should hold, and abort what it should not."""
        self._queue.append((None, _Settlement()))
        self._wake.set()

    async def run(self) -> None:
        """Perform commands for ever."""
        while True:
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
            seq, command = self._queue[0]
            await until_it_works(partial(self._in_time, command), partial(self._failed, command))
            self._queue.popleft()
            if seq is not None:
                self._desk.settle(seq)
            if self._failing:
                self._failing = False
                self._desk.answered(self._site.name, "commands")
                self.settle_difference()

    async def _in_time(self, command: SiteCommand | _Settlement) -> None:
        async with asyncio.timeout(SITE_CALL_S):
            await self._perform(command)

    def _failed(self, command: SiteCommand | _Settlement, error: Exception) -> None:
        if not isinstance(error, OSError | SiteError):
            what = type(command).__name__
            _log.error("site %s: %s could not be performed", self._site.name, what, exc_info=error)
        self._failing = True
        self._desk.silent(self._site.name, "commands", _reason(error))

    async def _perform(self, command: SiteCommand | _Settlement) -> None:
        claims = self._desk.scheduler.ledger.claims
        match command:
            case StartComponent():
                claim = claims.get(command.token)
                # One that was given up meanwhile need not be started to be ended.
                if claim is not None and not claim.aborting:
                    await self._start(command)
            case AbortComponent():
                if command.token in claims:
                    await self._site.abort(command.token)
            case AskSite():
                await self._site.ask([token for token in command.tokens if token in claims])
            case _Settlement():
                await self._settle_difference()

    async def _start(self, command: StartComponent) -> None:
        job = self._desk.scheduler.ledger.claims[command.token].job
        now = self._desk.now()
        try:
            launch = launch_for(command, job, self._description(), self._parameters, now)
            script = component_script(launch)
        except LaunchError as error:
            self._desk.report(
                ComponentEnded(at=now, token=command.token, outcome=Outcome.REFUSED, reason=error.for_user())
            )
            return
        await self._site.start(launch, script)

    def _description(self) -> SiteDescription:
        """The site as the grid describes it; a site that has commands is in the grid."""
        return next(site for site in self._desk.scheduler.grid.sites if site.name == self._site.name)

    async def _settle_difference(self) -> None:
        """Ask about what is on record as held, unless its start is still to come: asking would forbid that."""
        desk, name = self._desk, self._site.name
        claims = desk.scheduler.ledger.claims
        for token in await self._site.held():
            if token not in claims:
                _log.warning("site %s holds component %s, which nobody knows; it is aborted", name, token)
                await self._site.abort(token)
        known = [row.token for row in desk.rows.held_at(name)]
        await self._site.ask([token for token in known if token in claims and not desk.owed.start_is_owed(token)])


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {SITE_CALL_S:g} s"
    if isinstance(error, SiteError):
        return error.message
    return str(error) if isinstance(error, OSError) else f"an error inside the daemon ({error!r})"
