"""When processors come free: one availability profile for each site, updated by the events there.

A profile holds what is free for us now, and the processors that come free later, each with the due time of its
holder: our own components by their walltime, other users' jobs by what the site reports. A holder that is due and
does not let go is expected to do so at any moment, and after ``GRACE_S`` to be late for as long again. Changes are
noted as they come and sorted when the profile is read, so that they cost little without plans: a claim that begins
and ends between two reads is never sorted in. Nothing here decides.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Hashable, Iterable
from itertools import accumulate

from koala.core.encoded import INFINITY
from koala.core.life.component import ComponentClaim

# What is due is expected at any moment for this long: kills and answers take a while.
GRACE_S = 60.0
# The free processors of an excluded site: no release makes up for this.
CLOSED = -(10**12)


def expected_at(due_at: float, now: float) -> float:
    """Return when to expect a release: at its due time or, once it is late beyond the grace, as much later again."""
    at, more_s = due_at, 0.0
    while at + GRACE_S < now:
        more_s = more_s * 2 or 2 * GRACE_S
        at = due_at + more_s
    return at


# (expected at, sequence, processors, key, due at)
Hold = tuple[float, int, int, Hashable, float]


class LastLook:
    """The time of the last check for late releases."""

    __slots__ = ("now",)

    def __init__(self) -> None:
        self.now = 0.0


class SiteProfile:
    """The profile of one site: ``base`` is what is free now, and may be below zero."""

    __slots__ = (
        "_by_key",
        "_gone",
        "_holds",
        "_last",
        "_new",
        "_sequence",
        "base",
        "noted",
        "released",
        "stale",
        "times",
    )

    def __init__(self, last: LastLook) -> None:
        self.base = 0
        self._last = last
        self.noted: dict[str, ComponentClaim] = {}  # by token: claims that have begun or have a new due time
        self._holds: list[Hold] = []
        self._by_key: dict[Hashable, Hold] = {}
        self._sequence = 0
        # By sequence: arrivals and departures since the last sort.
        self._new: dict[int, Hold] = {}
        self._gone: set[int] = set()
        self.times: list[float] = []
        self.released: list[int] = [0]  # by how many of the times have passed
        self.stale = False

    def hold(self, key: Hashable, processors: int, due_at: float) -> None:
        """Add a hold of this many processors until that time."""
        before = self._by_key.get(key)
        if before is not None:
            self._take_out(before)
            processors += before[2]
        if processors > 0:
            self._put(key, processors, expected_at(due_at, self._last.now), due_at)

    def let_go(self, key: Hashable, processors: int | None = None) -> None:
        """Remove this many processors of a hold, or all; without effect if nothing is held."""
        before = self._by_key.get(key)
        if before is not None:
            self._take_out(before)
            left = 0 if processors is None else before[2] - processors
            if left > 0:
                self._put(key, left, before[0], before[4])

    def _put_noted(self) -> None:
        for token, claim in self.noted.items():
            before = self._by_key.get(token)
            if before is not None:
                if before[4] == claim.due_at:
                    continue
                self._take_out(before)
            self._put(token, claim.processors, expected_at(claim.due_at, self._last.now), claim.due_at)
        self.noted = {}

    def catch_up(self, now: float) -> None:
        """Expect later what is late by more than the grace."""
        for late in self.in_order():
            if late[0] + GRACE_S >= now:
                break
            self._take_out(late)
            self._put(late[3], late[2], expected_at(late[4], now), late[4])

    @property
    def first_at(self) -> float:
        """When the next processors are expected."""
        holds = self.in_order()
        return holds[0][0] if holds else INFINITY

    def late_keys(self, now: float) -> list[Hashable]:
        """Return the holders that are late beyond the grace."""
        return [hold[3] for hold in self.in_order() if hold[4] + GRACE_S < now]

    def keys_until(self, at: float) -> list[Hashable]:
        """Return the holders that are expected to let go by then, in order of time."""
        return [hold[3] for hold in self.in_order() if hold[0] <= at]

    def last_end(self, keys: Iterable[Hashable]) -> float:
        """Return when the last of these holders is expected to let go here; a time in the past if
        none holds anything."""
        self.in_order()
        return max((self._by_key[key][0] for key in keys if key in self._by_key), default=-INFINITY)

    def _put(self, key: Hashable, processors: int, at: float, due_at: float) -> None:
        self._sequence += 1
        hold = (at, self._sequence, processors, key, due_at)
        self._by_key[key] = self._new[self._sequence] = hold
        self.stale = True

    def _take_out(self, hold: Hold) -> None:
        del self._by_key[hold[3]]
        if self._new.pop(hold[1], None) is None:
            self._gone.add(hold[1])
        self.stale = True

    def in_order(self) -> list[Hold]:
        """Return all holds by time; no two have the same sequence, so that keys are never compared."""
        if self.noted:
            self._put_noted()
        if self._gone:
            gone = self._gone
            self._holds = [hold for hold in self._holds if hold[1] not in gone]
            self._gone = set()
        if self._new:
            self._holds += self._new.values()
            self._holds.sort()
            self._new = {}
        return self._holds

    def bring_up(self) -> None:
        """Compute the sums again, after changes."""
        holds = self.in_order()
        self.times = [hold[0] for hold in holds]
        self.released = list(accumulate([hold[2] for hold in holds], initial=0))
        self.stale = False


class Availability:
    """The profiles of all sites. ``changes`` counts updates, so that planners can detect stale plans."""

    def __init__(self, sites: int) -> None:
        self._last = LastLook()
        self.profiles = [SiteProfile(self._last) for _ in range(sites)]
        self.changes = 0
        self._rows: list[tuple[int, list[float], list[int]]] = []
        self._rows_as_of = -1
        self._late_at = INFINITY
        self._late_as_of = -1
        self._steps: list[float] = []
        self._steps_as_of = -1

    @property
    def now(self) -> float:
        """The time of the last ``catch_up``."""
        return self._last.now

    @now.setter
    def now(self, now: float) -> None:
        self._last.now = now

    # ------------------------------------------------------------------------------------- what happens

    def set_base(self, site: int, processors: int) -> None:
        """Set the free processors of the site; below zero if more is held than there is."""
        profile = self.profiles[site]
        if profile.base != processors:
            profile.base = processors
            self.changes += 1

    def hold(self, site: int, key: Hashable, processors: int, due_at: float) -> None:
        self.profiles[site].hold(key, processors, due_at)
        self.changes += 1

    def let_go(self, site: int, key: Hashable, processors: int | None = None) -> None:
        self.profiles[site].let_go(key, processors)
        self.changes += 1

    def note(self, claim: ComponentClaim) -> None:
        """Note that the claim holds its processors, or has a new due time."""
        profile = self.profiles[claim.site]
        profile.noted[claim.token] = claim
        profile.stale = True
        self.changes += 1

    def end(self, claim: ComponentClaim) -> None:
        """Note that the claim holds nothing any more."""
        profile = self.profiles[claim.site]
        profile.noted.pop(claim.token, None)
        profile.let_go(claim.token)
        self.changes += 1

    def catch_up(self, now: float) -> bool:
        """Expect late releases later; return True if there were any."""
        is_late = now >= self.late_at
        self.now = now
        if not is_late:
            return False
        for profile in self.profiles:
            profile.catch_up(now)
        self.changes += 1
        return True

    @property
    def late_at(self) -> float:
        """When something will be late by more than the grace, unless it comes before."""
        if self._late_as_of != self.changes:
            first_at = min(profile.first_at for profile in self.profiles)
            self._late_at = math.nextafter(first_at + GRACE_S, INFINITY)
            self._late_as_of = self.changes
        return self._late_at

    # ------------------------------------------------------------------------------------- what is free

    def raw_at(self, at: float) -> list[int]:
        """Return what is free at each site then, below zero if more is held than there is."""
        if self._rows_as_of != self.changes:
            self._bring_up()
        return [base + released[bisect_right(times, at)] for base, times, released in self._rows]

    def steps(self) -> list[float]:
        """Return the times at which processors come free anywhere, in order; a time may occur several times."""
        if self._steps_as_of != self.changes:
            if self._rows_as_of != self.changes:
                self._bring_up()
            self._steps = sorted(_joined(times for _, times, _ in self._rows))
            self._steps_as_of = self.changes
        return self._steps

    def _bring_up(self) -> None:
        for profile in self.profiles:
            if profile.stale:
                profile.bring_up()
        self._rows = [(profile.base, profile.times, profile.released) for profile in self.profiles]
        self._rows_as_of = self.changes


def _joined(lists: Iterable[list[float]]) -> list[float]:
    joined: list[float] = []
    for each in lists:
        joined += each  # runs in order: sorting them is a merge
    return joined
