"""Reservations of plans beside the availability profiles: what they leave, and the earliest time for one more.

A reservation keeps places from the time of a plan until its job is due to end. Between the starts of reservations
processors only come free as time passes, so that the least that a job finds while it runs is there when it starts, or
where a reservation begins: those few points are looked at, and no others.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from typing import TypeVar

from koala.core.state.availability import Availability
from koala.core.state.encoded import INFINITY
from koala.core.state.job import Job
from koala.policies import PolicyError
from koala.policies.front_door import Demand, Spots, View, place_on

# So many times are tried one by one for a plan where halving the steps does not do.
PLAN_STEPS_MAX = 256

Answer = TypeVar("Answer")


class Reservation:
    """What is kept for one plan: these places, from its time until its job is due to end."""

    __slots__ = ("at", "job", "spots", "until")

    def __init__(self, job: Job | None, at: float, until: float, spots: Spots) -> None:
        self.job = job
        self.at = at
        self.until = until
        self.spots = spots


class PlanFinder:
    """Finds times and places beside what is reserved already. Pure: it reads profiles and changes nothing."""

    def __init__(
        self, availability: Availability, view: View, now: float, reserved: Sequence[Reservation] = ()
    ) -> None:
        self.availability = availability
        self.view = view
        self.now = now
        self.reserved = reserved
        self.starts = sorted({each.at for each in reserved})
        self._left: dict[float, list[int]] = {}  # by start: what is left then, below zero where it is too little
        self._spare: dict[int, list[int]] = {}  # by how many starts: what these leave of what is idle now
        self._as_of = availability.changes

    def beside(self, reserved: Sequence[Reservation]) -> PlanFinder:
        """The same beside other reservations."""
        return PlanFinder(self.availability, self.view, self.now, reserved)

    # ------------------------------------------------------------------------------------ what is left

    def left_at(self, start: float) -> list[int]:
        """What is left at the start of a reservation, once all are taken off."""
        if self._as_of != self.availability.changes:
            self._as_of = self.availability.changes
            self._left.clear()
            self._spare.clear()
        left = self._left.get(start)
        if left is None:
            left = self._left[start] = self.availability.raw_at(start)
            _take_off(left, start, self.reserved)
        return left

    def idle_during(self, start: float, until: float) -> list[int]:
        """What is idle at each site throughout that time, beside the reservations."""
        least = self.availability.raw_at(start)
        if self.reserved:
            _take_off(least, start, self.reserved)
            starts = self.starts
            for at in starts[bisect_right(starts, start) : bisect_left(starts, until)]:
                least = list(map(min, least, self.left_at(at)))
        return [idle if idle > 0 else 0 for idle in least]

    def spare(self, end: float) -> list[int]:
        """What is idle now and needed by no reservation that begins before that end."""
        touched = bisect_left(self.starts, end)
        if self._as_of != self.availability.changes:
            self._spare.clear()
        spare = self._spare.get(touched)
        if spare is None:
            spare = list(self.view.idle)
            for at in self.starts[:touched]:
                spare = list(map(min, spare, self.left_at(at)))
            spare = self._spare[touched] = [idle if idle > 0 else 0 for idle in spare]
        return spare

    def stands(self) -> bool:
        """Whether there is enough for all reservations at their times."""
        for at in self.starts:
            left = self.left_at(at)
            if min(left) < 0 and any(
                left[site] < 0 for each in self.reserved if each.at <= at < each.until for site in each.spots.sites
            ):
                return False
        return True

    # ------------------------------------------------------------------------------------------ places

    def place(self, demand: Demand, idle: Sequence[int], view: View | None = None) -> Spots | None:
        """The policy's places on what is idle; None where it finds none, or answers nonsense."""
        return places_on(demand, idle, self.view if view is None else view)

    def _later(self, demand: Demand) -> View:
        """What a demand sees of a time to come. Which nodes will be free then nobody knows, so that tasks with shapes
        count on all of them, beside the processors that are idle then: their plans are never too late."""
        return self.view.with_whole_nodes() if demand.groups else self.view

    def _place_at(self, demand: Demand, time: float, walltime_s: float) -> Spots | None:
        view = self._later(demand) if time > self.now else None
        return self.place(demand, self.idle_during(time, time + walltime_s), view)

    def earliest(self, demand: Demand, walltime_s: float, before: float = INFINITY) -> tuple[float, Spots] | None:
        """The earliest time known, before that one, at which the demand finds places for so long, and these.

        Under a policy that is monotone in what is idle the times are halved between the points where what a job
        finds may become less; otherwise they are tried one by one from the first that is not hopeless.
        """
        now, steps = self.now, self.availability.steps()
        if before <= now:
            return None
        times = [now, *steps[bisect_right(steps, now) : bisect_left(steps, before)]]
        for each in self.reserved:
            if now < each.until < before:
                insort(times, each.until)
        first = self._first_by_numbers(demand, times)
        search = self._halving if demand.steady else self._one_by_one
        found = search(demand, walltime_s, times, first) if first < len(times) else None
        if found is None and before == INFINITY:
            return self._when_all_is_over(demand, times)
        return found

    def _first_by_numbers(self, demand: Demand, times: list[float]) -> int:
        """From which time on the demand is not hopeless by its numbers alone; the end where it always is."""
        raw_at = self.availability.raw_at

        def by_numbers(index: int) -> bool | None:
            idle = demand.allowed([idle if idle > 0 else 0 for idle in raw_at(times[index])])
            return True if max(idle) >= demand.least and sum(idle) >= demand.total else None

        last = len(times) - 1
        return _first(0, last, by_numbers)[0] if by_numbers(last) else len(times)

    def _halving(
        self, demand: Demand, walltime_s: float, times: list[float], first: int
    ) -> tuple[float, Spots] | None:
        def fits_at(index: int) -> Spots | None:
            return self._place_at(demand, times[index], walltime_s)

        # A start counts for whoever starts less than the walltime before it, and then as long as it is reserved.
        cuts = {bisect_left(times, start) for start in self.starts}
        cuts |= {bisect_right(times, start - walltime_s) for start in self.starts}
        low = first
        for high in [*sorted(cut for cut in cuts if first < cut < len(times)), len(times)]:
            spots = fits_at(low)
            if spots is not None:
                return times[low], spots
            if high - low > 1 and fits_at(high - 1) is not None:
                index, spots = _first(low + 1, high, fits_at)
                assert spots is not None
                return times[index], spots
            low = high
        return None

    def _one_by_one(
        self, demand: Demand, walltime_s: float, times: list[float], first: int
    ) -> tuple[float, Spots] | None:
        for time in times[first : first + PLAN_STEPS_MAX]:
            spots = self._place_at(demand, time, walltime_s)
            if spots is not None:
                return time, spots
        return None

    def _when_all_is_over(self, demand: Demand, times: Sequence[float]) -> tuple[float, Spots] | None:
        """At the last step whatever is known to end has ended, and nothing is on the links."""
        last = max((time for time in times if time < INFINITY), default=self.now)
        view = self.view.unloaded()
        if demand.groups:
            view = view.with_whole_nodes()
        spots = self.place(demand, self.idle_during(last, INFINITY), view)
        return None if spots is None else (last, spots)

    # ---------------------------------------------------------------------------------- others' places

    def moved_for(self, started: Spots, end: float, total: int) -> list[Spots] | None:
        """Places for every reservation at its time, if these were taken until that end; None where one finds none.

        Whoever is in the way of ``started`` looks for other places beside all the rest.
        """
        touched = self.starts[: bisect_left(self.starts, end)]
        for at in touched:  # whoever moves needs as much as before
            if sum([left for left in self.left_at(at) if left > 0]) < total:
                return None
        taken = Reservation(None, -INFINITY, end, started)
        places = [each.spots for each in self.reserved]
        for number, each in enumerate(self.reserved):
            if each.at >= end:
                continue
            others = [
                Reservation(None, other.at, other.until, spots)
                for index, (other, spots) in enumerate(zip(self.reserved, places, strict=True))
                if index != number
            ]
            idle = self.beside([taken, *others]).idle_during(each.at, each.until)
            if fits(places[number], idle):
                continue
            if each.job is None or each.job.demand is None:
                return None
            spots = self.place(each.job.demand, idle, self._later(each.job.demand))
            if spots is None:
                return None
            places[number] = spots
        return places


