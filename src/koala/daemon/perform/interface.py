"""The engine's interface for those that perform commands and look after sites: three calls, and the silent sites."""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from koala.model.messages import AnyEvent, SiteSilent, Token
from koala.model.request import SiteName

_log = logging.getLogger("koala.daemon.sites")

# A site call that has not returned after this long counts as failed, and is repeated.
SITE_CALL_S = 120.0
# While a site is silent, each such interval counts as one more error of the site, however many call it: a controller
# that restarts is no reason to avoid the site for a whole cool-down.
COUNTS_AGAIN_S = 10.0
# At most this much of an error of our own is reported.
REASON_CHARACTERS_MAX = 500


class EngineInterface(Protocol):
    """Everything that a performer needs of the engine. Its work comes with the command."""

    def now(self) -> float:
        """Return the engine's time."""
        ...

    def report(self, event: AnyEvent) -> None:
        """Report an event. It is handled soon, unless the engine is just recovering: then the sites are asked."""
        ...

    def settle(self, seq: int) -> None:
        """Mark a command as performed."""
        ...


class SiteTrouble(NamedTuple):
    """A site that cannot be used: since when and why. ``answers``: it is reachable, but its set-up differs from the
    grid file."""

    since: float
    reason: str
    answers: bool = False


class Silences:
    """The sites that cannot be used at present, since when and why: a site is silent while any caller's last call to
    it failed. The core counts that as an error of the site. The log has a line when a reason changes."""

    def __init__(self, engine: EngineInterface, counts_again_s: float = COUNTS_AGAIN_S) -> None:
        self._engine = engine
        self._counts_again_s = counts_again_s
        self._silent: dict[SiteName, dict[str, SiteTrouble]] = {}
        self._counted_at: dict[SiteName, float] = {}

    def failed(self, site: SiteName, caller: str, reason: str, *, answers: bool = False) -> None:
        """Record a failed call; the first of several in a row sets since when the site is silent. ``answers``: the
        site is reachable, and says why it cannot be used."""
        at = self._engine.now()
        silent = self._silent.setdefault(site, {})
        before = silent.get(caller)
        if before is None or before.reason != reason:
            _log.warning("site %s %s: %s", site, "cannot be used" if answers else "does not answer", reason)
        silent[caller] = SiteTrouble(at if before is None else before.since, reason, answers)
        if at >= self._counted_at.get(site, float("-inf")) + self._counts_again_s:
            self._counted_at[site] = at
            self._engine.report(SiteSilent(at=at, site=site, reason=reason, answers=answers))

    def answered(self, site: SiteName, caller: str) -> None:
        """Record that a call of the same caller came back."""
        silent = self._silent.get(site, {})
        if silent.pop(caller, None) is not None and not silent:
            _log.info("site %s answers again", site)

    def of(self, site: SiteName) -> SiteTrouble | None:
        """Return the trouble of this site to report: one that the site itself reports, otherwise the one that began
        first; None if the site answers."""
        return min(self._silent.get(site, {}).values(), key=lambda each: (not each.answers, each), default=None)

    def clear(self) -> None:
        """Forget all silences: nobody waits for answers now."""
        self._silent.clear()
        self._counted_at.clear()


class SiteDefects:
    """The unresolved errors of our own code at each site. They are no silence of the site and cost it no trust;
    operators see them."""

    def __init__(self) -> None:
        self._raised: dict[SiteName, dict[str, tuple[Token | None, str]]] = {}

    def raised(self, site: SiteName, what: str, error: Exception, token: Token | None = None) -> None:
        """Record what was being done when it raised, and the component concerned, if any."""
        words = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
        self._raised.setdefault(site, {})[what] = token, words[:REASON_CHARACTERS_MAX]

    def worked(self, site: SiteName, what: str) -> None:
        """Forget an error: the work has been done since, or is no longer needed."""
        self._raised.get(site, {}).pop(what, None)

    def of(self, site: SiteName, token: Token | None = None) -> list[str]:
        """Describe each error in a sentence: all of a site, or those about one component."""
        return [
            f"{what}: an error inside Koala ({words})"
            for what, (about, words) in self._raised.get(site, {}).items()
            if token is None or about == token
        ]

    def clear(self) -> None:
        """Forget all errors: everything starts again."""
        self._raised.clear()
