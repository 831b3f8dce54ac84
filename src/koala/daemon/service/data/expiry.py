"""Forgets expired outputs, a few at a time, except those that a live job reads."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from koala.daemon.engine.loop import Engine
from koala.daemon.service.data.files import FileService
from koala.daemon.upkeep.rounds import Rounds
from koala.model.api import FORGOTTEN_AT_ONCE_MAX
from koala.model.errors import ClientError
from koala.model.request import FileName, SiteName

_log = logging.getLogger(__name__)

# The interval between searches for expired outputs, and the reason on record.
LOOK_S = 60.0
REASON = "it was kept as long as its job or the grid says"


class OutputExpiry:
    """Forgets expired outputs from ``start`` to ``stop``."""

    def __init__(
        self,
        engine: Engine,
        catalogue: FileService,
    ) -> None:
        self._engine = engine
        self._catalogue = catalogue
        self._rounds = Rounds(
            self._round, problem="outputs whose time is over could not be forgotten", retry_s=LOOK_S
        )
        self.start, self.stop = self._rounds.start, self._rounds.stop

    async def _round(self) -> float:
        await self.look()
        return LOOK_S

    async def look(self) -> list[FileName]:
        """Forget expired outputs and return them. A site that fails delays no other site's files."""
        now, readers = self._engine.now(), self._engine.scheduler.ledger.readers
        over: dict[tuple[SiteName, ...], list[FileName]] = {}
        for entry in self._engine.entries.values():
            if entry.kept_until is not None and entry.kept_until <= now and entry.name not in readers:
                over.setdefault(entry.sites, []).append(entry.name)
        gone: list[FileName] = []
        for names in over.values():
            with _told_in_the_log():
                for first in range(0, len(names), FORGOTTEN_AT_ONCE_MAX):
                    some = names[first : first + FORGOTTEN_AT_ONCE_MAX]
                    gone += await self._catalogue.expire(some, REASON)
        return gone


@contextlib.contextmanager
def _told_in_the_log() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        _log.warning("outputs whose time is over could not be forgotten yet: %s", error.for_user())