def places_on(demand: Demand, idle: Sequence[int], view: View) -> Spots | None:
    """The policy's places on what would be idle; None where it finds none, or answers nonsense."""
    allowed = demand.allowed(idle)
    most = max(allowed)
    if most < demand.least or sum(allowed) < demand.total:
        return None
    if demand.lone and most >= demand.total:
        return Spots((allowed.index(most),), demand.whole)
    try:
        return place_on(demand, allowed, view)
    except PolicyError:
        return None


def _first(low: int, high: int, holds: Callable[[int], Answer | None]) -> tuple[int, Answer | None]:
    """The first index from which on something holds, with its answer; the end, and None, where it never does."""
    found = None
    while low < high:
        middle = (low + high) // 2
        answer = holds(middle)
        if answer is not None:
            high, found = middle, answer
        else:
            low = middle + 1
    return low, found


def _take_off(idle: list[int], at: float, reserved: Sequence[Reservation]) -> None:
    for each in reserved:
        if each.at <= at < each.until:
            for site, size in zip(each.spots.sites, each.spots.sizes, strict=True):
                idle[site] -= size


def fits(spots: Spots, idle: Sequence[int]) -> bool:
    """Whether so much is idle at these sites."""
    if len(spots.sites) == 1:
        return spots.sizes[0] <= idle[spots.sites[0]]
    left = list(idle)
    for site, size in zip(spots.sites, spots.sizes, strict=True):
        left[site] -= size
        if left[site] < 0:
            return False
    return True
