"""Which sites do not answer at present, since when and why."""

from __future__ import annotations

from koala.model.request import SiteName

# While a site is silent, so long passes until that counts as another error of the site, however many call it: a
# controller that is started again is no reason to leave the site alone for a whole cool-down.
COUNTS_AGAIN_S = 10.0


class Silences:
    """A site is silent as long as anybody's last call of it failed."""

    def __init__(self) -> None:
        self._silent: dict[SiteName, dict[str, tuple[float, str]]] = {}
        self._counted_at: dict[SiteName, float] = {}

    def begin(self, site: SiteName, who: str, at: float, reason: str) -> bool:
        """A call failed; the first of several in a row says since when. Whether it counts as an error."""
        silent = self._silent.setdefault(site, {})
        since = silent[who][0] if who in silent else at
        silent[who] = (since, reason)
        if at < self._counted_at.get(site, float("-inf")) + COUNTS_AGAIN_S:
            return False
        self._counted_at[site] = at
        return True

    def end(self, site: SiteName, who: str) -> None:
        """A call of the same caller came back."""
        self._silent.get(site, {}).pop(who, None)

    def of(self, site: SiteName) -> tuple[float, str] | None:
        """Since when, and the reason of whoever has waited longest; None for a site that answers."""
        return min(self._silent.get(site, {}).values(), default=None)
