"""Relays the output of ``mpiexec`` in the first component of an MPI job to all components of the job."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from koala.daemon.perform.components import ComponentRegister
from koala.daemon.perform.interface import SITE_CALL_S
from koala.daemon.perform.retry import retry_until_done
from koala.model.errors import Fault
from koala.model.launch import LaunchError
from koala.model.messages import Outcome
from koala.model.request import SiteName
from koala.runners import PROXIES, PROXY, proxy_mail
from koala.sites import LiveSite, Mail, SiteError
from koala.store.rows import ComponentRow

_log = logging.getLogger(__name__)


class MpiRelay:
    """Relays mail while its receiver is to run. A site hands out mail again after each start of the daemon."""

    def __init__(
        self, sites: Mapping[SiteName, LiveSite], components: ComponentRegister, *, call_s: float = SITE_CALL_S
    ) -> None:
        self._sites = sites
        self._components = components
        self._call_s = call_s
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, mail: Mail) -> None:
        """Relay a component's mail to the others. Mail with an unknown name is left where it is."""
        row = self._components.get(mail.token)
        if mail.name != PROXIES or row is None or row.part != 0:
            return
        receivers = self._components.released_with(mail.token)
        try:
            letters = proxy_mail(mail.data, len(receivers))
        except LaunchError as error:
            self._begin(self._end(row, error.for_user()))
            return
        for receiver, letter in zip(receivers, letters, strict=True):
            self._begin(self._deliver(receiver, letter))

    async def stop(self) -> None:
        """Give up undelivered mail."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _deliver(self, row: ComponentRow, letter: bytes) -> None:
        async def attempt() -> None:
            async with asyncio.timeout(self._call_s):
                await self._sites[row.site].deliver(row.token, PROXY, letter)

        await self._keep_trying(row, "could not be given its mail", attempt)

    async def _end(self, row: ComponentRow, reason: str) -> None:
        """End a component whose mpiexec printed nonsense, with that as the reason."""

        async def attempt() -> None:
            async with asyncio.timeout(self._call_s):
                site = self._sites[row.site]
                await site.abort(row.token, outcome=Outcome.FAILED, reason=reason, fault=Fault.JOB)

        await self._keep_trying(row, "could not be ended", attempt)

    async def _keep_trying(self, row: ComponentRow, what: str, attempt: Callable[[], Awaitable[None]]) -> None:
        def failed(error: Exception) -> None:
            story = None if isinstance(error, OSError | SiteError) else error
            _log.warning("component %s at %s %s yet: %s", row.token, row.site, what, error, exc_info=story)

        await retry_until_done(attempt, failed, lambda: self._components.is_released(row.token))
