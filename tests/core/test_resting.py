"""With an interval of 0, a job that loses its places in the instant in which it got them rests before it is tried."""

from __future__ import annotations

from itertools import pairwise

from koala.core import JobState
from koala.core.state.ledger import REST_S, REST_S_MAX
from koala.model.messages import JobEnded, JobPlaced, Outcome
from tests.support.core_driver import Desk, ask, assert_clean, assert_ledger_balances, kind


def refuse_at_once(desk: Desk, times: int) -> list[float]:
    """The site refuses every start in the instant of the claim; when the job was placed each time."""
    desk.submit(ask(10))
    placed = [desk.now]
    for _ in range(times):
        desk.end(*desk.tokens(1), outcome=Outcome.REFUSED)
        while desk.state(1) is JobState.WAITING:
            desk.wait_until(desk.now + 0.5)
        placed.append(desk.now)
    return placed


def test_each_rest_is_twice_as_long_up_to_a_limit() -> None:
    """starting -> waiting -> starting -> ..."""
    desk = Desk({"a": 10}, scan_interval_s=0.0, error_threshold=1000)
    placed = refuse_at_once(desk, 9)
    rests = [after - before for before, after in pairwise(placed)]
    assert rests == [min(REST_S * 2**number, REST_S_MAX) for number in range(9)]
    assert rests[-1] == REST_S_MAX


def test_a_job_that_has_run_rests_shortly_again() -> None:
    desk = Desk({"a": 10}, scan_interval_s=0.0, error_threshold=1000)
    refuse_at_once(desk, 3)
    desk.ready(*desk.tokens(1))
    desk.end(*desk.tokens(1), outcome=Outcome.SITE_FAILED)
    assert kind(desk.pass_time(REST_S), JobPlaced) != []


def test_a_resting_job_waits_and_is_not_tried() -> None:
    desk = Desk({"a": 10}, scan_interval_s=0.0, error_threshold=1000)
    desk.submit(ask(10))
    desk.end("1.1", outcome=Outcome.REFUSED)
    desk.report("a", others=1)
    desk.report("a", others=0)
    desk.settle()
    assert desk.state(1) is JobState.WAITING
    explanation = desk.scheduler.explain(1)
    assert explanation is not None
    assert (explanation.placement_tries, explanation.place_in_line) == (1, 1)
    assert_ledger_balances(desk.ledger)


def test_the_scans_during_a_rest_are_not_tries_of_the_resting_job() -> None:
    """Others wait and are scanned while the job rests."""
    desk = Desk({"a": 10, "b": 5}, scan_interval_s=0.0, error_threshold=1000)
    desk.submit(ask(10))
    desk.submit(ask(8))
    for others in (1, 0, 1, 0, 1):
        desk.report("b", others=others)
        desk.settle()
    desk.pass_time(1.0)
    desk.cancel(1)
    desk.end("1.1", outcome=Outcome.ABORTED)
    desk.settle()
    tries_before = desk.job(2).placement_tries
    desk.end(*desk.tokens(2), outcome=Outcome.REFUSED)
    explanation = desk.scheduler.explain(2)
    assert explanation is not None
    assert explanation.placement_tries == tries_before
    desk.cancel(2)
    (record,) = [record for record in desk.all(JobEnded) if record.job == 2]
    assert record.placement_tries == tries_before
    assert_clean(desk.ledger)
