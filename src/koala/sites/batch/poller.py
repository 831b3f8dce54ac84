"""The schedule of polls at a batch site: frequent while a change is expected, ever rarer while nothing changes.

There are two loops. One polls only files and costs the batch system nothing: it waits at the site until a file
appears. The other lists the batch system's jobs and then inspects the files, in one script.
``koala.sites.batch.components`` acts on the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Awaitable, Callable, Collection

from koala.model.messages import SiteSilent, Token
from koala.sites.backoff import Backoff
from koala.sites.batch.component import BatchComponent
from koala.sites.batch.components import BatchComponents, now_s
from koala.sites.batch.parse import parse_statuses
from koala.sites.batch.scripts import directory
from koala.sites.batch.scripts.runner import BATCH_S, FILES_S, ScriptResult, ScriptRunner, offload_if_large
from koala.sites.batch.system import BatchListing, BatchOutputError, BatchSystem
from koala.sites.batch.timings import BatchTimings
from koala.sites.protocol import Clock, Emit, SiteError
from koala.sites.remote_shell import ShellError
from koala.sites.site_time import ahead_s, read_time

_log = logging.getLogger(__name__)


class BatchPoller:
    """Polls a site from ``start`` to ``stop``, in spite of any failure.

    ``present`` ensures that the site was found, ``time_out`` ends a component whose walltime is over, ``submit``
    submits a component that the batch system never received, ``busy`` returns the tokens of calls in progress.
    """

    def __init__(
        self,
        name: str,
        runner: ScriptRunner,
        system: BatchSystem,
        components: BatchComponents,
        timings: BatchTimings,
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
        self._timings = timings
        self._emit = emit
        self._clock = clock
        self._present = present
        self._time_out = time_out
        self._submit = submit
        self._busy = busy
        self._poll_now = asyncio.Event()
        self._list_now = asyncio.Event()
        self._polls = Backoff(timings.poll_first_s, timings.poll_most_s)
        self._confirmations = Backoff(timings.confirm_first_s, timings.confirm_most_s, steady=timings.confirm_steady)
        self._calm = Backoff(timings.calm_first_s, timings.calm_most_s)
        self._listing_turn = asyncio.Lock()
        self._listing: BatchListing | None = None
        self._listed_at = 0.0
        self._listing_took_s = 0.0
        self._polled_at = 0.0
        self._waits_at_site = True  # True if a poll of files may wait there
        self._polled_until = 0.0  # by the clock
        self.clock_ahead_s: float | None = None  # how far the site's clock is ahead; None while that is unknown
        self._told_silent_at: float | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start polling."""
        self._listing, self._listed_at = None, 0.0
        loops = ((self._keep_polling, "polls"), (self._keep_listing, "listings"))
        self._tasks = [asyncio.create_task(loop(), name=f"{what} {self._name}") for loop, what in loops]

    async def stop(self) -> None:
        """Stop polling."""
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def poll_soon(self) -> None:
        """Poll soon, since something was done at the site that may change its state."""
        self._polls.reset()
        self._calm.reset()
        self._confirmations.reset()
        self._poll_now.set()
        self._list_now.set()

    @property
    def job_limit_s(self) -> float | None:
        """The longest time that a job may run, as far as it is known."""
        return None if self._listing is None else self._listing.job_limit_s

    # ------------------------------------------------------------------------------------------- polling

    async def listing(self, age_s: float | None = None) -> BatchListing:
        """Return a listing of at most this age, after all its consequences have been handled.

        Raises ``ShellError`` if there is none: then nothing is known, and nothing was concluded.
        """
        since = now_s() - (self._timings.fresh_s if age_s is None else age_s)
        async with self._listing_turn:
            if self._listing is not None and self._listed_at >= since:
                return self._listing
            return await self._list()

    async def _list(self) -> BatchListing:
        began, tokens = now_s(), tuple(self._components.alive)
        clock = 'koala_mark clock "$(date +%s)"\n'
        text = f"{clock}koala_mark listing\n(\n{self._system.listing()})\nkoala_mark listed $?\n"
        since = self._clock()
        done = await self._runner.run(
            text + directory.inspect(self._components.root, tokens), timeout_s=BATCH_S, calls="listing"
        )
        self._take_clock(done, since)
        if await self._take_files(done, tokens):
            self._polls.reset()
        listing = await self._parse(done)
        self._listing_took_s = now_s() - began
        await self._components.take_listing(listing, began, self._busy())
        self._listing, self._listed_at = listing, began
        return listing

    def _take_clock(self, done: ScriptResult, since: float) -> None:
        section = done.section("clock")
        told = None if section is None else read_time(" ".join(section.words[1:]))
        self.clock_ahead_s = None if told is None else ahead_s(told, since, self._clock())

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
        return await self._components.take_statuses(parse_statuses(section.text, tokens))

    async def _poll_files(self, patience_s: float) -> bool:
        tokens = tuple(self._components.alive)
        awaited = [component.awaited for component in self._components.alive.values()]
        text = directory.inspect(self._components.root, tokens, awaited, patience_s, self._timings.pause_share)
        script = asyncio.create_task(self._runner.run(text, timeout_s=FILES_S + patience_s))
        try:
            if patience_s > self._timings.abandon_s and await self._is_hurried(script):
                return False
            news = await self._take_files(await script, tokens)
        finally:
            script.cancel()
            await asyncio.gather(script, return_exceptions=True)
        # A file that is always there and is no news must not end the wait.
        self._waits_at_site = news or now_s() >= self._polled_at + patience_s
        return news

    async def _is_hurried(self, script: asyncio.Task[ScriptResult]) -> bool:
        """Wait for the script's end; return True if another poll must come before it."""
        hurried = asyncio.create_task(self._poll_now.wait())
        try:
            await asyncio.wait({script, hurried}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            hurried.cancel()
        return not script.done()

    # --------------------------------------------------------------------------------------- the two loops

    async def _keep_polling(self) -> None:
        rest = Backoff(self._timings.rest_first_s, self._timings.rest_most_s)
        while True:
            self._poll_now.clear()
            patience_s = self._patience_s()
            if patience_s == 0.0:
                due_s = self._polled_at + self._polls.wait_s - now_s()
                if await _first(self._poll_now, None if self._is_idle() else self._until_due(due_s)):
                    continue  # with another wait
            self._polls.grow()
            await self._rest_if_it_fails(functools.partial(self._poll_once, patience_s), rest)

    def _patience_s(self) -> float:
        """Return how long the next poll of files waits at the site; 0 if it comes only when it is due."""
        if not self._waits_at_site or not 0 < len(self._components.alive) <= self._timings.awaited_components_max:
            return 0.0
        return self._until_due(self._polls.wait_s)

    async def _poll_once(self, patience_s: float) -> None:
        self._polled_at = now_s()
        await self._present()
        before, self._polled_until = self._polled_until, self._clock()
        now = self._polled_until
        if any(before - now < begins_s <= 0 for begins_s in self._beginnings(now)):
            self._polls.reset()  # processors reserved for us from now on should not idle
        for component in list(self._components.alive.values()):
            left_s = component.walltime_left_s(now)
            if left_s is not None and left_s <= 0:
                await self._time_out(component)
        if self._components.alive and await self._poll_files(patience_s):
            self._polls.reset()
            if any(component.is_ending for component in self._components.alive.values()):
                self._confirmations.reset()
                self._list_now.set()

    def _until_due(self, wait_s: float) -> float:
        """Wait this long, or less if a walltime ends or a reservation begins earlier."""
        now = self._clock()
        left = (component.walltime_left_s(now) for component in self._components.alive.values())
        begins = (begins_s for begins_s in self._beginnings(now) if begins_s > 0)
        return max(0.0, min([wait_s, *(each for each in left if each is not None), *begins]))

    def _beginnings(self, now: float) -> list[float]:
        times = (component.begins_in_s(now) for component in self._components.alive.values())
        return [each for each in times if each is not None]

    async def _keep_listing(self) -> None:
        rest = Backoff(self._timings.rest_first_s, self._timings.rest_most_s)
        while True:
            self._list_now.clear()
            backoff = self._confirmations if self._is_urgent() else self._calm
            # A batch system that takes long to list rests as long, whatever needs confirmation.
            wait_s = max(backoff.wait_s, 2 * self._listing_took_s)
            due_s = max(0.0, self._listed_at + wait_s - now_s())
            # The first listing always comes: it shows jobs that are not on record.
            if await _first(self._list_now, None if self._listing is not None and self._is_idle() else due_s):
                continue  # with another wait
            backoff.grow()
            await self._rest_if_it_fails(self._list_once, rest)

    def _is_idle(self) -> bool:
        """Return True if there is nothing to poll. A site that was not found yet may have something."""
        return self._components.is_found and not self._components.alive

    def _is_urgent(self) -> bool:
        """Return True if a listing is needed to confirm something."""
        return any(component.is_ending or component.batch_id is None for component in self._components.alive.values())

    async def _list_once(self) -> None:
        await self._present()
        began = now_s()
        # A listing that another caller requested a moment ago suffices, unless something must be confirmed.
        await self.listing(0.0 if self._is_urgent() else self._timings.fresh_s)
        for component in list(self._components.alive.values()):
            if component.batch_id is None and not component.is_ending and component.known_since <= began:
                await self._submit(component)

    async def _rest_if_it_fails(self, poll: Callable[[], Awaitable[None]], rest: Backoff) -> None:
        if await self._succeeds(poll):
            rest.reset()
        else:
            await asyncio.sleep(rest.wait_s)
            rest.grow()

    async def _succeeds(self, poll: Callable[[], Awaitable[None]]) -> bool:
        try:
            await poll()
        except Exception as error:
            told = error.message if isinstance(error, SiteError) else str(error)
            if not isinstance(error, OSError | SiteError):
                _log.exception("site %s cannot be watched", self._name)
                told = repr(error)
            self._tell_silent(told)
            return False
        self._told_silent_at = None
        return True

    def _tell_silent(self, reason: str) -> None:
        """Report a silence when it begins, and now and then while it lasts."""
        if self._told_silent_at is None or now_s() >= self._told_silent_at + self._timings.tell_again_s:
            self._told_silent_at = now_s()
            self._emit(SiteSilent(at=self._clock(), site=self._name, reason=reason))


async def _first(event: asyncio.Event, wait_s: float | None) -> bool:
    """Wait for an event, at most this long; return True if it came."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(wait_s):
            await event.wait()
            return True
    return False
