"""With an interval of 0, a job that loses its places in the instant in which it got them rests before it is tried."""

from __future__ import annotations

from itertools import pairwise

from koala.core import JobState
from koala.core.state.ledger import REST_S, REST_S_MAX
from koala.model.facts import JobEnded, JobPlaced
from koala.model.messages import Outcome
from tests.support.core_driver import CoreDriver, ask, assert_clean, assert_ledger_balances, kind


def refuse_at_once(driver: CoreDriver, times: int) -> list[float]:
    """The site refuses every start in the instant of the claim; when the job was placed each time."""
    driver.submit(ask(10))
    placed = [driver.now]
    for _ in range(times):
        driver.end(*driver.tokens(1), outcome=Outcome.REFUSED)
        while driver.state(1) is JobState.WAITING:
            driver.wait_until(driver.now + 0.5)
        placed.append(driver.now)
    return placed


def test_each_rest_is_twice_as_long_up_to_a_limit() -> None:
    """starting -> waiting -> starting -> ..."""
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=1000)
    placed = refuse_at_once(driver, 9)
    rests = [after - before for before, after in pairwise(placed)]
    assert rests == [min(REST_S * 2**number, REST_S_MAX) for number in range(9)]
    assert rests[-1] == REST_S_MAX


def test_a_job_that_has_run_rests_shortly_again() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=1000)
    refuse_at_once(driver, 3)
    driver.ready(*driver.tokens(1))
    driver.end(*driver.tokens(1), outcome=Outcome.SITE_FAILED)
    assert kind(driver.pass_time(REST_S), JobPlaced) != []


def test_a_resting_job_waits_and_is_not_tried() -> None:
    driver = CoreDriver({"a": 10}, scan_interval_s=0.0, error_threshold=1000)
    driver.submit(ask(10))
    driver.end("1.1", outcome=Outcome.REFUSED)
    driver.report("a", others=1)
    driver.report("a", others=0)
    driver.settle()
    assert driver.state(1) is JobState.WAITING
    explanation = driver.scheduler.explain(1)
    assert explanation is not None
    assert (explanation.placement_tries, explanation.place_in_line) == (1, 1)
    assert_ledger_balances(driver.ledger)


def test_the_scans_during_a_rest_are_not_tries_of_the_resting_job() -> None:
    """Others wait and are scanned while the job rests."""
    driver = CoreDriver({"a": 10, "b": 5}, scan_interval_s=0.0, error_threshold=1000)
    driver.submit(ask(10))
    driver.submit(ask(8))
    for others in (1, 0, 1, 0, 1):
        driver.report("b", others=others)
        driver.settle()
    driver.pass_time(1.0)
    driver.cancel(1)
    driver.end("1.1", outcome=Outcome.ABORTED)
    driver.settle()
    tries_before = driver.job(2).placement_tries
    driver.end(*driver.tokens(2), outcome=Outcome.REFUSED)
    explanation = driver.scheduler.explain(2)
    assert explanation is not None
    assert explanation.placement_tries == tries_before
    driver.cancel(2)
    (record,) = [record for record in driver.all(JobEnded) if record.job == 2]
    assert record.placement_tries == tries_before
    assert_clean(driver.ledger)
