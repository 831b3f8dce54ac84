"""A component that waits in its site's own queue behind other users is claimed where there are idle processors."""

from __future__ import annotations

import pytest

from koala.core import JobState
from koala.model.facts import JobRequeued
from koala.model.messages import AbortComponent, Outcome, ReleaseBarrier, StartComponent, Tick
from tests.support.core_driver import CoreDriver, ask, ask_total, assert_clean, assert_ledger_balances, kind, part

PATIENCE_S = 5.0


def moved(driver: CoreDriver, until: float) -> list[tuple[str, str, int]]:
    """Where components were claimed by then."""
    return [(start.token, start.site, start.processors) for start in kind(driver.wait_until(until), StartComponent)]


@pytest.fixture
def waiting() -> CoreDriver:
    """Two components of six; local users hold half of a, where one of them waits."""
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, queue_patience_s=PATIENCE_S, barrier_timeout_s=100.0)
    driver.submit(ask(6, 6))
    assert [start.site for start in driver.all(StartComponent)] == ["a", "b"]
    driver.accept("1.1")
    driver.ready("1.2")
    driver.report("a", others=5)
    return driver


def test_it_moves_when_patience_is_over_and_the_job_runs_once_in_its_new_place(waiting: CoreDriver) -> None:
    assert moved(waiting, PATIENCE_S - 0.1) == []
    assert moved(waiting, PATIENCE_S) == [("1.3", "c", 6)]
    assert [abort.token for abort in waiting.all(AbortComponent)] == ["1.1"]
    assert waiting.job(1).places == (("c", 6), ("b", 6))
    assert waiting.story(1)[-2] == "component 0 moved from a, where it could not start, to c"
    assert_ledger_balances(waiting.ledger)
    assert waiting.idle("a") == 0, "what is being aborted is held until its end is told"
    assert kind(waiting.ready("1.1"), ReleaseBarrier) == [], "the old one opens nothing"
    (release,) = kind(waiting.ready("1.3"), ReleaseBarrier)
    assert sorted(release.tokens) == ["1.2", "1.3"]
    waiting.end("1.1", outcome=Outcome.ABORTED)
    assert waiting.idle("a") == 5
    waiting.end("1.2", "1.3")
    assert waiting.ended(1).runs == 1
    assert waiting.ended(1).places == (("c", 6), ("b", 6))
    assert not waiting.all(JobRequeued)
    assert_clean(waiting.ledger)


def test_one_that_comes_to_the_barrier_in_time_stays(waiting: CoreDriver) -> None:
    waiting.wait_until(PATIENCE_S - 0.1)
    waiting.ready("1.1")
    assert waiting.state(1) is JobState.RUNNING
    assert moved(waiting, 10 * PATIENCE_S) == []


def test_one_that_has_its_processors_stays_however_long_it_starts(waiting: CoreDriver) -> None:
    """Also where more wait behind it than there is room for, which a report counts as taken."""
    waiting.starting("1.1")
    waiting.report("a", others=10)
    assert moved(waiting, 10 * PATIENCE_S) == []


def test_one_that_starts_slowly_on_a_site_with_room_for_it_stays(waiting: CoreDriver) -> None:
    waiting.report("a", others=4)
    assert moved(waiting, 10 * PATIENCE_S) == []
    waiting.report("a", others=5)
    assert moved(waiting, 11 * PATIENCE_S) == [("1.3", "c", 6)], "it is looked at again and again"


def test_it_stays_where_nothing_else_has_room_and_the_deadline_holds(waiting: CoreDriver) -> None:
    waiting.report("c", others=3)
    assert moved(waiting, 99.0) == []
    waiting.wait_until(100.0)
    (back,) = waiting.all(JobRequeued)
    assert back.reason == "1 of 2 components did not reach the barrier in time (a)"
    assert_ledger_balances(waiting.ledger)


def test_it_moves_once_and_stays_where_it_came_to(waiting: CoreDriver) -> None:
    """Two sites that are full as long as it waits there would send it to and fro for ever."""
    assert moved(waiting, PATIENCE_S) == [("1.3", "c", 6)]
    waiting.end("1.1", outcome=Outcome.ABORTED)
    waiting.report("a", others=0)
    waiting.accept("1.3")
    waiting.report("c", others=5)
    assert moved(waiting, 90.0) == []


def test_nobody_moves_when_there_is_no_time_left_to_come_to_another_barrier(waiting: CoreDriver) -> None:
    waiting.report("c", others=3)
    waiting.wait_until(95.0)
    waiting.report("c", others=0)
    assert moved(waiting, 99.9) == []


def test_a_site_that_has_not_answered_at_the_deadline_is_not_to_blame_for_a_move(waiting: CoreDriver) -> None:
    waiting.report("c", others=3)
    waiting.wait_until(86.0)
    waiting.report("c", others=0)
    assert moved(waiting, 90.0) == [("1.3", "c", 6)]
    waiting.wait_until(100.0)
    assert len(waiting.all(JobRequeued)) == 1
    assert [site.errors for site in waiting.ledger.sites] == [0, 0, 0]


def test_before_the_job_start_time_a_component_may_wait_as_it_likes() -> None:
    """As one does that has a reservation for that time."""
    driver = CoreDriver(
        {"a": 10, "b": 9, "c": 8, "store": 1}, files={"f": (100.0, ("store",))}, queue_patience_s=PATIENCE_S
    )
    driver.submit(ask(part(6, None, "f")))
    driver.wait_until(75.0)
    assert [start.site for start in driver.all(StartComponent)] == ["a"], "it is claimed ahead of its time"
    driver.accept("1.1")
    driver.report("a", others=5)
    assert moved(driver, 100.0 + PATIENCE_S - 0.1) == []


