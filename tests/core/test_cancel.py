"""Cancelling: from every state, and afterwards nothing of the job is left anywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from koala.core import JobState
from koala.model.facts import JobEnded
from koala.model.messages import AbortComponent, CancelTransfer, JobOutcome, Outcome
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part


def waiting() -> CoreDriver:
    driver = CoreDriver({"a": 10})
    driver.report("a", others=1)
    driver.submit(ask(10))
    return driver


def placed() -> CoreDriver:
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(10, "a", "f")))
    return driver


def held() -> CoreDriver:
    driver = CoreDriver({"a": 10, "store": 1}, files={"f": (100.0, ("store",))}, hold_placed=True)
    driver.submit(ask(part(10, "a", "f")))
    return driver


def claiming() -> CoreDriver:
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(5, "a", "f"), part(10, "b", "f"), high=True))
    driver.report("b", others=1)
    driver.wait_until(75.0)
    return driver


def starting() -> CoreDriver:
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))})
    driver.submit(ask(part(5, "a", "f"), part(10, "b", "f")))
    driver.wait_until(75.0)
    driver.ready("1.1")
    return driver


def running() -> CoreDriver:
    driver = starting()
    for transfer in driver.transfers():
        driver.end_transfer(transfer)
    driver.ready("1.2")
    return driver


def unwinding() -> CoreDriver:
    driver = running()
    driver.wait_until(80.0)
    driver.end("1.1", outcome=Outcome.SITE_FAILED)
    return driver


def resting() -> CoreDriver:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(10))
    driver.end("1.1", outcome=Outcome.REFUSED)
    return driver


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
def test_a_cancelled_job_leaves_nothing_behind_in_whatever_state_it_was(arrange: Callable[[], CoreDriver]) -> None:
    """every living state -> cancelled"""
    driver = arrange()
    assert driver.state(1) is STATES[arrange]
    living = set(driver.ledger.claims)
    commands = driver.cancel(1)
    (record,) = kind(commands, JobEnded)
    assert (record.outcome, record.reason, record.ended_at) == (JobOutcome.CANCELLED, "cancelled", driver.now)
    assert driver.ledger.jobs == {}
    assert {abort.token for abort in driver.all(AbortComponent)} >= living
    assert {cancel.transfer for cancel in driver.all(CancelTransfer)} == set(driver.transfers())
    assert_ledger_balances(driver.ledger)
    for token in living:
        driver.end(token, outcome=Outcome.ABORTED)
    assert_clean(driver.ledger)
    assert (driver.wait_until(driver.now + 1e5)) == []


@pytest.mark.parametrize("arrange", STATES, ids=lambda arrange: str(arrange.__name__))
def test_cancelling_twice_is_cancelling_once(arrange: Callable[[], CoreDriver]) -> None:
    driver = arrange()
    driver.cancel(1)
    assert driver.cancel(1) == []


def test_cancelling_a_job_that_never_was_changes_nothing() -> None:
    driver = CoreDriver({"a": 10})
    driver.submit(ask(5))
    assert driver.cancel(99) == []
    assert driver.state(1) is JobState.STARTING


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.TIMED_OUT])
def test_cancelling_an_ended_job_changes_nothing(outcome: Outcome) -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(5))
    driver.end("1.1", outcome=outcome)
    before = driver.state(1)
    assert driver.cancel(1) == []
    assert driver.state(1) is before


def test_the_places_of_a_cancelled_job_stay_taken_until_the_sites_confirm() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.run(ask(8))
    driver.submit(ask(8))
    driver.cancel(1)
    driver.settle()
    assert (driver.idle("a"), driver.state(2)) == (2, JobState.WAITING)
    driver.end("1.1", outcome=Outcome.ABORTED)
    driver.settle()
    assert driver.state(2) is JobState.STARTING


def test_a_cancelled_job_that_waited_gives_its_place_in_line_to_the_next() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(8))
    for _ in range(3):
        driver.submit(ask(5))
    driver.cancel(2)
    explanation = driver.scheduler.explain(3)
    assert explanation is not None
    assert explanation.place_in_line == 1


def test_the_record_of_a_cancelled_run_says_when_it_started_and_where() -> None:
    driver = running()
    driver.wait_until(90.0)
    driver.cancel(1)
    record = driver.ended(1)
    assert (record.placed_at, record.started_at, record.ended_at) == (0.0, 75.0, 90.0)
    assert record.places == (("a", 5), ("b", 10))


def test_the_tries_of_a_cancelled_waiting_job_are_counted_to_the_end() -> None:
    driver = waiting()
    driver.wait_until(25.0)
    driver.cancel(1)
    assert driver.ended(1).placement_tries == 1 + len([12, 24])
