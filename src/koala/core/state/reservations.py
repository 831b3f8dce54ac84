"""Reservations of plans beside the availability profiles: what they leave, and the earliest time for one more.

A reservation keeps places from the time of a plan until its job is due to end. Between the starts of reservations
processors only come free as time passes. So the minimum that a job finds while it runs occurs when it starts, or
where a reservation begins: only those few points are examined.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from typing import TypeVar

from koala.core.encoded import INFINITY
from koala.core.life.job import Job
from koala.core.state.availability import Availability
from koala.core.state.nodes.future_nodes import FutureNodes
from koala.core.state.nodes.left_by_plans import NodesLeftByPlans
from koala.policies import PolicyError
from koala.policies.interface import Demand, Spots, View, place_on
from koala.policies.view import Holder, LicensePools

# At most this many times are tried one by one for a plan where halving the steps does not work.
PLAN_STEPS_MAX = 256

Answer = TypeVar("Answer")


class Reservation:
    """What is kept for one plan: these places, from its time until its job is due to end."""

    __slots__ = ("at", "demand", "job", "spots", "until")

    def __init__(self, job: Job | None, at: float, until: float, spots: Spots, demand: Demand | None = None) -> None:
        self.job = job
        self.at = at
        self.until = until
        self.spots = spots
        self.demand = demand if job is None else job.demand


class PlanFinder:
    """Finds times and places beside existing reservations. Pure: it reads profiles and changes nothing."""

    def __init__(
        self,
        availability: Availability,
        view: View,
        now: float,
        reserved: Sequence[Reservation] = (),
        ahead: FutureNodes | None = None,
    ) -> None:
        self.availability = availability
        self.view = view
        self.now = now
        self.reserved = reserved
        self.ahead = ahead
        self._shaped: bool | None = None  # True if nodes matter to a reservation; None until needed
        self._beside: NodesLeftByPlans | None = None  # made for the first demand that nodes concern
        self._nodes_as_of = availability.changes
        self.starts = sorted({each.at for each in reserved})
        self._left: dict[float, list[int]] = {}  # by start: what is left then, below zero if it is too little
        self._spare: dict[int, list[int]] = {}  # by number of starts: what these leave of what is idle now
        self._licenses: dict[float | None, LicensePools] = {}  # by time, None meaning now: what is held then
        self._as_of = availability.changes

    def beside(self, reserved: Sequence[Reservation]) -> PlanFinder:
        """Return the same finder beside other reservations."""
        return PlanFinder(self.availability, self.view, self.now, reserved, self.ahead)

    # ------------------------------------------------------------------------------------------- nodes

    def nodes_for(self, demand: Demand | None) -> NodesLeftByPlans | None:
        """Return what the reservations leave of the nodes, if the demand's tasks or those of a
        reservation have shapes.

        None if processors alone decide.
        """
        if self.ahead is None:
            return None
        if self._shaped is None:
            self._shaped = any(each.demand is not None and bool(each.demand.groups) for each in self.reserved)
        if not self._shaped and (demand is None or not demand.groups):
            return None
        if self._beside is None or self._nodes_as_of != self.availability.changes:
            self._beside = NodesLeftByPlans(self.ahead, self.now, self.reserved, shaped=self._shaped)
            self._nodes_as_of = self.availability.changes
        return self._beside

    # ---------------------------------------------------------------------------------------- licences

    def open_during(
        self,
        demand: Demand | None,
        idle: Sequence[int],
        start: float | None,
        until: float,
        holder: Holder | None = None,
    ) -> Sequence[int]:
        """Return what is idle, or nothing if too few licences are left at some time from ``start`` on,
        or from now."""
        if demand is None or not demand.licenses:
            return idle
        after = self.now if start is None else start
        for at in (start, *self.starts[bisect_right(self.starts, after) : bisect_left(self.starts, until)]):
            idle = self.licenses_at(at).open_to(demand.licenses, idle, holder)
        return idle

    def licenses_at(self, at: float | None) -> LicensePools:
        """Return the licences at that time, or now, beside the reservations."""
        self._look_again()
        known = self._licenses.get(at)
        if known is None:
            known = self._licenses[at] = self.view.licenses.unheld()
            profiles = self.availability.profiles
            for holder, (wanted, sites) in self.view.licenses.held.items():
                for site, keys in sites.items():
                    if at is None or profiles[site].last_end(keys) > at:
                        known.take(holder, wanted, site, None)
            then = self.now if at is None else at
            for number, each in enumerate(self.reserved, start=1):
                if each.demand is not None and each.demand.licenses and each.at <= then < each.until:
                    for site in set(each.spots.sites):
                        known.take((-number, 0), each.demand.licenses, site, None)
        return known

    # ------------------------------------------------------------------------------------ what is left

    def _look_again(self) -> None:
        """Forget results from before the last change."""
        if self._as_of != self.availability.changes:
            self._as_of = self.availability.changes
            self._left.clear()
            self._spare.clear()
            self._licenses.clear()

    def left_at(self, start: float) -> list[int]:
        """Return what is left at the start of a reservation, after all are subtracted."""
        self._look_again()
        left = self._left.get(start)
        if left is None:
            left = self._left[start] = self.availability.raw_at(start)
            _take_off(left, start, self.reserved)
        return left

    def idle_during(self, start: float, until: float) -> list[int]:
        """Return what is idle at each site throughout that time, beside the reservations."""
        least = self.availability.raw_at(start)
        if self.reserved:
            _take_off(least, start, self.reserved)
            starts = self.starts
            for at in starts[bisect_right(starts, start) : bisect_left(starts, until)]:
                least = list(map(min, least, self.left_at(at)))
        return [idle if idle > 0 else 0 for idle in least]

    def spare(self, end: float) -> list[int]:
        """Return what is idle now and needed by no reservation that begins before that end."""
        touched = bisect_left(self.starts, end)
        self._look_again()
        spare = self._spare.get(touched)
        if spare is None:
            spare = list(self.view.idle)
            for at in self.starts[:touched]:
                spare = list(map(min, spare, self.left_at(at)))
            spare = self._spare[touched] = [idle if idle > 0 else 0 for idle in spare]
        return spare

    def stands(self) -> bool:
        """Return True if there is enough for all reservations at their times."""
        for at in self.starts:
            left = self.left_at(at)
            if min(left) < 0 and any(
                left[site] < 0 for each in self.reserved if each.at <= at < each.until for site in each.spots.sites
            ):
                return False
        for each in self.reserved:
            wanted = () if each.demand is None else each.demand.licenses
            if wanted and self.licenses_at(each.at).is_overdrawn(wanted, each.spots.sites):
                return False
        nodes = self.nodes_for(None)
        return nodes is None or nodes.stand()

    # ------------------------------------------------------------------------------------------ places

    def place(self, demand: Demand, idle: Sequence[int], view: View | None = None) -> Spots | None:
        """Return the policy's places on what is idle; None if it finds none, or its answer is invalid."""
        return places_on(demand, idle, self.view if view is None else view)

    def place_during(self, demand: Demand, start: float, until: float, view: View | None = None) -> Spots | None:
        """Return the policy's places on what is idle throughout that time, and on nodes that are guaranteed
        to be free."""
        idle = self.open_during(demand, self.idle_during(start, until), start, until)
        nodes = self.nodes_for(demand)
        if nodes is None:
            return self.place(demand, idle, view)
        return self._place_on_nodes(demand, idle, nodes, start, until, view)

    def place_now(self, demand: Demand, end: float) -> Spots | None:
        """Return the policy's places on what is idle now and needed by no reservation that begins before that end."""
        idle = self.open_during(demand, self.spare(end), None, end)
        nodes = self.nodes_for(demand)
        if nodes is None:
            return self.place(demand, idle)
        return self._place_on_nodes(demand, idle, nodes, None, end)

    def _place_on_nodes(
        self,
        demand: Demand,
        idle: Sequence[int],
        nodes: NodesLeftByPlans,
        start: float | None,
        until: float,
        view: View | None = None,
    ) -> Spots | None:
        view = self.view if view is None else view
        if demand.groups:
            spots = self.place(demand, idle, nodes.view_of(view, start, until))
        else:
            spots = self.place(demand, nodes.spared(idle, start, until), view)
        # The tasks of several shapes may each have guaranteed places only alone.
        return spots if spots is None or nodes.allow(demand, spots, start, until) else None

    def keeps(self, demand: Demand, spots: Spots, start: float, until: float) -> bool:
        """Return True if a demand can have these places throughout that time."""
        if not fits(spots, self.open_during(demand, demand.allowed(self.idle_during(start, until)), start, until)):
            return False
        nodes = self.nodes_for(demand)
        return nodes is None or nodes.allow(demand, spots, start, until)

    def spares(self, demand: Demand, spots: Spots, end: float) -> bool:
        """Return True if a job that has these places from now until that end puts no reservation off."""
        if not fits(spots, self.open_during(demand, self.spare(end), None, end)):
            return False
        nodes = self.nodes_for(None)
        return nodes is None or nodes.allow(demand, spots, None, end)

    def _place_at(self, demand: Demand, time: float, walltime_s: float) -> Spots | None:
        return self.place_during(demand, time, time + walltime_s)

    def earliest(
        self, demand: Demand, walltime_s: float, before: float = INFINITY, *, after: float = 0.0
    ) -> tuple[float, Spots] | None:
        """Return the earliest time, before ``before`` and not before ``after``, at which the demand finds places,
        with these.

        The places last for the walltime. Under a policy that is monotone in what is idle, the search halves the times
        between the points where what a job finds may become less; otherwise it tries them one by one from the first
        that is not hopeless.
        """
        first_at, steps = max(self.now, after), self.availability.steps()
        if before <= first_at:
            return None
        times = [first_at, *steps[bisect_right(steps, first_at) : bisect_left(steps, before)]]
        for each in self.reserved:
            if first_at < each.until < before:
                insort(times, each.until)
        first = self._first_by_numbers(demand, times)
        search = self._halving if demand.steady else self._one_by_one
        found = search(demand, walltime_s, times, first) if first < len(times) else None
        if found is None and before == INFINITY:
            return self._when_all_is_over(demand, times)
        return found

    def _first_by_numbers(self, demand: Demand, times: list[float]) -> int:
        """Return the first time from which the demand is not hopeless by its numbers alone; the end if
        it always is."""
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

        # A start matters to jobs that start less than the walltime before it, and then as long as it is reserved.
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
        """Return the last step, when every known hold has ended, and nothing is on the links."""
        last = max((time for time in times if time < INFINITY), default=self.now)
        spots = self.place_during(demand, last, INFINITY, self.view.unloaded())
        return None if spots is None else (last, spots)

    # ---------------------------------------------------------------------------------- others' places

    def moved_for(self, started: Spots, end: float, demand: Demand) -> list[Spots] | None:
        """Return places for every reservation at its time, if these were taken until that end; None if
        one finds none.

        Reservations in the way of ``started`` look for other places beside all the rest.
        """
        touched = self.starts[: bisect_left(self.starts, end)]
        total = sum(started.sizes)
        for at in touched:  # a moved job needs as much as before
            if sum([left for left in self.left_at(at) if left > 0]) < total:
                return None
        taken = Reservation(None, -INFINITY, end, started, demand)
        places = [each.spots for each in self.reserved]
        for number, each in enumerate(self.reserved):
            if each.at >= end:
                continue
            others = [
                Reservation(None, other.at, other.until, spots, other.demand)
                for index, (other, spots) in enumerate(zip(self.reserved, places, strict=True))
                if index != number
            ]
            beside = self.beside([taken, *others])
            idle = beside.open_during(each.demand, beside.idle_during(each.at, each.until), each.at, each.until)
            nodes = beside.nodes_for(each.demand)
            if fits(places[number], idle) and (
                nodes is None or nodes.allow(each.demand, places[number], each.at, each.until)
            ):
                continue
            if each.demand is None or each.job is None:
                return None
            spots = beside.place_during(each.demand, each.at, each.until)
            if spots is None:
                return None
            places[number] = spots
        return places


def places_on(demand: Demand, idle: Sequence[int], view: View) -> Spots | None:
    """Return the policy's places on what would be idle; None if it finds none, or its answer is invalid."""
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
    """Return the first index from which on something holds, with its answer; the end, and None, if it never does."""
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
    """Return True if that much is idle at these sites."""
    if len(spots.sites) == 1:
        return spots.sizes[0] <= idle[spots.sites[0]]
    left = list(idle)
    for site, size in zip(spots.sites, spots.sizes, strict=True):
        left[site] -= size
        if left[site] < 0:
            return False
    return True
