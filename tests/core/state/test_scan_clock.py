"""When the placement queues are due, against counting on the fingers."""

from __future__ import annotations

import pytest

from koala.core.state.queues.due import ScanClock

INTERVALS_S = (1.0, 4.0, 0.1, 0.3, 1 / 3, 240.0, 1e-3)
SCANS = 200


def turns(high_scans: int) -> list[tuple[int, bool]]:
    """(scan number, whether it is one of the high queue) for the first scans."""
    return [(number, (number - 1) % (high_scans + 1) < high_scans) for number in range(1, SCANS + 1)]


@pytest.mark.parametrize("interval_s", INTERVALS_S)
@pytest.mark.parametrize("high_scans", [1, 2, 3, 4])
def test_counts_are_those_of_counting_every_scan_one_by_one(interval_s: float, high_scans: int) -> None:
    clock = ScanClock(interval_s, high_scans)
    counts = {True: 0, False: 0}
    assert clock.count(True, 0.0) == clock.count(False, 0.0) == 0
    for number, high in turns(high_scans):
        just_before = number * interval_s - interval_s / 2
        assert {queue: clock.count(queue, just_before) for queue in counts} == counts
        counts[high] += 1
        assert {queue: clock.count(queue, number * interval_s) for queue in counts} == counts


@pytest.mark.parametrize("interval_s", INTERVALS_S)
@pytest.mark.parametrize("high_scans", [1, 2, 3, 4])
@pytest.mark.parametrize("high", [True, False])
def test_the_next_scan_is_the_first_later_one_of_that_queue(interval_s: float, high_scans: int, high: bool) -> None:
    clock = ScanClock(interval_s, high_scans)
    own = [number * interval_s for number, for_high in turns(high_scans) if for_high is high]
    for number in range(SCANS // 2):
        for after in (number * interval_s, (number + 0.5) * interval_s):
            assert clock.next_at(high, after) == next(at for at in own if at > after)


@pytest.mark.parametrize("interval_s", INTERVALS_S)
@pytest.mark.parametrize("high", [True, False])
def test_each_next_scan_counts_exactly_one_more(interval_s: float, high: bool) -> None:
    clock = ScanClock(interval_s, 2)
    at = 0.0
    for counted in range(1, SCANS):
        at = clock.next_at(high, at)
        assert clock.count(high, at) == counted


def test_the_high_queue_has_its_turns_first_in_each_round() -> None:
    clock = ScanClock(4.0, 2)
    assert [clock.next_at(True, at) for at in (0.0, 4.0, 8.0)] == [4.0, 8.0, 16.0]
    assert [clock.next_at(False, at) for at in (0.0, 12.0)] == [12.0, 24.0]
