"""A component that waits in its site's own queue behind other users is claimed where there are idle processors."""

from __future__ import annotations

import pytest

from desk import Desk, ask, ask_total, assert_books_balance, assert_clean, kind, part
from koala.core import State
from koala.messages import AbortComponent, JobRequeued, Outcome, ReleaseBarrier, StartComponent

PATIENCE_S = 5.0


def moved(desk: Desk, until: float) -> list[tuple[str, str, int]]:
    """Where components were claimed by then."""
    return [(start.token, start.site, start.processors) for start in kind(desk.wait_until(until), StartComponent)]


@pytest.fixture
def waiting() -> Desk:
    """Two components of six; local users hold half of a, where one of them waits."""
    desk = Desk({"a": 10, "b": 9, "c": 8}, queue_patience_s=PATIENCE_S, barrier_timeout_s=100.0)
    desk.submit(ask(6, 6))
    assert [start.site for start in desk.all(StartComponent)] == ["a", "b"]
    desk.accept("1.1")
    desk.ready("1.2")
    desk.report("a", others=5)
    return desk


def test_it_moves_when_patience_is_over_and_the_job_runs_once_in_its_new_place(waiting: Desk) -> None:
    assert moved(waiting, PATIENCE_S - 0.1) == []
    assert moved(waiting, PATIENCE_S) == [("1.3", "c", 6)]
    assert [abort.token for abort in waiting.all(AbortComponent)] == ["1.1"]
    assert waiting.job(1).places == (("c", 6), ("b", 6))
    assert waiting.story(1)[-1] == "component 0 moved from a, where it could not start, to c"
    assert_books_balance(waiting.ledger)
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


def test_one_that_comes_to_the_barrier_in_time_stays(waiting: Desk) -> None:
    waiting.wait_until(PATIENCE_S - 0.1)
    waiting.ready("1.1")
    assert waiting.state(1) is State.RUNNING
    assert moved(waiting, 10 * PATIENCE_S) == []


def test_one_that_starts_slowly_on_a_site_with_room_for_it_stays(waiting: Desk) -> None:
    waiting.report("a", others=4)
    assert moved(waiting, 10 * PATIENCE_S) == []
    waiting.report("a", others=5)
    assert moved(waiting, 11 * PATIENCE_S) == [("1.3", "c", 6)], "it is looked at again and again"


def test_it_stays_where_nothing_else_has_room_and_the_deadline_holds(waiting: Desk) -> None:
    waiting.report("c", others=3)
    assert moved(waiting, 99.0) == []
    waiting.wait_until(100.0)
    (back,) = waiting.all(JobRequeued)
    assert back.reason == "1 of 2 components did not reach the barrier in time (a)"
    assert_books_balance(waiting.ledger)


def test_a_move_does_not_put_off_the_deadline(waiting: Desk) -> None:
    waiting.wait_until(PATIENCE_S)
    waiting.accept("1.3")
    waiting.wait_until(99.9)
    assert not waiting.all(JobRequeued)
    waiting.wait_until(100.0)
    assert len(waiting.all(JobRequeued)) == 1


def test_what_is_being_aborted_there_makes_room_so_the_next_one_stays() -> None:
    """Two wait for eight where six are left: when one goes, the other will start."""
    desk = Desk({"a": 10, "b": 5}, queue_patience_s=PATIENCE_S)
    desk.submit(ask(4))
    desk.submit(ask(4))
    desk.accept("1.1", "2.1")
    desk.report("a", others=4)
    assert moved(desk, 2 * PATIENCE_S) == [("1.2", "b", 4)]


def test_a_component_whose_site_the_user_chose_waits_there() -> None:
    desk = Desk({"a": 10, "b": 10}, queue_patience_s=PATIENCE_S)
    desk.submit(ask(part(6, "a")))
    desk.accept("1.1")
    desk.report("a", others=5)
    assert moved(desk, 10 * PATIENCE_S) == []


def test_a_part_of_a_flexible_job_moves_too() -> None:
    desk = Desk({"a": 10, "b": 8}, queue_patience_s=PATIENCE_S)
    desk.submit(ask_total(6))
    desk.accept("1.1")
    desk.report("a", others=5)
    assert moved(desk, PATIENCE_S) == [("1.2", "b", 6)]


def test_no_file_is_brought_for_a_move() -> None:
    """c has room but not the file; where it is on its way for others, it has arrived in time or not at all."""
    desk = Desk({"a": 10, "b": 9, "c": 8}, files={"f": (50.0, ("a",))}, queue_patience_s=PATIENCE_S)
    desk.submit(ask(part(6, None, "f")))
    desk.accept("1.1")
    desk.report("a", others=5)
    assert moved(desk, 10 * PATIENCE_S) == []
    assert desk.transfers() == []


def test_without_a_patience_it_waits_for_the_end_of_the_barrier() -> None:
    desk = Desk({"a": 10, "b": 9}, queue_patience_s=None, barrier_timeout_s=100.0)
    desk.submit(ask(6))
    desk.accept("1.1")
    desk.report("a", others=5)
    assert moved(desk, 99.9) == []


def test_a_job_that_is_cancelled_while_it_waits_leaves_nothing(waiting: Desk) -> None:
    waiting.cancel(1)
    waiting.end("1.1", "1.2", outcome=Outcome.ABORTED)
    assert waiting.wait_until(100.0) == []
    assert_clean(waiting.ledger)
