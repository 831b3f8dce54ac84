"""Cancelling: from every state, and afterwards nothing of the job is left anywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koala.core import JobState
from koala.model.messages import AbortComponent, CancelTransfer, JobEnded, JobOutcome, Outcome
from tests.support.core_driver import Desk, ask, assert_clean, assert_ledger_balances, kind, part, without_wakes


def waiting() -> Desk:
    desk = Desk({"a": 10})
    desk.report("a", others=1)
    desk.submit(ask(10))
    return desk


def placed() -> Desk:
    desk = Desk({"a": 10, "store": 1}, files={"f": (100.0, ("store",))})
    desk.submit(ask(part(10, "a", "f")))
    return desk


def held() -> Desk:
    desk = Desk({"a": 10, "store": 1}, files={"f": (100.0, ("store",))}, hold_placed=True)
    desk.submit(ask(part(10, "a", "f")))
    return desk


def claiming() -> Desk:
    desk = Desk({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))})
    desk.submit(ask(part(5, "a", "f"), part(10, "b", "f"), high=True))
    desk.report("b", others=1)
    desk.wait_until(75.0)
    return desk


def starting() -> Desk:
    desk = Desk({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))})
    desk.submit(ask(part(5, "a", "f"), part(10, "b", "f")))
    desk.wait_until(75.0)
    desk.ready("1.1")
    return desk


def running() -> Desk:
    desk = starting()
    for transfer in desk.transfers():
        desk.bring(transfer)
    desk.ready("1.2")
    return desk


def unwinding() -> Desk:
    desk = running()
    desk.wait_until(80.0)
    desk.end("1.1", outcome=Outcome.SITE_FAILED)
    return desk


def resting() -> Desk:
    desk = Desk({"a": 10}, scan_interval_s=0.0)
    desk.submit(ask(10))
    desk.end("1.1", outcome=Outcome.REFUSED)
    return desk


STATES = {
    waiting: JobState.WAITING,
    placed: JobState.PLACED,
    held: JobState.PLACED,
    claiming: JobState.CLAIMING,
    starting: JobState.STARTING,
    running: JobState.RUNNING,
    unwinding: JobState.UNWINDING,
    resting: JobState.WAITING,
}


@pytest.mark.parametrize("arrange", STATES, ids=lambda arrange: str(arrange.__name__))
def test_a_cancelled_job_leaves_nothing_behind_in_whatever_state_it_was(arrange: Callable[[], Desk]) -> None:
    """every living state -> cancelled"""
    desk = arrange()
    assert desk.state(1) is STATES[arrange]
    living = set(desk.ledger.claims)
    commands = desk.cancel(1)
    (record,) = kind(commands, JobEnded)
    assert (record.outcome, record.reason, record.ended_at) == (JobOutcome.CANCELLED, "cancelled", desk.now)
    assert desk.ledger.jobs == {}
    assert {abort.token for abort in desk.all(AbortComponent)} >= living
    assert {cancel.transfer for cancel in desk.all(CancelTransfer)} == set(desk.transfers())
    assert_ledger_balances(desk.ledger)
    for token in living:
        desk.end(token, outcome=Outcome.ABORTED)
    assert_clean(desk.ledger)
    assert without_wakes(desk.wait_until(desk.now + 1e5)) == []


@pytest.mark.parametrize("arrange", STATES, ids=lambda arrange: str(arrange.__name__))
def test_cancelling_twice_is_cancelling_once(arrange: Callable[[], Desk]) -> None:
    desk = arrange()
    desk.cancel(1)
    assert without_wakes(desk.cancel(1)) == []


def test_cancelling_a_job_that_never_was_changes_nothing() -> None:
    desk = Desk({"a": 10})
    desk.submit(ask(5))
    assert without_wakes(desk.cancel(99)) == []
    assert desk.state(1) is JobState.STARTING


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.TIMED_OUT])
def test_cancelling_an_ended_job_changes_nothing(outcome: Outcome) -> None:
    desk = Desk({"a": 10})
    desk.run(ask(5))
    desk.end("1.1", outcome=outcome)
    before = desk.state(1)
    assert without_wakes(desk.cancel(1)) == []
    assert desk.state(1) is before


def test_the_places_of_a_cancelled_job_stay_taken_until_the_sites_confirm() -> None:
    desk = Desk({"a": 10}, scan_interval_s=0.0)
    desk.run(ask(8))
    desk.submit(ask(8))
    desk.cancel(1)
    desk.settle()
    assert (desk.idle("a"), desk.state(2)) == (2, JobState.WAITING)
    desk.end("1.1", outcome=Outcome.ABORTED)
    desk.settle()
    assert desk.state(2) is JobState.STARTING


def test_a_cancelled_job_that_waited_gives_its_place_in_line_to_the_next() -> None:
    desk = Desk({"a": 10})
    desk.run(ask(8))
    for _ in range(3):
        desk.submit(ask(5))
    desk.cancel(2)
    explanation = desk.scheduler.explain(3)
    assert explanation is not None
    assert explanation.place_in_line == 1


def test_the_record_of_a_cancelled_run_says_when_it_started_and_where() -> None:
    desk = running()
    desk.wait_until(90.0)
    desk.cancel(1)
    record = desk.ended(1)
    assert (record.placed_at, record.started_at, record.ended_at) == (0.0, 75.0, 90.0)
    assert record.places == (("a", 5), ("b", 10))


def test_the_tries_of_a_cancelled_waiting_job_are_counted_to_the_end() -> None:
    desk = waiting()
    desk.wait_until(25.0)
    desk.cancel(1)
    assert desk.ended(1).placement_tries == 1 + len([12, 24])
