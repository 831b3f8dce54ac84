"""What a failure does to its job: aborted as a whole, back to its own queue, never running twice at once."""

from __future__ import annotations

import pytest

from koala.core import JobState
from koala.model.facts import JobEnded, JobPlaced, JobRequeued
from koala.model.messages import AbortComponent, JobOutcome, Outcome, StartComponent
from koala.words.standing import meaning
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind, part

OF_THE_SITE = [Outcome.SITE_FAILED, Outcome.ABORTED, Outcome.ABSENT, Outcome.REFUSED]


@pytest.mark.parametrize("outcome", [*OF_THE_SITE, Outcome.FAILED])
@pytest.mark.parametrize("high", [True, False])
def test_a_failed_component_aborts_the_whole_job_which_returns_to_its_own_queue(outcome: Outcome, high: bool) -> None:
    """running -> unwinding -> waiting"""
    driver = CoreDriver({"a": 10, "b": 10, "c": 10})
    driver.run(ask(part(9, "a"), part(9, "b"), part(9, "c"), high=high))
    driver.wait_until(10.0)
    commands = driver.end("1.2", outcome=outcome, reason="a node died", exit_code=7)
    assert [abort.token for abort in kind(commands, AbortComponent)] == ["1.1", "1.3"]
    (requeued,) = kind(commands, JobRequeued)
    assert requeued.reason.startswith("component 1 failed on b")
    assert driver.state(1) is JobState.UNWINDING
    driver.end("1.3", outcome=Outcome.ABORTED)
    assert driver.state(1) is JobState.UNWINDING
    driver.end("1.1", outcome=Outcome.ABORTED)
    assert driver.state(1) is JobState.WAITING
    assert [job.id for job in (driver.ledger.high if high else driver.ledger.low)] == [1]
    assert (driver.job(1).failures, driver.job(1).claim_fraction) == (1, 0.625)
    assert_ledger_balances(driver.ledger)


def test_a_job_that_ran_is_not_started_again_before_every_site_has_let_go_of_it() -> None:
    """running -> unwinding -> waiting -> placed -> starting, though there is room for it all the time"""
    driver = CoreDriver({"a": 100, "b": 100}, scan_interval_s=0.0)
    driver.run(ask(part(9, "a"), part(9, "b")))
    driver.end("1.2", outcome=Outcome.SITE_FAILED)
    driver.wait_until(1000.0)
    driver.report("a", others=1)
    driver.report("a", others=0)
    driver.settle()
    assert driver.state(1) is JobState.UNWINDING
    assert len(driver.all(StartComponent)) == 2
    driver.end("1.1", outcome=Outcome.ABORTED)
    commands = driver.settle()
    assert [start.token for start in kind(commands, StartComponent)] == ["1.3", "1.4"]


def test_before_the_barrier_a_failed_job_returns_at_once_and_its_processors_stay_counted() -> None:
    """starting -> waiting: what is aborted can not start the application any more"""
    driver = CoreDriver({"a": 10, "b": 10})
    driver.submit(ask(part(9, "a"), part(8, "b")))
    driver.ready("1.1")
    driver.wait_until(5.0)
    commands = driver.end("1.2", outcome=Outcome.SITE_FAILED)
    assert [abort.token for abort in kind(commands, AbortComponent)] == ["1.1"]
    assert driver.state(1) is JobState.WAITING
    assert (driver.idle("a"), driver.idle("b")) == (1, 10)
    driver.end("1.1", outcome=Outcome.ABORTED)
    assert driver.idle("a") == 10
    assert_ledger_balances(driver.ledger)


@pytest.mark.parametrize("hold_placed", [True, False])
@pytest.mark.parametrize("outcome", [Outcome.SITE_FAILED, Outcome.FAILED, Outcome.REFUSED, Outcome.TIMED_OUT])
@pytest.mark.parametrize("at", [76.0, 101.0])
def test_the_books_balance_after_a_failure_of_a_half_claimed_job(
    outcome: Outcome, at: float, hold_placed: bool
) -> None:
    """claiming -> waiting or failed"""
    driver = CoreDriver({"a": 10, "b": 10, "store": 1}, files={"f": (100.0, ("store",))}, hold_placed=hold_placed)
    driver.submit(ask(part(4, "a", "f"), part(5, "a", "f"), part(10, "b", "f")))
    driver.report("b", others=1 if at < 100.0 else 0)
    driver.wait_until(at)
    driver.ready("1.1")
    driver.end("1.1", outcome=outcome)
    assert_ledger_balances(driver.ledger)
    driver.cancel(1)
    driver.end("1.2", "1.3", outcome=Outcome.ABORTED)
    assert_clean(driver.ledger)
    assert driver.idle("a") == 10


