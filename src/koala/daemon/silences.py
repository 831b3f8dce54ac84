"""Which sites do not answer at present, since when and why."""

from __future__ import annotations

from koala.model import SiteName


class Silences:
    """A site is silent as long as anybody's last call of it failed."""

    def __init__(self) -> None:
        self._silent: dict[SiteName, dict[str, tuple[float, str]]] = {}

    def begin(self, site: SiteName, who: str, at: float, reason: str) -> None:
        """A call failed; the first of several in a row says since when."""
        silent = self._silent.setdefault(site, {})
        since = silent[who][0] if who in silent else at
        silent[who] = (since, reason)

    def end(self, site: SiteName, who: str) -> None:
        """A call of the same caller came back."""
        self._silent.get(site, {}).pop(who, None)

    def of(self, site: SiteName) -> tuple[float, str] | None:
        """Since when, and the reason of whoever has waited longest; None for a site that answers."""
        return min(self._silent.get(site, {}).values(), default=None)
