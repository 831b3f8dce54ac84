"""Performs one site's commands concurrently: a slow site delays no other, and a hanging start no abort.

Aborts come first: a start may need the processors, or the place in a queue, that they free. All else begins in order,
and the commands of one component run one after the other. A failed command is repeated, ever more rarely, while the
others pass it; but a failing site gets no calls from here for a while, and is then asked about everything that it
should hold. An error of our own code is no failure of the site: its command is set aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

from koala.daemon.launches import launch_for
from koala.daemon.perform.components import ComponentRegister
from koala.daemon.perform.interface import SITE_CALL_S, EngineInterface, Silences, SiteDefects
from koala.daemon.perform.retry import DEFECT_TRIES_MAX, RETRY_FIRST_S, RETRY_MOST_S
from koala.model.errors import Fault
from koala.model.grid import Site
from koala.model.launch import LaunchError
from koala.model.messages import (
    AbortComponent,
    AskSite,
    ComponentEnded,
    JobQuarantined,
    Outcome,
    StartComponent,
    Token,
)
from koala.model.request import Request
from koala.runners import component_script
from koala.sites import LiveSite, NotNowError, SiteError
from koala.sites.backoff import Backoff

_log = logging.getLogger(__name__)

_CALLER = "commands"

# At most this many commands of one site are performed at a time, plus an abort, which hanging starts must not delay.
# A batch site makes fewer calls at once if it must.
COMMANDS_AT_ONCE_MAX = 8


class _Reconcile:
    """In place of a command: ask the site about all that it should hold, and end what it should not."""


SiteCommand: TypeAlias = StartComponent | AbortComponent | AskSite


class _Waits:
    """Ever longer waits after failures. The current wait ends at ``until``, in the event loop's time."""

    def __init__(self) -> None:
        self.until = 0.0
        self._backoff = Backoff(RETRY_FIRST_S, RETRY_MOST_S, growth=2.0)

    def begin(self) -> None:
        """Begin a wait after a failure."""
        self.until = _now_s() + self._backoff.wait_s
        self._backoff.grow()

    def forget(self) -> None:
        """Make the next wait short again after a success."""
        self._backoff.reset()


class _Task:
    """A command to be performed; ``seq`` is its number on record, if it has one, ``request`` that of the job."""

    def __init__(
        self, command: SiteCommand | _Reconcile, seq: int | None = None, request: Request | None = None
    ) -> None:
        self.command = command
        self.seq = seq
        self.request = request
        self.waits = _Waits()
        self.defects = 0  # how often our own code has raised on it

    @property
    def token(self) -> Token | None:
        """The component that it is about, if any."""
        command = self.command
        return command.token if isinstance(command, StartComponent | AbortComponent) else None

    @property
    def what(self) -> str:
        """The work, in words."""
        match self.command:
            case StartComponent() as command:
                return f"start of component {command.token}"
            case AbortComponent() as command:
                return _abort_of(command.token)
            case AskSite():
                return "question about components"
        return "question what it holds"


def _abort_of(token: Token) -> str:
    return f"abort of component {token}"


