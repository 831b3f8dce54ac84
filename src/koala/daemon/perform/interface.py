"""How the engine is seen by those that perform commands and look after sites: three calls, and silent sites."""

from __future__ import annotations

import logging
from typing import NamedTuple, Protocol

from koala.model.messages import AnyEvent, SiteSilent, Token
from koala.model.request import SiteName

_log = logging.getLogger("koala.daemon.sites")

# A site call that has not returned after so long counts as failed, and is made again.
SITE_CALL_S = 120.0
# While a site is silent, so long passes until that counts as another error of the site, however many call it: a
# controller that is started again is no reason to leave the site alone for a whole cool-down.
COUNTS_AGAIN_S = 10.0
# How much is told of an error of our own.
REASON_CHARACTERS_MAX = 500


class EngineInterface(Protocol):
    """All that a performer needs of the engine. What it is to do comes with the command."""

    def now(self) -> float:
        """The engine's time."""
        ...

    def report(self, event: AnyEvent) -> None:
        """Something happened. It is handled soon, unless the engine is just recovering: then the sites are asked."""
        ...

    def settle(self, seq: int) -> None:
        """A command has been performed."""
        ...


class SiteTrouble(NamedTuple):
    """A site that cannot be used: since when and why. ``answers``: it is there, and is not set up as the grid file
    says."""

    since: float
    reason: str
    answers: bool = False


class Silences:
    """Which sites cannot be used at present, since when and why: a site is silent as long as anybody's last call of
    it failed. The core hears of it as an error of the site. The log has a line when a reason changes."""

    def __init__(self, engine: EngineInterface, counts_again_s: float = COUNTS_AGAIN_S) -> None:
        self._engine = engine
        self._counts_again_s = counts_again_s
        self._silent: dict[SiteName, dict[str, SiteTrouble]] = {}
        self._counted_at: dict[SiteName, float] = {}

    def failed(self, site: SiteName, caller: str, reason: str, *, answers: bool = False) -> None:
        """A call failed; the first of several in a row says since when the site is silent. ``answers``: the site is
        there, and says why it cannot be used."""
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
        """A call of the same caller came back."""
        silent = self._silent.get(site, {})
        if silent.pop(caller, None) is not None and not silent:
            _log.info("site %s answers again", site)

    def of(self, site: SiteName) -> SiteTrouble | None:
        """The trouble of this site to tell of: one that the site itself tells of first, else the one that began
        first; None if the site answers."""
        return min(self._silent.get(site, {}).values(), key=lambda each: (not each.answers, each), default=None)

    def clear(self) -> None:
        """Nobody waits for an answer any more."""
        self._silent.clear()
        self._counted_at.clear()


class SiteDefects:
    """What our own code raised on at each site, and has not got done since. It is no silence of the site and costs it
    no trust: an operator is told."""

    def __init__(self) -> None:
        self._raised: dict[SiteName, dict[str, tuple[Token | None, str]]] = {}

    def raised(self, site: SiteName, what: str, error: Exception, token: Token | None = None) -> None:
        """This was being done when it was raised, to the component of that token where it is about one."""
        words = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
        self._raised.setdefault(site, {})[what] = token, words[:REASON_CHARACTERS_MAX]

    def worked(self, site: SiteName, what: str) -> None:
        """It has been done since, or is not to be done any more."""
        self._raised.get(site, {}).pop(what, None)

    def of(self, site: SiteName, token: Token | None = None) -> list[str]:
        """Each in a sentence: all of a site, or those about one component."""
        return [
            f"{what}: an error inside Koala ({words})"
            for what, (about, words) in self._raised.get(site, {}).items()
            if token is None or about == token
        ]

    def clear(self) -> None:
        """Everything is done anew."""
        self._raised.clear()
