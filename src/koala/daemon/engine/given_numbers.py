"""The numbers that the record has given: of jobs, and of the starts of their components.

What is not on record was never started, so that sites have no others, unless the record is older than it was: a
database was put back. Then what runs at the sites and is not on record would be ended as nobody's, and its numbers
given to other jobs, for whose components the sites would take what they have. So a start asks first.
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

# So many components are named in a question.
NAMED_MAX = 5
# How the core calls a start of a component: by its job, and by which start of that job it is.
_TOKEN = re.compile(r"(\d{1,18})\.(\d{1,18})")


class OlderRecordError(SiteError):
    """Sites have components with numbers that the record has not given; by site some of them are named."""

    def __init__(self, named: Mapping[SiteName, str]) -> None:
        (first, there), *others = named.items()
        super().__init__(
            first,
            "is the database the newest one? Components are there with numbers that it has not given yet: "
            f"{there}{''.join(f'; at {site}: {numbers}' for site, numbers in others)}. Nothing was done yet: they "
            "would be ended, and their numbers given to other jobs. Put the newer database back; if it is gone for "
            "good, start with `--accept database`: they are ended, and their numbers are not given again",
        )
        self.named = named


async def open_sites(sites: Iterable[LiveSite]) -> None:
    """Open them all. What several have that the record does not know is one question."""
    older: dict[SiteName, str] = {}
    for site in sites:
        try:
            await site.open()
        except OlderRecordError as error:
            older |= error.named
    if older:
        raise OlderRecordError(older)


class GivenNumbers:
    """Those of a record, as it was read; sites are compared with them when they are found. ``accepted``: the record
    is right, and what it does not know is to be ended."""

    def __init__(self, *, accepted: bool) -> None:
        self._accepted = accepted
        self._last_job: JobId = 0
        self._starts: dict[JobId, int] = {}  # of live jobs
        self._used_job: JobId = 0
        self._used_starts: dict[JobId, int] = {}  # where they are more than those on record

    def read(self, state: EngineState) -> None:
        """From now on these are the numbers that were given."""
        self._last_job = self._used_job = state.last_job
        self._starts = {job.id: job.starts for job in state.scheduler.ledger.jobs.values()}

    def compare(self, site: SiteName, tokens: Iterable[Token]) -> None:
        """These are all components that a site keeps anything of. Raises ``OlderRecordError`` where the record
        has not given such numbers, unless that is accepted."""
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
        """The sites that answer were found: numbers that they have and the record had not given are not given either.
        A site that is found later is asked about in any case: other jobs may have its numbers by then."""
        self._accepted = False
        if self._used_job > self._last_job or self._used_starts:
            _log.warning("sites have components with numbers that the database had not given; they are ended")
            state.scheduler.use_up(self._used_job, self._used_starts)
            state.last_job = self._used_job
            store.write_records(state.scheduler.changed_records())
