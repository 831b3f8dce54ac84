"""One site's commands, performed by a task of its own: a slow site holds up no other.

Ends come first: what is started may need the processors, or the place in a queue, that they give back. All else comes
in order. What fails is repeated, ever more rarely, and the others pass it meanwhile; but a site that fails is left in
peace for a while, whatever it is to do. After a failure it is asked about everything that it should hold.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from koala.daemon.engine.interface import SITE_CALL_S, EngineInterface
from koala.daemon.launches import launch_for
from koala.daemon.perform.retry import RETRY_FIRST_S, RETRY_MOST_S
from koala.model.grid import SchedulerParameters, Site
from koala.model.launch import LaunchError
from koala.model.messages import AbortComponent, AskSite, ComponentEnded, Outcome, StartComponent, Token
from koala.runners import component_script
from koala.sites import LiveSite, NotNowError, SiteError
from koala.sites.pace import Pace

_log = logging.getLogger(__name__)


class _Settlement:
    """Instead of a command: ask the site about all that it should hold, and end what it should not."""


SiteCommand: TypeAlias = StartComponent | AbortComponent | AskSite


class _Waits:
    """Ever longer waits after failures. ``until`` is when the one of now is over, in the event loop's time."""

    def __init__(self) -> None:
        self.until = 0.0
        self._pace = Pace(RETRY_FIRST_S, RETRY_MOST_S, growth=2.0)

    def begin(self) -> None:
        """Something failed."""
        self.until = _now_s() + self._pace.wait_s
        self._pace.slow_down()

    def forget(self) -> None:
        """It works: the next wait is short again."""
        self._pace.hurry()


class _Task:
    """What is to be performed; ``seq`` is its number on record, if it has one."""

    def __init__(self, seq: int | None, command: SiteCommand | _Settlement) -> None:
        self.seq = seq
        self.command = command
        self.waits = _Waits()


class SiteWorker:
    """Performs what it is given. ``run`` goes on until it is cancelled, which may happen at any point.

    An end may come before the start of the same component: who is to be ended is not started any more.
    """

    def __init__(self, site: LiveSite, engine: EngineInterface, parameters: SchedulerParameters) -> None:
        self._site = site
        self._engine = engine
        self._parameters = parameters
        self._ends: deque[_Task] = deque()
        self._others: deque[_Task] = deque()
        self._failed: list[_Task] = []  # to be repeated
        self._peace = _Waits()
        self._wake = asyncio.Event()
        self._failing = False

    def put(self, seq: int | None, command: SiteCommand) -> None:
        """Perform a command. Questions to a site that does not answer are left out: it is asked about everything when
        it does again."""
        if not (self._failing and isinstance(command, AskSite)):
            self._add(_Task(seq, command))

    def settle_difference(self) -> None:
        """After the commands so far: ask about all that the site should hold, and abort what it should not."""
        self._add(_Task(None, _Settlement()))

    def _add(self, task: _Task) -> None:
        (self._ends if isinstance(task.command, AbortComponent) else self._others).append(task)
        self._wake.set()

    async def run(self) -> None:
        """Perform commands for ever."""
        while True:
            task = self._next()
            if task is None:
                await self._until_something_is_due()
            else:
                await self._attempt(task)

    def _next(self) -> _Task | None:
        now = _now_s()
        if now < self._peace.until:
            return None
        due = [task for task in self._failed if task.waits.until <= now]
        self._failed = [task for task in self._failed if task.waits.until > now]
        for task in due:
            self._add(task)
        queue = self._ends or self._others
        return queue.popleft() if queue else None

    async def _until_something_is_due(self) -> None:
        self._wake.clear()
        at = None
        if self._ends or self._others:
            at = self._peace.until
        elif self._failed:
            at = max(self._peace.until, min(task.waits.until for task in self._failed))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at):
                await self._wake.wait()

    async def _attempt(self, task: _Task) -> None:
        try:
            async with asyncio.timeout(SITE_CALL_S):
                await self._perform(task.command)
        except NotNowError as error:
            _log.warning("site %s has a component for which there is no room yet: %s", self._site.name, error)
        except Exception as error:
            self._note_failure(task.command, error)
            task.waits.begin()
            self._peace.begin()
            self._failed.append(task)
            return
        if task.seq is not None:
            self._engine.settle(task.seq)
        self._peace.forget()
        if self._failing:
            self._failing = False
            self._engine.answered(self._site.name, "commands")
            self.settle_difference()

    def _note_failure(self, command: SiteCommand | _Settlement, error: Exception) -> None:
        if not isinstance(error, OSError | SiteError):
            what = type(command).__name__
            _log.error("site %s: %s could not be performed", self._site.name, what, exc_info=error)
        self._failing = True
        self._engine.silent(self._site.name, "commands", _reason(error))

    async def _perform(self, command: SiteCommand | _Settlement) -> None:
        claims = self._engine.scheduler.ledger.claims
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
                await self._ask(command.tokens)
            case _Settlement():
                await self._settle_difference()

    async def _start(self, command: StartComponent) -> None:
        job = self._engine.scheduler.ledger.claims[command.token].job
        now = self._engine.now()
        try:
            launch = launch_for(command, job, self._description(), self._parameters, now)
            script = component_script(launch)
        except LaunchError as error:
            self._engine.report(
                ComponentEnded(at=now, token=command.token, outcome=Outcome.REFUSED, reason=error.for_user())
            )
            return
        await self._site.start(launch, script)

    def _description(self) -> Site:
        """The site as the grid describes it; a site that has commands is in the grid."""
        return next(site for site in self._engine.scheduler.grid.sites if site.name == self._site.name)

    async def _settle_difference(self) -> None:
        """Ask about what is on record as held, and end what is not."""
        engine, name = self._engine, self._site.name
        claims = engine.scheduler.ledger.claims
        for token in await self._site.held():
            if token not in claims:
                _log.warning("site %s holds component %s, which nobody knows; it is aborted", name, token)
                await self._site.abort(token)
        await self._ask([row.token for row in engine.rows.held_at(name)])

    async def _ask(self, tokens: Sequence[Token]) -> None:
        """Ask about components, unless their start is still to come: asking would forbid that."""
        claims, outbox = self._engine.scheduler.ledger.claims, self._engine.outbox
        heard = [token for token in tokens if token in claims and not outbox.has_start(token)]
        if heard:
            await self._site.ask(heard)


def _now_s() -> float:
    return asyncio.get_running_loop().time()


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it did not answer within {SITE_CALL_S:g} s"
    if isinstance(error, SiteError):
        return error.message
    return str(error) if isinstance(error, OSError) else f"an error inside the daemon ({error!r})"
