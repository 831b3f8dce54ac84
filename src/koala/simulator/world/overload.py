"""The criterion for a void run: the users of all sites together request more than their bands allow, for too long.

It counts the requests of users, from their arrival and for as long as they run, even before they get processors. So
it depends on the seed alone, and two policies under one seed get the same verdict.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from heapq import heappop, heappush
from typing import NamedTuple

from koala.model.grid import Site
from koala.model.request import SiteName


class VoidPeriod(NamedTuple):
    """A period in which the users alone wanted more than all bands together: the run is void."""

    from_s: float
    to_s: float


class UsersLoad:
    """The processors that users want now, over the whole grid, and the times at which these were too many."""

    __slots__ = ("_ends", "_excesses", "_limit", "_outages", "_over_since_s", "_patience_s", "_total", "_wanted")

    def __init__(self, sites: Iterable[Site]) -> None:
        bands = [(site, site.simulation.background) for site in sites if site.simulation.background is not None]
        # Computed on the fractions as they were written: 0.29 of 100 processors is 29.
        self._limit = sum(
            (Decimal(repr(float(band.band_high))) * site.processors for site, band in bands), Decimal(0)
        )
        self._patience_s = min((band.void_after_s for _, band in bands), default=0.0)
        self._wanted: dict[SiteName, int] = {site.name: 0 for site, _ in bands}
        self._total = 0
        self._outages: dict[SiteName, int] = dict.fromkeys(self._wanted, 0)
        self._ends: list[tuple[float, SiteName, int, int]] = []  # when, where, previous outages, processors
        self._over_since_s: float | None = None
        self._excesses: list[VoidPeriod] = []

    def arrives(self, site: SiteName, processors: int, execution_s: float, now: float) -> None:
        """Record a user's request for processors."""
        self._advance(now)
        self._wanted[site] += processors
        self._total += processors
        heappush(self._ends, (now + execution_s, site, self._outages[site], processors))
        self._look(now)

    def goes_down(self, site: SiteName, now: float) -> None:
        """Drop the requests of a site's users, since the site breaks down."""
        if site in self._wanted:
            self._advance(now)
            self._outages[site] += 1
            self._total -= self._wanted[site]
            self._wanted[site] = 0
            self._look(now)

    def _advance(self, now: float) -> None:
        """Let every job end that ends by now."""
        while self._ends and self._ends[0][0] <= now:
            ended_s, site, outages, processors = heappop(self._ends)
            if outages == self._outages[site]:
                self._wanted[site] -= processors
                self._total -= processors
                self._look(ended_s)

    def _look(self, now: float) -> None:
        over = self._total > self._limit
        if over and self._over_since_s is None:
            self._over_since_s = now
        elif not over and self._over_since_s is not None:
            self._excesses.append(VoidPeriod(self._over_since_s, now))
            self._over_since_s = None

    def voids(self, from_s: float, to_s: float) -> list[VoidPeriod]:
        """Return the excesses that lasted too long within this period, including one that still lasts."""
        self._advance(to_s)
        excesses = [*self._excesses]
        if self._over_since_s is not None:
            excesses.append(VoidPeriod(self._over_since_s, max(to_s, self._over_since_s)))
        cut = [VoidPeriod(max(from_s, each.from_s), min(to_s, each.to_s)) for each in excesses]
        return [each for each in cut if each.to_s - each.from_s > self._patience_s]
