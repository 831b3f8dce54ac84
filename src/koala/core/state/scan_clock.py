"""When the placement queues are scanned: every interval one of them, the high one S times for each time of the
low one; or, with an interval of 0, both at every event that could help.
"""

from __future__ import annotations


class ScanClock:
    """Scan number k happens at k * interval; the queues take turns in rounds of S high scans and one low scan."""

    def __init__(self, interval_s: float, high_scans_per_low_scan: int) -> None:
        self.interval_s = interval_s
        self._high_scans = high_scans_per_low_scan
        self._round = high_scans_per_low_scan + 1

    def count(self, high: bool, until: float) -> int:
        """How many scans of the queue have been due up to and including this time."""
        rounds, rest = divmod(self._number(until), self._round)
        if high:
            return rounds * self._high_scans + min(rest, self._high_scans)
        return rounds

    def next_at(self, high: bool, after: float) -> float:
        """When the next scan of the queue is due, later than this time."""
        number = self._number(after) + 1
        turn = (number - 1) % self._round
        if high and turn == self._high_scans:
            number += 1
        elif not high:
            number += self._high_scans - turn
        return number * self.interval_s

    def is_due(self, high: bool, at: float) -> bool:
        """Whether a scan of the queue is due exactly at this time."""
        number = self._number(at)
        turn = (number - 1) % self._round
        return number > 0 and number * self.interval_s == at and (turn < self._high_scans) is high

    def _number(self, until: float) -> int:
        """The last scan at or before this time, exactly as ``number * interval`` is computed elsewhere."""
        number = int(until / self.interval_s)
        while (number + 1) * self.interval_s <= until:
            number += 1
        while number * self.interval_s > until:
            number -= 1
        return number
