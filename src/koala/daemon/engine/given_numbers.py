"""The numbers that the record has assigned to jobs, and to the starts of their components.

A component that is not on record was never started, so sites have no others, unless the record is older than it was:
an older database was restored. Then components that are not on record would be ended as unknown ones, and their
numbers given to other jobs, for whose components the sites would mistake them. So a start asks first.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from koala.daemon.engine.batch import EngineState
from koala.model.messages import Token
from koala.model.request import JobId, SiteName
from koala.sites import LiveSite, SiteError
from koala.store import Store

_log = logging.getLogger(__name__)

# At most this many components are named in a question.
NAMED_MAX = 5
# The core names a start of a component by its job and the number of the start.
_TOKEN = re.compile(r"(\d{1,18})\.(\d{1,18})")


class OlderRecordError(SiteError):
    """Sites have components with numbers that the record has not assigned; some are named by site."""

    def __init__(self, named: Mapping[SiteName, str]) -> None:
        (first, there), *others = named.items()
        super().__init__(
            first,
            "is the database the newest one? Sites have components with numbers that it has not given yet: "
            f"{there}{''.join(f'; at {site}: {numbers}' for site, numbers in others)}. Nothing was done yet: they "
            "would be ended, and their numbers given to other jobs. Put the newer database back; if it is gone for "
            "good, start with `--accept database`: they are ended, and their numbers are not given again",
        )
        self.named = named


async def open_sites(sites: Iterable[LiveSite]) -> None:
    """Open them all. Unknown components at several sites lead to one question."""
    older: dict[SiteName, str] = {}
    for site in sites:
        try:
            await site.open()
        except OlderRecordError as error:
            older |= error.named
    if older:
        raise OlderRecordError(older)


class GivenNumbers:
    """The numbers that a record has assigned; sites are compared with them when they are found. ``accepted``: the
    record is right, and components that it does not have are to be ended."""

    def __init__(self, *, accepted: bool) -> None:
        self._accepted = accepted
        self._last_job: JobId = 0
        self._starts: dict[JobId, int] = {}  # of live jobs
        self._used_job: JobId = 0
        self._used_starts: dict[JobId, int] = {}  # where they exceed those on record

    def read(self, state: EngineState) -> None:
        """Take the assigned numbers from the state."""
        self._last_job = self._used_job = state.last_job
        self._starts = {job.id: job.starts for job in state.scheduler.ledger.jobs.values()}

    def compare(self, site: SiteName, tokens: Iterable[Token]) -> None:
        """Check all components that a site has any trace of. Raises ``OlderRecordError`` if the record has not
        assigned such numbers and this is not accepted."""
        unknown = sorted(found for token in tokens if (found := self._unknown(token)) is not None)
        if unknown and not self._accepted:
            named = ", ".join(f"{job}.{start}" for job, start in unknown[:NAMED_MAX])
            more = f" and {len(unknown) - NAMED_MAX} more" if len(unknown) > NAMED_MAX else ""
            raise OlderRecordError({site: named + more})
        for job, start in unknown:
            self._used_job = max(self._used_job, job)
            if job in self._starts:
                self._used_starts[job] = max(start, self._used_starts.get(job, 0))

    def _unknown(self, token: Token) -> tuple[JobId, int] | None:
        numbers = _TOKEN.fullmatch(token)
        if numbers is None:
            return None
        job, start = int(numbers[1]), int(numbers[2])
        return (job, start) if job > self._last_job or start > self._starts.get(job, start) else None

    def use_up(self, store: Store, state: EngineState) -> None:
        """Mark as used the unrecorded numbers that the sites have, once all sites that answer have been compared. A
        site that is found later is compared in any case: other jobs may have its numbers by then."""
        self._accepted = False
        if self._used_job > self._last_job or self._used_starts:
            _log.warning("sites have components with numbers that the database had not given; they are ended")
            state.scheduler.use_up(self._used_job, self._used_starts)
            state.last_job = self._used_job
            store.write_records(state.scheduler.changed_records())
