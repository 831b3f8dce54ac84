"""When the next scan of a placement queue is due, and how many there have been: all rules for that are here.

A *pass* over a queue is a scan, or the try of a job that has just come. A scan can be of use in three cases:

- a job stands in line that has not been tried on what is idle now (``PlacementQueue.untried``);
- more has become idle, or the links carry less, since the last scan began (``Sites.gained_at``);
- anything has changed, and a job stands in line that is not steady: it may fit when less is idle, too. It is
  *fickle* if every change since the last scan began is a reason to try it. Under the modules of the meta-scheduler,
  with scans at every event, it is *patient*: what others took in a pass is no reason, but what came after it is.

With an interval, a scan that cannot be of use is omitted, but still counts as a try.
"""

from __future__ import annotations

from koala.core.encoded import INFINITY
from koala.core.state.queues.placement import PlacementQueue
from koala.core.state.sites import Sites
from koala.model.grid import Preemption, SchedulerParameters


class ScanClock:
    """The schedule of scans: one queue at every interval, the high queue S times for each scan of the low one.

    With an interval of 0, both are scanned at every event that could help. Scan number k happens at k * interval; the
    queues take turns in rounds of S high scans and one low scan.
    """

    def __init__(self, interval_s: float, high_scans_per_low_scan: int) -> None:
        self.interval_s = interval_s
        self._high_scans = high_scans_per_low_scan
        self._round = high_scans_per_low_scan + 1

    def count(self, high: bool, until: float) -> int:
        """Return how many scans of the queue have been due up to and including this time."""
        rounds, rest = divmod(self._number(until), self._round)
        if high:
            return rounds * self._high_scans + min(rest, self._high_scans)
        return rounds

    def next_at(self, high: bool, after: float) -> float:
        """Return when the next scan of the queue is due, later than this time."""
        number = self._number(after) + 1
        turn = (number - 1) % self._round
        if high and turn == self._high_scans:
            number += 1
        elif not high:
            number += self._high_scans - turn
        return number * self.interval_s

    def is_due(self, high: bool, at: float) -> bool:
        """Return True if a scan of the queue is due exactly at this time."""
        number = self._number(at)
        turn = (number - 1) % self._round
        return number > 0 and number * self.interval_s == at and (turn < self._high_scans) is high

    def _number(self, until: float) -> int:
        """Return the last scan at or before this time, exactly as ``number * interval`` is computed elsewhere."""
        number = int(until / self.interval_s)
        while (number + 1) * self.interval_s <= until:
            number += 1
        while number * self.interval_s > until:
            number -= 1
        return number


class ScanTimes:
    """When the queues of one scheduler are scanned."""

    def __init__(self, parameters: SchedulerParameters, sites: Sites) -> None:
        # With an interval of 0, every event that could help causes a scan.
        self.every_event = parameters.scan_interval_s == 0
        # True while due work of this moment runs: its scans come last, and have not been made yet.
        self.to_come = False
        self._preempting = parameters.preemption is Preemption.PLACES
        self._clock = ScanClock(parameters.scan_interval_s, parameters.high_scans_per_low_scan)
        self._sites = sites

    def may_help(self, queue: PlacementQueue) -> bool:
        """Return True if something has changed since the last pass that could help a job of the queue."""
        sites = self._sites
        if queue.untried or sites.gained_at > queue.scanned_generation:
            return True
        if queue.fickle and queue.scanned_generation != sites.generation:
            return True
        return queue.patient > 0 and queue.passed_generation != sites.generation

    def is_needed(self, queue: PlacementQueue) -> bool:
        """Return True if a scan at its interval could find anything, or brings a job nearer to its limit of tries."""
        return queue.size > 0 and (queue.limited > 0 or self.may_help(queue))

    def is_due(self, queue: PlacementQueue, now: float, *, is_new: bool, is_tick: bool) -> bool:
        """Return True if the queue is scanned before the present event, which may be the first of
        its instant (``is_new``).

        With scans at every event they wait for the end of the instant, which a tick announces, and see
        all its events.
        """
        due = queue.scan_due_at <= now
        if self.every_event:
            return due and (is_tick or queue.scan_due_at < now)
        # What has come back in this very instant is tried in it.
        return due or (is_new and self._clock.is_due(queue.high, now) and self.is_needed(queue))

    def set_next(self, queue: PlacementQueue, now: float, at: float) -> bool:
        """Set the next scan of a queue with waiting jobs, after an event at that time.

        Returns True if the scan is due now and no site has enough for any job: such a scan is over at once, unless
        jobs must be tried, or counted, or preempt others for their places.
        """
        if self.every_event:
            if self.may_help(queue):
                enough_idle = queue.smallest_need <= max(self._sites.view.idle)
                if enough_idle or queue.untried or queue.limited or (queue.high and self._preempting):
                    queue.scan_due_at = now
                else:
                    queue.scan_begins(self._sites)
                    queue.passed_generation = self._sites.generation
                    return True
        elif not self.is_needed(queue):
            queue.scan_due_at = INFINITY
        elif queue.scan_due_at == INFINITY:
            queue.scan_due_at = self._clock.next_at(queue.high, at)
        return False

    def so_far(self, queue: PlacementQueue, now: float) -> int:
        """Return how many scans of the queue there have been, including omitted ones."""
        if self.every_event:
            return queue.scans
        scans = self._clock.count(queue.high, now)
        if self.to_come and (queue.scan_due_at <= now or self._clock.is_due(queue.high, now)):
            return scans - 1
        return scans
