"""When a batch site is looked at: briskly while something is about to change, ever more rarely when nothing does.

There are two kinds of look. A glance sees only files and costs the batch system nothing: it waits at the site until
something shows there. A look lists the batch system's jobs and sees the files after that, in one script. What they
show is for ``koala.sites.batch.components``.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Collection

from koala.model.messages import SiteSilent, Token
from koala.sites.batch.component import BatchComponent
from koala.sites.batch.components import BatchComponents, now_s
from koala.sites.batch.parse import parse_looks
from koala.sites.batch.scripts import directory
from koala.sites.batch.scripts.runner import BATCH_S, FILES_S, ScriptResult, ScriptRunner, offload_if_large
from koala.sites.batch.system import BatchListing, BatchOutputError, BatchSystem
from koala.sites.pace import Pace
from koala.sites.protocol import Clock, Emit
from koala.sites.remote_shell import ShellError

_log = logging.getLogger(__name__)

# How soon and how rarely files are glanced at while components live.
GLANCE_FIRST_S = 0.25
GLANCE_MOST_S = 5.0
# Glances wait at the site where no more components live there than this. One that waits longer than so long is given
# up when something else is to be looked at: it would not know of it.
PATIENT_COMPONENTS = 64
GIVEN_UP_S = 0.5
# How soon and how rarely the batch system is listed: while an end is to be confirmed, and while nothing is expected.
# Grid Engine shows a job for one or two seconds after its script has ended: so long listings come evenly, so that the
# end is seen soon after it.
ENDING_FIRST_S = 0.3
ENDING_STEADY = 6
ENDING_MOST_S = 10.0
CALM_FIRST_S = 2.0
CALM_MOST_S = 20.0
# A listing of this age is fresh enough for whoever asks.
FRESH_S = 1.0
# How soon and how rarely a site that fails is tried again, and how often its silence is told.
REST_FIRST_S = 0.5
REST_MOST_S = 30.0
TELL_AGAIN_S = 30.0


class BatchPoller:
    """Looks at a site from ``start`` to ``stop``, whatever happens.

    ``present`` makes sure that the site was found, ``time_out`` ends a component whose walltime is over, ``submit``
    sees to one that the batch system never got, ``busy`` tells for which tokens a call is under way.
    """

    def __init__(
        self,
        name: str,
        runner: ScriptRunner,
        system: BatchSystem,
        components: BatchComponents,
        *,
        emit: Emit,
        clock: Clock,
        present: Callable[[], Awaitable[None]],
        time_out: Callable[[BatchComponent], Awaitable[None]],
        submit: Callable[[BatchComponent], Awaitable[None]],
        busy: Callable[[], Collection[Token]],
    ) -> None:
        self._name = name
        self._runner = runner
        self._system = system
        self._components = components
        self._emit = emit
        self._clock = clock
        self._present = present
        self._time_out = time_out
        self._submit = submit
        self._busy = busy
        self._glance_now = asyncio.Event()
        self._list_now = asyncio.Event()
        self._glances = Pace(GLANCE_FIRST_S, GLANCE_MOST_S)
        self._confirmations = Pace(ENDING_FIRST_S, ENDING_MOST_S, steady=ENDING_STEADY)
        self._calm = Pace(CALM_FIRST_S, CALM_MOST_S)
        self._listing_turn = asyncio.Lock()
        self._listing: BatchListing | None = None
        self._listed_at = 0.0
        self._listing_took_s = 0.0
        self._glanced_at = 0.0
        self._is_patient = True  # whether a glance may wait at the site
        self._glanced_until = 0.0  # as the clock says
        self._told_silent_at: float | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look."""
        self._listing, self._listed_at = None, 0.0
        loops = ((self._keep_glancing, "glances"), (self._keep_listing, "listings"))
        self._tasks = [asyncio.create_task(loop(), name=f"{what} {self._name}") for loop, what in loops]

    async def stop(self) -> None:
        """Look no more."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def hurry(self) -> None:
        """Something was done at the site, so something may change soon."""
        self._glances.hurry()
        self._calm.hurry()
        self._confirmations.hurry()
        self._glance_now.set()
        self._list_now.set()

    @property
    def job_limit_s(self) -> float | None:
        """How long a job may run, as far as is known."""
        return None if self._listing is None else self._listing.job_limit_s

    # ------------------------------------------------------------------------------------------- looking

    async def listing(self, age_s: float | None = None) -> BatchListing:
        """A listing that began at most so long ago, after all that follows from it was seen to.

        Raises ``ShellError`` when there is none: then nothing is known, and nothing was concluded.
        """
        since = now_s() - (FRESH_S if age_s is None else age_s)
        async with self._listing_turn:
            if self._listing is not None and self._listed_at >= since:
                return self._listing
            return await self._list()

    async def _list(self) -> BatchListing:
        began, tokens = now_s(), tuple(self._components.alive)
        text = f"koala_mark listing\n(\n{self._system.listing()})\nkoala_mark listed $?\n"
        done = await self._runner.run(
            text + directory.inspect(self._components.root, tokens), timeout_s=BATCH_S, calls="listing"
        )
        if await self._take_files(done, tokens):
            self._glances.hurry()
        listing = await self._parse(done)
        self._listing_took_s = now_s() - began
        await self._components.take_listing(listing, began, self._busy())
        self._listing, self._listed_at = listing, began
        return listing

    async def _parse(self, done: ScriptResult) -> BatchListing:
        section, host = done.section("listing"), self._runner.shell.host
        code = done.code("listed")
        if section is None or code != 0:
            raise ShellError(host, done.complaint or f"the batch system's listing failed with exit code {code}")
        try:
            return await offload_if_large(len(section.body), lambda: self._system.parse_listing(section.text))
        except BatchOutputError as error:
            raise ShellError(host, f"the batch system's listing makes no sense: {error}") from None

    async def _take_files(self, done: ScriptResult, tokens: tuple[Token, ...]) -> bool:
        section = done.section("inspected")
        if section is None:
            return False
        return await self._components.take_statuses(parse_looks(section.text, tokens))

    async def _glance(self, patience_s: float) -> bool:
        tokens = tuple(self._components.alive)
        awaited = [component.awaited for component in self._components.alive.values()]
        text = directory.inspect(self._components.root, tokens, awaited, patience_s)
        script = asyncio.create_task(self._runner.run(text, timeout_s=FILES_S + patience_s))
        try:
            if patience_s > GIVEN_UP_S and await self._is_hurried(script):
                return False
            news = await self._take_files(await script, tokens)
        finally:
            script.cancel()
            await asyncio.gather(script, return_exceptions=True)
        # What shows all the time and is no news is not to be waited for.
        self._is_patient = news or now_s() >= self._glanced_at + patience_s
        return news

    async def _is_hurried(self, script: asyncio.Task[ScriptResult]) -> bool:
        """Wait for the script's end; whether something else is to be looked at before that."""
        hurried = asyncio.create_task(self._glance_now.wait())
        try:
            await asyncio.wait({script, hurried}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
        return not script.done()

    # --------------------------------------------------------------------------------------- the two loops

    async def _keep_glancing(self) -> None:
        rest = Pace(REST_FIRST_S, REST_MOST_S)
        while True:
            self._glance_now.clear()
            patience_s = self._patience_s()
            if patience_s == 0.0:
                due_s = self._glanced_at + self._glances.wait_s - now_s()
                if await _first(self._glance_now, None if self._is_idle() else self._until_due(due_s)):
                    continue  # with another pace
            self._glances.slow_down()
            await self._rest_if_it_fails(functools.partial(self._glance_once, patience_s), rest)

    def _patience_s(self) -> float:
        """How long the next glance waits at the site; 0 where it is to come when it is due."""
        if not self._is_patient or not 0 < len(self._components.alive) <= PATIENT_COMPONENTS:
            return 0.0
        return self._until_due(self._glances.wait_s)

    async def _glance_once(self, patience_s: float) -> None:
        self._glanced_at = now_s()
        await self._present()
        before, self._glanced_until = self._glanced_until, self._clock()
        now = self._glanced_until
        if any(before - now < begins_s <= 0 for begins_s in self._beginnings(now)):
            self._glances.hurry()  # processors that are kept for us from now on are to wait for nobody
        for component in list(self._components.alive.values()):
            left_s = component.walltime_left_s(now)
            if left_s is not None and left_s <= 0:
                await self._time_out(component)
        if self._components.alive and await self._glance(patience_s):
            self._glances.hurry()
            if any(component.is_ending for component in self._components.alive.values()):
                self._confirmations.hurry()
                self._list_now.set()

    def _until_due(self, wait_s: float) -> float:
        """So long, or less where a walltime is over or a reservation begins before."""
        now = self._clock()
        left = (component.walltime_left_s(now) for component in self._components.alive.values())
        begins = (begins_s for begins_s in self._beginnings(now) if begins_s > 0)
        return max(0.0, min([wait_s, *(each for each in left if each is not None), *begins]))

    def _beginnings(self, now: float) -> list[float]:
        times = (component.begins_in_s(now) for component in self._components.alive.values())
        return [each for each in times if each is not None]

    async def _keep_listing(self) -> None:
        rest = Pace(REST_FIRST_S, REST_MOST_S)
        while True:
            self._list_now.clear()
            pace = self._confirmations if self._is_urgent() else self._calm
            # A batch system that takes long to list is given as long a rest, whatever is to be confirmed.
            wait_s = max(pace.wait_s, 2 * self._listing_took_s)
            due_s = max(0.0, self._listed_at + wait_s - now_s())
            # The first listing comes in any case: it shows jobs that nobody remembers.
            if await _first(self._list_now, None if self._listing is not None and self._is_idle() else due_s):
                continue  # with another pace
            pace.slow_down()
            await self._rest_if_it_fails(self._list_once, rest)

    def _is_idle(self) -> bool:
        """Whether there is nothing to look at; at a site that was not found yet there may be."""
        return self._components.is_found and not self._components.alive

    def _is_urgent(self) -> bool:
        """Whether a listing is to confirm something."""
        return any(component.is_ending or component.batch_id is None for component in self._components.alive.values())

    async def _list_once(self) -> None:
        await self._present()
        began = now_s()
        # What others asked for a moment ago will do, unless there is something to confirm.
        await self.listing(0.0 if self._is_urgent() else FRESH_S)
        for component in list(self._components.alive.values()):
            if component.batch_id is None and not component.is_ending and component.known_since <= began:
                await self._submit(component)

    async def _rest_if_it_fails(self, look: Callable[[], Awaitable[None]], rest: Pace) -> None:
        if await self._succeeds(look):
            rest.hurry()
        else:
            await asyncio.sleep(rest.wait_s)
            rest.slow_down()

    async def _succeeds(self, look: Callable[[], Awaitable[None]]) -> bool:
        try:
            await look()
        except Exception as error:
            if not isinstance(error, OSError):
                _log.exception("site %s cannot be watched", self._name)
            self._tell_silent(str(error) if isinstance(error, OSError) else repr(error))
            return False
        self._told_silent_at = None
        return True

    def _tell_silent(self, reason: str) -> None:
        """A silence is told when it begins, and now and then while it lasts."""
        if self._told_silent_at is None or now_s() >= self._told_silent_at + TELL_AGAIN_S:
            self._told_silent_at = now_s()
            self._emit(SiteSilent(at=self._clock(), site=self._name, reason=reason))


async def _first(event: asyncio.Event, wait_s: float | None) -> bool:
    """Wait for an event, at most so long; whether it came."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await event.wait()
            return True
    return False
