"""The promise about silent sites: from a site's first failed call until its answer nothing new goes there."""

from __future__ import annotations

from collections.abc import Callable

from koala.model.facts import JobPlaced, Turn
from koala.model.messages import AnyEvent, SiteReported, SiteSilent, StartComponent
from koala.model.request import SiteName

NOT_AT_SILENT = "nothing is placed at a silent site"


class SilencePromises:
    """Follows the answers of sites; calls ``fail`` with the name of a broken promise and the detail."""

    def __init__(self, fail: Callable[[str, str], None]) -> None:
        self._fail = fail
        self._silent: set[SiteName] = set()

    def after(self, event: AnyEvent, turn: Turn) -> None:
        """Check the consequences of the event. Due work of its moment is done before it, so a silence that it reports
        counts from the next event on."""
        silent = set(self._silent)
        if isinstance(event, SiteReported) or (isinstance(event, SiteSilent) and event.answers):
            self._silent.discard(event.site)
            silent.discard(event.site)
        elif isinstance(event, SiteSilent):
            self._silent.add(event.site)
        if not silent:
            return
        for entry in turn.entries:
            if isinstance(entry, StartComponent) and entry.site in silent:
                self._fail(NOT_AT_SILENT, f"{entry.token} starts at {entry.site}")
            elif isinstance(entry, JobPlaced) and not silent.isdisjoint(dict(entry.places)):
                self._fail(NOT_AT_SILENT, f"job {entry.job} is placed at {', '.join(sorted(dict(entry.places)))}")