class SiteWorker:
    """Performs the commands of one site. ``run`` goes on until it is cancelled, which may happen at any point.

    An abort may come before the start of the same component: then the component is no longer started.
    """

    def __init__(
        self,
        site: LiveSite,
        description: Site,
        engine: EngineInterface,
        components: ComponentRegister,
        silences: Silences,
        defects: SiteDefects,
        *,
        call_s: float = SITE_CALL_S,
        at_once_max: int = COMMANDS_AT_ONCE_MAX,
        tries_max: int = DEFECT_TRIES_MAX,
    ) -> None:
        self._site = site
        self._description = description
        self._engine = engine
        self._components = components
        self._silences = silences
        self._defects = defects
        self._call_s = call_s
        self._at_once_max = at_once_max
        self._tries_max = tries_max
        self._running: dict[asyncio.Task[None], Token | None] = {}
        self._begun: dict[asyncio.Task[None], _Task] = {}
        self._set_aside: dict[Token, int] = {}  # aborts that could not be performed, by their numbers on record
        self._aborts: deque[_Task] = deque()
        self._others: deque[_Task] = deque()
        self._failed: list[_Task] = []  # to be repeated
        self._starts: set[Token] = set()  # that the site may not have received yet
        self._rest = _Waits()
        self._wake = asyncio.Event()
        self._failing = False
        self._failures = 0

    def put(self, seq: int, command: SiteCommand, request: Request | None = None) -> None:
        """Perform a command; a start comes with the request of its job. Questions to a site that does not answer are
        left out: it is asked about everything when it answers again."""
        if self._failing and isinstance(command, AskSite):
            return
        if isinstance(command, StartComponent):
            self._starts.add(command.token)
        elif isinstance(command, AbortComponent):
            self.ended(command.token)  # an abort that was set aside is tried again
        self._add(_Task(command, seq, request))

    def reconcile(self) -> None:
        """After the commands so far, ask about all that the site should hold, and abort what it should not."""
        self._add(_Task(_Reconcile()))

    def _add(self, task: _Task) -> None:
        (self._aborts if isinstance(task.command, AbortComponent) else self._others).append(task)
        self._wake.set()

    async def run(self) -> None:
        """Perform commands for ever, several at a time."""
        try:
            while True:
                task = self._next()
                if task is None:
                    await self._until_something_is_due()
                else:
                    self._begin(task)
        finally:
            running = list(self._running)
            for each in running:
                each.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    def ended(self, token: Token) -> None:
        """Settle the abort of a component that was set aside: the component's end is on record."""
        seq = self._set_aside.pop(token, None)
        if seq is not None:
            self._engine.settle(seq)
            self._defects.worked(self._site.name, _abort_of(token))

    def _next(self) -> _Task | None:
        now = _now_s()
        if now < self._rest.until:
            return None
        due = [task for task in self._failed if task.waits.until <= now]
        self._failed = [task for task in self._failed if task.waits.until > now]
        for task in due:
            self._add(task)
        busy = set(self._running.values())
        free = self._at_once_max - len(self._running)
        queues = (self._aborts, self._others) if free > 0 else (self._aborts,) if free == 0 else ()
        # A site is asked what it holds once all that it should end has been aborted.
        ending = bool(self._aborts) or any(isinstance(task.command, AbortComponent) for task in self._begun.values())
        for queue in queues:
            for place, task in enumerate(queue):
                if isinstance(task.command, _Reconcile) and ending:
                    continue
                if task.token is None or task.token not in busy:
                    del queue[place]
                    return task
        return None

    def _begin(self, task: _Task) -> None:
        """Perform it beside the others; no other command of its component is performed meanwhile."""
        running = asyncio.create_task(self._attempt(task), name=f"{self._site.name}: {task.what}")
        self._running[running] = task.token
        self._begun[running] = task
        running.add_done_callback(self._over)

    def _over(self, running: asyncio.Task[None]) -> None:
        del self._running[running]
        del self._begun[running]
        self._wake.set()

    async def _until_something_is_due(self) -> None:
        self._wake.clear()
        resting = _now_s() < self._rest.until
        at = self._rest.until if resting and (self._aborts or self._others) else None
        if self._failed:
            due_at = max(self._rest.until, min(task.waits.until for task in self._failed))
            at = due_at if at is None else min(at, due_at)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(at):
                await self._wake.wait()

    async def _attempt(self, task: _Task) -> None:
        failures = self._failures
        try:
            async with asyncio.timeout(self._call_s):
                await self._perform(task)
        except NotNowError as error:
            _log.warning("site %s has a component for which there is no room yet: %s", self._site.name, error)
        except (OSError, SiteError) as error:
            self._failing = True
            self._failures += 1
            self._silences.failed(self._site.name, _CALLER, self._reason(error))
            task.waits.begin()
            if _now_s() >= self._rest.until:  # the first of several concurrent failures begins the rest
                self._rest.begin()
            self._failed.append(task)
            return
        except Exception as error:
            self._raised(task, error)
            return
        if isinstance(task.command, StartComponent):
            self._starts.discard(task.command.token)
        if task.seq is not None:
            self._engine.settle(task.seq)
        if task.defects:
            self._defects.worked(self._site.name, task.what)
        if self._failures > failures:
            return  # it began before another one failed: it says nothing about the site since then
        self._rest.forget()
        if self._failing:
            self._failing = False
            self._silences.answered(self._site.name, _CALLER)
            self.reconcile()

    def _raised(self, task: _Task, error: Exception) -> None:
        """Record that our own code raised, which is no fault of the site. After a few tries the command is set aside,
        and its job with it. An abort stays in the outbox: the component may still be there, and counts until its end
        is known; the core repeats the abort, and so does the next start of the daemon."""
        name, command = self._site.name, task.command
        _log.error("site %s: %s could not be performed", name, task.what, exc_info=error)
        task.defects += 1
        task.waits.begin()
        self._defects.raised(name, task.what, error, task.token)
        if task.defects < self._tries_max or isinstance(command, _Reconcile):
            self._failed.append(task)
            return
        match command:
            case StartComponent():
                reason = f"an error inside Koala ({error!r}) at the {task.what}, {task.defects} times"
                self._starts.discard(command.token)
                self._defects.worked(name, task.what)  # from now on the job reports it
                self._engine.report(JobQuarantined(at=self._engine.now(), job=command.job, reason=reason))
            case AbortComponent() if self._components.is_held(command.token) and task.seq is not None:
                # If the core has repeated it meanwhile, one of them is enough on record.
                before, self._set_aside[command.token] = self._set_aside.get(command.token), task.seq
                if before is not None:
                    self._engine.settle(before)
                return
            case AskSite():
                self._defects.worked(name, task.what)  # the core asks again
        if task.seq is not None:
            self._engine.settle(task.seq)

    def _reason(self, error: OSError | SiteError) -> str:
        if isinstance(error, TimeoutError):
            return f"it did not answer within {self._call_s:g} s"
        return error.message if isinstance(error, SiteError) else str(error)

    async def _perform(self, task: _Task) -> None:
        match task.command:
            case StartComponent() as command:
                # A component that is aborted meanwhile need not be started to be ended; nor one whose job is over.
                if self._components.is_wanted(command.token) and task.request is not None:
                    await self._start(command, task.request)
            case AbortComponent() as command:
                if self._components.is_held(command.token):
                    await self._site.abort(command.token)
            case AskSite() as command:
                await self._ask(command.tokens)
            case _Reconcile():
                await self._reconcile()

    async def _start(self, command: StartComponent, request: Request) -> None:
        try:
            launch = launch_for(command, request, self._description)
            await self._site.start(launch, component_script(launch))
        except LaunchError as error:
            self._engine.report(
                ComponentEnded(
                    at=self._engine.now(),
                    token=command.token,
                    outcome=Outcome.REFUSED,
                    reason=error.for_user(),
                    fault=Fault.JOB,
                )
            )

    async def _reconcile(self) -> None:
        """Ask about everything that is held on record, and end what is not."""
        name = self._site.name
        for token in await self._site.held():
            if not self._components.is_held(token):
                _log.warning("site %s holds component %s, which is unknown; it is aborted", name, token)
                await self._site.abort(token)
        await self._ask(self._components.held_at(name))

    async def _ask(self, tokens: Sequence[Token]) -> None:
        """Ask about components, unless their start is still to come: asking would forbid that."""
        asked = [token for token in tokens if self._components.is_held(token) and token not in self._starts]
        if asked:
            await self._site.ask(asked)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