def test_what_is_freed_for_another_component_of_the_job_is_left_to_it() -> None:
    """A job that is not claimed whole moves nothing: what it has preempted is for those that are still to come."""
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))}, queue_patience_s=PATIENCE_S)
    driver.submit(ask(part(3), part(8, "b", "f"), high=True))
    for low in (2, 3):
        driver.submit(ask(part(5, "b")))
        driver.ready(f"{low}.1")
    driver.wait_until(75.0)
    assert [abort.token for abort in driver.all(AbortComponent)] == ["3.1", "2.1"], "it preempts both"
    driver.accept("1.1")
    driver.report("a", others=9)
    driver.end("3.1", outcome=Outcome.ABORTED)
    assert moved(driver, 150.0) == []
    driver.end("2.1", outcome=Outcome.ABORTED)
    assert driver.state(1) is JobState.STARTING
    assert driver.job(1).places == (("a", 3), ("b", 8))


def test_a_quota_does_not_make_a_site_short() -> None:
    """Others may hold more than is left beside our quota, and there are processors for the component all the same."""
    driver = CoreDriver({"a": 20, "b": 8}, quotas={"a": 0.5}, queue_patience_s=PATIENCE_S)
    driver.submit(ask(6))
    driver.accept("1.1")
    driver.report("a", others=5)
    assert moved(driver, 10 * PATIENCE_S) == []
    driver.report("a", others=15)
    assert moved(driver, 12 * PATIENCE_S) == [("1.2", "b", 6)]


def test_when_nobody_looked_for_long_what_is_known_is_too_old_for_a_move(waiting: CoreDriver) -> None:
    waiting.now = 60.0
    assert kind(waiting.send(Tick(at=60.0)), StartComponent) == []
    assert moved(waiting, 60.0 + PATIENCE_S) == [("1.3", "c", 6)]


def test_the_probe_of_a_site_stays_its_probe_when_another_job_leaves() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, error_threshold=1, cooldown_s=1.0, queue_patience_s=PATIENCE_S)
    driver.submit(ask(6))
    driver.accept("1.1")
    driver.submit(ask(part(3, "a")))
    driver.report("a", others=5)
    driver.ledger.sites.error(0)
    driver.ledger.sites.probe(0)
    driver.ledger.sites.sites[0].probe_job = 2
    assert moved(driver, PATIENCE_S) == [("1.2", "b", 6)]
    driver.end("1.1", outcome=Outcome.ABORTED)
    assert driver.ledger.sites.sites[0].probe_job == 2


def test_a_move_does_not_put_off_the_deadline(waiting: CoreDriver) -> None:
    waiting.wait_until(PATIENCE_S)
    waiting.accept("1.3")
    waiting.wait_until(99.9)
    assert not waiting.all(JobRequeued)
    waiting.wait_until(100.0)
    assert len(waiting.all(JobRequeued)) == 1


def test_what_is_being_aborted_there_makes_room_so_the_next_one_stays() -> None:
    """Two wait for eight where six are left: when one goes, the other will start."""
    driver = CoreDriver({"a": 10, "b": 5}, queue_patience_s=PATIENCE_S)
    driver.submit(ask(4))
    driver.submit(ask(4))
    driver.accept("1.1", "2.1")
    driver.report("a", others=4)
    assert moved(driver, 2 * PATIENCE_S) == [("1.2", "b", 4)]


def test_a_component_whose_site_the_user_chose_waits_there() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, queue_patience_s=PATIENCE_S)
    driver.submit(ask(part(6, "a")))
    driver.accept("1.1")
    driver.report("a", others=5)
    assert moved(driver, 10 * PATIENCE_S) == []


def test_a_part_of_a_flexible_job_moves_too() -> None:
    driver = CoreDriver({"a": 10, "b": 8}, queue_patience_s=PATIENCE_S)
    driver.submit(ask_total(6))
    driver.accept("1.1")
    driver.report("a", others=5)
    assert moved(driver, PATIENCE_S) == [("1.2", "b", 6)]


def test_no_file_is_brought_for_a_move() -> None:
    """c has room but not the file; where it is on its way for others, it has arrived in time or not at all."""
    driver = CoreDriver({"a": 10, "b": 9, "c": 8}, files={"f": (50.0, ("a",))}, queue_patience_s=PATIENCE_S)
    driver.submit(ask(part(6, None, "f")))
    driver.accept("1.1")
    driver.report("a", others=5)
    assert moved(driver, 10 * PATIENCE_S) == []
    assert driver.transfers() == []


def test_without_a_patience_it_waits_for_the_end_of_the_barrier() -> None:
    driver = CoreDriver({"a": 10, "b": 9}, queue_patience_s=None, barrier_timeout_s=100.0)
    driver.submit(ask(6))
    driver.accept("1.1")
    driver.report("a", others=5)
    assert moved(driver, 99.9) == []


def test_a_job_that_is_cancelled_while_it_waits_leaves_nothing(waiting: CoreDriver) -> None:
    waiting.cancel(1)
    waiting.end("1.1", "1.2", outcome=Outcome.ABORTED)
    assert waiting.wait_until(100.0) == []
    assert_clean(waiting.ledger)