def test_a_returned_job_goes_to_the_tail_of_its_queue() -> None:
    driver = CoreDriver({"a": 10})
    driver.run(ask(9))
    driver.submit(ask(9))
    driver.end("1.1", outcome=Outcome.SITE_FAILED)
    assert [job.id for job in driver.ledger.low] == [2, 1]


def test_a_job_whose_other_components_are_done_already_returns_at_once() -> None:
    """running -> unwinding -> waiting, and every component runs again"""
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0)
    driver.run(ask(part(9, "a"), part(9, "b")))
    driver.end("1.1")
    driver.pass_time(1.0)
    driver.end("1.2", outcome=Outcome.SITE_FAILED)
    assert [start.part for start in kind(driver.settle(), StartComponent)] == [0, 1]


def test_failures_of_the_application_are_limited_by_restarts_max() -> None:
    """running -> unwinding -> waiting -> ... -> running -> failed"""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0)
    driver.submit(ask(9, restarts_max=2))
    for _ in range(3):
        driver.ready(*driver.tokens(1))
        driver.pass_time(1.0)
        driver.end(*driver.tokens(1), outcome=Outcome.FAILED, exit_code=3)
        driver.settle()
    record = driver.ended(1)
    assert (record.outcome, record.failures) == (JobOutcome.FAILED, 3)
    assert "exit code 3" in record.reason
    assert "2 restarts" in record.reason
    assert len(driver.all(JobPlaced)) == 3
    assert_clean(driver.ledger)


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.TIMED_OUT, Outcome.SITE_FAILED])
def test_what_a_component_wrote_last_to_its_standard_error_stands_in_the_reason_and_in_the_story(
    outcome: Outcome,
) -> None:
    driver = CoreDriver({"a": 10}, restarts_max=0, site_restarts_max=0)
    driver.run(ask(9))
    driver.end("1.1", outcome=outcome, exit_code=127, stderr_line="./solver: not found")
    assert driver.ended(1).reason.endswith("; stderr: ./solver: not found")
    explained = driver.scheduler.explain(1)
    assert explained is not None
    assert meaning(explained) == driver.ended(1).reason
    assert "; stderr: ./solver: not found" in driver.story(1)[-1]


def test_with_no_restarts_the_first_failure_of_the_application_ends_the_job_everywhere() -> None:
    """running -> failed"""
    driver = CoreDriver({"a": 10, "b": 10}, restarts_max=0)
    driver.run(ask(part(9, "a"), part(9, "b")))
    commands = driver.end("1.1", outcome=Outcome.FAILED)
    assert [abort.token for abort in kind(commands, AbortComponent)] == ["1.2"]
    assert driver.ended(1).outcome is JobOutcome.FAILED
    driver.end("1.2", outcome=Outcome.ABORTED)
    assert_clean(driver.ledger)


def test_failures_of_sites_do_not_use_up_restarts() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, restarts_max=0, error_threshold=100)
    driver.submit(ask(9))
    for _ in range(4):
        driver.ready(*driver.tokens(1))
        driver.pass_time(1.0)
        driver.end(*driver.tokens(1), outcome=Outcome.SITE_FAILED)
        driver.settle()
    assert driver.state(1) is JobState.STARTING
    assert driver.job(1).failures == 4


def test_a_job_that_outlives_its_walltime_fails() -> None:
    """running -> failed"""
    driver = CoreDriver({"a": 10, "b": 10})
    driver.run(ask(part(9, "a"), part(9, "b"), walltime_s=60.0))
    commands = driver.end("1.1", outcome=Outcome.TIMED_OUT)
    (record,) = kind(commands, JobEnded)
    assert (record.outcome, record.reason) == (JobOutcome.FAILED, "it ran longer than its walltime on a")
    assert [abort.token for abort in kind(commands, AbortComponent)] == ["1.2"]
    assert [site.errors for site in driver.ledger.sites] == [0, 0]
    driver.end("1.2", outcome=Outcome.TIMED_OUT)
    assert_clean(driver.ledger)


def test_tokens_are_never_used_twice() -> None:
    driver = CoreDriver({"a": 10, "b": 10}, scan_interval_s=0.0, error_threshold=100)
    driver.submit(ask(9, 9))
    for _ in range(5):
        driver.pass_time(1.0)
        driver.end(driver.tokens(1)[0], outcome=Outcome.SITE_FAILED)
        driver.settle()
        driver.end(*list(driver.ledger.claims), outcome=Outcome.ABORTED)
        driver.settle()
    tokens = [start.token for start in driver.all(StartComponent)]
    assert len(set(tokens)) == len(tokens) > 6


def test_a_component_that_ends_before_the_barrier_opened_has_not_done_its_work() -> None:
    """starting -> waiting"""
    driver = CoreDriver({"a": 10})
    driver.submit(ask(9))
    driver.ready()
    driver.end("1.1", outcome=Outcome.DONE)
    assert driver.state(1) is JobState.WAITING
    assert_ledger_balances(driver.ledger)
