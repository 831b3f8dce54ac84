"""Mail between the components of an MPI job: what ``mpiexec`` prints in the first one is carried to all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from koala.core.job import Phase
from koala.daemon.desk import RETRY_FIRST_S, SITE_CALL_S, Desk, next_wait_s
from koala.launching import LaunchError
from koala.messages import Outcome, Token
from koala.model import SiteName
from koala.runners import PROXIES, PROXY, proxy_mail
from koala.sites import Mail, Site, SiteError
from koala.store.rows import ComponentRow

_log = logging.getLogger(__name__)


class Postman:
    """Carries mail as long as its receiver lives. A site hands out mail again after each start of the daemon."""

    def __init__(self, desk: Desk, sites: Mapping[SiteName, Site]) -> None:
        self._desk = desk
        self._sites = sites
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, mail: Mail) -> None:
        """A component has mail for the others. Mail of a name that nobody knows is left where it is."""
        row = self._desk.rows.components.get(mail.token)
        if mail.name != PROXIES or row is None or row.part != 0:
            return
        others = [each for each in self._desk.rows.components_of(row.job) if each.run == row.run]
        parts = sorted((each for each in others if each.released_at is not None), key=lambda each: each.part)
        try:
            letters = proxy_mail(mail.data, len(parts))
        except LaunchError as error:
            self._begin(self._end(row, error.for_user()))
            return
        for part, letter in zip(parts, letters, strict=True):
            self._begin(self._deliver(part, letter))

    async def stop(self) -> None:
        """Give up what is not delivered."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, errand: object) -> None:
        task: asyncio.Task[None] = asyncio.create_task(errand)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _lives(self, token: Token) -> bool:
        claim = self._desk.scheduler.ledger.claims.get(token)
        return claim is not None and claim.phase is Phase.RUNNING and not claim.aborting

    async def _deliver(self, row: ComponentRow, letter: bytes) -> None:
        wait_s = RETRY_FIRST_S
        while self._lives(row.token):
            try:
                async with asyncio.timeout(SITE_CALL_S):
                    await self._sites[row.site].deliver(row.token, PROXY, letter)
                return
            except (OSError, SiteError) as error:
                _log.warning("mail for component %s at %s could not be delivered yet: %s", row.token, row.site, error)
            await asyncio.sleep(wait_s)
            wait_s = next_wait_s(wait_s)

    async def _end(self, row: ComponentRow, reason: str) -> None:
        """What mpiexec printed makes no sense: the component ends, with that as the reason."""
        wait_s = RETRY_FIRST_S
        while self._lives(row.token):
            self._desk.condemn(row.token, Outcome.FAILED, reason)
            try:
                async with asyncio.timeout(SITE_CALL_S):
                    await self._sites[row.site].abort(row.token)
                return
            except (OSError, SiteError) as error:
                _log.warning("component %s at %s could not be ended yet: %s", row.token, row.site, error)
            await asyncio.sleep(wait_s)
            wait_s = next_wait_s(wait_s)
